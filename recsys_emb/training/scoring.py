"""Scores and their L2, by autograd: what `SequentialSGD` computes row by row, for whole batches on any device."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch
from recsys_emb.lookup.base import IndexLookup
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.lookup.history import HistoryEmbedding
from recsys_emb.lookup.pooling import pool
from recsys_emb.lookup.tables import pair_of
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema.columns import MultiCategorical
from recsys_emb.schema.schema import Schema
from recsys_emb.training.objective import Defaults


class Sum(NamedTuple):
    """The lookups of some features, summed."""

    vectors: Tensor  # (B, D)
    biases: Tensor  # (B,)
    penalty: Tensor  # (B,), L2 of every row that was looked up


class Sides(NamedTuple):
    """What a score is made of: the user's side, the position, and the item without it."""

    user: Sum
    place: Sum
    item: Sum

    @property
    def penalty(self) -> Tensor:
        """L2 of all three, ``(B,)``."""
        return self.user.penalty + self.place.penalty + self.item.penalty

    def own(self) -> Tensor:
        """Score rows with their own items: ``(B, 1)``."""
        return self.against(self.item.vectors.unsqueeze(1), self.item.biases.unsqueeze(1))

    def against(self, vectors: Tensor, biases: Tensor) -> Tensor:
        """Score rows with other items at the rows' positions: ``(B, n, D)`` and ``(B, n)`` of each, to ``(B, n)``."""
        shared = self.user.biases + self.place.biases + (self.user.vectors * self.place.vectors).sum(-1)
        return shared.unsqueeze(1) + biases + (vectors @ self.user.vectors.unsqueeze(-1)).squeeze(-1)

    def against_all(self, vectors: Tensor, biases: Tensor) -> Tensor:
        """Score rows with items that they share: ``(n, D)`` and ``(n,)``, to ``(B, n)``."""
        shared = self.user.biases + self.place.biases + (self.user.vectors * self.place.vectors).sum(-1)
        return shared.unsqueeze(1) + biases + self.user.vectors @ vectors.T


class Scorer:
    """Looks rows up in a model, once for the score and its L2.

    Parameters
    ----------
    model
        Any tables, on any device.
    settings
        Strength of L2.
    """

    def __init__(self, model: MatrixFactorization, settings: Defaults) -> None:
        self._model, self._settings = model, settings
        self._places = [name for name in model.item_names if model.schema.role_of(name) == "position"]
        self._items = [name for name in model.item_names if name not in self._places]

    @property
    def schema(self) -> Schema:
        """The model's."""
        return self._model.schema

    @property
    def device(self) -> torch.device:
        """The model's."""
        return self._model.scale.device

    def sides(self, rows: Batch) -> Sides:
        """Look up all features of rows with pooling weights."""
        return Sides(self._sum(rows, self._model.user_names), self._sum(rows, self._places), self.items(rows))

    def items(self, rows: Batch) -> Sum:
        """Look up the item and its features."""
        return self._sum(rows, self._items)

    def _sum(self, rows: Batch, names: Sequence[str]) -> Sum:
        model, nothing = self._model, self._model.scale.new_zeros(len(rows))
        vectors, biases, penalties = [], [], []
        for name in names:
            strength = model.schema[name].l2_scale / 2
            if name in model.vectors.names:
                found, squares = _looked_up(model.vectors, name, rows)
                vectors.append(found)
                penalties.append(strength * self._settings.l2 * squares)
            if name in model.biases.names:
                found, squares = _looked_up(model.biases, name, rows)
                biases.append(found[:, 0])
                penalties.append(strength * self._settings.bias_l2 * squares)
        no_vector = nothing.new_zeros(len(rows), model.vectors.embedding_dim)
        return Sum(_total(vectors, no_vector), _total(biases, nothing), _total(penalties, nothing))


def _total(parts: list[Tensor], nothing: Tensor) -> Tensor:
    return functools.reduce(torch.add, parts) if parts else nothing


def _looked_up(tables: FeatureEmbedding, name: str, rows: Batch) -> tuple[Tensor, Tensor]:
    """Give a feature's vectors ``(B, D)`` and Σ w²·|row|² over the table rows behind each, ``(B,)``."""
    feature, table = tables.schema[name], tables.lookup(name)
    if isinstance(table, HistoryEmbedding):
        return table.pooled(rows.indices(pair_of(tables.schema)[0].name))
    if not isinstance(feature, MultiCategorical):
        vectors = tables.vectors_of(name, rows)
        return vectors, vectors.square().sum(-1)
    lists = rows.lists(name)
    entries = cast("IndexLookup", table).rows(lists.values)
    squares = entries.square().sum(-1)
    if lists.weights is not None:
        squares = squares * lists.weights.square()
    return pool(entries, lists, feature.pooling), torch.segment_reduce(squares, "sum", offsets=lists.offsets)
