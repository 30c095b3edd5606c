"""Encoded rows to a shuffled, resumable stream of batches."""
