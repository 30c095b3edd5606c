"""Any table to a stream of checked Arrow batches."""
