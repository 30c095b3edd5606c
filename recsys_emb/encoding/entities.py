"""`EntityTable`: what is known about each user, or each item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch, Column, Jagged
from recsys_emb.encoding.stacking import stack_rows
from recsys_emb.vocabulary.reserved import MISSING_INDEX, UNKNOWN_INDEX


@dataclass(frozen=True, eq=False)
class EntityTable:
    """Features of every user or item that occurred, to score pairs that did not.

    Parameters
    ----------
    key
        Name of the feature that identifies the entity.
    indices
        int64 ``(U,)``, its indices, ascending.
    features
        ``U + 1`` rows with the key and the features that describe it. The last row is the stranger, of whom
        nothing is known: missing values and empty lists.

    Examples
    --------
    >>> batch = Batch({"item_id": torch.tensor([5, 3, 5]), "brand": torch.tensor([3, 4, 6])})
    >>> items = EntityTable.from_batch(batch, "item_id", ["item_id", "brand"])
    >>> items.indices, items.lookup(torch.tensor([5, 2, 3]))["brand"]
    (tensor([3, 5]), tensor([6, 1, 4]))
    """

    key: str
    indices: Tensor
    features: Batch

    @classmethod
    def from_batch(
        cls, batch: Batch, key: str, names: Sequence[str], *, first_index: int = UNKNOWN_INDEX + 1
    ) -> EntityTable:
        """Collect the entities that occur in ``batch``; the last row of each wins.

        Parameters
        ----------
        batch
            Rows with the columns ``names``.
        key
            Which of them identifies the entity.
        names
            Columns to keep, ``key`` among them.
        first_index
            Index of the vocabulary's first value: rows below describe nobody in particular and are left out.
        """
        rows = batch.keeping(names)
        ordered, order = rows.indices(key).sort(stable=True)
        is_last = torch.cat([ordered.diff() > 0, ordered.new_ones(min(len(ordered), 1), dtype=torch.bool)])
        chosen = is_last & (ordered >= first_index)
        known = rows.select(order[chosen])
        described = Batch(known.columns, limits={name: known.limits[name] for name in names if name in known.limits})
        return cls(key, ordered[chosen], stack_rows([described, _stranger(described)]))

    def __len__(self) -> int:
        """Count the known entities, U."""
        return len(self.indices)

    def rows_of(self, indices: Tensor) -> Tensor:
        """Row of ``features`` that describes each of ``indices``, int64 ``(R,)``; U for strangers."""
        if not len(self):
            return torch.zeros_like(indices)
        places = torch.searchsorted(self.indices, indices.contiguous()).clamp(max=len(self) - 1)
        return torch.where(self.indices[places] == indices, places, len(self))

    def lookup(self, indices: Tensor) -> Batch:
        """Features of ``indices``, int64 ``(R,)``, in their order, repeats and strangers allowed.

        The key column is ``indices`` itself, so an unknown value keeps its bucket; it carries no limit, because
        nobody has checked it.
        """
        found = self.features.select(self.rows_of(indices))
        limits = {name: limit for name, limit in found.limits.items() if name != self.key}
        return Batch({**found.columns, self.key: indices}, limits=limits)

    def merged(self, other: EntityTable) -> EntityTable:
        """Know what either table knows; ``other`` is the later one and wins."""
        known = [table.features.select(torch.arange(len(table))) for table in (self, other)]
        return EntityTable.from_batch(stack_rows(known), self.key, self.features.names, first_index=0)

    def to(self, device: torch.device | str) -> EntityTable:
        """Copy to a device."""
        return EntityTable(self.key, self.indices.to(device), self.features.to(device))


def _stranger(like: Batch) -> Batch:
    """One row of which nothing is known, with the columns of ``like``."""
    return Batch({name: _unknown_column(column) for name, column in like.columns.items()}, limits=like.limits)


def _unknown_column(like: Column) -> Column:
    if isinstance(like, Jagged):
        weights = None if like.weights is None else like.weights[:0]
        return Jagged(like.values[:0], like.offsets.new_zeros(2), weights)
    if like.is_floating_point():
        return like.new_tensor([[0.0, 1.0]])
    return like.new_tensor([MISSING_INDEX])
