"""One small learner per vocabulary, position and number: takes rows, and adds up with others of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from recsys_emb.encoding.statistics import ExactMoments, NumericStatistics
from recsys_emb.encoding.values import is_whole, read_finite, read_key_lists, read_keys, read_positions
from recsys_emb.errors import KeyTypeError, listed
from recsys_emb.schema import Keyed, MultiCategorical, Numeric, Position, Schema
from recsys_emb.sources.parts import Rows
from recsys_emb.vocabulary.kinds import Kind
from recsys_emb.vocabulary.vocabulary import Vocabulary, VocabularyBuilder


class Learner(Protocol):
    """Learns one thing from some columns."""

    name: str
    columns: list[str]

    def observe(self, rows: Rows) -> None:
        """Learn from rows."""

    def facts(self) -> Any:
        """Give what is known by now, but for values of vocabularies."""

    def absorb(self, facts: Any) -> None:
        """Learn what another one knew."""

    def finish(self) -> Any:
        """Sum up what is known by now."""


class VocabularyLearner:
    """Counts the values of all columns that share one vocabulary."""

    def __init__(self, owner: Keyed, schema: Schema, previous: Vocabulary | None) -> None:
        self.name = owner.name
        self.owner = owner
        self._members = [one for one in schema.keyed if one.vocabulary_name == owner.name]
        self.columns = [member.name for member in self._members]
        self._previous = previous
        self.builder = VocabularyBuilder(owner.name)

    def observe(self, rows: Rows) -> None:
        """Learn from rows."""
        for member in self._members:
            # Lists are cut as they will be in use, so that a value beyond the cut gets no row.
            if isinstance(member, MultiCategorical):
                keys = read_key_lists(member, rows).cut(member.max_length, member.keep).values
            else:
                keys = read_keys(member, rows)
            self.builder.add(keys, where=rows.where(member.name))

    def facts(self) -> dict[Kind, tuple[str, str]]:
        """Give the kinds of key that were met, and where."""
        return self.builder.met

    def absorb(self, facts: dict[Kind, tuple[str, str]]) -> None:
        """Meet what another one met."""
        for kind, (where, shown) in facts.items():
            self.builder.meet(kind, where, shown)

    def finish(self) -> Vocabulary:
        """Freeze the values."""
        limits: dict[str, Any] = {"min_count": self.owner.min_count, "max_size": self.owner.max_size}
        if self._previous is None:
            return self.builder.build(**limits, unknown=self.owner.unknown)
        return self._previous.extended(self.builder, **limits)


class PositionLearner:
    """Collects the positions that occur, beside those seen before."""

    def __init__(self, feature: Position, previous: Sequence[int]) -> None:
        self.name = feature.name
        self.columns = [feature.name]
        self._feature = feature
        self._seen = np.zeros(feature.max_position + 1, bool)
        self._seen[list(previous)] = True

    def observe(self, rows: Rows) -> None:
        """Learn from rows."""
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

    def facts(self) -> npt.NDArray[np.bool_]:
        """Give a mark per position."""
        return self._seen

    def absorb(self, facts: npt.NDArray[np.bool_]) -> None:
        """Add marks."""
        self._seen |= facts

    def finish(self) -> tuple[int, ...]:
        """Give the positions, ascending."""
        return tuple(np.flatnonzero(self._seen).tolist())


class NumericLearner:
    """Adds up numbers and their squares, exactly; what a former fit settled stays, or old rows would score anew."""

    def __init__(self, feature: Numeric, previous: NumericStatistics | None) -> None:
        self.name = feature.name
        self.columns = [feature.name]
        self._settled = previous
        self._moments = ExactMoments()

    def observe(self, rows: Rows) -> None:
        """Learn from rows."""
        self._moments = self._moments.adding(read_finite(rows, self.name))

    def facts(self) -> ExactMoments:
        """Give the sums."""
        return self._moments

    def absorb(self, facts: ExactMoments) -> None:
        """Add sums."""
        self._moments = self._moments.joined(facts)

    def finish(self) -> NumericStatistics:
        """Round the sums."""
        return self._settled if self._settled and self._settled.count else self._moments.statistics()
