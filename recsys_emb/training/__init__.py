"""Fit a scorer: objectives, row-sparse optimizers, negatives, two solvers, one loop."""
