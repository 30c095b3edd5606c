"""What is known of users and items as a safetensors file and back; what comes back is checked before it is looked up.

Features are numbered, since their names are free text: ``users.0`` is the first column of the users, an int64 index
per row or float32 pairs of a number and whether it is missing; ``users.1.offsets``, ``users.1.values`` and
``users.1.weights`` are lists. ``seen`` are lists too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from recsys_emb.artifact.tensors import read_tensors, write_tensors
from recsys_emb.encoding.batch import Batch, Column, Jagged
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.entities import EntityTable
from recsys_emb.errors import ArtifactError, listed
from recsys_emb.schema.columns import History

MEMORY = "memory.safetensors"
_REMEDY = "Save the artifact again."
# Rows that are checked at once.
_BLOCK = 2**20


class Known(NamedTuple):
    """What is known of users and items, and the lists of items seen by each row of the users."""

    users: EntityTable
    items: EntityTable
    seen: Jagged


def columns_of(encoder: FeatureEncoder) -> tuple[dict[str, int], dict[str, int]]:
    """Name the columns of the users, and of the items, in order, each with the rows of its table.

    Raises
    ------
    ArtifactError
        When the schema has no user or no item.
    """
    schema = encoder.to_state().schema
    if schema.user is None or schema.item is None:
        got = f"{schema.user!r} and {schema.item!r}"
        raise ArtifactError(f"schema.json: expected a user and an item, got {got}. {_REMEDY}")
    sides = (schema.user, *schema.user_features), (schema.item, *schema.item_features)
    # What users had travels with the weights.
    users, items = ([one.name for one in side if not isinstance(one, History)] for side in sides)
    sizes = {name: encoder.num_embeddings(name) for name in (*users, *items)}
    return {name: sizes[name] for name in users}, {name: sizes[name] for name in items}


def write_known(path: Path, known: Known) -> None:
    """Write it all into one file."""
    tensors = {**_laid_out("users", known.users), **_laid_out("items", known.items), **_parts("seen", known.seen)}
    write_tensors(path, tensors)


def read_known(path: Path, encoder: FeatureEncoder, *, mapped: bool) -> Known:
    """Read what `write_known` wrote; ``mapped`` lets the tensors be the file itself.

    Raises
    ------
    ArtifactError
        When the file is not as it must be.
    """
    saved, limits = _Saved(path, mapped=mapped), columns_of(encoder)
    users, items = (saved.entities(kind, side) for kind, side in zip(("users", "items"), limits, strict=True))
    seen = saved.lists("seen", len(users) + 1, encoder.num_embeddings(items.key))
    saved.finish()
    return checked(Known(users, items, seen), encoder)


def checked(known: Known, encoder: FeatureEncoder, *, where: str = MEMORY) -> Known:
    """Give what was read from ``where``, if it speaks of users and items that have a value, and of no others.

    Raises
    ------
    ArtifactError
        When a reserved row stands for somebody, or what was seen is none of the items.
    """
    for kind, entities in (("users", known.users), ("items", known.items)):
        first = encoder.vocabularies[entities.key].first_index
        if len(entities) and int(entities.indices[0]) < first:
            got = int(entities.indices[0])
            raise ArtifactError(f"{where}: {kind}: expected indices from {first} on, got {got}. {_REMEDY}")
    strange = _strange(known.seen.values, known.items, encoder)
    if len(strange):
        got = int(strange[0])
        raise ArtifactError(f"{where}: seen: expected indices of its items, got {got}. {_REMEDY}")
    return known


def _strange(seen: Tensor, items: EntityTable, encoder: FeatureEncoder) -> Tensor:
    """Give indices that are none of the items; one will do."""
    vocabulary = encoder.vocabularies[items.key]
    if len(items) < len(vocabulary):
        return seen[items.rows_of(seen) == len(items)]
    # Every value is an item, so there is no need to search for each.
    least = seen.min().reshape(1) if len(seen) else seen
    return least[least < vocabulary.first_index]


class _Saved:
    """The tensors of a file, taken out one by one and checked."""

    def __init__(self, path: Path, *, mapped: bool) -> None:
        self._where = path.name
        self._tensors, _ = read_tensors(path, mapped=mapped)

    def entities(self, kind: str, limits: Mapping[str, int]) -> EntityTable:
        """Take users or items out."""
        columns = {name: self._column(f"{kind}.{number}", limit) for number, (name, limit) in enumerate(limits.items())}
        key = next(iter(limits))
        indices = columns[key]
        same_length = len({len(column) for column in columns.values()}) == 1
        if isinstance(indices, Jagged) or not same_length or not len(indices) or not _ascends(indices[:-1], step=1):
            raise ArtifactError(
                f"{self._where}: {kind}: expected ascending indices and a stranger's row in columns of one length, "
                f"got others. {_REMEDY}"
            )
        return EntityTable(key, indices[:-1], Batch(columns, limits=dict(limits)))

    def lists(self, name: str, count: int, limit: int) -> Jagged:
        """Take ``count`` lists of indices below ``limit`` out."""
        found = self._column(name, limit)
        if not isinstance(found, Jagged) or len(found) != count:
            got = f"{len(found)} {'lists' if isinstance(found, Jagged) else 'rows'}"
            raise ArtifactError(f"{self._where}: {name}: expected {count} lists, one per user, got {got}. {_REMEDY}")
        return found

    def finish(self) -> None:
        """Refuse what nobody took out."""
        if self._tensors:
            got = listed(sorted(self._tensors))
            raise ArtifactError(f"{self._where}: expected no more than these columns, got {got} too. {_REMEDY}")

    def _column(self, name: str, limit: int) -> Column:
        column: Column
        if f"{name}.offsets" in self._tensors:
            offsets = self._take(f"{name}.offsets", torch.int64, 1)
            values = self._take(f"{name}.values", torch.int64, 1)
            weights = self._take(f"{name}.weights", torch.float32, 1) if f"{name}.weights" in self._tensors else None
            whole = len(offsets) > 0 and (int(offsets[0]), int(offsets[-1])) == (0, len(values))
            if not whole or not _ascends(offsets, step=0) or (weights is not None and len(weights) != len(values)):
                raise ArtifactError(f"{self._where}: {name}: expected lists end to end, got others. {_REMEDY}")
            column = Jagged(values, offsets, weights)
        elif name in self._tensors and self._tensors[name].is_floating_point():
            return self._take(name, torch.float32, 2)
        else:
            column = values = self._take(name, torch.int64, 1)
        low, high = (int(end) for end in values.aminmax()) if len(values) else (0, 0)
        if not 0 <= low <= high < max(limit, 1):
            raise ArtifactError(
                f"{self._where}: {name}: expected indices in [0, {limit}), got {low} to {high}. "
                "The file does not belong to these vocabularies."
            )
        return column

    def _take(self, name: str, dtype: torch.dtype, ndim: int) -> Tensor:
        tensor: Tensor | None = self._tensors.pop(name, None)
        if tensor is None or tensor.dtype != dtype or tensor.ndim != ndim or (ndim == 2 and tensor.shape[1] != 2):
            got = "nothing" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"
            raise ArtifactError(
                f"{self._where}: expected {name!r} to be {dtype} in {ndim} dimensions, got {got}. {_REMEDY}"
            )
        if tensor.is_floating_point() and tensor.numel() and not all(math.isfinite(end) for end in tensor.aminmax()):
            raise ArtifactError(f"{self._where}: {name}: expected finite numbers, got NaN or infinity. {_REMEDY}")
        return tensor


def _laid_out(kind: str, entities: EntityTable) -> dict[str, Tensor]:
    features = entities.features
    parts = [_parts(f"{kind}.{number}", features[name]) for number, name in enumerate(features)]
    return {name: tensor for part in parts for name, tensor in part.items()}


def _parts(name: str, column: Column) -> dict[str, Tensor]:
    if isinstance(column, Tensor):
        return {name: column}
    parts = {f"{name}.offsets": column.offsets, f"{name}.values": column.values}
    return parts if column.weights is None else {**parts, f"{name}.weights": column.weights}


def _ascends(numbers: Tensor, *, step: int) -> bool:
    """Whether each number is at least ``step`` above the one before; looked at in blocks, without a large copy."""
    blocks = (numbers[start : start + _BLOCK + 1] for start in range(0, len(numbers), _BLOCK))
    return all(bool((block.diff() >= step).all()) for block in blocks)
