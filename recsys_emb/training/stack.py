"""All tables of a model in one matrix, which its own parameters view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from recsys_emb.lookup.one_hot import OneHotProjection
from recsys_emb.lookup.tables import FeatureTable
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema.columns import Categorical, History
from recsys_emb.training.objective import Defaults
from recsys_emb.vocabulary.reserved import UNKNOWN_INDEX

Floats: TypeAlias = npt.NDArray[np.float32]


class Stack:
    """Feature after feature, the rows of a model's tables; kernels write them and the model sees it at once.

    Parameters
    ----------
    model
        Its parameters are copied once and from then on are views of `vectors` and `biases`.

    Attributes
    ----------
    vectors : numpy.ndarray
        float32 ``(V, D)``; zeros where a feature has a bias alone.
    biases : numpy.ndarray
        float32 ``(V,)``.
    first_rows : dict
        By feature name, the row at which its table starts; features that share a table share rows.
    num_rows : int
        V.
    """

    def __init__(self, model: MatrixFactorization) -> None:
        self._model = model
        self._names = (*model.user_names, *model.item_names)
        starts: dict[int, int] = {}
        self.num_rows = 0
        self.first_rows: dict[str, int] = {}
        for name in self._names:
            table = self._tables(name)[-1]
            if id(table) not in starts:
                starts[id(table)], self.num_rows = self.num_rows, self.num_rows + table.num_embeddings
            self.first_rows[name] = starts[id(table)]
        self.extend(0)

    def extend(self, spare: int) -> None:
        """Move to matrices with ``spare`` rows behind those of the tables, of zeros; the old ones are out of use."""
        self.vectors: Floats = np.zeros((self.num_rows + spare, self._model.vectors.embedding_dim), np.float32)
        self.biases: Floats = np.zeros(self.num_rows + spare, np.float32)
        for name in {first: name for name, first in self.first_rows.items()}.values():
            for table in self._tables(name):
                rows = self.rows_of(name)
                _adopt(table, self.vectors[rows] if self._has_vectors(table) else self.biases[rows, np.newaxis])

    def rows_of(self, name: str) -> slice:
        """Rows of the feature called ``name``."""
        first = self.first_rows[name]
        return slice(first, first + self._tables(name)[-1].num_embeddings)

    def parameters(self) -> Iterator[tuple[nn.Parameter, slice, bool]]:
        """Give every parameter once, with its rows and whether these are vectors."""
        for name in {first: name for name, first in self.first_rows.items()}.values():
            for table in self._tables(name):
                yield _weight(table), self.rows_of(name), self._has_vectors(table)

    def pace(self, settings: Defaults, occurrences: npt.NDArray[np.float64]) -> Floats:
        """Say how fast each row learns: float32 ``(V, 4)``, columns as in `recsys_emb.kernels.sequential`.

        A row that many users and items share would be dragged along by each of them in turn. All rows but those
        of the values of the user and the item therefore learn at ``rate · min(1, √(median / occurrences))``, with
        the median over the users' and items' own rows.
        """
        own = np.zeros(self.num_rows, bool)
        scale = np.ones(self.num_rows)
        learns = np.zeros((2, self.num_rows))
        for name in reversed(self._names):
            rows, feature = self.rows_of(name), self._model.schema[name]
            scale[rows] = feature.l2_scale
            for table in self._tables(name):
                learns[0 if self._has_vectors(table) else 1, rows] = _weight(table).requires_grad
            if isinstance(feature, History):
                own[rows] = True
            elif isinstance(feature, Categorical) and feature in (self._model.schema.user, self._model.schema.item):
                own[rows.start + UNKNOWN_INDEX + feature.unknown.rows : rows.stop] = True
        typical = _typical(occurrences[own]) or _typical(occurrences) or 1.0
        shared = np.sqrt(typical / np.maximum(occurrences, typical))
        rate = settings.learning_rate * np.where(own, 1, shared)
        l2, bias_l2 = settings.l2 * scale, settings.bias_l2 * scale
        return np.stack([rate * learns[0], l2, rate * learns[1], bias_l2], axis=1).astype(np.float32)

    def _tables(self, name: str) -> list[FeatureTable]:
        """Tables of a feature: vectors, biases, or both."""
        return [tables.lookup(name) for tables in (self._model.vectors, self._model.biases) if name in tables.names]

    def _has_vectors(self, table: FeatureTable) -> bool:
        return any(table is one for one in self._model.vectors.tables)


def _typical(occurrences: npt.NDArray[np.float64]) -> float:
    """Give the median over the rows that occur, 0 if none does."""
    occurring = occurrences[occurrences > 0]
    return float(np.median(occurring)) if len(occurring) else 0.0


def _weight(table: FeatureTable) -> nn.Parameter:
    return cast("nn.Parameter", table.weight)


def _adopt(table: FeatureTable, rows: Floats) -> None:
    """Move a table's parameter into ``rows``."""
    memory, storage = torch.from_numpy(rows), table.storage()
    if storage is not None:
        memory.copy_(storage)
        _weight(table).data = memory.T if isinstance(table, OneHotProjection) else memory
