"""Encoded rows as Parquet and back, bit for bit; what comes back is checked before anything looks it up."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch, Column, Jagged
from recsys_emb.errors import ArtifactError, listed

_WEIGHTED = pa.struct([("index", pa.int64()), ("weight", pa.float32())])


def write_table(table: pa.Table, path: Path) -> None:
    """Write a Parquet file. Text is compressed; its values are distinct, so a dictionary would only cost."""
    pq.write_table(table, path, compression="zstd", use_dictionary=False)


def read_table(path: Path) -> pa.Table:
    """Read a Parquet file.

    Raises
    ------
    ArtifactError
        When it is none, or damaged.
    """
    try:
        return pq.read_table(path, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise ArtifactError(f"{path.name}: expected a Parquet file, got {error}. Save the artifact again.") from error


def batch_to_table(batch: Batch) -> pa.Table:
    """Lay a batch out as one Arrow column per feature; label and weight are left out.

    Indices become int64, lists a list of int64 or of (index, weight), numbers a pair of float32.

    Examples
    --------
    >>> batch = Batch({"item": torch.tensor([3, 4]), "tags": Jagged.from_lists([[5, 6], []])})
    >>> batch_to_table(batch).to_pylist()
    [{'item': 3, 'tags': [5, 6]}, {'item': 4, 'tags': []}]
    """
    return pa.table([_to_arrow(batch[name]) for name in batch.names], names=list(batch.names))


def table_to_batch(table: pa.Table, limits: Mapping[str, int], *, where: str) -> Batch:
    """Read what `batch_to_table` laid out.

    Parameters
    ----------
    table
        One column per feature.
    limits
        By feature, in order, the number of its table rows: the columns must be these, every index below its limit.
    where
        Name of the file, for messages.

    Raises
    ------
    ArtifactError
        When columns, types or indices are others.
    """
    if table.column_names != list(limits):
        wanted, got = listed(limits), listed(table.column_names)
        raise ArtifactError(f"{where}: expected columns {wanted}, got {got}. Save the artifact again.")
    columns = {name: _from_arrow(table[name].combine_chunks(), f"{where}: {name}") for name in limits}
    for name, column in columns.items():
        indices = column.values if isinstance(column, Jagged) else column
        if not indices.is_floating_point() and len(indices) and not 0 <= indices.min() <= indices.max() < limits[name]:
            raise ArtifactError(
                f"{where}: {name}: expected indices in [0, {limits[name]}), got {int(indices.min())} to "
                f"{int(indices.max())}. The file does not belong to these vocabularies."
            )
    return Batch(columns, limits=dict(limits))


def _to_arrow(column: Column) -> pa.Array:
    if isinstance(column, Jagged):
        values: pa.Array = pa.array(column.values.cpu().numpy())
        if column.weights is not None:
            weights = pa.array(column.weights.cpu().numpy())
            values = pa.StructArray.from_arrays([values, weights], fields=list(_WEIGHTED))
        return pa.LargeListArray.from_arrays(pa.array(column.offsets.cpu().numpy()), values)
    if column.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(pa.array(column.cpu().numpy().reshape(-1)), column.shape[1])
    return pa.array(column.cpu().numpy())


def _from_arrow(array: pa.Array, where: str) -> Column:
    if _without_nulls(array):
        if array.type == pa.int64():
            return _tensor(array)
        if pa.types.is_fixed_size_list(array.type) and array.type.value_type == pa.float32():
            return _tensor(array.flatten()).reshape(-1, array.type.list_size)
        if pa.types.is_large_list(array.type) and array.type.value_type in (pa.int64(), _WEIGHTED):
            return _jagged(array)
    raise ArtifactError(
        f"{where}: expected int64, lists of int64 or pairs of float32 without nulls, got {array.type}. "
        "Save the artifact again."
    )


def _without_nulls(array: pa.Array) -> bool:
    lists = pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type)
    structs = pa.types.is_struct(array.type)
    inner = [array.flatten()] if lists else array.flatten() if structs else []
    return array.null_count == 0 and all(_without_nulls(one) for one in inner)


def _jagged(array: pa.Array) -> Jagged:
    offsets, values = _tensor(array.offsets), array.flatten()
    weighted = values.type == _WEIGHTED
    indices, weights = (values.field("index"), _tensor(values.field("weight"))) if weighted else (values, None)
    return Jagged(_tensor(indices), offsets - offsets[0], weights)


def _tensor(array: pa.Array) -> Tensor:
    """Copy numbers without nulls into a tensor of their type."""
    return torch.from_numpy(np.array(array.to_numpy(zero_copy_only=True)))
