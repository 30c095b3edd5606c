"""Schemas refuse contradictions by name and survive JSON."""

from __future__ import annotations

import dataclasses
import json

import pytest

from recsys_emb.errors import SchemaError
from recsys_emb.schema import (
    Categorical,
    Hashed,
    History,
    MultiCategorical,
    Numeric,
    OneHot,
    Position,
    QuotientRemainder,
    RefuseUnknown,
    Schema,
    UnknownBuckets,
)


def full_schema() -> Schema:
    return Schema(
        user=Categorical("user_id", unknown=UnknownBuckets(3)),
        item=Categorical("item_id", max_size=100, table=Hashed(50, 2)),
        position=Position("slot", max_position=50, serve_at=1, vector=False, clamp=True),
        user_features=[
            Categorical("country", min_count=5, unknown_dropout=0.1, table=OneHot()),
            Numeric("age", l2_scale=0.25),
            History("item_id", max_length=20),
        ],
        item_features=[
            MultiCategorical("genres", pooling="sqrtn", weights="genre_weights", max_length=4, keep="first"),
            Categorical("brand", table=QuotientRemainder(16), unknown=RefuseUnknown()),
        ],
        context_features=[MultiCategorical("recent", vocabulary="genres", share_table=True), Numeric("hour")],
        label="rating",
        weight="importance",
        embedding_dim=8,
    )


def test_json_carries_every_field_both_ways() -> None:
    schema = full_schema()
    assert Schema.from_json(schema.to_json()) == schema


def test_features_stand_user_side_first_and_position_last() -> None:
    names = ("user_id", "country", "age", "item_id_history", "recent", "hour", "item_id", "genres", "brand", "slot")
    assert full_schema().names == names


def test_input_columns_hold_list_weights_but_no_history_label_or_weight() -> None:
    expected = ("user_id", "country", "age", "recent", "hour", "item_id", "genres", "genre_weights", "brand", "slot")
    assert full_schema().input_columns == expected


@pytest.mark.parametrize(
    ("name", "role"),
    [("user_id", "user"), ("country", "user"), ("hour", "context"), ("brand", "item"), ("slot", "position")],
)
def test_every_feature_has_a_role(name: str, role: str) -> None:
    assert full_schema().role_of(name) == role


def test_declarations_are_frozen_and_hashable() -> None:
    schema = full_schema()
    assert len({schema, full_schema()}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        schema.label = "click"


def test_names_are_free_text() -> None:
    names = ["type", "items", "a.b", "keys", " ", "<pad>"]
    schema = Schema(context_features=[Categorical(name) for name in names])
    assert schema.names == tuple(names)


def test_an_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="minimum"):
        Categorical("country", minimum=3)


USER, ITEM = Categorical("u"), Categorical("i")

CONTRADICTIONS = {
    "empty name": (
        lambda: Categorical(""),
        "Categorical: expected a column name, got ''. Name the column with a non-empty text.",
    ),
    "min_count": (
        lambda: MultiCategorical("g", min_count=0),
        "MultiCategorical('g'): expected min_count to be an integer of at least 1, got 0. Give min_count=1 or more.",
    ),
    "max_size": (
        lambda: Categorical("g", max_size=True),
        "Categorical('g'): expected max_size to be an integer of at least 1, got True. Give max_size=1 or more.",
    ),
    "own limits on a shared vocabulary": (
        lambda: MultiCategorical("recent", vocabulary="i", min_count=2),
        "MultiCategorical('recent'): expected min_count and max_size on 'i', which owns the vocabulary, "
        "got 'min_count=2, max_size=None'. Declare them there.",
    ),
    "dropout": (
        lambda: Categorical("g", unknown_dropout=1.0),
        "Categorical('g'): expected unknown_dropout in [0, 1), got 1.0. It is a share of occurrences.",
    ),
    "refusal with rare values": (
        lambda: Categorical("g", min_count=2, unknown=RefuseUnknown()),
        "Categorical('g'): expected min_count=1, max_size=None and unknown_dropout=0 beside RefuseUnknown(), "
        "got 'min_count=2, max_size=None, unknown_dropout=0.0'. They send values to the unknown row; use UnknownRow().",
    ),
    "table that is a class": (
        lambda: Categorical("g", table=OneHot),
        "Categorical('g'): expected table= to be Lookup(), OneHot(), Hashed(...) or QuotientRemainder(...), "
        "got <class 'recsys_emb.schema.tables.OneHot'>. Call it.",
    ),
    "pooling": (
        lambda: MultiCategorical("g", pooling="avg"),
        "MultiCategorical('g'): expected pooling to be one of 'mean', 'sum', 'sqrtn', 'max', 'none', got 'avg'. "
        "Choose one of these.",
    ),
    "serve_at": (
        lambda: Position("slot", max_position=5, serve_at=6),
        "Position('slot'): expected serve_at of at most max_position=5, got 6. Serve at a position that has a row.",
    ),
    "l2_scale": (
        lambda: Numeric("age", l2_scale=-1),
        "Numeric('age'): expected l2_scale to be a number of at least 0, got -1. It multiplies the solver's L2.",
    ),
    "one table under two strengths": (
        lambda: Schema(
            user=USER,
            item=Categorical("i", l2_scale=0.0),
            item_features=[Categorical("near", vocabulary="i", share_table=True)],
        ),
        "Categorical('near'): expected l2_scale=0.0, as 'i' declares, got 1.0. A shared table has one strength of L2.",
    ),
    "a name twice": (
        lambda: Schema(user=USER, item=ITEM, user_features=[Categorical("i")]),
        "Schema: expected every name once, got 'i' more than once. Give each column one meaning.",
    ),
    "label that is a feature": (
        lambda: Schema(user=USER, item=ITEM, label="u"),
        "Schema: expected every name once, got 'u' more than once. Give each column one meaning.",
    ),
    "user that is a list": (
        lambda: Schema(user=MultiCategorical("u"), item=ITEM),
        f"Schema.user: expected a Categorical, got {MultiCategorical('u')!r}. Write user=Categorical(...).",
    ),
    "position among the item features": (
        lambda: Schema(user=USER, item=ITEM, item_features=[Position("slot", max_position=3)]),
        "Schema.item_features: expected one of Categorical, MultiCategorical, Numeric, "
        f"got {Position('slot', max_position=3)!r}. Declare the column with one of these.",
    ),
    "answer column": (
        lambda: Schema(user=USER, item=Categorical("score")),
        "Schema.item: expected a name other than 'score', 'rank', 'known', got 'score'. "
        "Recommendations answer in columns of these names; rename the column.",
    ),
    "vocabulary of nobody": (
        lambda: Schema(user=USER, item=ITEM, user_features=[MultiCategorical("recent", vocabulary="items")]),
        "MultiCategorical('recent'): expected vocabulary= to name one of 'u', 'i', got 'items'. "
        "Name a feature that owns its vocabulary.",
    ),
    "history of another item": (
        lambda: Schema(user=USER, item=ITEM, user_features=[History("movie")]),
        "History('movie'): expected a user feature that names the schema's item, got 'movie'. "
        "Put History(<item name>) into user_features.",
    ),
    "vocabulary of nobody at all": (
        lambda: Schema(context_features=[Categorical("a", vocabulary="b")]),
        "Categorical('a'): expected vocabulary= to name one of no feature, as none owns one, got 'b'. "
        "Name a feature that owns its vocabulary.",
    ),
    "a feature without its list": (
        lambda: Schema(user=USER, item_features=Numeric("year")),
        f"Schema.item_features: expected a list of features, got {Numeric('year')!r}. Put it into a list.",
    ),
    "no features": (
        lambda: Schema(label="rating"),
        "Schema: expected at least one feature, got (). Declare user=, item= or context_features=.",
    ),
    "embedding_dim": (
        lambda: Schema(user=USER, item=ITEM, embedding_dim=0),
        "Schema: expected embedding_dim to be an integer of at least 1, got 0. Give embedding_dim=1 or more.",
    ),
}


@pytest.mark.parametrize("contradiction", CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_a_contradiction_is_refused_at_construction_naming_the_field(contradiction) -> None:
    build, message = contradiction
    with pytest.raises(SchemaError) as caught:
        build()
    assert str(caught.value) == message


def test_json_with_a_field_that_is_not_declared_is_refused() -> None:
    document = json.loads(full_schema().to_json())
    document["lable"] = "rating"
    with pytest.raises(SchemaError) as caught:
        Schema.from_json(json.dumps(document))
    assert str(caught.value) == (
        "Schema.from_json: lable: Unexpected keyword argument, got 'rating'. Write it with Schema.to_json()."
    )


def test_json_is_held_to_the_same_contradictions() -> None:
    text = full_schema().to_json().replace('"max_size": 100', '"max_size": 0')
    with pytest.raises(SchemaError) as caught:
        Schema.from_json(text)
    assert str(caught.value) == (
        "Categorical('item_id'): expected max_size to be an integer of at least 1, got 0. Give max_size=1 or more."
    )


def test_text_that_is_no_json_is_refused() -> None:
    with pytest.raises(SchemaError, match="Invalid JSON"):
        Schema.from_json("user_id, item_id")
