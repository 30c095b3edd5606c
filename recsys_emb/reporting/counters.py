"""What a fitted encoder makes of the columns of a source, counted as they stream by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_emb.encoding.columns import FIRST_POSITION, PositionCodec
from recsys_emb.encoding.learning import EncoderState
from recsys_emb.encoding.statistics import ExactMoments, NumericStatistics
from recsys_emb.encoding.values import read_finite, read_key_lists, read_keys, read_positions
from recsys_emb.reporting.drift import (
    expected_counts,
    frequency_bands,
    index_by_chance,
    normal_index,
    stability_index,
    unseen_share,
)
from recsys_emb.reporting.feature_report import FeatureReport
from recsys_emb.reporting.frequent import FrequentValues
from recsys_emb.schema.columns import Categorical, Keyed, Numeric, Position
from recsys_emb.schema.tables import RefuseUnknown, UnknownRow
from recsys_emb.sources.parts import Rows
from recsys_emb.vocabulary.reserved import MISSING_INDEX, UNKNOWN_INDEX
from recsys_emb.vocabulary.vocabulary import Vocabulary

# Floats from here on are no exact integers, and no keys.
_FLOAT_INTEGERS = 2.0**53


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
        self._owner = next(member for member in members if member.vocabulary is None)
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
        drift, drift_by_chance = self._drift()
        unseen = self._unseen()
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
                drift_by_chance=drift_by_chance,
                unknown_by_chance=float(unseen * (1 - counts[MISSING_INDEX] / max(counts.sum(), 1))),
                refused=self._refuses and unknown.distinct > 0,
            )
            for member, counts, unknown in zip(self._members, self._counts, self._unknown, strict=True)
        ]

    def _drift(self) -> tuple[float, float]:
        """Compare with what another sample of the fitted size is expected to hold."""
        fitted, found = self._vocabulary.counts, self._counts[:, self._vocabulary.first_index :].sum(axis=0)
        # The fitted rows are no other sample: they are as they were counted.
        expected = fitted if np.array_equal(fitted, found) else expected_counts(fitted)
        bands = frequency_bands(fitted)
        before, now = (np.bincount(bands, weights=one) for one in (expected, found))
        return stability_index(before, now), index_by_chance(len(before) - 1, before.sum(), now.sum())

    def _unseen(self) -> float:
        whole = self._owner.min_count == 1 and self._owner.max_size is None and len(self._members) == 1
        return unseen_share(self._vocabulary.counts) if whole else float("nan")


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

    def reports(self, top: int) -> list[FeatureReport]:
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
