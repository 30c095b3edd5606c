"""What a fitted encoder makes of the columns of a source, counted as they stream by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_emb.encoding.batch import MISSING_INDEX, UNKNOWN_INDEX
from recsys_emb.encoding.columns import FIRST_POSITION, PositionCodec
from recsys_emb.encoding.learning import EncoderState
from recsys_emb.encoding.parts import Rows
from recsys_emb.encoding.statistics import ExactMoments, NumericStatistics
from recsys_emb.encoding.values import read_finite, read_key_lists, read_keys, read_positions
from recsys_emb.encoding.vocabulary import Vocabulary
from recsys_emb.reporting.drift import frequency_bands, index_by_chance, normal_index, stability_index
from recsys_emb.reporting.frequent import FrequentValues
from recsys_emb.schema.columns import Categorical, Keyed, Numeric, Position
from recsys_emb.schema.tables import RefuseUnknown, UnknownRow

# Floats from here on are no exact integers, and no keys.
_FLOAT_INTEGERS = 2.0**53


@dataclass(frozen=True)
class FeatureReport:
    """How a feature's column meets the fit.

    Parameters
    ----------
    name, kind
        The feature and its declaration, ``"Categorical"``.
    cardinality
        Values with a row of their own; None for a `Numeric`.
    occurrences
        Lookups: one per row; of lists, one per value and one for each list without values, which reads the missing
        row.
    missing, unknown
        How many of these were missing, and how many had no row of their own.
    unknown_values
        How many distinct values had none; at least so many where ``count_error`` is above 0.
    top_unknown
        The most frequent of them, raw, with their counts.
    count_error
        By how much these counts may be too low; 0 up to 65,536 distinct values.
    drift
        Population stability index against the fitted counts; NaN where it cannot be said.
    drift_by_chance
        What the index stays below in 95 of 100 samples when nothing has moved.
    shift, spread
        Of a `Numeric`: the mean found less the fitted one, in fitted standard deviations, and the standard deviation
        found over the fitted one; NaN where there is no number.
    refused
        Whether `transform` refuses these rows, because the feature declares `RefuseUnknown`.
    """

    name: str
    kind: str
    cardinality: int | None
    occurrences: int
    missing: int
    unknown: int = 0
    unknown_values: int = 0
    top_unknown: tuple[tuple[object, int], ...] = ()
    count_error: int = 0
    drift: float = float("nan")
    drift_by_chance: float = float("nan")
    shift: float = float("nan")
    spread: float = float("nan")
    refused: bool = False

    @property
    def missing_rate(self) -> float:
        """Share of the occurrences that are missing; NaN without any."""
        return self._share(self.missing)

    @property
    def unknown_rate(self) -> float:
        """Share of the occurrences that have no row of their own; NaN without any."""
        return self._share(self.unknown)

    @property
    def coverage(self) -> float:
        """Share of the occurrences that are values with a row of their own; NaN without any."""
        return self._share(self.occurrences - self.missing - self.unknown)

    def _share(self, count: int) -> float:
        return count / self.occurrences if self.occurrences else float("nan")


class Counter(Protocol):
    """Counts the columns of one thing that was fitted."""

    columns: list[str]

    def observe(self, rows: Rows) -> None:
        """Count these rows."""

    def reports(self, top: int) -> list[FeatureReport]:
        """Sum up, with the ``top`` most frequent unknown values of each column."""


def counters_of(state: EncoderState) -> list[Counter]:
    """Make a counter for every vocabulary, number and position of a fit."""
    keyed = state.schema.keyed
    vocabularies = [
        _VocabularyCounter(vocabulary, [one for one in keyed if one.vocabulary_name == owner])
        for owner, vocabulary in state.vocabularies.items()
    ]
    features = state.schema.features
    numbers = [_NumericCounter(one, state.numeric[one.name]) for one in features if isinstance(one, Numeric)]
    positions = [_PositionCounter(one, state.positions[one.name]) for one in features if isinstance(one, Position)]
    return [*vocabularies, *numbers, *positions]


class _VocabularyCounter:
    """Counts the indices of all features that share a vocabulary; as they were fitted, they drift together."""

    def __init__(self, vocabulary: Vocabulary, members: Sequence[Keyed]) -> None:
        self.columns = [member.name for member in members]
        self._members = members
        self._refuses = isinstance(vocabulary.unknown, RefuseUnknown)
        # A report tells what would be refused, so it must not refuse it.
        self._vocabulary = (
            Vocabulary(vocabulary.name, vocabulary.values, vocabulary.counts, UnknownRow())
            if self._refuses
            else vocabulary
        )
        self._counts = np.zeros((len(members), vocabulary.num_embeddings), np.int64)
        self._unknown = [FrequentValues(member.name) for member in members]

    def observe(self, rows: Rows) -> None:
        for place, member in enumerate(self._members):
            keys, empty_lists = _read(member, rows)
            indices = self._vocabulary.encode(keys, where=rows.where(member.name)).numpy()
            self._counts[place] += np.bincount(indices, minlength=self._vocabulary.num_embeddings)
            self._counts[place, MISSING_INDEX] += empty_lists
            strange = (indices >= UNKNOWN_INDEX) & (indices < self._vocabulary.first_index)
            if strange.any():
                self._unknown[place].add(keys.filter(pa.array(strange)))

    def reports(self, top: int) -> list[FeatureReport]:
        drift, by_chance = self._drift()
        return [
            FeatureReport(
                name=member.name,
                kind=type(member).__name__,
                cardinality=len(self._vocabulary),
                occurrences=int(counts.sum()),
                missing=int(counts[MISSING_INDEX]),
                unknown=int(counts[UNKNOWN_INDEX : self._vocabulary.first_index].sum()),
                unknown_values=unknown.distinct,
                top_unknown=unknown.top(top),
                count_error=unknown.error,
                drift=drift,
                drift_by_chance=by_chance,
                refused=self._refuses and unknown.distinct > 0,
            )
            for member, counts, unknown in zip(self._members, self._counts, self._unknown, strict=True)
        ]

    def _drift(self) -> tuple[float, float]:
        fitted = self._vocabulary.counts
        found = self._counts[:, self._vocabulary.first_index :].sum(axis=0)
        bands = frequency_bands(fitted)
        # Counts are exact in float64 up to 2^53.
        before, now = (np.bincount(bands, weights=counts).astype(np.int64) for counts in (fitted, found))
        return stability_index(before, now), index_by_chance(len(before) - 1, int(fitted.sum()), int(found.sum()))


def _read(feature: Keyed, rows: Rows) -> tuple[pa.Array, int]:
    """Read the keys of a column as `transform` does, and how many of its lists have none."""
    if isinstance(feature, Categorical):
        return read_keys(feature, rows), 0
    lists = read_key_lists(feature, rows).cut(feature.max_length, feature.keep)
    return lists.values, int((lists.lengths == 0).sum())


class _PositionCounter:
    """Counts positions. A fit keeps which it saw, not how often, so there is no drift to tell."""

    def __init__(self, feature: Position, seen: Sequence[int]) -> None:
        self.columns = [feature.name]
        self._feature, self._codec = feature, PositionCodec(feature, np.array(seen, np.int64))
        self._cardinality = len(seen)
        self._counts: npt.NDArray[np.int64] = np.zeros(FIRST_POSITION + 1, np.int64)
        self._unknown = FrequentValues(feature.name)

    def observe(self, rows: Rows) -> None:
        indices = self._codec.encode(rows).numpy().clip(max=FIRST_POSITION)
        self._counts += np.bincount(indices, minlength=len(self._counts))
        numbers = read_positions(self._feature, rows)
        strange = (indices == UNKNOWN_INDEX) & (np.abs(numbers) < _FLOAT_INTEGERS)
        if strange.any():
            self._unknown.add(pa.array(numbers[strange]))

    def reports(self, top: int) -> list[FeatureReport]:
        return [
            FeatureReport(
                name=self._feature.name,
                kind=type(self._feature).__name__,
                cardinality=self._cardinality,
                occurrences=int(self._counts.sum()),
                missing=int(self._counts[MISSING_INDEX]),
                unknown=int(self._counts[UNKNOWN_INDEX]),
                unknown_values=self._unknown.distinct,
                top_unknown=self._unknown.top(top),
                count_error=self._unknown.error,
            )
        ]


class _NumericCounter:
    """Compares mean and standard deviation with the fit, as if the numbers were normally distributed."""

    def __init__(self, feature: Numeric, fitted: NumericStatistics) -> None:
        self.columns = [feature.name]
        self._name, self._kind, self._fitted = feature.name, type(feature).__name__, fitted
        self._moments = ExactMoments()

    def observe(self, rows: Rows) -> None:
        self._moments = self._moments.adding(read_finite(rows, self._name))

    def reports(self, top: int) -> list[FeatureReport]:  # noqa: ARG002 — of the protocol
        fitted, found = self._fitted, self._moments.statistics()
        both = fitted.count > 0 and found.count > 0
        return [
            FeatureReport(
                name=self._name,
                kind=self._kind,
                cardinality=None,
                occurrences=found.count + found.missing,
                missing=found.missing,
                drift=normal_index((fitted.mean, fitted.std), (found.mean, found.std)),
                drift_by_chance=index_by_chance(2, fitted.count, found.count),
                shift=(found.mean - fitted.mean) / fitted.scale if both else float("nan"),
                spread=found.std / fitted.scale if both else float("nan"),
            )
        ]
