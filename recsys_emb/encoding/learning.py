"""What a fit learns, and the fit itself: rows go to one small learner per vocabulary, position and number."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from recsys_emb.encoding.crew import ALONE, Crew
from recsys_emb.encoding.learners import Learner, NumericLearner, PositionLearner, VocabularyLearner
from recsys_emb.encoding.statistics import NumericStatistics
from recsys_emb.errors import SchemaError, listed
from recsys_emb.schema import Numeric, Position, Schema
from recsys_emb.sources.parts import Rows
from recsys_emb.sources.sources import Source
from recsys_emb.vocabulary.vocabulary import Vocabulary


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
        _check_numbers(schema, numeric, positions)
        expected = sorted(learner.name for learner in Learning(schema).learners)
        got = sorted([*vocabularies, *numeric, *positions])
        if expected != got:
            raise SchemaError(
                f"EncoderState: expected what was learned about {listed(expected)}, got {listed(got)}. "
                "Keep the schema and the data of one fit together."
            )
        return cls(schema, dict(vocabularies), numeric, positions)


def _check_numbers(
    schema: Schema, numeric: Mapping[str, NumericStatistics], positions: Mapping[str, tuple[int, ...]]
) -> None:
    """Refuse statistics that no fit gives; whether they are those of the schema's features is not asked here."""
    for name, one in numeric.items():
        counts, moments = (one.count, one.missing), (one.mean, one.std)
        whole = all(type(count) is int and count >= 0 for count in counts)
        if not whole or not all(type(number) in (int, float) and math.isfinite(number) for number in moments):
            raise SchemaError(f"{name}: expected the statistics of numbers, got {one}. Keep what a fit gave.")
    last = {one.name: one.max_position for one in schema.features if isinstance(one, Position)}
    for name, seen in positions.items():
        steps = zip((-1, *seen), (*seen, last.get(name, math.inf) + 1), strict=True)
        if not all(type(place) is int for place in seen) or not all(one < other for one, other in steps):
            raise SchemaError(
                f"{name}: expected ascending positions of at most {last.get(name)}, got {listed(seen)}. "
                "Keep what a fit gave."
            )


class Learning:
    """A fit under way: takes rows, gives an `EncoderState`, and leaves the one that it began with alone."""

    def __init__(self, schema: Schema, previous: EncoderState | None = None) -> None:
        self.schema = schema
        self.num_rows = 0
        features = schema.features
        owners = [feature for feature in schema.keyed if feature.vocabulary is None]
        known = previous or EncoderState(schema, {}, {}, {})
        self.vocabularies = [VocabularyLearner(one, schema, known.vocabularies.get(one.name)) for one in owners]
        self._numbers = [
            NumericLearner(one, known.numeric.get(one.name)) for one in features if isinstance(one, Numeric)
        ]
        self._positions = [
            PositionLearner(one, known.positions.get(one.name, ())) for one in features if isinstance(one, Position)
        ]

    @property
    def learners(self) -> list[Learner]:
        """One for each vocabulary, number and position."""
        return [*self.vocabularies, *self._numbers, *self._positions]

    @property
    def columns(self) -> list[str]:
        """Columns to read."""
        return [name for learner in self.learners for name in learner.columns]

    def observe(self, rows: Rows, hands: Crew = ALONE) -> None:
        """Learn from rows that have all columns."""
        self.num_rows += len(rows)
        hands.map(operator.methodcaller("observe", rows), self.learners)

    def facts(self) -> tuple[int, list[Any]]:
        """Give what was learned so far, but for the values of vocabularies, for another `Learning` to absorb."""
        return self.num_rows, [learner.facts() for learner in self.learners]

    def absorb(self, facts: tuple[int, list[Any]]) -> None:
        """Learn what another one did, from rows elsewhere.

        Raises
        ------
        KeyTypeError
            When a vocabulary met keys of another kind there.
        """
        num_rows, learned = facts
        self.num_rows += num_rows
        for learner, one in zip(self.learners, learned, strict=True):
            learner.absorb(one)

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
                self.observe(rows, hands)
            learned = hands.map(operator.methodcaller("finish"), learners)
        return self.state({learner.name: one for learner, one in zip(learners, learned, strict=True)})

    def state(self, found: Mapping[str, Any]) -> EncoderState:
        """Put what learners found together, by their names; who is not named is asked."""
        learned = {learner.name: learner.finish() for learner in self.learners if learner.name not in found} | {**found}
        kinds = (self.vocabularies, self._numbers, self._positions)
        return EncoderState(self.schema, *({one.name: learned[one.name] for one in kind} for kind in kinds))


def _stream(learner: Learner, stream: Iterable[Rows]) -> tuple[int, Any]:
    """Count the rows of a stream, and learn from them."""
    num_rows = 0
    for rows in stream:
        learner.observe(rows)
        num_rows += len(rows)
    return num_rows, learner.finish()
