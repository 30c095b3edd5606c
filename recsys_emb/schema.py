"""What the columns mean: frozen declarations that refuse contradictions and travel as JSON.

A `Schema` gives every column a kind (`Categorical`, `MultiCategorical`, `Position`, `Numeric`, `History`) and a
role (user, item, position, context). Declarations hold no data and no parameters, so two models built from one
schema share nothing. Everything learned from data lives in the `FeatureEncoder`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, TypeAdapter, ValidationError

from recsys_emb.errors import SchemaError, listed

Pooling: TypeAlias = Literal["mean", "sum", "sqrtn", "max", "none"]
Role: TypeAlias = Literal["user", "item", "position", "context"]

_STRICT = ConfigDict(extra="forbid", strict=True)
# `Recommender` answers in these columns beside the user's and the item's own.
_ANSWER_COLUMNS = ("score", "rank", "known")


def _refuse(condition: bool, where: str, expected: str, got: object, remedy: str) -> None:
    if condition:
        raise SchemaError(f"{where}: expected {expected}, got {got!r}. {remedy}")


def _check_at_least(where: str, field: str, value: object, minimum: int) -> None:
    wrong = not isinstance(value, int) or isinstance(value, bool) or value < minimum
    _refuse(wrong, where, f"{field} to be an integer of at least {minimum}", value, f"Give {field}={minimum} or more.")


def _check_name(kind: str, name: object) -> None:
    _refuse(not isinstance(name, str) or not name, kind, "a column name", name, "Name the column with a non-empty text.")


# --- what happens to values outside the vocabulary -------------------------------------------------------------


@dataclass(frozen=True)
class UnknownRow:
    """All unknown values share one row, `UNKNOWN_INDEX`."""

    kind: Literal["unknown_row"] = dataclasses.field(default="unknown_row", repr=False)
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    @property
    def rows(self) -> int:
        """Rows reserved for unknown values."""
        return 1


@dataclass(frozen=True)
class UnknownBuckets:
    """Unknown values are spread over ``count`` rows by a hash of the value that never changes.

    >>> UnknownBuckets(4).rows
    4
    """

    count: int
    kind: Literal["unknown_buckets"] = dataclasses.field(default="unknown_buckets", repr=False)
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    def __post_init__(self) -> None:
        _check_at_least("UnknownBuckets", "count", self.count, 1)

    @property
    def rows(self) -> int:
        """Rows reserved for unknown values."""
        return self.count


@dataclass(frozen=True)
class RefuseUnknown:
    """Unknown values raise `UnknownValueError`, which lists them. The row stays reserved, so indices agree."""

    kind: Literal["refuse_unknown"] = dataclasses.field(default="refuse_unknown", repr=False)
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    @property
    def rows(self) -> int:
        """Rows reserved for unknown values."""
        return 1


Unknown: TypeAlias = UnknownRow | UnknownBuckets | RefuseUnknown


# --- which lookup turns an index into a vector -----------------------------------------------------------------


@dataclass(frozen=True)
class Lookup:
    """One row per index: `CategoryEmbedding`."""

    kind: Literal["lookup"] = dataclasses.field(default="lookup", repr=False)
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True)
class OneHot:
    """One-hot × matrix, the same numbers the slow way: `OneHotProjection`.

    Parameters
    ----------
    dense_limit
        Bytes that a dense one-hot matrix of one batch may take; above, the product is computed as a gather.
    """

    dense_limit: int = 64 * 2**20
    kind: Literal["one_hot"] = dataclasses.field(default="one_hot", repr=False)
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    def __post_init__(self) -> None:
        _check_at_least("OneHot", "dense_limit", self.dense_limit, 0)


@dataclass(frozen=True)
class Hashed:
    """Sum of ``num_hashes`` rows of a small table (Serrà & Karatzoglou, 2017): `HashedEmbedding`."""

    num_embeddings: int
    num_hashes: int = 2
    kind: Literal["hashed"] = dataclasses.field(default="hashed", repr=False)
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    def __post_init__(self) -> None:
        _check_at_least("Hashed", "num_embeddings", self.num_embeddings, 1)
        _check_at_least("Hashed", "num_hashes", self.num_hashes, 1)


@dataclass(frozen=True)
class QuotientRemainder:
    """Product of a quotient row and a remainder row (Shi et al., 2020): `QuotientRemainderEmbedding`."""

    buckets: int
    kind: Literal["quotient_remainder"] = dataclasses.field(default="quotient_remainder", repr=False)
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    def __post_init__(self) -> None:
        _check_at_least("QuotientRemainder", "buckets", self.buckets, 1)


Table: TypeAlias = Lookup | OneHot | Hashed | QuotientRemainder


# --- kinds of column -------------------------------------------------------------------------------------------


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
        _check_name(kind, self.name)
        where = f"{kind}({self.name!r})"
        _check_at_least(where, "min_count", self.min_count, 1)
        if self.max_size is not None:
            _check_at_least(where, "max_size", self.max_size, 1)
        self._check_sharing(where)
        _refuse(not 0 <= self.unknown_dropout < 1, where, "unknown_dropout in [0, 1)", self.unknown_dropout, "It is a share of occurrences.")
        _refuse(not self.l2_scale >= 0, where, "l2_scale of at least 0", self.l2_scale, "It multiplies the solver's L2.")
        self._check_refusal(where)

    def _check_sharing(self, where: str) -> None:
        if self.vocabulary is None:
            _refuse(self.share_table, where, "vocabulary= beside share_table=True", None, "Name the feature whose table is shared.")
            return
        own = self.min_count != 1 or self.max_size is not None
        _refuse(own, where, f"min_count and max_size on {self.vocabulary!r}, which owns the vocabulary", f"min_count={self.min_count}, max_size={self.max_size}", "Declare them there.")
        _refuse(self.vocabulary == self.name, where, "vocabulary= to name another feature", self.vocabulary, "Leave it out.")

    def _check_refusal(self, where: str) -> None:
        if not isinstance(self.unknown, RefuseUnknown):
            return
        routes = self.min_count > 1 or self.max_size is not None or self.unknown_dropout > 0
        _refuse(routes, where, "min_count=1, max_size=None and unknown_dropout=0 beside RefuseUnknown()", f"min_count={self.min_count}, max_size={self.max_size}, unknown_dropout={self.unknown_dropout}", "They send values to the unknown row; use UnknownRow().")

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
    recsys_emb.errors.SchemaError: Categorical('country'): expected min_count to be an integer of at least 1, got 0. Give min_count=1 or more.
    """

    kind: Literal["categorical"] = dataclasses.field(default="categorical", repr=False)
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


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
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"MultiCategorical({self.name!r})"
        poolings = ("mean", "sum", "sqrtn", "max", "none")
        _refuse(self.pooling not in poolings, where, f"pooling to be one of {listed(poolings)}", self.pooling, "Choose one of these.")
        _refuse(self.keep not in ("first", "last"), where, "keep to be 'first' or 'last'", self.keep, "Choose one of these.")
        if self.max_length is not None:
            _check_at_least(where, "max_length", self.max_length, 1)


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
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    def __post_init__(self) -> None:
        _check_name("Position", self.name)
        where = f"Position({self.name!r})"
        _check_at_least(where, "max_position", self.max_position, 0)
        if self.serve_at is not None:
            _check_at_least(where, "serve_at", self.serve_at, 0)
            _refuse(self.serve_at > self.max_position, where, f"serve_at of at most max_position={self.max_position}", self.serve_at, "Serve at a position that has a row.")
        _refuse(not self.l2_scale >= 0, where, "l2_scale of at least 0", self.l2_scale, "It multiplies the solver's L2.")


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
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    def __post_init__(self) -> None:
        _check_name("Numeric", self.name)
        _refuse(not self.l2_scale >= 0, f"Numeric({self.name!r})", "l2_scale of at least 0", self.l2_scale, "It multiplies the solver's L2.")


@dataclass(frozen=True)
class History:
    """The items a user interacted with in training, as a user feature (SVD++; Koren, 2008).

    No column is read for it: the fit collects it from the interactions. Each item weighs 1/√n.

    Parameters
    ----------
    item
        Name of the item feature whose values it holds.
    max_length
        Keep the latest (in row order) of longer histories.
    name
        The feature's own name; ``"<item>_history"`` unless given.
    l2_scale
        Multiplies the solver's L2, which each row feels in proportion to its squared weight.

    Examples
    --------
    >>> History("item_id").name
    'item_id_history'
    """

    item: str
    _: dataclasses.KW_ONLY
    max_length: int | None = None
    name: str = ""
    l2_scale: float = 1.0
    kind: Literal["history"] = dataclasses.field(default="history", repr=False)
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    def __post_init__(self) -> None:
        _check_name("History", self.item)
        if not self.name:
            object.__setattr__(self, "name", f"{self.item}_history")
        if self.max_length is not None:
            _check_at_least(f"History({self.item!r})", "max_length", self.max_length, 1)
        _refuse(not self.l2_scale >= 0, f"History({self.item!r})", "l2_scale of at least 0", self.l2_scale, "It multiplies the solver's L2.")


Feature: TypeAlias = Categorical | MultiCategorical | Position | Numeric | History
Keyed: TypeAlias = Categorical | MultiCategorical
"""The features that have a vocabulary."""


@dataclass(frozen=True)
class Schema:
    """The columns of an interaction table and what they mean.

    Parameters
    ----------
    user, item
        The two sides of a pair. Both may be left out when only the encoder and the lookups are used.
    position
        A display slot or an order in time; it stands on the item side of a score.
    user_features, item_features
        Attributes of the user and of the item; summed into their side's vector.
    context_features
        Attributes of the interaction itself (device, hour); they stand on the user side of a score.
    label
        Column to learn: a rating, or 0/1. None makes every row a positive.
    weight
        Column of non-negative row weights in the loss.
    embedding_dim
        Width at which user, item and position meet.

    Raises
    ------
    SchemaError
        When the declarations contradict each other; the message names the field.

    Examples
    --------
    >>> schema = Schema(
    ...     user=Categorical("user_id"),
    ...     item=Categorical("item_id"),
    ...     item_features=[MultiCategorical("genres")],
    ...     label="rating",
    ... )
    >>> schema.names
    ('user_id', 'item_id', 'genres')
    >>> Schema.from_json(schema.to_json()) == schema
    True
    """

    _: dataclasses.KW_ONLY
    user: Categorical | None = None
    item: Categorical | None = None
    position: Position | None = None
    user_features: tuple[Feature, ...] = ()
    item_features: tuple[Feature, ...] = ()
    context_features: tuple[Feature, ...] = ()
    label: str | None = None
    weight: str | None = None
    embedding_dim: int = 64
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    def __post_init__(self) -> None:
        self._check_roles()
        for group in ("user_features", "item_features", "context_features"):
            object.__setattr__(self, group, _feature_tuple(group, getattr(self, group)))
        _check_at_least("Schema", "embedding_dim", self.embedding_dim, 1)
        _refuse(not self.features, "Schema", "at least one feature", (), "Declare user=, item= or context_features=.")
        self._check_names()
        for feature in self.features:
            self._check_sharing(feature)

    def _check_roles(self) -> None:
        for role, kind in (("user", Categorical), ("item", Categorical), ("position", Position)):
            value = getattr(self, role)
            wrong = value is not None and not isinstance(value, kind)
            _refuse(wrong, f"Schema.{role}", f"a {kind.__name__}", value, f"Write {role}={kind.__name__}(...).")

    def _check_names(self) -> None:
        names = [*self.names, *(name for name in (self.label, self.weight) if name is not None)]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise SchemaError(f"Schema: expected every name once, got {listed(repeated)} more than once. Give each column one meaning.")
        for role in ("user", "item"):
            feature = getattr(self, role)
            clash = feature is not None and feature.name in _ANSWER_COLUMNS
            _refuse(clash, f"Schema.{role}", f"a name other than {listed(_ANSWER_COLUMNS)}", feature and feature.name, "Recommendations answer in columns of these names; rename the column.")

    def _check_sharing(self, feature: Feature) -> None:
        if isinstance(feature, History):
            wrong = self.user is None or self.item is None or feature.item != self.item.name or feature not in self.user_features
            _refuse(wrong, f"History({feature.item!r})", "a user feature that names the schema's item", feature.item, "Put History(<item name>) into user_features.")
            return
        if not isinstance(feature, (Categorical, MultiCategorical)) or feature.vocabulary is None:
            return
        where = f"{type(feature).__name__}({feature.name!r})"
        owners = {owner.name: owner for owner in self.keyed if owner.vocabulary is None}
        owner = owners.get(feature.vocabulary)
        _refuse(owner is None, where, f"vocabulary= to name one of {listed(owners)}", feature.vocabulary, "Name a feature that owns its vocabulary.")
        if owner is not None:
            different = owner.unknown != feature.unknown
            _refuse(different, where, f"unknown={owner.unknown!r}, as {owner.name!r} declares", feature.unknown, "A shared vocabulary has one rule for unknown values.")
            tables = feature.share_table and owner.table != feature.table
            _refuse(tables, where, f"table={owner.table!r}, as {owner.name!r} declares", feature.table, "A shared table has one kind.")

    @property
    def features(self) -> tuple[Feature, ...]:
        """All features: user side, then item side, position last."""
        return (*self.user_side, *self.item_side)

    @property
    def user_side(self) -> tuple[Feature, ...]:
        """The features summed into the user's vector: user, user features, context features."""
        user = () if self.user is None else (self.user,)
        return (*user, *self.user_features, *self.context_features)

    @property
    def item_side(self) -> tuple[Feature, ...]:
        """The features summed into the item's vector: item, item features, position."""
        item = () if self.item is None else (self.item,)
        position = () if self.position is None else (self.position,)
        return (*item, *self.item_features, *position)

    @property
    def keyed(self) -> tuple[Keyed, ...]:
        """The features that have a vocabulary."""
        return tuple(feature for feature in self.features if isinstance(feature, (Categorical, MultiCategorical)))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all features, in order."""
        return tuple(feature.name for feature in self.features)

    @property
    def input_columns(self) -> tuple[str, ...]:
        """Columns that encoding reads: features (but `History`) and the weights of lists; no label, no weight."""
        return tuple(_read_columns(self.features))

    def __getitem__(self, name: str) -> Feature:
        """Feature called ``name``."""
        for feature in self.features:
            if feature.name == name:
                return feature
        raise KeyError(name)

    def role_of(self, name: str) -> Role:
        """Role of the feature called ``name``.

        >>> Schema(user=Categorical("u"), item=Categorical("i")).role_of("i")
        'item'
        """
        feature = self[name]
        if feature in self.context_features:
            return "context"
        if feature is self.position:
            return "position"
        return "user" if feature in self.user_side else "item"

    def to_json(self) -> str:
        """Write the schema as JSON text; `from_json` reads it back."""
        return _adapter().dump_json(self, indent=2).decode()

    @classmethod
    def from_json(cls, text: str) -> Schema:
        """Read a schema that `to_json` wrote.

        Raises
        ------
        SchemaError
            When the text is not JSON, has fields that are not declared here, or contradicts itself.
        """
        try:
            return _adapter().validate_json(text, strict=False)
        except ValidationError as error:
            first = error.errors()[0]
            cause = first.get("ctx", {}).get("error")
            if isinstance(cause, SchemaError):
                raise cause from None
            where = ".".join(str(part) for part in first["loc"]) or "the text"
            raise SchemaError(f"Schema.from_json: {where}: {first['msg']}, got {first['input']!r}. Write it with Schema.to_json().") from None


def _adapter() -> TypeAdapter[Schema]:
    return TypeAdapter(Schema)


def _feature_tuple(group: str, features: Iterable[object]) -> tuple[Feature, ...]:
    collected = tuple(features)
    allowed = (Categorical, MultiCategorical, Numeric, History) if group == "user_features" else (Categorical, MultiCategorical, Numeric)
    for feature in collected:
        _refuse(not isinstance(feature, allowed), f"Schema.{group}", f"one of {', '.join(kind.__name__ for kind in allowed)}", feature, "Declare the column with one of these.")
    return tuple(feature for feature in collected if isinstance(feature, allowed))


def _read_columns(features: Iterable[Feature]) -> Iterator[str]:
    for feature in features:
        if isinstance(feature, History):
            continue
        yield feature.name
        if isinstance(feature, MultiCategorical) and feature.weights is not None:
            yield feature.weights
