"""A schema's tables in a model of TorchRec's own: the vectors of a `FeatureEmbedding`."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.errors import EmptySourceError, SchemaError
from recsys_emb.integrations.torchrec import bag_configs, collection_configs, keyed_jagged
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.schema import Categorical, Hashed, MultiCategorical, Numeric, Position, Schema

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torchrec = pytest.importorskip("torchrec", reason="TorchRec is not installed", exc_type=ImportError)

SCHEMA = Schema(
    user=Categorical("user.id"),
    item=Categorical("item"),
    position=Position("slot", max_position=3),
    user_features=[Numeric("age")],
    item_features=[MultiCategorical("tags"), MultiCategorical("words", pooling="sqrtn", weights="shares")],
    context_features=[MultiCategorical("seen", vocabulary="item", share_table=True, pooling="sum")],
    embedding_dim=4,
)
ENCODER: Any = SimpleNamespace(schema=SCHEMA, num_embeddings=lambda name: 2 if name == "age" else 9)


def batch_of(lists: list[list[int]]) -> Batch:
    words = Jagged.from_lists(lists)
    count = len(lists)
    return Batch(
        {
            "user.id": torch.arange(count) % 9,
            "item": torch.tensor([0, 3, 8, 1])[:count],
            "slot": torch.tensor([3, 4, 1, 0])[:count],
            "age": torch.tensor([[0.5, 0.0], [0.0, 1.0], [-2.0, 0.0], [0.0, 0.0]])[:count],
            "tags": Jagged.from_lists(lists[::-1]),
            "words": Jagged(words.values, words.offsets, torch.linspace(0.0, 2.0, len(words.values))),
            "seen": Jagged.from_lists(lists),
        }
    )


def weighted(embed: FeatureEmbedding, collection: Any) -> None:
    """Give a collection the rows of a `FeatureEmbedding`, whose padding is not zero here: nobody must read it."""
    with torch.no_grad():
        for place, table in enumerate(embed.tables):
            table.weight[: len(table.weight)] = torch.randn(table.weight.shape)
            collection.get_submodule(f"table_{place}").weight.copy_(table.weight)


@pytest.mark.parametrize("lists", [[[3, 4], [], [5, 0, 3], [0]], [[7]]])
def test_a_bag_collection_gives_the_vectors_of_a_feature_embedding(lists: list[list[int]]) -> None:
    embed = FeatureEmbedding(ENCODER)
    bags = torchrec.EmbeddingBagCollection(tables=bag_configs(ENCODER), is_weighted=True, device=torch.device("cpu"))
    weighted(embed, bags.embedding_bags)
    batch = batch_of(lists)
    found, expected = bags(keyed_jagged(batch, SCHEMA)), embed(batch)
    assert set(found.keys()) == set(expected)
    for name, vectors in expected.items():
        assert torch.allclose(found[name], vectors, atol=1e-6), name


def test_a_collection_gives_a_vector_per_value() -> None:
    features = ["user.id", "seen"]
    embed = FeatureEmbedding(ENCODER, features=features)
    configs = collection_configs(ENCODER, features=features)
    rows = torchrec.EmbeddingCollection(tables=configs, device=torch.device("cpu"))
    weighted(embed, rows.embeddings)
    batch = batch_of([[3, 4], [5]])
    found: dict[str, Any] = rows(keyed_jagged(batch, SCHEMA, features=features))
    assert torch.equal(found["seen"].values(), embed.lookup("seen").weight[[3, 4, 5]])
    assert found["user.id"].lengths().tolist() == [0, 1]


def test_a_batch_without_rows_is_refused_before_torchrec_does() -> None:
    with pytest.raises(EmptySourceError) as error:
        keyed_jagged(batch_of([]), SCHEMA)
    assert str(error.value) == "keyed_jagged: expected at least one row, got 0 rows. TorchRec takes none; pass over it."


def test_features_that_share_a_table_share_a_config() -> None:
    shared = [table.feature_names for table in bag_configs(ENCODER)]
    assert ["seen", "item"] in shared
    assert sorted(name for names in shared for name in names) == sorted(one.name for one in SCHEMA.features)


def test_what_cannot_be_a_table_of_torchrec_is_refused() -> None:
    def encoder(**options: Any) -> Any:
        sizes = {"user": 9, "item": 9, "tags": 9}
        return SimpleNamespace(schema=Schema(user=Categorical("user"), **options), num_embeddings=sizes.__getitem__)

    with pytest.raises(SchemaError) as pooled:
        bag_configs(encoder(user_features=[MultiCategorical("tags", pooling="max")]))
    assert str(pooled.value) == (
        "bag_configs: expected 'tags' to pool by a weighted sum, got pooling='max'. "
        "Pool it by 'mean', 'sum' or 'sqrtn', or use collection_configs."
    )
    with pytest.raises(SchemaError) as hashed:
        collection_configs(encoder(item=Categorical("item", table=Hashed(4))))
    assert str(hashed.value) == (
        "TorchRec: expected a table with a row per value for 'item', got a HashedEmbedding. "
        "Declare it with table=Lookup(), or leave it out of features."
    )
