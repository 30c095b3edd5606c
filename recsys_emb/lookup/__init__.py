"""Interchangeable lookups: an index picks a vector."""
