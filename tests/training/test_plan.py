"""From batches to lists of stacked rows, and back to the model that they came from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.errors import DataError, EmptySourceError, IndexRangeError
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema import Categorical, MultiCategorical, OneHot, Schema, UnknownBuckets
from recsys_emb.training import plan, rows
from recsys_emb.training.losses import BPR, SquaredError
from recsys_emb.training.objective import Defaults
from recsys_emb.training.plan import occurrences, row_lists, user_order
from recsys_emb.training.rows import check_ranges, forget_absent, learnable, with_pooling_weights, with_unknown
from recsys_emb.training.stack import Stack

SETTINGS = Defaults(0.1, 0.5, 0.25, 0.01, 1, None)


def test_each_kind_of_column_names_its_rows() -> None:
    batch = Batch(
        {
            "user": torch.tensor([3, 0]),
            "age": torch.tensor([[0.5, 0.0], [0.0, 1.0]]),
            "tags": Jagged.from_lists([[4, 3], [4]]),
        }
    )
    lists = row_lists(batch, ["user", "age", "tags"], {"user": 0, "age": 10, "tags": 20})
    assert lists.offsets.tolist() == [0, 4, 6]
    assert lists.rows.tolist() == [3, 10, 24, 23, 11, 24]
    assert lists.weights.tolist() == [1.0, 0.5, 1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("count", [0, 1])
def test_no_features_and_no_rows_give_empty_lists(count: int) -> None:
    batch = Batch({"user": torch.full((count,), 3)})
    assert row_lists(batch, [], {}).offsets.tolist() == [0] * (count + 1)
    assert row_lists(batch, ["user"], {"user": 0}).rows.tolist() == [3] * count


def test_sums_over_lists_are_the_sides_of_the_model(
    rich: Schema, model_of: Callable[..., MatrixFactorization], rows_of: Callable[..., Batch]
) -> None:
    model, batch = model_of(rich), rows_of(20)
    vectors, biases = model.side(batch, model.item_names)
    stack = Stack(model)
    lists = row_lists(with_pooling_weights(batch, rich), model.item_names, stack.first_rows)
    for row in range(20):
        part = slice(lists.offsets[row], lists.offsets[row + 1])
        named, weights = lists.rows[part], lists.weights[part]
        np.testing.assert_allclose(weights @ stack.vectors[named], vectors[row].detach(), atol=1e-6)
        np.testing.assert_allclose(weights @ stack.biases[named], biases[row].detach(), atol=1e-6)


@pytest.mark.parametrize("block", [1, 3, 7, 20])
def test_lists_are_the_same_however_many_examples_are_taken_at_a_time(
    rich: Schema,
    model_of: Callable[..., MatrixFactorization],
    rows_of: Callable[..., Batch],
    monkeypatch: pytest.MonkeyPatch,
    block: int,
) -> None:
    model, batch = model_of(rich), rows_of(20)
    stack = Stack(model)

    def found() -> list[npt.NDArray[Any]]:
        lists = row_lists(with_pooling_weights(batch, rich), model.item_names, stack.first_rows)
        return [*lists, occurrences([lists, lists], stack.num_rows)]

    whole = found()
    monkeypatch.setattr(plan, "_BLOCK", block)
    monkeypatch.setattr(rows, "_BLOCK", block)
    for one, other in zip(whole, found(), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_rows_beyond_32_bits_are_listed_in_64() -> None:
    batch = Batch({"user": torch.tensor([3, 0]), "tags": Jagged.from_lists([[], [4]])})
    near = row_lists(batch, ["user", "tags"], {"user": 0, "tags": 10})
    far = row_lists(batch, ["user", "tags"], {"user": 0, "tags": 2**31})
    assert (near.rows.dtype, near.rows.tolist()) == (np.int32, [3, 14])
    assert (far.rows.dtype, far.rows.tolist()) == (np.int64, [3, 2**31 + 4])


def test_occurrences_weigh_squared() -> None:
    batch = Batch({"tags": Jagged(torch.tensor([3, 4, 3]), torch.tensor([0, 2, 3]), torch.tensor([0.5, 0.5, 1.0]))})
    assert occurrences([row_lists(batch, ["tags"], {"tags": 0})], 6).tolist() == [0, 0, 0, 1.25, 0.25, 0]


def test_rows_lie_user_after_user_shuffled_inside() -> None:
    users = np.array([2, 1, 2, 1, 2, 2, 2, 2])
    order = user_order(users, 0)
    assert users[order].tolist() == sorted(users.tolist())
    assert sorted(order.tolist()) == list(range(8))
    assert order.tolist() == user_order(users, 0).tolist() != user_order(users, 1).tolist()


# --- rows ------------------------------------------------------------------------------------------------------


def test_pooling_weights_are_worked_out_once_and_for_all() -> None:
    schema = Schema(user=Categorical("u"), user_features=[MultiCategorical("tags", pooling="mean")])
    batch = Batch({"u": torch.tensor([3, 3]), "tags": Jagged.from_lists([[5, 6], []])})
    once = with_pooling_weights(batch, schema)
    assert once.lists("tags").weights.tolist() == [0.5, 0.5, 1.0]
    assert with_pooling_weights(once, schema).lists("tags").weights.tolist() == [0.5, 0.5, 1.0]


def test_unknown_dropout_routes_about_its_share_and_repeats_with_the_seed() -> None:
    feature = Categorical("u", unknown=UnknownBuckets(2), unknown_dropout=0.25)
    schema = Schema(user=feature, item=Categorical("i"))
    indices = torch.randint(0, 30, (10_000,), generator=torch.Generator().manual_seed(0))
    batch = Batch({"u": indices, "i": indices})
    routed = with_unknown(batch, schema, seed=0)
    changed = routed.indices("u") != indices
    assert routed.indices("u")[changed].unique().tolist() == [2, 3]
    assert indices[changed].min() == 4
    assert changed[indices >= 4].float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert torch.equal(routed.indices("i"), indices)
    assert torch.equal(routed.indices("u"), with_unknown(batch, schema, seed=0).indices("u"))
    assert not torch.equal(routed.indices("u"), with_unknown(batch, schema, seed=1).indices("u"))


def test_unknown_dropout_of_a_list_keeps_its_weights() -> None:
    schema = Schema(user=Categorical("u"), user_features=[MultiCategorical("tags", unknown_dropout=0.999)])
    batch = Batch({"u": torch.tensor([3]), "tags": Jagged(torch.tensor([7, 1]), torch.tensor([0, 2]), torch.ones(2))})
    routed = with_unknown(batch, schema, seed=0).lists("tags")
    assert (routed.to_lists(), routed.weights.tolist()) == ([[2, 1]], [1.0, 1.0])


def test_an_index_outside_its_table_is_refused_before_any_kernel(
    ids: Schema, model_of: Callable[..., MatrixFactorization]
) -> None:
    batch = Batch({"user": torch.tensor([3]), "item": torch.tensor([10])})
    with pytest.raises(IndexRangeError) as error:
        check_ranges(batch, model_of(ids).biases)
    assert str(error.value).startswith("feature 'item': expected indices in [0, 10), got 10 (first at position 0).")


def test_ranking_learns_the_rows_whose_label_is_above_zero(ids: Schema) -> None:
    batch = Batch({"user": torch.tensor([3, 4, 5]), "item": torch.tensor([3, 4, 5])}, torch.tensor([0.0, 2.0, -1.0]))
    assert learnable(batch, ids, BPR()).indices("user").tolist() == [4]
    assert len(learnable(batch, ids, SquaredError())) == 3


@pytest.mark.parametrize(
    ("batch", "kind", "message"),
    [
        (
            Batch({"user": torch.zeros(0), "item": torch.zeros(0)}),
            EmptySourceError,
            "train: expected at least one row, got 0 rows. There is nothing to learn.",
        ),
        (
            Batch({"user": torch.tensor([3]), "item": torch.tensor([3])}, torch.zeros(1)),
            EmptySourceError,
            "rating: expected a label above 0, which marks what to rank first, got none in 1 row. "
            "Learn the label with SquaredError() or Logistic().",
        ),
        (
            Batch({"user": torch.tensor([3]), "age": torch.tensor([[torch.inf, 0.0]])}),
            DataError,
            "age: expected finite numbers, got NaN or infinity in 1 row. "
            "Encode the column as Numeric, which marks missing values.",
        ),
        (
            Batch({"user": torch.tensor([3, 3])}, weight=torch.tensor([1.0, -1.0])),
            DataError,
            "weight: expected finite weights of at least 0, got others in 1 row. Drop or repair these rows.",
        ),
        (
            Batch({"user": torch.tensor([3, 3])}, weight=torch.zeros(2)),
            EmptySourceError,
            "weight: expected a weight above 0, got none in 2 rows to learn. Leave the weights out to count every row.",
        ),
    ],
)
def test_rows_that_cannot_be_learned_are_refused_by_name(
    ids: Schema, batch: Batch, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as error:
        learnable(batch, ids, BPR())
    assert str(error.value) == message


def test_rows_that_do_not_occur_are_forgotten(
    rich: Schema, model_of: Callable[..., MatrixFactorization], rows_of: Callable[..., Batch]
) -> None:
    model, batch = model_of(rich), rows_of(2)
    kept = model.vectors.lookup("user").weight.detach().clone()
    forget_absent(model.vectors, batch)
    named = batch.indices("user")
    others = [row for row in range(9) if row not in named.tolist()]
    assert torch.equal(model.vectors.lookup("user").weight[named], kept[named])
    assert not model.vectors.lookup("user").weight[others].any()
    assert model.vectors.lookup("age").weight.all()


def test_frozen_tables_are_not_forgotten(ids: Schema, model_of: Callable[..., MatrixFactorization]) -> None:
    model = model_of(ids)
    weight = model.vectors.lookup("item").weight.requires_grad_(False)
    before = weight.clone()
    forget_absent(model.vectors, Batch({"user": torch.tensor([3]), "item": torch.tensor([3])}))
    assert torch.equal(weight, before)


# --- the stack -------------------------------------------------------------------------------------------------


def test_parameters_view_the_stack(rich: Schema, model_of: Callable[..., MatrixFactorization]) -> None:
    model = model_of(rich)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    stack = Stack(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    stack.vectors[stack.rows_of("brand")] = 3
    stack.biases[stack.rows_of("slot")] = 4
    assert model.vectors.lookup("brand").weight.eq(3).all()
    assert model.biases.lookup("slot").weight.eq(4).all()


def test_a_one_hot_projection_views_the_stack_transposed(model_of: Callable[..., MatrixFactorization]) -> None:
    schema = Schema(user=Categorical("user", table=OneHot()), item=Categorical("item"), embedding_dim=9)
    model = model_of(schema)
    table = model.vectors.lookup("user").table().detach().clone()
    stack = Stack(model)
    np.testing.assert_array_equal(stack.vectors[stack.rows_of("user")], table)
    stack.vectors[stack.first_rows["user"] + 3, 2] = 5
    assert model.vectors.lookup("user").weight[2, 3] == 5


def test_features_that_share_a_table_share_rows(model_of: Callable[..., MatrixFactorization]) -> None:
    schema = Schema(
        user=Categorical("user"),
        item=Categorical("item"),
        user_features=[MultiCategorical("tags", vocabulary="item", share_table=True)],
    )
    model = model_of(schema)
    stack = Stack(model)
    assert stack.first_rows["tags"] == stack.first_rows["item"]
    assert len(stack.biases) == sum(table.num_embeddings for table in model.biases.tables)


def test_rows_that_many_share_learn_more_slowly(ids: Schema, model_of: Callable[..., MatrixFactorization]) -> None:
    schema = Schema(user=ids.user, item=ids.item, user_features=[Categorical("country", l2_scale=3.0)])
    stack = Stack(model_of(schema))
    counts = np.zeros(len(stack.biases))
    user, item, country = (stack.first_rows[name] for name in ("user", "item", "country"))
    counts[[user + 3, user + 4, item + 3]] = 4, 4, 400
    counts[[user + 2, country + 3, country + 4]] = 400, 400, 1
    pace = stack.pace(SETTINGS, counts)
    assert pace[[user + 3, item + 3], 0] == pytest.approx(0.1)
    assert pace[[user + 2, country + 3], 0] == pytest.approx(0.01)
    assert pace[country + 4, 0] == pytest.approx(0.1)
    assert pace[country + 3].tolist() == pytest.approx([0.01, 1.5, 0.01, 0.75])


def test_frozen_tables_and_features_without_a_vector_have_no_vector_rate(
    rich: Schema, model_of: Callable[..., MatrixFactorization]
) -> None:
    model = model_of(rich)
    model.vectors.lookup("brand").weight.requires_grad_(False)
    stack = Stack(model)
    pace = stack.pace(SETTINGS, np.ones(len(stack.biases)))
    assert not pace[stack.rows_of("brand"), 0].any()
    assert pace[stack.rows_of("brand"), 2].all()
