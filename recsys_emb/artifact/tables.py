"""Vocabularies as Parquet files and back."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from recsys_emb.errors import ArtifactError

_PLAIN = frozenset({"PLAIN", "RLE", "BIT_PACKED"})  # the latter two of whether a value is there
_MOST_BYTES, _MOST_ROWS = 1000, 64  # for each byte of a file


def write_table(table: pa.Table, path: Path) -> None:
    """Write a Parquet file to be read fast: whole columns, and no dictionary, since values are mostly distinct."""
    pq.write_table(table, path, compression="lz4", use_dictionary=False, row_group_size=max(1, len(table)))


def read_table(path: Path) -> pa.Table:
    """Read a Parquet file.

    Raises
    ------
    ArtifactError
        When it is none, is damaged, or unfolds to far more than its bytes.
    """
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            fits = _fits(file, path.stat().st_size)
            table = file.read() if fits else None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ArtifactError(f"{path.name}: expected a Parquet file, got {error}. Save the artifact again.") from error
    if table is None:
        raise ArtifactError(
            f"{path.name}: expected plain columns of about its own size, got a few bytes that stand for many. "
            "Save the artifact again."
        )
    return table


def _fits(file: pq.ParquetFile, size: int) -> bool:
    """Whether reading takes memory in proportion to a file's size: values lie plain, and repeat within reason."""
    metadata = file.metadata
    for number in range(metadata.num_row_groups):
        # Arrow ends the process when it is asked about columns that a damaged footer lacks; reading them, it raises.
        next(file.iter_batches(batch_size=1, row_groups=[number]), None)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(number) for group in groups for number in range(group.num_columns)]
    unfolded = sum(column.total_uncompressed_size for column in columns)
    plain = all(_PLAIN.issuperset(column.encodings) for column in columns)
    return plain and unfolded <= _MOST_BYTES * size and metadata.num_rows <= _MOST_ROWS * size
