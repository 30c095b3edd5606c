"""How large the columns of a schema are said to be, before there are any."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from recsys_emb.encoding.columns import FIRST_POSITION
from recsys_emb.errors import SchemaError, did_you_mean, listed
from recsys_emb.schema.columns import Feature, History, MultiCategorical, Numeric, Position
from recsys_emb.schema.schema import Schema
from recsys_emb.vocabulary.reserved import UNKNOWN_INDEX


@dataclass(frozen=True)
class Sizes:
    """How large the columns of a schema are said to be.

    Parameters
    ----------
    schema
        The declarations.
    rows
        Rows in all.
    distinct
        Distinct values of each vocabulary, by the name of the feature that owns it.
    lengths
        Mean number of values in a list, by the name of the `MultiCategorical`.
    text
        Mean UTF-8 bytes of a key, by the name of the owner; other keys are integers.
    """

    schema: Schema
    rows: int
    distinct: Mapping[str, int]
    lengths: Mapping[str, float]
    text: Mapping[str, float]

    def __post_init__(self) -> None:
        options = {"distinct": self.distinct, "lengths": self.lengths, "text": self.text}
        for option, given in options.items():
            if not isinstance(given, Mapping):
                raise SchemaError(
                    f"Schema.plan: expected {option}= to map names to numbers, got {given!r}. Give a dict."
                )
        rows, distinct = _count(self.rows), {name: _count(count) for name, count in self.distinct.items()}
        if rows is None:
            raise SchemaError(
                f"Schema.plan: expected rows to be an integer of 0 or more, got {self.rows!r}. Count them."
            )
        owners = [one.name for one in self.schema.keyed if one.vocabulary is None]
        lists = [one.name for one in self.schema.features if isinstance(one, MultiCategorical)]
        _check_named("distinct", self.distinct, owners, needed=owners)
        _check_named("lengths", self.lengths, lists, needed=lists)
        _check_named("text", self.text, owners, needed=())
        wrong = [name for name, count in distinct.items() if count is None]
        if wrong:
            raise SchemaError(f"Schema.plan: expected counts in distinct=, got others for {listed(wrong)}. Count them.")
        for option in ("lengths", "text"):
            strange = [name for name, mean in options[option].items() if not _is_mean(mean)]
            if strange:
                raise SchemaError(
                    f"Schema.plan: expected means of at least 0 in {option}=, got others for {listed(strange)}. "
                    "Give finite numbers."
                )
        # Of one type from here on, whatever they were written as.
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "distinct", distinct)
        object.__setattr__(self, "lengths", {name: float(mean) for name, mean in self.lengths.items()})
        object.__setattr__(self, "text", {name: float(mean) for name, mean in self.text.items()})

    def values(self, feature: Feature) -> float:
        """Values of a feature's column in all."""
        return self.rows * (self.lengths[feature.name] if isinstance(feature, MultiCategorical) else 1)

    def kept(self, owner: str) -> int:
        """Values of a vocabulary that ``max_size`` leaves."""
        most = next(one.max_size for one in self.schema.keyed if one.name == owner)
        return self.distinct[owner] if most is None else min(self.distinct[owner], most)

    def num_embeddings(self, name: str) -> int:
        """Rows of a feature's table, as an encoder would say."""
        feature = self.schema[name]
        if isinstance(feature, Numeric):
            return 2
        if isinstance(feature, Position):
            return FIRST_POSITION + feature.max_position + 1
        if isinstance(feature, History):
            return self.num_embeddings(feature.item)
        return UNKNOWN_INDEX + feature.unknown.rows + self.kept(feature.vocabulary_name)


def _count(value: Any) -> int | None:
    """Give a whole number of any type, 1e6 too, as an integer; None for others, and below 0."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    return int(value) if is_number and value >= 0 and value % 1 == 0 else None


def _is_mean(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) < math.inf


def _check_named(option: str, given: Mapping[str, float], names: list[str], *, needed: Iterable[str]) -> None:
    strange = [name for name in given if name not in names]
    if strange:
        hint = did_you_mean(strange[0], names)
        raise SchemaError(
            f"Schema.plan: expected {option}= to name {listed(names) or 'nothing'}, got {listed(strange)}.{hint}"
        )
    missing = [name for name in needed if name not in given]
    if missing:
        raise SchemaError(
            f"Schema.plan: expected {option}= to name {listed(names)}, got none for {listed(missing)}. "
            "Say how many, as far as you know."
        )
