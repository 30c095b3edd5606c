"""Split, score, rank, judge."""
