"""`Memory`: who is known, with which features, and what each user has seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch, Column, Jagged
from recsys_emb.encoding.columns import FIRST_POSITION
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.entities import EntityTable
from recsys_emb.errors import SchemaError
from recsys_emb.schema.columns import Categorical, Feature, History, MultiCategorical, Numeric, Position
from recsys_emb.schema.schema import Schema
from recsys_emb.vocabulary.reserved import MISSING_INDEX, UNKNOWN_INDEX


@dataclass(frozen=True, eq=False)
class Memory:
    """What serving remembers of the training rows, in indices.

    Rows whose user or item is missing or unknown tell nothing about anybody and are left out of both.

    Parameters
    ----------
    users, items
        The known users and items and their features. ``items`` is the catalogue.
    seen
        For each row of ``users``, and for the stranger at the end, the ascending indices of the items that stand
        with the user in any training row, whatever its label.
    """

    users: EntityTable
    items: EntityTable
    seen: Jagged

    @classmethod
    def from_batch(cls, batch: Batch, encoder: FeatureEncoder) -> Memory:
        """Remember training rows, encoded."""
        user, item = pair_of(encoder.schema)
        users = _entities(batch, user, encoder.schema.user_features)
        items = _entities(batch, item, encoder.schema.item_features)
        return cls(users, items, _seen(users, items, batch.indices(user.name), batch.indices(item.name)))

    def merged(self, later: Memory) -> Memory:
        """Remember more rows; what they say about features wins."""
        users, items = self.users.merged(later.users), self.items.merged(later.items)
        pairs = [torch.cat(both) for both in zip(self.pairs, later.pairs, strict=True)]
        return Memory(users, items, _seen(users, items, *pairs))

    @property
    def pairs(self) -> tuple[Tensor, Tensor]:
        """Who has seen what: indices of users and of items, int64 ``(S,)`` each."""
        return self.users.indices[self.seen.owners], self.seen.values

    def seen_by(self, users: Tensor) -> Jagged:
        """Give the item indices that each of ``users``, int64 ``(B,)``, has seen; none for strangers."""
        return self.seen.select(self.users.rows_of(users))

    def user_rows(self, users: Tensor, encoder: FeatureEncoder) -> Batch:
        """User side of a request: ``users`` int64 ``(B,)`` with their features; the context is missing."""
        context = {one.name: _missing(one, len(users)) for one in encoder.schema.context_features}
        return self.users.lookup(users).replacing(context)

    def item_rows(self, items: Tensor, encoder: FeatureEncoder) -> Batch:
        """Item side of a request: ``items`` int64 ``(B,)`` with their features, at the position of serving."""
        position = encoder.schema.position
        place = {} if position is None else {position.name: items.new_full(items.shape, served(position, encoder))}
        return self.items.lookup(items).replacing(place)


def pair_of(schema: Schema) -> tuple[Categorical, Categorical]:
    """Give the user and the item of a schema.

    Raises
    ------
    SchemaError
        When one of them is not declared, or it is no schema.
    """
    if not isinstance(schema, Schema):
        raise SchemaError(
            f"Recommender: expected a Schema, got a {type(schema).__name__}. Declare what the columns mean, "
            "Recommender(Schema(...)), and pass rows to fit."
        )
    if schema.user is None or schema.item is None:
        missing = "user" if schema.user is None else "item"
        raise SchemaError(
            f"Recommender: expected a schema with a user and an item, got {missing}=None. "
            f"Declare {missing}=Categorical(...)."
        )
    return schema.user, schema.item


def served(position: Position, encoder: FeatureEncoder) -> int:
    """Index of the position that recommendations are scored at: encoded like any other, or the missing row."""
    if position.serve_at is None:
        return MISSING_INDEX
    return FIRST_POSITION + position.serve_at if position.serve_at in encoder.seen_positions else UNKNOWN_INDEX


def _entities(batch: Batch, key: Categorical, features: Sequence[Feature]) -> EntityTable:
    names = [key.name, *(one.name for one in features if not isinstance(one, History))]
    return EntityTable.from_batch(batch, key.name, names, first_index=UNKNOWN_INDEX + key.unknown.rows)


def _seen(users: EntityTable, items: EntityTable, user_indices: Tensor, item_indices: Tensor) -> Jagged:
    """List the distinct known items by row of ``users``, from pairs of indices."""
    rows, known = users.rows_of(user_indices), items.rows_of(item_indices) < len(items)
    known &= rows < len(users)
    stride = int(item_indices.max()) + 1 if len(item_indices) else 1
    distinct = torch.unique(rows[known] * stride + item_indices[known])
    lengths = torch.bincount(distinct // stride, minlength=len(users) + 1)
    return Jagged(distinct % stride, torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]))


def _missing(feature: Feature, count: int) -> Column:
    """Give ``count`` missing values of a feature, encoded."""
    if isinstance(feature, MultiCategorical):
        weights = None if feature.weights is None else torch.empty(0)
        return Jagged(torch.empty(0, dtype=torch.int64), torch.zeros(count + 1, dtype=torch.int64), weights)
    if isinstance(feature, Numeric):
        return torch.tensor([[0.0, 1.0]]).repeat(count, 1)
    return torch.full((count,), MISSING_INDEX)
