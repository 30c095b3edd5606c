from dataclasses import dataclass

from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.schema.columns import Categorical, MultiCategorical, Numeric
from recsys_emb.schema.schema import Schema
from recsys_emb.schema.tables import Hashed, OneHot, QuotientRemainder


@dataclass
class Sizes:
    schema: Schema
    rows: int

    def num_embeddings(self, name: str) -> int:
        return 2 if isinstance(self.schema[name], Numeric) else self.rows


SCHEMA = Schema(
    user=Categorical("user"),
    item=Categorical("item", table=OneHot()),
    user_features=[Numeric("age"), MultiCategorical("friends", vocabulary="user", share_table=True)],
    item_features=[Categorical("shop", table=Hashed(7)), Categorical("city", table=QuotientRemainder(10))],
    embedding_dim=4,
)


def test_a_plan_counts_every_feature_by_hand():
    plan = FeatureEmbedding.plan(Sizes(SCHEMA, 100), batch_size=8)
    assert list(plan.index) == ["user", "age", "friends", "item", "shop", "city"]
    assert plan["kind"].tolist() == [
        "CategoryEmbedding",
        "NumericProjection",
        "CategoryEmbedding",
        "OneHotProjection",
        "HashedEmbedding",
        "QuotientRemainderEmbedding",
    ]
    assert plan["num_embeddings"].tolist() == [100, 2, 100, 100, 100, 100]
    # Shared tables count once; a projection's rows are its D outputs; shop has 3 reserved and 7 hashed rows, city
    # 3 reserved, ceil(97 / 10) quotients and 10 remainders.
    assert plan["parameters"].tolist() == [400, 8, 0, 400, 40, 92]
    assert plan["weight_bytes"].tolist() == [1600, 32, 0, 1600, 160, 368]
    assert plan["gradient_bytes"].tolist() == plan["weight_bytes"].tolist()
    assert plan["row_wise_adagrad_bytes"].tolist() == [400, 8, 0, 16, 40, 92]
    assert plan["adam_bytes"].tolist() == [3200, 64, 0, 3200, 320, 736]
    assert plan["one_hot_bytes"].tolist() == [3200, 0, 0, 3200, 3200, 3200]


def test_a_plan_equals_the_tables_that_are_then_built():
    plan = FeatureEmbedding.plan(Sizes(SCHEMA, 100))
    built = FeatureEmbedding(Sizes(SCHEMA, 100))
    assert plan["parameters"].sum() == sum(parameter.numel() for parameter in built.parameters())


def test_a_plan_allocates_nothing():
    plan = FeatureEmbedding.plan(Sizes(SCHEMA, 10**12), embedding_dim=128)
    assert plan.loc["user", "weight_bytes"] == 10**12 * 128 * 4
