from dataclasses import dataclass
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import ColumnError, DataError, FitError, IndexRangeError, SchemaError
from recsys_emb.lookup.category import CategoryEmbedding
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.lookup.fused_embedding import FusedEmbedding
from recsys_emb.lookup.hashed import HashedEmbedding
from recsys_emb.lookup.numeric import NumericProjection
from recsys_emb.lookup.one_hot import OneHotProjection
from recsys_emb.lookup.quotient_remainder import QuotientRemainderEmbedding
from recsys_emb.lookup.row_rules import SGDUpdate
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema.columns import Categorical, History, MultiCategorical, Numeric, Position
from recsys_emb.schema.schema import Schema
from recsys_emb.schema.tables import Hashed, Lookup, OneHot, QuotientRemainder, UnknownBuckets
from recsys_emb.vocabulary.reserved import MISSING_INDEX


@dataclass
class Sizes:
    schema: Schema
    rows: int = 12

    def num_embeddings(self, name: str) -> int:
        return 2 if isinstance(self.schema[name], Numeric) else self.rows


WIDE = Schema(
    user=Categorical("user"),
    item=Categorical("item"),
    position=Position("slot", max_position=8),
    user_features=[Numeric("age"), MultiCategorical("recent", vocabulary="item", share_table=True)],
    item_features=[
        Categorical("brand", table=OneHot()),
        Categorical("shop", table=Hashed(6)),
        Categorical("city", table=QuotientRemainder(3)),
        MultiCategorical("tags", pooling="none", unknown=UnknownBuckets(4)),
    ],
    embedding_dim=4,
)


def wide_batch(limits: dict[str, int] | None = None) -> Batch:
    column = torch.tensor([3, 1, 11])
    lists = Jagged.from_lists([[3, 4], [], [5, 0]])
    columns = dict.fromkeys(("user", "item", "slot", "brand", "shop", "city"), column)
    numbers = torch.tensor([[0.5, 0.0], [0.0, 1.0], [-2.0, 0.0]])
    return Batch({**columns, "age": numbers, "recent": lists, "tags": lists}, limits=limits or {})


def one_feature(feature, rows: int = 12, **options) -> FeatureEmbedding:
    role = {"position": feature} if isinstance(feature, Position) else {"context_features": [feature]}
    return FeatureEmbedding(Sizes(Schema(**role, embedding_dim=4), rows), **options)


def test_every_declared_table_kind_gives_its_lookup_in_schema_order():
    embed = FeatureEmbedding(Sizes(WIDE))
    assert embed.names == WIDE.names
    assert [type(lookup) for lookup in embed.lookups] == [
        CategoryEmbedding,
        NumericProjection,
        CategoryEmbedding,
        CategoryEmbedding,
        OneHotProjection,
        HashedEmbedding,
        QuotientRemainderEmbedding,
        CategoryEmbedding,
        CategoryEmbedding,
    ]
    assert {name: tuple(vectors.shape) for name, vectors in embed(wide_batch()).items()} == {
        **dict.fromkeys(WIDE.names, (3, 4)),
        "tags": (3, 2, 4),
    }


@pytest.mark.parametrize("rows", [0, 1])
def test_batches_of_no_row_and_one_row_keep_their_shapes(rows):
    embed = FeatureEmbedding(Sizes(WIDE), embedding_dim=1)
    vectors = embed(wide_batch().select(torch.arange(rows)))
    assert all(vectors[name].shape == (rows, 1) for name in WIDE.names if name != "tags")
    assert vectors["tags"].shape == (rows, 2 * rows, 1)


def test_a_table_depends_on_the_seed_and_its_feature_alone():
    alone = one_feature(Categorical("brand"), seed=3).lookup("brand")
    among = FeatureEmbedding(
        Sizes(Schema(context_features=[Categorical("zzz"), Categorical("brand")], embedding_dim=4)), seed=3
    )
    assert torch.equal(alone.weight, among.lookup("brand").weight)
    assert not torch.equal(alone.weight, among.lookup("zzz").weight)
    assert not torch.equal(alone.weight, one_feature(Categorical("brand"), seed=4).lookup("brand").weight)


def test_the_global_random_stream_is_left_alone():
    state = torch.get_rng_state()
    FeatureEmbedding(Sizes(WIDE))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(("feature", "reserved"), [
    (Categorical("f"), 3),
    (Categorical("f", unknown=UnknownBuckets(4)), 6),
    (MultiCategorical("f"), 3),
    (Position("f", max_position=8), 3),
    (Categorical("f", table=OneHot()), 3),
    (Categorical("f", table=Hashed(5)), 3),
    (Categorical("f", table=QuotientRemainder(3)), 3),
])  # fmt: skip
def test_reserved_rows_start_at_zero_and_real_rows_do_not(feature, reserved):
    table = one_feature(feature).lookup("f")
    vectors = table(torch.arange(12))
    assert not bool(vectors[:reserved].any())
    assert bool(vectors[reserved:].all())


def test_a_shared_table_is_one_module_and_one_entry_of_the_state():
    embed = FeatureEmbedding(Sizes(WIDE))
    assert embed.lookup("recent") is embed.lookup("item")
    assert len(embed.tables) == 8
    embed(wide_batch())["recent"].sum().backward()
    assert embed.lookup("item").weight.grad[[3, 4, 5, MISSING_INDEX], 0].tolist() == [0.5, 0.5, 1.0, 1.0]


def test_a_shared_vocabulary_alone_shares_no_table():
    schema = Schema(item=Categorical("item"), user_features=[MultiCategorical("recent", vocabulary="item")])
    embed = FeatureEmbedding(Sizes(schema))
    assert embed.lookup("recent") is not embed.lookup("item")


def test_two_models_of_one_schema_share_nothing():
    first, second = FeatureEmbedding(Sizes(WIDE)), FeatureEmbedding(Sizes(WIDE))
    pointers = {parameter.data_ptr() for parameter in first.parameters()}
    assert not pointers & {parameter.data_ptr() for parameter in second.parameters()}


@pytest.mark.parametrize("name", ["a.b", "type", "items", "forward", "keys", "weight", "ä ö", "0"])
def test_feature_names_are_free_text(name):
    embed = one_feature(Categorical(name))
    assert embed(Batch({name: torch.tensor([3])}))[name].shape == (1, 4)
    assert embed.state_dict().keys() == {"tables.0.weight"}


def test_an_empty_list_reads_the_missing_row_and_only_that_row_learns():
    embed = one_feature(MultiCategorical("tags"))
    table = embed.lookup("tags")
    with torch.no_grad():
        table.weight[MISSING_INDEX] = 7.0
    vectors = embed(Batch({"tags": Jagged.from_lists([[], [0, 0]])}))["tags"]
    vectors.sum().backward()
    assert torch.equal(vectors, torch.full((2, 4), 7.0))
    assert table.weight.grad[:, 0].tolist() == [0.0, 2.0] + [0.0] * 10


@pytest.mark.parametrize("table", [OneHot(), Hashed(6), QuotientRemainder(3)])
@pytest.mark.parametrize("pooling", ["mean", "sum", "sqrtn", "max"])
def test_every_kind_of_table_can_be_pooled(table, pooling):
    embed = one_feature(MultiCategorical("tags", table=table, pooling=pooling), init_std=1.0)
    rows = embed.lookup("tags")(torch.tensor([5, 9]))
    expected = {
        "mean": rows.mean(0),
        "sum": rows.sum(0),
        "sqrtn": rows.sum(0) / 2**0.5,
        "max": rows.amax(0),
    }
    assert_close(embed(Batch({"tags": Jagged.from_lists([[5, 9]])}))["tags"][0], expected[pooling])


def test_unpooled_lists_come_with_a_mask():
    embed = FeatureEmbedding(Sizes(WIDE))
    batch = wide_batch()
    vectors, mask = embed.vectors_of("tags", batch), embed.mask("tags", batch)
    assert mask.tolist() == [[True, True], [True, False], [True, False]]
    assert not bool(vectors[~mask].any())
    assert torch.equal(vectors[0], embed.lookup("tags")(torch.tensor([3, 4])))


def test_missing_numbers_read_a_row_of_their_own():
    embed = one_feature(Numeric("age"))
    weight = embed.lookup("age").weight
    assert torch.equal(weight[1], torch.zeros(4))
    with torch.no_grad():
        weight[1] = 5.0
    vectors = embed(Batch({"age": torch.tensor([[2.0, 0.0], [0.0, 1.0]])}))["age"]
    assert torch.equal(vectors, torch.stack([2 * weight[0], weight[1]]))


@pytest.mark.parametrize("limits", [{}, {"user": 13}])
def test_indices_that_nobody_checked_are_checked(limits):
    batch = Batch({"user": torch.tensor([3, 12])}, limits=limits)
    with pytest.raises(IndexRangeError) as caught:
        one_feature(Categorical("user"))(batch)
    assert str(caught.value) == (
        "feature 'user': expected indices in [0, 12), got 12 (first at position 1). Encode the values with the encoder "
        "that the table was sized by; num_embeddings counts the reserved rows."
    )


@pytest.mark.parametrize("table", [OneHot(dense_limit=0), OneHot(), Hashed(6), QuotientRemainder(3)])
@pytest.mark.parametrize("index", [12, -1])
def test_every_kind_of_table_refuses_indices_outside_it(table, index):
    with pytest.raises(IndexRangeError, match=rf"feature 'tags': expected indices in \[0, 12\), got {index} "):
        one_feature(MultiCategorical("tags", table=table))(Batch({"tags": Jagged.from_lists([[3], [index]])}))


def test_checked_indices_are_not_checked_again(monkeypatch):
    def fail(*arguments: object) -> None:
        raise AssertionError(arguments)

    monkeypatch.setattr("recsys_emb.lookup.feature_embedding.check_indices", fail)
    embed = FeatureEmbedding(Sizes(WIDE))
    embed(wide_batch(limits=dict.fromkeys(WIDE.names, 12)))


def test_an_unknown_feature_is_named_with_a_suggestion():
    embed = FeatureEmbedding(Sizes(Schema(user=Categorical("user_id"), item=Categorical("item_id"))))
    with pytest.raises(ColumnError) as caught:
        embed.lookup("itemid")
    assert str(caught.value) == (
        "FeatureEmbedding: expected one of 'user_id', 'item_id', got 'itemid'. Did you mean 'item_id'?"
    )
    with pytest.raises(ColumnError) as caught:
        FeatureEmbedding(Sizes(embed.schema), features=["itemid"])
    assert str(caught.value) == (
        "FeatureEmbedding: expected features among 'user_id', 'item_id', got 'itemid'. Did you mean 'item_id'?"
    )


def test_a_part_of_the_features_in_a_given_order():
    embed = FeatureEmbedding(Sizes(WIDE), features=["recent", "user"])
    assert list(embed(wide_batch())) == ["recent", "user"]


def with_history() -> FeatureEmbedding:
    """Two histories of rows 3 to 5; 12 users, 20 items."""
    histories = [History("item"), History("item", name="last", max_length=1)]
    schema = Schema(user=Categorical("user"), item=Categorical("item"), user_features=histories, embedding_dim=4)
    sizes = SimpleNamespace(schema=schema, num_embeddings=lambda name: 12 if name == "user" else 20)
    embed = FeatureEmbedding(sizes, init_std=1.0)
    embed.remember(Batch({"user": torch.tensor([3, 4, 3]), "item": torch.tensor([5, 6, 19])}))
    return embed


def test_a_history_has_no_column_and_a_table_of_items_read_by_user():
    embed = with_history()
    found = embed(Batch({"user": torch.tensor([3, 4, 11]), "item": torch.tensor([3, 3, 3])}))
    assert list(found) == ["user", "item_history", "last", "item"]
    long, short = embed.histories["item_history"].items.weight, embed.histories["last"].items.weight
    assert_close(found["item_history"], torch.stack([(long[5] + long[19]) / 2**0.5, long[6], torch.zeros(4)]))
    assert_close(found["last"], torch.stack([short[19], short[6], torch.zeros(4)]))


def test_a_history_follows_an_encoder_that_grew():
    embed = with_history()
    batch = Batch({"user": torch.tensor([3, 4]), "item": torch.tensor([3, 3])})
    before = embed(batch)
    embed.grow(SimpleNamespace(schema=embed.schema, num_embeddings=lambda name: 14 if name == "user" else 23))
    assert all(torch.equal(found, before[name]) for name, found in embed(batch).items())
    embed.remember(Batch({"user": torch.tensor([13, 4]), "item": torch.tensor([22, 5])}), anew=False)
    assert embed.histories["item_history"].lists(torch.tensor([3, 4, 13])).to_lists() == [[5, 19], [6, 5], [22]]
    assert embed.histories["last"].lists(torch.tensor([3, 4, 13])).to_lists() == [[19], [5], [22]]


def test_reset_draws_as_at_birth():
    embed = FeatureEmbedding(Sizes(WIDE), seed=1, init_std=0.5)
    born = {key: value.clone() for key, value in embed.state_dict().items()}
    for parameter in embed.parameters():
        torch.nn.init.ones_(parameter)
    embed.reset_parameters(init_std=0.5, seed=1)
    assert all(torch.equal(value, born[key]) for key, value in embed.state_dict().items())


def test_a_replaced_table_serves_all_features_that_share_it():
    embed = FeatureEmbedding(Sizes(WIDE))
    table = CategoryEmbedding.from_pretrained(torch.ones(12, 4), padding_index=0)
    embed.replace("item", table)
    assert embed.lookup("recent") is table
    assert torch.equal(embed(wide_batch())["item"], torch.ones(3, 4))


def test_a_replacement_of_another_size_is_refused():
    with pytest.raises(SchemaError) as caught:
        one_feature(Categorical("item")).replace("item", CategoryEmbedding(12, 5))
    assert str(caught.value) == (
        "feature 'item': expected a table of 12 rows and width 4, got 12 rows and width 5. "
        "Size it by the encoder; project it."
    )


def test_growth_keeps_old_vectors_and_draws_new_ones_from_the_seed():
    embed, twin = FeatureEmbedding(Sizes(WIDE), seed=2), FeatureEmbedding(Sizes(WIDE), seed=2)
    before = {name: vectors.detach() for name, vectors in embed(wide_batch()).items()}
    for one in (embed, twin):
        one.grow(Sizes(WIDE, 15))
    after = embed(wide_batch())
    assert all(torch.equal(after[name], before[name]) for name in WIDE.names)
    assert all(torch.equal(a, b) for a, b in zip(embed.parameters(), twin.parameters(), strict=True))
    fresh = embed.lookup("item").weight[12:]
    assert fresh.shape == (3, 4)
    assert bool(fresh.all())
    assert (
        len({round(float(vector[0]), 9) for vector in [*fresh.detach(), *embed.lookup("user").weight[12:].detach()]})
        == 6
    )


def test_growth_refuses_another_schema_and_fewer_rows():
    embed = one_feature(Categorical("item"))
    with pytest.raises(SchemaError) as caught:
        embed.grow(Sizes(WIDE))
    assert str(caught.value) == (
        "FeatureEmbedding.grow: expected an encoder of the same schema, got another. "
        "Extend the fitted encoder with partial_fit."
    )
    with pytest.raises(FitError, match="feature 'item': expected at least 12 rows, got 11"):
        embed.grow(Sizes(embed.schema, 11))


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(1, 6), data=st.data())
def test_a_row_reads_the_same_bits_in_every_batch(rows, data):
    embed = FeatureEmbedding(Sizes(WIDE), init_std=1.0)
    chosen = torch.tensor(data.draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows)))
    whole, part = embed(wide_batch()), embed(wide_batch().select(chosen))
    for name in WIDE.names:
        width = part[name].shape[1]
        assert torch.equal(part[name], whole[name][chosen][:, :width])


def test_sparse_gradients_reach_every_table_that_has_them():
    embed = FeatureEmbedding(Sizes(WIDE), sparse=True)
    sum(vectors.sum() for vectors in embed(wide_batch()).values()).backward()
    kinds = {name: embed.lookup(name) for name in ("user", "item", "shop", "tags", "slot")}
    assert all(parameter.grad.is_sparse for table in kinds.values() for parameter in table.parameters())
    assert not embed.lookup("brand").weight.grad.is_sparse


def test_double_precision_stays_double():
    embed = FeatureEmbedding(Sizes(WIDE)).double()
    assert {vectors.dtype for vectors in embed(wide_batch()).values()} == {torch.float64}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_agrees_with_cpu():
    embed = FeatureEmbedding(Sizes(WIDE), init_std=1.0)
    expected = embed(wide_batch())
    on_device = embed.cuda()(wide_batch().to("cuda"))
    assert all(torch.allclose(on_device[name].cpu(), expected[name], atol=1e-6) for name in WIDE.names)


def test_the_kind_of_table_changes_neither_vocabulary_nor_indices():
    frame = pd.DataFrame({"city": ["rome", "oslo", None, "rome", "bern"]})
    found = []
    for table in (Lookup(), OneHot(), Hashed(6), QuotientRemainder(3)):
        encoder = FeatureEncoder(Schema(context_features=[Categorical("city", table=table)])).fit(frame)
        found.append((encoder.vocabularies["city"].fingerprint, encoder.transform(frame).indices("city").tolist()))
    assert found == [found[0]] * 4


@pytest.mark.parametrize("rows", [pd.DataFrame({"city": ["rome"]}), {"city": torch.tensor([3])}])
@pytest.mark.parametrize("kind", [FeatureEmbedding, FusedEmbedding, MatrixFactorization])
def test_rows_that_are_no_batch_are_refused(rows, kind):
    schema = Schema(user=Categorical("user"), item=Categorical("city"), label="stars", embedding_dim=2)
    encoder = FeatureEncoder(schema).fit({"user": [1], "city": ["rome"]})
    module = kind(encoder, update=SGDUpdate(lr=0.1)) if kind is FusedEmbedding else kind(encoder)
    with pytest.raises(DataError) as caught:
        module(rows)
    assert str(caught.value) == (
        f"{kind.__name__}: expected a Batch, got {type(rows).__name__}. Give it encoder.transform(rows)."
    )
