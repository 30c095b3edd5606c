"""What training made of the rows of a model's tables: which learned nothing, and how long the others are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_emb.encoding.columns import FIRST_POSITION
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import DataError
from recsys_emb.lookup.base import IndexLookup
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.lookup.history import HistoryEmbedding
from recsys_emb.lookup.tables import FeatureTable
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema.columns import Feature, History, Numeric, Position
from recsys_emb.schema.schema import Schema
from recsys_emb.vocabulary.reserved import MISSING_INDEX, UNKNOWN_INDEX

Model: TypeAlias = MatrixFactorization | FeatureEmbedding
RowCounts: TypeAlias = Mapping[str, npt.ArrayLike]

# Rows looked up at a time.
_BLOCK = 2**16
_NOT_KNOWN = -1


class Band(NamedTuple):
    """Values that were seen about equally often: from ``low`` to ``high`` times.

    ``norm`` and ``deviation`` are the mean and the standard deviation of the lengths of their vectors.
    """

    low: int
    high: int
    values: int
    norm: float
    deviation: float


@dataclass(frozen=True, eq=False)
class TableRows:
    """All rows of one table of vectors and of the biases beside it.

    Parameters
    ----------
    names
        The features that read it.
    kind, embedding_dim, parameters, weight_bytes
        What it is and what it takes, biases included.
    reserved
        Which rows are ``"missing"`` and ``"unknown"``.
    values
        Which rows belong to values.
    occurrences
        int64 ``(V,)``, how often training looked each row up; -1 where that is not known. Of a `History`, how many
        users have the item.
    norms
        float64 ``(V,)``, the length of each vector; of the bias where there is no vector.
    learned
        bool ``(V,)``, whether a row's vector or bias is not zero.
    """

    names: tuple[str, ...]
    kind: str
    embedding_dim: int
    parameters: int
    weight_bytes: int
    reserved: Mapping[str, slice]
    values: slice
    occurrences: npt.NDArray[np.int64]
    norms: npt.NDArray[np.float64]
    learned: npt.NDArray[np.bool_]

    @property
    def never_updated(self) -> int:
        """How many rows of values are zero, or were never looked up in training."""
        return int((~self.learned[self.values] | (self.occurrences[self.values] == 0)).sum())

    def idle(self, kind: str) -> int:
        """How many of them are zero and, as far as is known, were never looked up; 0 where none are reserved."""
        rows = self.reserved.get(kind, slice(0))
        return int((~self.learned[rows] & (self.occurrences[rows] <= 0)).sum())

    def size(self, kind: str) -> int:
        """How many rows are reserved for a kind."""
        return len(self.learned[self.reserved[kind]])

    def blank(self, kind: str) -> int:
        """How many of them are zero: nothing was learned."""
        return int((~self.learned[self.reserved[kind]]).sum())

    def seen(self, kind: str) -> int | None:
        """How often training looked them up; None where that is not known."""
        counts = self.occurrences[self.reserved[kind]]
        return None if (counts == _NOT_KNOWN).any() else int(counts.sum())

    def bands(self) -> tuple[Band, ...]:
        """Group the values by how often training saw them, in doublings: never, once, 2 to 3 times, 4 to 7 times."""
        counts, norms = self.occurrences[self.values], self.norms[self.values]
        counts, norms = counts[counts != _NOT_KNOWN], norms[counts != _NOT_KNOWN]
        doublings = np.frexp(counts)[1]  # 0 for 0, 1 for 1, 2 for 2 and 3, 3 for 4 to 7
        return tuple(_band(doubling, norms[doublings == doubling]) for doubling in np.unique(doublings).tolist())


def _band(doubling: int, norms: npt.NDArray[np.float64]) -> Band:
    return Band(2**doubling // 2, 2**doubling - 1, len(norms), float(norms.mean()), float(norms.std()))


def table_rows(model: Model, encoder: FeatureEncoder, counts: RowCounts) -> tuple[TableRows, ...]:
    """Look at every table of a model, in the order of the features; features that share one are told together.

    Raises
    ------
    DataError
        When a table has another number of rows than the encoder says.
    """
    embeds = (model,) if isinstance(model, FeatureEmbedding) else (model.vectors, model.biases)
    tables = {
        name: [embed.lookup(name) for embed in embeds if name in embed.names]
        for name in model.schema.names
        if any(name in embed.names for embed in embeds)
    }
    sharing: dict[int, list[str]] = {}
    for name, own in tables.items():
        sharing.setdefault(id(own[0]), []).append(name)
    return tuple(
        _rows(model.schema, names, tables[names[0]], _occurrences(names, tables[names[0]][0], encoder, counts))
        for names in sharing.values()
    )


def _rows(
    schema: Schema, names: Sequence[str], tables: Sequence[FeatureTable], occurrences: npt.NDArray[np.int64]
) -> TableRows:
    first = tables[0]
    if first.num_embeddings != len(occurrences):
        raise DataError(
            f"model_report: expected a table of {len(occurrences)} rows for {names[0]!r}, as the encoder says, "
            f"got {first.num_embeddings}. Give the encoder that the model was made with, or call model.grow(encoder)."
        )
    measured = [_measured(table) for table in tables]
    parameters = [parameter for table in tables for parameter in table.parameters()]
    reserved, values = _layout(schema[names[0]], schema)
    return TableRows(
        names=tuple(names),
        kind=type(first).__name__,
        embedding_dim=first.embedding_dim,
        parameters=sum(parameter.numel() for parameter in parameters),
        weight_bytes=sum(parameter.numel() * parameter.element_size() for parameter in parameters),
        reserved=reserved,
        values=values,
        occurrences=occurrences,
        norms=measured[0][0],
        learned=np.logical_or.reduce([learned for _, learned in measured]),
    )


def _layout(feature: Feature, schema: Schema) -> tuple[dict[str, slice], slice]:
    """Tell the reserved rows of a feature from those of its values; a history reads none of the reserved ones."""
    if isinstance(feature, Numeric):
        return {"missing": slice(1, 2)}, slice(0, 1)
    if isinstance(feature, History):
        return {}, _layout(schema[feature.item], schema)[1]
    first = FIRST_POSITION if isinstance(feature, Position) else UNKNOWN_INDEX + feature.unknown.rows
    return {"missing": slice(MISSING_INDEX, UNKNOWN_INDEX), "unknown": slice(UNKNOWN_INDEX, first)}, slice(first, None)


def _occurrences(
    names: Sequence[str], table: FeatureTable, encoder: FeatureEncoder, counts: RowCounts
) -> npt.NDArray[np.int64]:
    """Take what is given; beyond it what the fit of the encoder counted, which for reserved rows is nothing."""
    found = np.full(encoder.num_embeddings(names[0]), _NOT_KNOWN, np.int64)
    if isinstance(table, HistoryEmbedding):
        return np.bincount(table.values.numpy(force=True), minlength=len(found))
    if names[0] in encoder.numeric_statistics:
        statistics = encoder.numeric_statistics[names[0]]
        found[:] = statistics.count, statistics.missing
    if names[0] in encoder.vocabularies:
        vocabulary = encoder.vocabularies[names[0]]
        found[vocabulary.first_index :] = vocabulary.counts
    given = [np.asarray(counts[name], np.int64)[: len(found)] for name in names if name in counts]
    if given:
        width = min(map(len, given))
        found[:width] = sum(one[:width] for one in given)
    return found


@torch.no_grad()
def _measured(table: FeatureTable) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Measure the length of every row, and whether it is anything but zero."""
    lengths, learned = zip(*map(_lengths, _blocks(table)), strict=True)
    return np.concatenate(lengths), np.concatenate(learned)


def _blocks(table: FeatureTable) -> Iterator[Tensor]:
    """Give all vectors, some at a time."""
    if not isinstance(table, IndexLookup):
        yield table.storage()
        return
    device = next(table.parameters()).device
    for start in range(0, table.num_embeddings, _BLOCK):
        yield table.rows(torch.arange(start, min(start + _BLOCK, table.num_embeddings), device=device))


def _lengths(vectors: Tensor) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    lengths = torch.linalg.vector_norm(vectors, dim=1, dtype=torch.float64)
    return lengths.numpy(force=True), (vectors != 0).any(dim=1).numpy(force=True)
