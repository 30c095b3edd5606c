"""What a run that goes on must know of the rows before it: who had what, what there is, and what has learned."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch
from recsys_emb.encoding.entities import EntityTable
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.lookup.history import HistoryEmbedding
from recsys_emb.lookup.row_counts import row_counts
from recsys_emb.lookup.tables import FeatureTable, owner_of
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema.columns import History
from recsys_emb.schema.schema import Schema
from recsys_emb.training.rows import with_pooling_weights


@dataclass(frozen=True, eq=False)
class Past:
    """Earlier training rows, in short.

    Parameters
    ----------
    users, items
        int64 ``(N,)``, the pairs that stood in them, as indices: no negative is drawn among these.
    catalogue
        The items that they held, with their features: negatives are drawn among these too.
    counts
        By feature, how often each row of its table has been learned, ``(V,)``; rows beyond its end never.
    """

    users: Tensor
    items: Tensor
    catalogue: EntityTable
    counts: Mapping[str, Tensor] = field(default_factory=dict)

    def pooled(self, schema: Schema) -> Past:
        """Copy whose catalogue has pooling weights, as training rows have."""
        features = with_pooling_weights(self.catalogue.features, schema)
        return replace(self, catalogue=replace(self.catalogue, features=features))

    def to(self, device: torch.device | str) -> Past:
        """Copy to a device."""
        return replace(
            self, users=self.users.to(device), items=self.items.to(device), catalogue=self.catalogue.to(device)
        )


class _Held(NamedTuple):
    """Rows of a table that have learned before."""

    table: FeatureTable
    rows: Tensor  # int64 (R,)
    share: Tensor  # (R, 1), how far they go


class Experience:
    """Keeps rows that have learned much from being dragged along by a few new examples.

    A row that stood in n of the new examples and in m earlier ones goes n / (n + m) of the way that an epoch would
    take it; the mean over all examples moves as far when new ones are added. Rows that never learned go all the way,
    and an item that is only drawn as a negative does not move.

    Parameters
    ----------
    model
        What is trained.
    rows
        The new training rows.
    past
        The earlier ones.
    draws
        Whether items are drawn as negatives, so that any of them may be moved.
    """

    def __init__(self, model: MatrixFactorization, rows: Batch, past: Past, *, draws: bool) -> None:
        new = _by_owner(model.schema, row_counts(rows))
        old = _by_owner(model.schema, past.counts)
        items = {feature.name for feature in model.schema.item_side} if draws else set()
        self._held = [
            held
            for tables in (model.vectors, model.biases)
            for name in tables.names
            if (held := _held(tables, name, new, old, everywhere=name in items)) is not None
        ]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let experienced rows go only a part of the way that they are taken inside."""
        before = [_storage(one.table)[one.rows.to(_storage(one.table).device)] for one in self._held]
        yield
        with torch.no_grad():
            for one, start in zip(self._held, before, strict=True):
                storage = _storage(one.table)
                rows = one.rows.to(storage.device)
                storage[rows] = start + one.share.to(storage) * (storage[rows] - start)


def _by_owner(schema: Schema, counts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Add up the counts of features that share a table."""
    totals: dict[str, Tensor] = {}
    for name, count in counts.items():
        owner = owner_of(schema[name])
        before = totals.get(owner, count.new_zeros(0))
        size = max(len(before), len(count))
        totals[owner] = _padded(before, size) + _padded(count, size)
    return totals


def _held(
    tables: FeatureEmbedding, name: str, new: Mapping[str, Tensor], old: Mapping[str, Tensor], *, everywhere: bool
) -> _Held | None:
    """Tell which rows of a table have learned before and may be moved now; None where the table has no rows."""
    table, feature = tables.lookup(name), tables.schema[name]
    # What a history is made of has learned as often as the items themselves.
    owner = feature.item if isinstance(feature, History) else owner_of(feature)
    if table.storage() is None or owner not in old or owner not in new:
        return None
    added, known = (_padded(counts[owner].double().cpu(), table.num_embeddings) for counts in (new, old))
    everywhere = everywhere or isinstance(table, HistoryEmbedding)
    rows = ((known > 0) & ((added > 0) | everywhere)).nonzero()[:, 0]
    return _Held(table, rows, (added / (added + known))[rows].unsqueeze(1))


def _storage(table: FeatureTable) -> Tensor:
    storage = table.storage()
    assert storage is not None
    return storage


def _padded(counts: Tensor, size: int) -> Tensor:
    return torch.cat([counts, counts.new_zeros(max(0, size - len(counts)))])[:size]
