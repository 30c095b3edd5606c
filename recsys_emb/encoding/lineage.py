"""What rows of tables mean, in short: so that weights never meet another vocabulary, and no index moves unsaid."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import dataclass

from recsys_emb.encoding.learning import EncoderState
from recsys_emb.errors import LineageError, counted, listed
from recsys_emb.schema import Feature, History, Numeric, Position
from recsys_emb.vocabulary.vocabulary import Vocabulary


@dataclass(frozen=True)
class RowMeanings:
    """What the rows of the tables of some features mean, small enough to keep beside the tables.

    Parameters
    ----------
    fingerprint
        Hash, in hex. Equal ones mean that row r of every table stands for the same value, or for the same
        standardised number.
    sizes
        By feature, how many values its vocabulary had; of a `Position`, none.
    positions
        By `Position` feature, the positions that a fit saw.
    unsettled
        Names of the `Numeric` features of which no number was seen yet.
    """

    fingerprint: str
    sizes: dict[str, int]
    positions: dict[str, tuple[int, ...]]
    unsettled: frozenset[str]

    @classmethod
    def of(cls, state: EncoderState, names: tuple[str, ...]) -> RowMeanings:
        """Sum up what the features called ``names``, in this order, mean by now."""
        vocabularies = {name: vocabulary_of(state, state.schema[name]) for name in names}
        sizes = {name: len(vocabulary) for name, vocabulary in vocabularies.items() if vocabulary is not None}
        positions = {name: tuple(state.positions[name]) for name in names if name in state.positions}
        unsettled = frozenset(name for name in names if name in state.numeric and not state.numeric[name].count)
        return cls(_fingerprint(state, names, sizes, unsettled), sizes, positions, unsettled)

    def hold_in(self, later: EncoderState, names: tuple[str, ...]) -> bool:
        """Whether all rows still mean the same after further learning, so that new ones are all that was added."""
        return self.fingerprint == _fingerprint(later, names, self.sizes, self.unsettled)


def vocabulary_of(state: EncoderState, feature: Feature) -> Vocabulary | None:
    """Vocabulary that the indices of a feature belong to; None for numbers and positions."""
    if isinstance(feature, History):
        return vocabulary_of(state, state.schema[feature.item])
    return None if isinstance(feature, (Numeric, Position)) else state.vocabularies[feature.vocabulary_name]


def check_indices_stay(before: EncoderState, after: EncoderState) -> None:
    """Refuse a new fit that gives a value of an earlier one another index, or none.

    Raises
    ------
    LineageError
        Naming the first such feature and its values.
    """
    for name, old in before.vocabularies.items():
        moved = _moved(old, after.vocabularies.get(name))
        if moved:
            raise _refusal(name, moved, "value")
    for name, seen in before.positions.items():
        gone: list[object] = [*sorted(set(seen) - set(after.positions.get(name, ())))]
        if gone:
            raise _refusal(name, gone, "position")


def _fingerprint(state: EncoderState, names: tuple[str, ...], sizes: dict[str, int], unsettled: frozenset[str]) -> str:
    described = [[name, None if name in unsettled else _describe(state, name, sizes)] for name in names]
    return hashlib.sha256(json.dumps(["rows 1", described]).encode()).hexdigest()


def _describe(state: EncoderState, name: str, sizes: dict[str, int]) -> object:
    feature = state.schema[name]
    if isinstance(feature, Numeric):
        return [state.numeric[name].mean, state.numeric[name].scale]
    vocabulary = vocabulary_of(state, feature)
    return "positions" if vocabulary is None else vocabulary.fingerprint_of(sizes[name])


def _moved(old: Vocabulary, new: Vocabulary | None) -> list[object]:
    """Values of ``old`` that stand elsewhere in ``new``, or nowhere."""
    values: list[object] = old.values.to_pylist()
    if new is None or old.first_index != new.first_index:
        return values
    if len(new) >= len(old) and new.fingerprint_of(len(old)) == old.fingerprint:
        return []
    pairs = itertools.zip_longest(values, new.values[: len(old)].to_pylist())
    # Where all look equal they are of another kind: True is not 1.
    return [mine for mine, theirs in pairs if mine != theirs] or values


def _refusal(name: str, moved: list[object], noun: str) -> LineageError:
    return LineageError(
        f"FeatureEncoder.fit: expected every {noun} of {name!r} to keep the index of the earlier fit, got another or "
        f"none for {counted(len(moved), noun)}: {listed(moved)}. Append with partial_fit, fit a clone, or say "
        "renumber=True and train anew."
    )
