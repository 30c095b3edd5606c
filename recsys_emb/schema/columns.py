"""The kinds of column: frozen data, no parameters, nothing learned."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from recsys_emb.errors import listed
from recsys_emb.schema.checks import STRICT, check_at_least, check_name, check_scale, refuse
from recsys_emb.schema.tables import (
    Hashed,
    Lookup,
    OneHot,
    QuotientRemainder,
    RefuseUnknown,
    Table,
    Unknown,
    UnknownBuckets,
    UnknownRow,
)

if TYPE_CHECKING:
    from pydantic import ConfigDict

Pooling: TypeAlias = Literal["mean", "sum", "sqrtn", "max", "none"]


@dataclass(frozen=True)
class _Keyed:
    """What `Categorical` and `MultiCategorical` share: a vocabulary and a table over it."""

    name: str
    _: dataclasses.KW_ONLY
    min_count: int = 1
    max_size: int | None = None
    vocabulary: str | None = None
    share_table: bool = False
    unknown: Unknown = UnknownRow()
    unknown_dropout: float = 0.0
    table: Table = Lookup()
    l2_scale: float = 1.0
    dtype: str | None = None

    def __post_init__(self) -> None:
        kind = type(self).__name__
        check_name(kind, self.name)
        where = f"{kind}({self.name!r})"
        check_at_least(where, "min_count", self.min_count, 1)
        if self.max_size is not None:
            check_at_least(where, "max_size", self.max_size, 1)
        self._check_kinds(where)
        self._check_sharing(where)
        share = self.unknown_dropout
        wrong = not isinstance(share, (int, float)) or isinstance(share, bool) or not 0 <= share < 1
        refuse(wrong, where, "unknown_dropout in [0, 1)", share, "It is a share of occurrences.")
        check_scale(where, self.l2_scale)
        self._check_refusal(where)

    def _check_kinds(self, where: str) -> None:
        wrong = not isinstance(self.unknown, (UnknownRow, UnknownBuckets, RefuseUnknown))
        refuse(
            wrong, where, "unknown= to be UnknownRow(), UnknownBuckets(k) or RefuseUnknown()", self.unknown, "Call it."
        )
        wrong = not isinstance(self.table, (Lookup, OneHot, Hashed, QuotientRemainder))
        refuse(
            wrong,
            where,
            "table= to be Lookup(), OneHot(), Hashed(...) or QuotientRemainder(...)",
            self.table,
            "Call it.",
        )

    def _check_sharing(self, where: str) -> None:
        if self.vocabulary is None:
            refuse(
                self.share_table,
                where,
                "vocabulary= beside share_table=True",
                None,
                "Name the feature whose table is shared.",
            )
            return
        own = self.min_count != 1 or self.max_size is not None
        refuse(
            own,
            where,
            f"min_count and max_size on {self.vocabulary!r}, which owns the vocabulary",
            f"min_count={self.min_count}, max_size={self.max_size}",
            "Declare them there.",
        )
        refuse(
            self.vocabulary == self.name,
            where,
            "vocabulary= to name another feature",
            self.vocabulary,
            "Leave it out.",
        )

    def _check_refusal(self, where: str) -> None:
        if not isinstance(self.unknown, RefuseUnknown):
            return
        routes = self.min_count > 1 or self.max_size is not None or self.unknown_dropout > 0
        refuse(
            routes,
            where,
            "min_count=1, max_size=None and unknown_dropout=0 beside RefuseUnknown()",
            f"min_count={self.min_count}, max_size={self.max_size}, unknown_dropout={self.unknown_dropout}",
            "They send values to the unknown row; use UnknownRow().",
        )

    @property
    def vocabulary_name(self) -> str:
        """Name of the feature that owns the vocabulary."""
        return self.vocabulary or self.name


@dataclass(frozen=True)
class Categorical(_Keyed):
    """A column with one value per row, label-encoded.

    Parameters
    ----------
    name
        The column. Any text.
    min_count
        Values seen less often in ``fit`` are unknown.
    max_size
        At most this many values are kept, by count descending, then value ascending; the rest are unknown.
    vocabulary
        Name of another feature whose vocabulary this one shares; both columns feed it.
    share_table
        Also share that feature's embedding table.
    unknown
        `UnknownRow()`, `UnknownBuckets(k)` or `RefuseUnknown()`.
    unknown_dropout
        Share of occurrences routed to the unknown row while training, so that it learns.
    table
        `Lookup()`, `OneHot()`, `Hashed(...)` or `QuotientRemainder(...)`.
    l2_scale
        Multiplies the solver's L2 for this feature's rows.
    dtype
        Arrow type name to read the column as (``"int64"``); needed only for Hive partition columns, whose
        folder names carry text.

    Raises
    ------
    SchemaError
        When the options contradict each other.

    Examples
    --------
    >>> Categorical("country", min_count=5).vocabulary_name
    'country'
    >>> Categorical("country", min_count=0)
    Traceback (most recent call last):
    ...
    recsys_emb.errors.SchemaError: Categorical('country'): expected min_count to be an integer of at least 1, got 0. ...
    """

    kind: Literal["categorical"] = dataclasses.field(default="categorical", repr=False)
    __pydantic_config__: ClassVar[ConfigDict] = STRICT


@dataclass(frozen=True)
class MultiCategorical(_Keyed):
    """A column with a list of values per row, label-encoded and pooled.

    Parameters are those of `Categorical`, and:

    Parameters
    ----------
    pooling
        ``"mean"``, ``"sum"``, ``"sqrtn"`` (sum over √n), ``"max"`` or ``"none"`` (padded vectors and a mask).
        An empty or missing list pools to the missing row's vector.
    weights
        Column holding one non-negative weight per value.
    max_length
        Longer lists are cut, at fit, training and serving alike.
    keep
        Which end survives the cut: ``"last"`` (lists in time order, the default) or ``"first"``.

    Examples
    --------
    >>> MultiCategorical("recent_items", vocabulary="item_id").vocabulary_name
    'item_id'
    """

    pooling: Pooling = "mean"
    weights: str | None = None
    max_length: int | None = None
    keep: Literal["first", "last"] = "last"
    kind: Literal["multi_categorical"] = dataclasses.field(default="multi_categorical", repr=False)
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"MultiCategorical({self.name!r})"
        poolings = ("mean", "sum", "sqrtn", "max", "none")
        refuse(
            self.pooling not in poolings,
            where,
            f"pooling to be one of {listed(poolings)}",
            self.pooling,
            "Choose one of these.",
        )
        refuse(
            self.keep not in ("first", "last"),
            where,
            "keep to be 'first' or 'last'",
            self.keep,
            "Choose one of these.",
        )
        if self.max_length is not None:
            check_at_least(where, "max_length", self.max_length, 1)


@dataclass(frozen=True)
class Position:
    """A display slot or a place in an order, an integer from 0 to ``max_position``.

    The index of position p is ``3 + p`` for life, whatever the fit saw. Positions that the fit never saw, or
    beyond the table, are unknown.

    Parameters
    ----------
    name
        The column.
    max_position
        The largest position with a row of its own.
    serve_at
        The position that recommendations are scored at; None scores them at the missing row.
    vector
        False keeps the position's bias and gives it no vector.
    clamp
        True takes positions beyond ``max_position`` as ``max_position`` instead of unknown.
    l2_scale
        Multiplies the solver's L2 for this feature's rows.

    Examples
    --------
    >>> Position("slot", max_position=50, serve_at=1).serve_at
    1
    """

    name: str
    _: dataclasses.KW_ONLY
    max_position: int
    serve_at: int | None = None
    vector: bool = True
    clamp: bool = False
    l2_scale: float = 1.0
    kind: Literal["position"] = dataclasses.field(default="position", repr=False)
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        check_name("Position", self.name)
        where = f"Position({self.name!r})"
        check_at_least(where, "max_position", self.max_position, 0)
        if self.serve_at is not None:
            check_at_least(where, "serve_at", self.serve_at, 0)
            refuse(
                self.serve_at > self.max_position,
                where,
                f"serve_at of at most max_position={self.max_position}",
                self.serve_at,
                "Serve at a position that has a row.",
            )
        check_scale(where, self.l2_scale)


@dataclass(frozen=True)
class Numeric:
    """A number per row, standardised with the fit's mean and standard deviation; missing is 0 plus an indicator.

    Examples
    --------
    >>> Numeric("age").name
    'age'
    """

    name: str
    _: dataclasses.KW_ONLY
    l2_scale: float = 1.0
    kind: Literal["numeric"] = dataclasses.field(default="numeric", repr=False)
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        check_name("Numeric", self.name)
        check_scale(f"Numeric({self.name!r})", self.l2_scale)


@dataclass(frozen=True)
class History:
    """The items a user interacted with in training, as a user feature (SVD++; Koren, 2008).

    No column is read for it: a fit collects it from the rows that it learns from. Every item has a vector for having
    been there, in a table of the history's own; the n of a user add up with weights 1/√n. There is no bias. An item
    counts once, where it stood last; a user of whom there are no rows adds nothing.

    Parameters
    ----------
    item
        Name of the item feature whose values it holds.
    max_length
        Keep the latest items, in the order of the rows, of longer histories.
    name
        The feature's own name; ``"<item>_history"`` unless given.
    l2_scale
        Multiplies the solver's L2, which each row feels in proportion to its squared weight, 1/n. The default makes up
        for that weight; it was chosen on held-out ratings.

    Examples
    --------
    >>> History("item_id").name
    'item_id_history'
    """

    item: str
    _: dataclasses.KW_ONLY
    max_length: int | None = None
    name: str = ""
    l2_scale: float = 6.0
    kind: Literal["history"] = dataclasses.field(default="history", repr=False)
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        check_name("History", self.item)
        if not self.name:
            object.__setattr__(self, "name", f"{self.item}_history")
        if self.max_length is not None:
            check_at_least(f"History({self.item!r})", "max_length", self.max_length, 1)
        check_scale(f"History({self.item!r})", self.l2_scale)


Feature: TypeAlias = Categorical | MultiCategorical | Position | Numeric | History
Keyed: TypeAlias = Categorical | MultiCategorical
"""The features that have a vocabulary."""
