"""How folders of format version 1 held users and items: encoded rows in Parquet files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import torch.utils.dlpack
from torch import Tensor

from recsys_emb.artifact.memory import Known, checked, columns_of
from recsys_emb.artifact.tables import read_table
from recsys_emb.encoding.batch import Batch, Column, Jagged
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.entities import EntityTable
from recsys_emb.errors import ArtifactError, listed
from recsys_emb.vocabulary.vocabulary import whole

USERS, ITEMS, SEEN = "users.parquet", "items.parquet", "seen.parquet"
_REMEDY = "Save the artifact again."
_WEIGHTED = pa.struct([("index", pa.int64()), ("weight", pa.float32())])


def read_known(folder: Path, encoder: FeatureEncoder) -> Known:
    """Read what is known of users and items.

    Raises
    ------
    ArtifactError
        When a file is not as it must be.
    """
    users, items = (
        _read_entities(folder / file, limits) for file, limits in zip((USERS, ITEMS), columns_of(encoder), strict=True)
    )
    limits = {"items": encoder.num_embeddings(items.key)}
    seen = table_to_batch(read_table(folder / SEEN), limits, where=SEEN).lists("items")
    if len(seen) != len(users) + 1:
        raise ArtifactError(f"{SEEN}: expected {len(users) + 1} lists, as {USERS} has rows, got {len(seen)}. {_REMEDY}")
    return checked(Known(users, items, seen), encoder, where="*.parquet")


def table_to_batch(table: pa.Table, limits: Mapping[str, int], *, where: str) -> Batch:
    """Read encoded rows: a column per feature; int64, lists of int64 or of (index, weight), or pairs of float32.

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
    columns = {name: _from_arrow(whole(table[name]), f"{where}: {name}") for name in limits}
    for name, column in columns.items():
        indices = column.values if isinstance(column, Jagged) else column
        if indices.is_floating_point() or not len(indices):
            continue
        low, high = (int(end) for end in indices.aminmax())
        if not 0 <= low <= high < limits[name]:
            raise ArtifactError(
                f"{where}: {name}: expected indices in [0, {limits[name]}), got {low} to {high}. "
                "The file does not belong to these vocabularies."
            )
    return Batch(columns, limits=dict(limits))


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
    offsets = offsets if int(offsets[0]) == 0 else offsets - offsets[0]
    return Jagged(_tensor(indices), offsets, weights)


def _tensor(array: pa.Array) -> Tensor:
    """View numbers without nulls, which nobody else holds, as a tensor of their type."""
    return torch.utils.dlpack.from_dlpack(array)


def _read_entities(path: Path, limits: Mapping[str, int]) -> EntityTable:
    features = table_to_batch(read_table(path), limits, where=path.name)
    key = next(iter(limits))
    indices = features.indices(key)[:-1]
    if not len(features) or not bool((indices.diff() > 0).all()):
        raise ArtifactError(f"{path.name}: expected ascending indices and a stranger's row, got others. {_REMEDY}")
    return EntityTable(key, indices, features)
