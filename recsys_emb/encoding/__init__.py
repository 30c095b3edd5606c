"""Any table to a stream of Arrow batches, to indices, to a `Batch`."""
