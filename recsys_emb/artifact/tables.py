"""Vocabularies as Parquet files and back."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from recsys_emb.errors import ArtifactError


def write_table(table: pa.Table, path: Path) -> None:
    """Write a Parquet file to be read fast: whole columns, and no dictionary, since values are mostly distinct."""
    pq.write_table(table, path, compression="lz4", use_dictionary=False, row_group_size=max(1, len(table)))


def read_table(path: Path) -> pa.Table:
    """Read a Parquet file.

    Raises
    ------
    ArtifactError
        When it is none, or damaged.
    """
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            return file.read()
    except (pa.ArrowException, OSError) as error:
        raise ArtifactError(f"{path.name}: expected a Parquet file, got {error}. Save the artifact again.") from error
