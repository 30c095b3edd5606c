"""Values to indices and back: identity, counts, and the append-only vocabulary."""
