from dataclasses import dataclass

import pandas as pd
import pytest
import torch

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import SchemaError
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.lookup.widths import suggested_dim
from recsys_emb.schema.columns import Categorical, History, MultiCategorical, Numeric, Position
from recsys_emb.schema.schema import Schema
from recsys_emb.schema.tables import Hashed, UnknownBuckets


@dataclass
class Sizes:
    schema: Schema
    rows: dict[str, int]

    def num_embeddings(self, name: str) -> int:
        return self.rows[name]


SCHEMA = Schema(
    user=Categorical("user"),
    item=Categorical("item", unknown=UnknownBuckets(5)),
    position=Position("slot", max_position=9),
    user_features=[
        Numeric("age"),
        MultiCategorical("recent", vocabulary="item", share_table=True, unknown=UnknownBuckets(5)),
        History("item"),
    ],
    item_features=[Categorical("shop", table=Hashed(7)), Categorical("colour")],
    embedding_dim=4,
)
ITEMS = 7 + 1_000
ROWS = {"user": 3 + 10, "item": ITEMS, "recent": ITEMS, "item_history": ITEMS, "slot": 3 + 10, "age": 2}
SIZES = Sizes(SCHEMA, ROWS | {"shop": 3 + 27_000, "colour": 3})
WIDTHS = {
    "user": 6,
    "age": 1,
    "recent": 77,
    "item_history": 77,
    "item": 77,
    "shop": 485,
    "colour": 1,
    "slot": 6,
}


@pytest.mark.parametrize(("count", "width"), [(0, 1), (1, 2), (2, 2), (3, 3), (100, 21), (40_000, 600), (10**15, 600)])
def test_a_suggested_width_is_that_of_the_rule(count, width):
    assert suggested_dim(count) == width


def test_auto_gives_each_feature_the_width_of_its_own_values():
    assert FeatureEmbedding(SIZES, embedding_dim="auto").embedding_dims == WIDTHS


def test_vectors_have_the_width_of_their_feature():
    frame = pd.DataFrame({"user": range(10), "tags": [["a", "b"], [], *[["c"]] * 8]})
    schema = Schema(user=Categorical("user"), user_features=[MultiCategorical("tags")])
    encoder = FeatureEncoder(schema).fit(frame)
    embed = FeatureEmbedding(encoder, embedding_dim="auto")
    vectors = embed(encoder.transform(frame))
    assert {name: tuple(found.shape) for name, found in vectors.items()} == {"user": (10, 6), "tags": (10, 3)}


def test_a_plan_says_the_same_widths():
    plan = FeatureEmbedding.plan(SIZES, embedding_dim="auto")
    assert plan["embedding_dim"].to_dict() == WIDTHS
    assert plan.loc["user", "parameters"] == 13 * 6


def test_widths_by_name_build_the_tables_that_auto_built_before_it_grew():
    schema = Schema(user=Categorical("user"), embedding_dim=4)
    embed = FeatureEmbedding(Sizes(schema, {"user": 13}), embedding_dim="auto")
    grown = Sizes(schema, {"user": 1_003})
    embed.grow(grown)
    again = FeatureEmbedding(grown, embedding_dim=embed.embedding_dims)
    again.load_state_dict(embed.state_dict())
    assert torch.equal(again.lookup("user").weight, embed.lookup("user").weight)
    assert again.lookup("user").weight.shape == (1_003, 6)


def test_one_width_is_told_where_there_is_one():
    assert FeatureEmbedding(SIZES, embedding_dim=5).embedding_dim == 5
    assert FeatureEmbedding(SIZES, embedding_dim="auto", features=["user", "slot"]).embedding_dim == 6
    with pytest.raises(SchemaError) as caught:
        _ = FeatureEmbedding(SIZES, embedding_dim="auto", features=["user", "item"]).embedding_dim
    assert str(caught.value) == (
        "FeatureEmbedding: expected one width, got 6, 77. Give one embedding_dim, or read embedding_dims."
    )


@pytest.mark.parametrize(("width", "message"), [
    (
        "wide",
        "FeatureEmbedding: expected embedding_dim to be an integer, 'auto' or widths by feature, got 'wide'. "
        "Say 'auto' for suggested_dim of every feature.",
    ),
    (
        {"item": 3},
        "FeatureEmbedding: expected embedding_dim to name every feature, got none for 'recent'. Give each a width.",
    ),
    (
        {"item": 3, "recent": 4},
        "feature 'recent': expected width 3, that of the table that it shares, got 4. Give both the same.",
    ),
])  # fmt: skip
def test_a_width_that_means_nothing_is_refused(width, message):
    with pytest.raises(SchemaError) as caught:
        FeatureEmbedding(SIZES, embedding_dim=width, features=["item", "recent"])
    assert str(caught.value) == message
