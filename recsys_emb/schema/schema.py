"""A `Schema` gives every column a kind and a role, refuses contradictions, and travels as JSON."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from recsys_emb.errors import SchemaError, listed
from recsys_emb.schema.checks import STRICT, check_at_least, refuse
from recsys_emb.schema.columns import Categorical, Feature, History, Keyed, MultiCategorical, Numeric, Position

if TYPE_CHECKING:
    from pydantic import ConfigDict, TypeAdapter

    from recsys_emb.reporting.machines import Machine
    from recsys_emb.reporting.planning import SchemaPlan

Role: TypeAlias = Literal["user", "item", "position", "context"]

# `Recommender` answers in these columns beside the user's and the item's own.
ANSWER_COLUMNS = ("score", "rank", "known")


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
        Column of row weights in the loss, of at least 0. Only how they compare counts: a fit scales them to a mean
        of 1.
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
    user_features: Sequence[Feature] = ()
    item_features: Sequence[Feature] = ()
    context_features: Sequence[Feature] = ()
    label: str | None = None
    weight: str | None = None
    embedding_dim: int = 64
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        self._check_roles()
        for group in ("user_features", "item_features", "context_features"):
            object.__setattr__(self, group, _feature_tuple(group, getattr(self, group)))
        check_at_least("Schema", "embedding_dim", self.embedding_dim, 1)
        refuse(
            not self.features,
            "Schema",
            "at least one feature",
            (),
            "Declare user=, item= or context_features=.",
        )
        self._check_names()
        for feature in self.features:
            self._check_sharing(feature)

    def _check_roles(self) -> None:
        for role, kind in (("user", Categorical), ("item", Categorical), ("position", Position)):
            value = getattr(self, role)
            wrong = value is not None and not isinstance(value, kind)
            refuse(wrong, f"Schema.{role}", f"a {kind.__name__}", value, f"Write {role}={kind.__name__}(...).")

    def _check_names(self) -> None:
        names = [*self.names, *(name for name in (self.label, self.weight) if name is not None)]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise SchemaError(
                f"Schema: expected every name once, got {listed(repeated)} more than once. "
                "Give each column one meaning."
            )
        for role in ("user", "item"):
            feature = getattr(self, role)
            clash = feature is not None and feature.name in ANSWER_COLUMNS
            refuse(
                clash,
                f"Schema.{role}",
                f"a name other than {listed(ANSWER_COLUMNS)}",
                feature and feature.name,
                "Recommendations answer in columns of these names; rename the column.",
            )

    def _check_sharing(self, feature: Feature) -> None:
        if isinstance(feature, History):
            wrong = (
                self.user is None
                or self.item is None
                or feature.item != self.item.name
                or feature not in self.user_features
            )
            refuse(
                wrong,
                f"History({feature.item!r})",
                "a user feature that names the schema's item",
                feature.item,
                "Put History(<item name>) into user_features.",
            )
            return
        if not isinstance(feature, (Categorical, MultiCategorical)) or feature.vocabulary is None:
            return
        where = f"{type(feature).__name__}({feature.name!r})"
        owners = {owner.name: owner for owner in self.keyed if owner.vocabulary is None}
        owner = owners.get(feature.vocabulary)
        refuse(
            owner is None,
            where,
            f"vocabulary= to name one of {listed(owners) or 'no feature, as none owns one'}",
            feature.vocabulary,
            "Name a feature that owns its vocabulary.",
        )
        if owner is not None:
            different = owner.unknown != feature.unknown
            refuse(
                different,
                where,
                f"unknown={owner.unknown!r}, as {owner.name!r} declares",
                feature.unknown,
                "A shared vocabulary has one rule for unknown values.",
            )
            tables = feature.share_table and owner.table != feature.table
            refuse(
                tables,
                where,
                f"table={owner.table!r}, as {owner.name!r} declares",
                feature.table,
                "A shared table has one kind.",
            )
            strengths = feature.share_table and owner.l2_scale != feature.l2_scale
            refuse(
                strengths,
                where,
                f"l2_scale={owner.l2_scale!r}, as {owner.name!r} declares",
                feature.l2_scale,
                "A shared table has one strength of L2.",
            )

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
    def infer(cls, source: object) -> Schema:
        """Propose a schema from the names, types and cardinalities of a source, and print what it is based on.

        Parameters
        ----------
        source
            Anything tabular that `FeatureEncoder.fit` takes.

        Returns
        -------
        Schema
            A proposal to read and edit, not a decision.

        Raises
        ------
        DataError
            When there are no rows, or no column that could be a feature.
        """
        # The contract puts this verb on Schema, two floors below the rooms that read sources.
        inference = importlib.import_module("recsys_emb.encoding.inference")
        proposal: Schema = inference.infer_schema(source)
        return proposal

    def plan(
        self,
        *,
        rows: float,
        distinct: Mapping[str, float],
        lengths: Mapping[str, float] | None = None,
        text: Mapping[str, float] | None = None,
        machine: Machine | None = None,
    ) -> SchemaPlan:
        """Account for memory and time at a stated size, before anything is read.

        Parameters
        ----------
        rows
            Rows that are learned from, a whole number.
        distinct
            Distinct values by feature name, of every feature that owns a vocabulary.
        lengths
            Mean number of values in a list by feature name, of every `MultiCategorical`.
        text
            Mean UTF-8 bytes of a value by feature name, where values are text; others are taken for integers.
        machine
            The rates to reckon with; those of the machine that this library was measured on unless given.

        Returns
        -------
        SchemaPlan
            Print it, or read its fields.

        Raises
        ------
        SchemaError
            When a feature is not counted, or is none of these.

        Examples
        --------
        >>> schema = Schema(user=Categorical("user"), item=Categorical("item"), label="stars", embedding_dim=64)
        >>> plan = schema.plan(rows=100_000_000, distinct={"user": 5_000_000, "item": 200_000})
        >>> plan.batch, plan.tables
        (2000000000, 1352001560)
        """
        # As `infer`: the rooms that know what things cost stand above.
        planning = importlib.import_module("recsys_emb.reporting.planning")
        sizes = planning.Sizes(self, rows, distinct, lengths or {}, text or {})
        plan: SchemaPlan = planning.plan_schema(sizes, *(() if machine is None else (machine,)))
        return plan

    @classmethod
    def from_json(cls, text: str) -> Schema:
        """Read a schema that `to_json` wrote.

        Raises
        ------
        SchemaError
            When the text is not JSON, has fields that are not declared here, or contradicts itself.
        """
        pydantic = importlib.import_module("pydantic")
        try:
            return _adapter().validate_json(text, strict=False)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            cause = first.get("ctx", {}).get("error")
            if isinstance(cause, SchemaError):
                raise cause from None
            where = ".".join(str(part) for part in first["loc"]) or "the text"
            raise SchemaError(
                f"Schema.from_json: {where}: {first['msg']}, got {first['input']!r}. Write it with Schema.to_json()."
            ) from None


@functools.cache
def _adapter() -> TypeAdapter[Schema]:
    adapter: TypeAdapter[Schema] = importlib.import_module("pydantic").TypeAdapter(Schema)
    return adapter


def _feature_tuple(group: str, features: object) -> tuple[Feature, ...]:
    collected = tuple(features) if isinstance(features, Iterable) and not isinstance(features, str) else None
    if collected is None:
        raise SchemaError(f"Schema.{group}: expected a list of features, got {features!r}. Put it into a list.")
    allowed = (
        (Categorical, MultiCategorical, Numeric, History)
        if group == "user_features"
        else (Categorical, MultiCategorical, Numeric)
    )
    for feature in collected:
        refuse(
            not isinstance(feature, allowed),
            f"Schema.{group}",
            f"one of {', '.join(kind.__name__ for kind in allowed)}",
            feature,
            "Declare the column with one of these.",
        )
    return tuple(feature for feature in collected if isinstance(feature, allowed))


def _read_columns(features: Iterable[Feature]) -> Iterator[str]:
    for feature in features:
        if isinstance(feature, History):
            continue
        yield feature.name
        if isinstance(feature, MultiCategorical) and feature.weights is not None:
            yield feature.weights
