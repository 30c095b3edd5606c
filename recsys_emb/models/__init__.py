"""Sums of lookups to scores, and the baselines beside them."""
