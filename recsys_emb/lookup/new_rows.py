"""How rows begin that a grown table appends: what a model assumes of a value that it has not learned yet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from recsys_emb.errors import DataError
from recsys_emb.lookup.pretrained import PretrainedVectors
from recsys_emb.vocabulary.vocabulary import Vocabulary


class Newcomers(NamedTuple):
    """Rows of a table that begin.

    Parameters
    ----------
    rows
        int64 ``(N,)``, the rows.
    before
        int64 ``(N,)``, the row that the value of each has read until now, as an unknown one.
    known
        int64 ``(K,)``, the rows of the values that were known before.
    vocabulary
        What the rows stand for; None for positions.
    """

    rows: Tensor
    before: Tensor
    known: Tensor
    vocabulary: Vocabulary | None


Start: TypeAlias = tuple[Tensor, Tensor]
"""Rows to set, int64 ``(M,)``, and their vectors ``(M, D)``; other new rows stay as they are drawn at birth."""


class NewRows(Protocol):
    """A way to begin."""

    @property
    def of_biases(self) -> NewRows:
        """The way that goes with it in tables of biases."""

    def start(self, table: Tensor, new: Newcomers) -> Start:
        """Say how new rows begin beside those of a table as it was, ``(V, D)``."""


@dataclass(frozen=True)
class _Alike(ABC):
    """What most ways share: biases begin as vectors do."""

    @property
    def of_biases(self) -> NewRows:
        """The same."""
        return self

    @abstractmethod
    def start(self, table: Tensor, new: Newcomers) -> Start:
        """Say how new rows begin."""


@dataclass(frozen=True)
class DrawnRows(_Alike):
    """As at birth: vectors from N(0, init_std), biases zero. A new position keeps the row that it was born with."""

    def start(self, table: Tensor, new: Newcomers) -> Start:
        """Set nothing."""
        return new.rows[:0], table[:0]


@dataclass(frozen=True)
class ZeroRows(_Alike):
    """At zero: a new value adds nothing, and its scores come from its features alone."""

    def start(self, table: Tensor, new: Newcomers) -> Start:
        """Set zeros."""
        return new.rows, table.new_zeros(len(new.rows), table.shape[1])


@dataclass(frozen=True)
class MeanRows(_Alike):
    """At the mean of the rows known before: a new value is an average one; zero where none was known."""

    def start(self, table: Tensor, new: Newcomers) -> Start:
        """Set the mean everywhere."""
        mean = table[new.known].mean(0) if len(new.known) else table.new_zeros(table.shape[1])
        return new.rows, mean.expand(len(new.rows), -1)


@dataclass(frozen=True)
class InheritedRows(_Alike):
    """At what the unknown row knows: growing changes no score at all, not even those of the new values.

    With `UnknownBuckets` each value inherits its own bucket. It pays where unknown rows learn (``unknown_dropout``,
    ``min_count``); elsewhere they are zero, and this is `ZeroRows`.
    """

    def start(self, table: Tensor, new: Newcomers) -> Start:
        """Set what the values have read until now."""
        return new.rows, table[new.before]


@dataclass(frozen=True)
class PretrainedRows:
    """At vectors from elsewhere, by value; values without one, and biases, begin another way.

    Parameters
    ----------
    pretrained
        Keys and their vectors, as wide as the table. Old rows stay as they are, whatever it says of them.
    otherwise
        The other way.
    """

    pretrained: PretrainedVectors
    otherwise: NewRows = field(default_factory=DrawnRows)

    @property
    def of_biases(self) -> NewRows:
        """The other way."""
        return self.otherwise.of_biases

    def start(self, table: Tensor, new: Newcomers) -> Start:
        """Set vectors by key, the rest as `otherwise` says."""
        width = table.shape[1]
        if new.vocabulary is None or width != self.pretrained.embedding_dim:
            wanted = "positions, which have no keys" if new.vocabulary is None else f"a table of width {width}"
            raise DataError(
                f"{self.pretrained.name}: expected a feature with a vocabulary and a table of width "
                f"{self.pretrained.embedding_dim}, got {wanted}. Name the feature: new_rows={{'item_id': ...}}."
            )
        rows, vectors = (one.to(table.device) for one in self.pretrained.aligned(new.vocabulary))
        begins = torch.isin(rows, new.rows)
        other_rows, others = self.otherwise.start(table, new)
        rest = ~torch.isin(other_rows, rows)
        return torch.cat([rows[begins], other_rows[rest]]), torch.cat([vectors[begins].to(others), others[rest]])


ByFeature: TypeAlias = "NewRows | Mapping[str, NewRows]"
"""One way for all features, or one for each that is named, while the others are drawn."""


def ways_of_biases(new_rows: ByFeature) -> ByFeature:
    """Give the way for tables of biases that goes with each way for vectors."""
    if isinstance(new_rows, Mapping):
        return {name: way.of_biases for name, way in new_rows.items()}
    return new_rows.of_biases
