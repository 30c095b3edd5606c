"""Faults met in other libraries between an index and a loss."""

from dataclasses import dataclass

import pandas as pd
import pytest
import torch
from torch.testing import assert_close

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import FitError, IndexRangeError
from recsys_emb.lookup.category import CategoryEmbedding
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.lookup.hashed import HashedEmbedding
from recsys_emb.lookup.one_hot import OneHotProjection
from recsys_emb.lookup.position import LearnedPosition
from recsys_emb.lookup.quotient_remainder import QuotientRemainderEmbedding
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.recommender import Recommender
from recsys_emb.schema.columns import Categorical, MultiCategorical, Position
from recsys_emb.schema.schema import Schema
from recsys_emb.schema.tables import Hashed, Lookup, OneHot, QuotientRemainder
from recsys_emb.training.losses import SquaredError
from recsys_emb.training.minibatch import Minibatch
from recsys_emb.training.optim import LazyAdam, RowWiseAdagrad
from recsys_emb.vocabulary.reserved import MISSING_INDEX, PADDING_INDEX
from recsys_emb.vocabulary.vocabulary import Vocabulary

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
    ),
]


@dataclass
class Sizes:
    schema: Schema
    rows: int = 12

    def num_embeddings(self, name: str) -> int:
        return self.rows if name in self.schema.names else 0


def tags(pooling: str = "mean", **options: object) -> FeatureEmbedding:
    schema = Schema(context_features=[MultiCategorical("tags", pooling=pooling)], embedding_dim=3)
    return FeatureEmbedding(Sizes(schema), init_std=1.0, **options)


def bags(*lists: list[int], weight: float | None = None) -> Batch:
    made = Jagged.from_lists(lists)
    weights = None if weight is None else torch.full((len(made.values),), weight)
    return Batch({"tags": Jagged(made.values, made.offsets, weights)})


# --- EM-03 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lists", [[[5], [], [7]], [[], []], [[5], [7], []], [[0, 0], [5]], []], ids=str)
@pytest.mark.parametrize("weight", [None, 1.0, 0.0])
@pytest.mark.parametrize("pooling", ["mean", "sum", "sqrtn", "max"])
def test_em_03_an_empty_bag_is_finite_forward_backward_and_after_a_step(pooling, weight, lists):
    embed = tags(pooling)
    optimizer = torch.optim.Adam(embed.parameters(), lr=0.1)
    vectors = embed(bags(*lists, weight=weight))["tags"]
    vectors.square().sum().backward()
    optimizer.step()
    assert vectors.shape == (len(lists), 3)
    assert all(bool(one.isfinite().all()) for p in embed.parameters() for one in (vectors, p, p.grad))


@pytest.mark.parametrize("pooling", ["mean", "sum", "sqrtn", "max"])
def test_em_03_other_bags_are_the_same_beside_an_empty_one(pooling):
    embed = tags(pooling)
    with_empty, without = (embed(bags(*lists))["tags"] for lists in ([[5, 6], [], [7]], [[5, 6], [7]]))
    assert torch.equal(with_empty[[0, 2]], without)
    assert torch.equal(with_empty[1], embed.lookup("tags")(torch.tensor(MISSING_INDEX)))


# --- EM-04 -----------------------------------------------------------------------------------------------------

LOOKUPS = {
    "lookup": CategoryEmbedding(12, 3, name="item_id"),
    "one-hot": OneHotProjection(12, 3, name="item_id"),
    "one-hot, gathered": OneHotProjection(12, 3, dense_limit=0, name="item_id"),
    "hashed": HashedEmbedding(12, 3, num_embeddings=5, name="item_id"),
    "quotient-remainder": QuotientRemainderEmbedding(12, 3, buckets=4, name="item_id"),
    "position": LearnedPosition(11, 3, name="item_id"),
}
OUTSIDE = [12, 1_000_000, -1, -13]


def message(index: int, place: int = 0) -> str:
    return (
        f"feature 'item_id': expected indices in [0, 12), got {index} (first at position {place}). Encode the values "
        "with the encoder that the table was sized by; num_embeddings counts the reserved rows."
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("index", OUTSIDE)
@pytest.mark.parametrize("name", LOOKUPS)
def test_em_04_every_lookup_names_an_index_outside_it_and_goes_on_working(name, index, device):
    lookup = LOOKUPS[name].to(device)
    with pytest.raises(IndexRangeError) as caught:
        lookup(torch.tensor([index, 3], device=device))
    assert str(caught.value) == message(index)
    assert lookup(torch.tensor([3, 11], device=device)).shape == (2, 3)


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's own, at a break of the graph
@pytest.mark.parametrize("name", ["lookup", "one-hot", "hashed"])
def test_em_04_compiled_lookups_behave_alike(name):
    lookup = LOOKUPS[name].to("cpu")
    compiled = torch.compile(lookup, backend="eager")
    for index in OUTSIDE:
        with pytest.raises(IndexRangeError) as caught:
            compiled(torch.tensor([3, index]))
        assert str(caught.value) == message(index, place=1)
    assert_close(compiled(torch.tensor([3, 11])), lookup(torch.tensor([3, 11])))
    torch._dynamo.reset()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("index", OUTSIDE)
@pytest.mark.parametrize("table", [Lookup(), OneHot(), Hashed(5), QuotientRemainder(4)])
def test_em_04_pooled_indices_outside_the_table_are_named(table, index, device):
    schema = Schema(context_features=[MultiCategorical("item_id", table=table)], embedding_dim=3)
    embed = FeatureEmbedding(Sizes(schema)).to(device)
    with pytest.raises(IndexRangeError) as caught:
        embed(Batch({"item_id": Jagged.from_lists([[3], [index]])}).to(device))
    assert str(caught.value) == message(index, place=1)
    assert embed(Batch({"item_id": Jagged.from_lists([[3], []])}).to(device))["item_id"].shape == (2, 3)


def test_em_04_a_cardinality_without_the_reserved_rows_is_caught():
    vocabulary = Vocabulary.from_values(["a", "b", "c"], name="item_id")
    forgetful = CategoryEmbedding(len(vocabulary), 3, name="item_id")
    with pytest.raises(IndexRangeError, match=r"feature 'item_id': expected indices in \[0, 3\), got 3 "):
        forgetful(vocabulary.encode(["a"]))


# --- EM-05 -----------------------------------------------------------------------------------------------------

SPARSE_OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "SparseAdam": lambda p: torch.optim.SparseAdam(list(p), lr=0.1),
    "RowWiseAdagrad": lambda p: RowWiseAdagrad(p, lr=0.1),
    "LazyAdam": lambda p: LazyAdam(p, lr=0.1),
}


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch's own Adagrad provokes it
@pytest.mark.parametrize("name", SPARSE_OPTIMIZERS)
def test_em_05_a_batch_of_padding_alone_changes_nothing(name):
    embedding = CategoryEmbedding(5, 3, padding_index=0, sparse=True)
    optimizer = SPARSE_OPTIMIZERS[name](embedding.parameters())
    before = embedding.weight.detach().clone()
    embedding(torch.zeros(4, 2, dtype=torch.int64)).sum().backward()
    optimizer.step()
    assert torch.equal(embedding.weight, before)


def test_em_05_repeated_ids_update_as_dense_gradients_do():
    tables = [
        CategoryEmbedding(5, 3, sparse=sparse, generator=torch.Generator().manual_seed(0)) for sparse in (False, True)
    ]
    for table in tables:
        optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
        table(torch.tensor([2, 2, 2])).exp().sum().backward()
        optimizer.step()
    assert_close(tables[0].weight, tables[1].weight)


@pytest.mark.parametrize(("optimizer", "reason"), [
    (
        lambda p, lr=0.1: torch.optim.SGD(p, lr, weight_decay=0.01),
        "SGD has a weight_decay and the model sparse gradients, which would decay touched rows alone; "
        "set weight_decay=0 and give Minibatch(l2=...)",
    ),
    (
        torch.optim.Adam,
        "Adam takes no sparse gradients; make the model with sparse=False, or use LazyAdam",
    ),
])  # fmt: skip
def test_em_05_what_sparse_gradients_cannot_do_is_refused_before_the_first_batch(optimizer, reason):
    schema = Schema(user=Categorical("user"), item=Categorical("item"), embedding_dim=3)
    model = MatrixFactorization(Sizes(schema), sparse=True)
    indices = torch.tensor([3, 4])
    batch = Batch({"user": indices, "item": indices}, label=torch.ones(2))
    with pytest.raises(FitError) as caught:
        Minibatch(optimizer=optimizer).start(model, batch, SquaredError(), seed=0)
    assert str(caught.value) == f"Minibatch: expected an optimizer that fits the gradients, but {reason}."


@pytest.mark.parametrize("optimizer", [RowWiseAdagrad, LazyAdam])
def test_em_05_row_sparse_optimizers_refuse_weight_decay(optimizer):
    with pytest.raises(FitError, match=r"expected weight_decay=0, got 0\.1"):
        optimizer([torch.nn.Parameter(torch.zeros(2, 1))], weight_decay=0.1)


# --- EM-07 -----------------------------------------------------------------------------------------------------


def test_em_07_a_real_value_0_has_a_row_of_its_own_and_counts():
    schema = Schema(
        item=Categorical("item"), context_features=[MultiCategorical("seen", vocabulary="item", share_table=True)]
    )
    frame = pd.DataFrame({"item": [0, 1, 2, 3], "seen": [[0, 1], [0], [2, 0, 0], []]})
    encoder = FeatureEncoder(schema).fit(frame)
    batch = encoder.transform(frame)
    zero = encoder.vocabularies["item"].encode([0])
    assert int(zero) >= encoder.vocabularies["item"].first_index > PADDING_INDEX
    assert batch.lists("seen").lengths.tolist() == [2, 1, 3, 0]

    embed = FeatureEmbedding(encoder)
    optimizer = torch.optim.SGD(embed.parameters(), lr=0.1)
    embed.vectors_of("seen", batch.select(torch.tensor([1]))).sum().backward()
    table = embed.lookup("item")
    assert bool(table.weight.grad[zero].all())
    optimizer.step()
    pooled = embed.vectors_of("seen", batch)
    assert torch.equal(pooled[1], table(zero)[0])
    assert bool(pooled[1].any())
    assert_close(pooled[2], (table(batch.indices("item")[2]) + 2 * table(zero)[0]) / 3)


def test_em_07_item_0_can_be_recommended():
    frame = pd.DataFrame([(user, item, float(item == 0)) for user in range(4) for item in range(4) if user or item],
                         columns=["user", "item", "rating"])  # fmt: skip
    schema = Schema(user=Categorical("user"), item=Categorical("item"), label="rating", embedding_dim=2)
    recommender = Recommender(schema, objective=SquaredError(), epochs=30, progress=False).fit(frame)
    assert recommender.recommend([0], k=4)["item"].tolist() == [0]


# --- EM-08 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 4])
@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("left", [False, True])
def test_em_08_a_place_is_counted_from_the_first_real_token_whatever_the_padding(length, width, left):
    position = LearnedPosition(3, 2, init_std=1.0)
    mask = torch.arange(width) >= width - length if left else torch.arange(width) < length
    codes = position.add_to(torch.zeros(1, width, 2), mask.unsqueeze(0))[0]
    assert torch.equal(codes[mask], position.weight[:length])
    assert not bool(codes[~mask].any())


def test_em_08_a_sequence_longer_than_the_table_raises_before_lookup():
    position = LearnedPosition(3, 2)
    with pytest.raises(IndexRangeError) as caught:
        position.add_to(torch.zeros(1, 5, 2))
    assert str(caught.value) == (
        "LearnedPosition('position'): expected at most 4 places, got 5. Cut the sequence, or raise max_position."
    )
    with pytest.raises(IndexRangeError, match=r"feature 'position': expected indices in \[0, 4\), got 4 "):
        position.add_to(torch.zeros(1, 5, 2), torch.ones(1, 5, dtype=torch.bool))


def test_em_08_display_positions_that_training_never_saw_have_valid_rows():
    schema = Schema(position=Position("slot", max_position=8))
    encoder = FeatureEncoder(schema).fit(pd.DataFrame({"slot": [1, 2, 3, 4]}))
    served = encoder.transform(pd.DataFrame({"slot": pd.array([5, 0, None, -1, 3], dtype="Int64")}))
    assert served.indices("slot").tolist() == [2, 2, MISSING_INDEX, 2, 6]
    assert FeatureEmbedding(encoder, embedding_dim=2)(served)["slot"].shape == (5, 2)
