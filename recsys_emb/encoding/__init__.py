"""A schema and its vocabularies over a stream of Arrow batches: a `Batch` of indices and numbers."""
