"""What a fit learns, and how: one small learner per vocabulary, position and number."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from recsys_emb.encoding.crew import Crew
from recsys_emb.encoding.statistics import ExactMoments, NumericStatistics
from recsys_emb.encoding.values import is_whole, read_finite, read_key_lists, read_keys, read_positions
from recsys_emb.errors import KeyTypeError, SchemaError, listed
from recsys_emb.schema import Keyed, MultiCategorical, Numeric, Position, Schema
from recsys_emb.sources.parts import Rows
from recsys_emb.sources.sources import Source
from recsys_emb.vocabulary.vocabulary import Vocabulary, VocabularyBuilder


@dataclass(frozen=True)
class EncoderState:
    """All that a fit learned; with the schema it makes the encoder again.

    Parameters
    ----------
    schema
        What was fitted.
    vocabularies
        By the name of the feature that owns the vocabulary.
    numeric
        By the name of the `Numeric` feature.
    positions
        Positions that the fit saw, ascending, by the name of the `Position` feature.
    """

    schema: Schema
    vocabularies: Mapping[str, Vocabulary]
    numeric: Mapping[str, NumericStatistics]
    positions: Mapping[str, tuple[int, ...]]

    @property
    def statistics(self) -> dict[str, dict[str, Any]]:
        """Statistics and positions as JSON-able data."""
        numeric = {name: dataclasses.asdict(statistics) for name, statistics in self.numeric.items()}
        return {"numeric": numeric, "positions": {name: list(seen) for name, seen in self.positions.items()}}

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of all of it: equal fingerprints encode equally."""
        vocabularies = {name: vocabulary.fingerprint for name, vocabulary in self.vocabularies.items()}
        content = json.dumps([self.schema.to_json(), vocabularies, self.statistics], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    @classmethod
    def from_parts(
        cls, schema: Schema, vocabularies: Mapping[str, Vocabulary], statistics: Mapping[str, Mapping[str, Any]]
    ) -> EncoderState:
        """Put together again what `vocabularies` and `statistics` hold.

        Raises
        ------
        SchemaError
            When they belong to other features than the schema's.
        """
        numeric = {name: NumericStatistics(**data) for name, data in statistics["numeric"].items()}
        positions = {name: tuple(seen) for name, seen in statistics["positions"].items()}
        expected = sorted(learner.name for learner in Learning(schema).learners)
        got = sorted([*vocabularies, *numeric, *positions])
        if expected != got:
            raise SchemaError(
                f"EncoderState: expected what was learned about {listed(expected)}, got {listed(got)}. "
                "Keep the schema and the data of one fit together."
            )
        return cls(schema, dict(vocabularies), numeric, positions)


class Learning:
    """A fit under way: takes rows, gives an `EncoderState`, and leaves the one that it began with alone."""

    def __init__(self, schema: Schema, previous: EncoderState | None = None) -> None:
        self.schema = schema
        self.num_rows = 0
        features = schema.features
        owners = [feature for feature in schema.keyed if feature.vocabulary is None]
        self._vocabularies = [_VocabularyLearner(owner, schema, previous) for owner in owners]
        self._numbers = [_NumericLearner(one, previous) for one in features if isinstance(one, Numeric)]
        self._positions = [_PositionLearner(one, previous) for one in features if isinstance(one, Position)]

    @property
    def learners(self) -> list[Learner]:
        """One for each vocabulary, number and position."""
        return [*self._vocabularies, *self._numbers, *self._positions]

    @property
    def columns(self) -> list[str]:
        """Columns to read."""
        return [name for learner in self.learners for name in learner.columns]

    def learn(self, source: Source, hands: Crew) -> EncoderState:
        """Learn from all rows of a source, once through: column by column, or else batch by batch."""
        learners = self.learners
        if source.by_column:
            source.check(self.columns)
            streams = hands.map(
                lambda one: _stream(one, source.rows(one.columns)), learners, cost=lambda one: source.size(one.columns)
            )
            self.num_rows = max(num_rows for num_rows, _ in streams)
            learned = [one for _, one in streams]
        else:
            for rows in hands.ahead(source.rows(self.columns)):
                self.num_rows += len(rows)
                hands.map(operator.methodcaller("observe", rows), learners)
            learned = hands.map(operator.methodcaller("finish"), learners)
        found = {learner.name: one for learner, one in zip(learners, learned, strict=True)}
        kinds = (self._vocabularies, self._numbers, self._positions)
        return EncoderState(self.schema, *({one.name: found[one.name] for one in kind} for kind in kinds))


def _stream(learner: Learner, stream: Iterable[Rows]) -> tuple[int, Any]:
    """Count the rows of a stream, and learn from them."""
    num_rows = 0
    for rows in stream:
        learner.observe(rows)
        num_rows += len(rows)
    return num_rows, learner.finish()


class Learner(Protocol):
    """Learns one thing from some columns."""

    name: str
    columns: list[str]

    def observe(self, rows: Rows) -> None:
        """Learn from rows."""

    def finish(self) -> Any:
        """Sum up what is known by now."""


class _VocabularyLearner:
    """Counts the values of all columns that share one vocabulary."""

    def __init__(self, owner: Keyed, schema: Schema, previous: EncoderState | None) -> None:
        self.name = owner.name
        self._owner = owner
        self._members = [one for one in schema.keyed if one.vocabulary_name == owner.name]
        self.columns = [member.name for member in self._members]
        self._previous = None if previous is None else previous.vocabularies[owner.name]
        self._builder = VocabularyBuilder(owner.name)

    def observe(self, rows: Rows) -> None:
        for member in self._members:
            # Lists are cut as they will be in use, so that a value beyond the cut gets no row.
            if isinstance(member, MultiCategorical):
                keys = read_key_lists(member, rows).cut(member.max_length, member.keep).values
            else:
                keys = read_keys(member, rows)
            self._builder.add(keys, where=rows.where(member.name))

    def finish(self) -> Vocabulary:
        limits: dict[str, Any] = {"min_count": self._owner.min_count, "max_size": self._owner.max_size}
        if self._previous is None:
            return self._builder.build(**limits, unknown=self._owner.unknown)
        return self._previous.extended(self._builder, **limits)


class _PositionLearner:
    """Collects the positions that occur."""

    def __init__(self, feature: Position, previous: EncoderState | None) -> None:
        self.name = feature.name
        self.columns = [feature.name]
        self._feature = feature
        self._seen = np.zeros(feature.max_position + 1, bool)
        if previous is not None:
            self._seen[list(previous.positions[feature.name])] = True

    def observe(self, rows: Rows) -> None:
        numbers = read_positions(self._feature, rows)
        positions = numbers[~np.isnan(numbers)]
        others = positions[~is_whole(positions)]
        if len(others):
            raise KeyTypeError(
                f"{rows.where(self.name)}: expected integer positions, got {listed(np.unique(others).tolist())}. "
                "Declare it Numeric, or round it."
            )
        if self._feature.clamp:
            positions = np.minimum(positions, self._feature.max_position)
        has_row = (positions >= 0) & (positions <= self._feature.max_position)
        self._seen[positions[has_row].astype(np.int64)] = True

    def finish(self) -> tuple[int, ...]:
        return tuple(np.flatnonzero(self._seen).tolist())


class _NumericLearner:
    """Adds up numbers and their squares, exactly; what a former fit settled stays, or old rows would score anew."""

    def __init__(self, feature: Numeric, previous: EncoderState | None) -> None:
        self.name = feature.name
        self.columns = [feature.name]
        self._settled = None if previous is None else previous.numeric[feature.name]
        self._moments = ExactMoments()

    def observe(self, rows: Rows) -> None:
        self._moments = self._moments.adding(read_finite(rows, self.name))

    def finish(self) -> NumericStatistics:
        return self._settled if self._settled and self._settled.count else self._moments.statistics()
