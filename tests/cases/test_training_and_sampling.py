"""Faults that training and sampling are known for, and must not have here."""

from __future__ import annotations

import functools
import math
import time
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import DataError, EmptySourceError, FitError, RecsysEmbError, RepeatedPairsWarning
from recsys_emb.evaluation.splitting import split_last, split_random, split_time
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema import Categorical, History, MultiCategorical, Numeric, Schema
from recsys_emb.training.fitting import train
from recsys_emb.training.losses import BPR, Logistic, SquaredError
from recsys_emb.training.minibatch import Minibatch
from recsys_emb.training.optim import LazyAdam, RowWiseAdagrad
from recsys_emb.training.sampling import Interactions, Seen
from recsys_emb.training.sequential import SequentialSGD

SOLVERS = [SequentialSGD(), Minibatch(batch_size=4)]
PAIR = Schema(user=Categorical("user"), item=Categorical("item"), label="rating", embedding_dim=4)


def encoded(schema: Schema, frame: pd.DataFrame) -> tuple[MatrixFactorization, Batch]:
    encoder = FeatureEncoder(schema).fit(frame)
    return MatrixFactorization(encoder), encoder.transform(frame)


# --- TR-01 -----------------------------------------------------------------------------------------------------

# Of five items A has four, B all, C one in training (item 0) and one in test (item 1).
TRAINED = [(0, 0), (0, 1), (0, 2), (0, 3), *((1, item) for item in range(5)), (2, 0)]
TESTED = [(2, 1)]


def seen_of(pairs: list[tuple[int, int]]) -> Seen:
    users, items = torch.tensor(pairs).T
    return Seen.from_pairs(users, items, num_users=3, num_items=5)


def test_tr_01_a_user_with_one_unseen_item_gets_that_one_and_a_user_with_all_is_told_apart() -> None:
    seen = seen_of(TRAINED)
    assert seen.draw(torch.tensor([0]), 3, torch.Generator()).tolist() == [[4, 4, 4]]
    assert seen.unseen_counts(torch.tensor([0, 1, 2])).tolist() == [1, 0, 4]


def test_tr_01_evaluation_candidates_exclude_both_parts_do_not_repeat_and_follow_the_seed() -> None:
    seen, users = seen_of(TRAINED + TESTED), torch.tensor([0, 1, 2])
    first, again = (seen.draw_distinct(users, 3, seed=7).to_lists() for _ in range(2))
    assert first == again
    assert first[:2] == [[4], []]
    assert sorted(first[2]) == [2, 3, 4]


@pytest.mark.parametrize("objective", [BPR(), Logistic(negatives=3)], ids=repr)
@pytest.mark.parametrize("solver", SOLVERS, ids=["rows", "batch"])
def test_tr_01_training_ends_although_a_user_has_every_item(solver: SequentialSGD, objective: BPR) -> None:
    frame = pd.DataFrame(TRAINED, columns=["user", "item"])
    schema = Schema(user=Categorical("user"), item=Categorical("item"), embedding_dim=4)
    model, batch = encoded(schema, frame)
    reserved = [table.storage()[:3].clone() for table in (*model.vectors.lookups, *model.biases.lookups)]
    solver.start(model, batch, objective, seed=0).epoch()
    start = time.perf_counter()
    for _ in range(20):
        solver.start(model, batch, objective, seed=0).epoch()
    assert time.perf_counter() - start < 5
    now = [table.storage()[:3] for table in (*model.vectors.lookups, *model.biases.lookups)]
    assert all(torch.equal(after, before) for after, before in zip(now, reserved, strict=True))


def test_tr_01_when_every_user_has_every_item_training_refuses_instead_of_learning_nothing() -> None:
    frame = pd.DataFrame({"user": ["a", "a", "b", "b"], "item": [1, 2, 1, 2]})
    model, batch = encoded(Schema(user=Categorical("user"), item=Categorical("item")), frame)
    for solver in SOLVERS:
        with pytest.raises(FitError, match=r"^negatives: expected a user without one of the 2 items, got none\."):
            train(model, batch, BPR(), solver)


def test_tr_01_draws_differ_between_epochs_and_seeds_and_never_hit_padding_or_unknown() -> None:
    frame = pd.DataFrame({"user": ["a", "b", "b"], "item": [1, 2, None]})
    schema = Schema(user=Categorical("user"), item=Categorical("item"))
    _, batch = encoded(schema, frame)
    interactions = Interactions.from_batch(batch, schema)
    assert interactions.catalogue.indices.min() >= 3
    wide = Seen.from_pairs(torch.tensor([0]), torch.tensor([0]), num_users=1, num_items=1000)
    draws = [wide.draw(torch.tensor([0]), 8, torch.Generator().manual_seed(seed)).tolist() for seed in range(3)]
    assert draws[0] != draws[1] != draws[2]


# --- TR-02 -----------------------------------------------------------------------------------------------------


def test_tr_02_long_lists_keep_their_latest_values_and_tags_the_declared_end() -> None:
    events, tags = list("abcdef"), list("uvwxyz")
    frame = pd.DataFrame({"user": [1, 2], "recent": [events, events[:2]], "tags": [tags, tags[:1]]})
    recent, described = MultiCategorical("recent", max_length=3), MultiCategorical("tags", max_length=3, keep="first")
    schema = Schema(user=Categorical("user"), user_features=[recent, described])
    encoder = FeatureEncoder(schema).fit(frame)
    batch = encoder.transform(frame)
    assert encoder.inverse_transform(batch)["recent"].tolist() == [["d", "e", "f"], ["a", "b"]]
    assert encoder.inverse_transform(batch)["tags"].tolist() == [["u", "v", "w"], ["u"]]
    assert batch.lists("recent").lengths.tolist() == [3, 2]
    assert batch.lists("recent").pad().shape == (2, 3)


@pytest.mark.parametrize("seed", range(10))
def test_tr_02_histories_keep_the_latest_items_of_rows_in_time_order_and_know_their_length(seed: int) -> None:
    shuffled = pd.DataFrame({"user": [1] * 6 + [2] * 2, "item": [*"abcdef", *"ab"], "time": [*range(6), 1, 2]})
    frame = shuffled.sample(frac=1, random_state=seed).sort_values("time", kind="stable")
    pair = {"user": Categorical("user"), "item": Categorical("item")}
    model, batch = encoded(Schema(**pair, user_features=[History("item", max_length=3)]), frame)
    train(model, batch, BPR(), SequentialSGD(), epochs=1)
    encoder = FeatureEncoder(Schema(**pair)).fit(frame)
    users = encoder.vocabularies["user"].encode([1, 2])
    lists = model.vectors.histories["item_history"].lists(users)
    assert [encoder.vocabularies["item"].decode(one) for one in lists.to_lists()] == [["d", "e", "f"], ["a", "b"]]
    assert lists.lengths.tolist() == [3, 2]
    assert lists.pad().tolist()[1][2] == 0


# --- TR-04 -----------------------------------------------------------------------------------------------------


def test_tr_04_repeated_pairs_stay_on_one_side_or_are_counted() -> None:
    rows = [("u1", "i1", 1, 3), ("u1", "i1", 5, 5), ("u1", "i2", 2, 4), ("u2", "i1", 3, 2), ("u2", "i1", 4, 2)]
    frame = pd.DataFrame(rows, columns=["user", "item", "t", "rating"])
    pairs = ("user", "item")
    for seed in range(10):
        parts = split_random(frame, 0.5, seed=seed, pair=pairs)
        sides = [set(zip(part["user"], part["item"], strict=True)) for part in parts]
        assert not sides[0] & sides[1]
    with pytest.warns(RepeatedPairsWarning, match="2 pairs"):
        split_last(frame, "user", "t", pair=pairs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RepeatedPairsWarning)
        train_part, test_part = split_time(frame, "t", 0.4, pair=pairs)
    assert train_part["t"].max() <= test_part["t"].min()


# --- TR-05 -----------------------------------------------------------------------------------------------------


def ten_rows() -> pd.DataFrame:
    users, items = np.arange(10) % 4, np.arange(10) % 5
    return pd.DataFrame(
        {"user": users, "item": items, "age": np.linspace(20, 60, 10), "rating": np.arange(10) % 5 + 1.0}
    )


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_tr_05_a_label_that_is_not_finite_is_refused_with_its_column_and_count(wrong: float) -> None:
    frame = ten_rows()
    frame.loc[3, "rating"] = wrong
    with pytest.raises(DataError, match=r"rating.*1 row"):
        encoded(PAIR, frame)


@pytest.mark.parametrize("solver", SOLVERS, ids=["rows", "batch"])
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_tr_05_a_batch_made_by_hand_is_refused_before_the_first_step(solver: SequentialSGD, wrong: float) -> None:
    model, batch = encoded(PAIR, ten_rows())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    label = batch.label.clone()
    label[3] = wrong
    with pytest.raises(DataError) as error:
        train(model, Batch(batch.columns, label), SquaredError(), solver)
    assert (
        str(error.value) == "rating: expected finite labels, got NaN or infinity in 1 row. Drop or repair these rows."
    )
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("solver", SOLVERS, ids=["rows", "batch"])
def test_tr_05_a_missing_number_is_learned_as_missing_and_infinity_is_refused(solver: SequentialSGD) -> None:
    schema = Schema(user=Categorical("user"), item=Categorical("item"), user_features=[Numeric("age")], label="rating")
    frame = ten_rows()
    frame.loc[3, "age"] = math.nan
    model, batch = encoded(schema, frame)
    train(model, batch, SquaredError(), solver, epochs=3)
    assert all(bool(value.isfinite().all()) for value in model.state_dict().values())
    frame.loc[3, "age"] = math.inf
    with pytest.raises(DataError, match=r"age.*1 row"):
        encoded(schema, frame)
    columns = {**batch.columns, "age": torch.full((10, 2), math.nan)}
    with pytest.raises(DataError, match=r"^age: expected finite numbers, got NaN or infinity in 10 rows\."):
        train(model, Batch(columns, batch.label), SquaredError(), solver)


def test_tr_05_text_labels_are_refused_and_booleans_are_zero_and_one() -> None:
    frame = ten_rows()
    with pytest.raises(RecsysEmbError, match="rating"):
        encoded(PAIR, frame.assign(rating=["4.0"] * 10))
    _, batch = encoded(PAIR, frame.assign(rating=frame["rating"] > 3))
    assert sorted(batch.label.unique().tolist()) == [0.0, 1.0]


# --- EM-05 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", [RowWiseAdagrad, LazyAdam], ids=["adagrad", "adam"])
def test_em_05_a_sparse_batch_of_padding_alone_changes_nothing(optimizer: type) -> None:
    table = nn.Embedding(5, 2, padding_idx=0, sparse=True)
    before = table.weight.detach().clone()
    solver = optimizer(table.parameters())
    table(torch.tensor([0, 0, 0])).sum().backward()
    solver.step()
    assert torch.equal(table.weight, before)


@pytest.mark.parametrize("solver", [*SOLVERS, Minibatch(optimizer=RowWiseAdagrad)], ids=["rows", "adam", "adagrad"])
def test_em_05_a_training_batch_of_padding_alone_changes_nothing(solver: SequentialSGD) -> None:
    schema = Schema(user=Categorical("user"), item=Categorical("item"), item_features=[MultiCategorical("tags")])
    frame = ten_rows().assign(tags=[["x"]] * 10)
    model, _ = encoded(schema, frame)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    padding = torch.zeros(6, dtype=torch.int64)
    rows = Batch(
        {"user": padding, "item": padding, "tags": Jagged.from_lists([[1]] * 6)}, torch.ones(6), torch.zeros(6)
    )
    solver.start(model, rows, SquaredError(), seed=0).epoch()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, RowWiseAdagrad, LazyAdam], ids=["sgd", "adagrad", "adam"])
def test_em_05_repeated_rows_step_alike_with_sparse_and_dense_gradients(optimizer: type) -> None:
    start, weights = torch.randn(5, 2, generator=torch.Generator().manual_seed(0)), []
    for sparse in (True, False):
        table = nn.Embedding.from_pretrained(start.clone(), freeze=False, sparse=sparse)
        solver = optimizer(table.parameters(), lr=0.1)
        (table(torch.tensor([2, 2, 2])) * torch.tensor([[1.0], [2.0], [3.0]])).sum().backward()
        solver.step()
        weights.append(table.weight.detach())
    torch.testing.assert_close(*weights)


class Untouchable(Batch):
    """Rows that no run may draw from."""

    def select(self, rows: torch.Tensor) -> Batch:
        raise AssertionError("a batch was drawn")


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (
            functools.partial(torch.optim.SGD, lr=0.1, weight_decay=0.1),
            "Minibatch: expected a model that it can train, but SGD has a weight_decay and the model sparse gradients, "
            "which would decay touched rows alone; set weight_decay=0 and give Minibatch(l2=...). "
            "Train with another solver, or change the model.",
        ),
        (
            torch.optim.Adam,
            "Minibatch: expected a model that it can train, but Adam takes no sparse gradients; "
            "make the model with sparse=False, or use LazyAdam. Train with another solver, or change the model.",
        ),
        (
            functools.partial(LazyAdam, weight_decay=0.1),
            "LazyAdam: expected weight_decay=0, got 0.1. Rows outside the batch must not move; "
            "use L2 per occurrence, Minibatch(l2=...).",
        ),
    ],
    ids=["decay", "dense only", "lazy decay"],
)
def test_em_05_decay_and_dense_optimizers_on_sparse_gradients_are_refused_before_the_first_batch(
    optimizer: type, message: str
) -> None:
    frame = ten_rows()
    encoder = FeatureEncoder(PAIR).fit(frame)
    model, batch = MatrixFactorization(encoder, sparse=True), encoder.transform(frame)
    rows = Untouchable(batch.columns, batch.label)
    with pytest.raises(FitError) as error:
        train(model, rows, SquaredError(), Minibatch(optimizer=optimizer))
    assert str(error.value) == message


def test_em_05_an_optimizer_of_sparse_gradients_alone_trains_a_sparse_model_and_refuses_a_dense_one() -> None:
    frame = ten_rows()
    encoder = FeatureEncoder(PAIR).fit(frame)
    batch, solver = encoder.transform(frame), Minibatch(optimizer=torch.optim.SparseAdam)
    train(MatrixFactorization(encoder, sparse=True), batch, SquaredError(), solver, epochs=2)
    with pytest.raises(FitError, match="SparseAdam takes sparse gradients only"):
        train(MatrixFactorization(encoder), batch, SquaredError(), solver, epochs=2)


# --- PQ-07 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS, ids=["rows", "batch"])
@pytest.mark.parametrize("count", [1, 3, 4, 5, 9])
def test_pq_07_few_rows_train_and_a_last_batch_of_one_is_learned(solver: SequentialSGD, count: int) -> None:
    model, batch = encoded(PAIR, ten_rows().head(count))
    model.reset_parameters(init_std=0.1, seed=0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    loss = solver.start(model, batch, SquaredError(), seed=0).epoch()
    assert math.isfinite(loss)
    for name in ("user", "item"):
        named = batch.indices(name)
        place = f"vectors.tables.{model.vectors.names.index(name)}.weight"
        moved = (model.state_dict()[place] != before[place]).any(1)
        assert moved[named].all()
        assert int(moved.sum()) == len(named.unique())


@pytest.mark.parametrize("solver", SOLVERS, ids=["rows", "batch"])
def test_pq_07_no_rows_are_refused_instead_of_a_finished_run(solver: SequentialSGD) -> None:
    model, batch = encoded(PAIR, ten_rows())
    with pytest.raises(EmptySourceError) as error:
        train(model, batch.select(torch.zeros(0, dtype=torch.int64)), SquaredError(), solver)
    assert str(error.value) == "train: expected at least one row, got 0 rows. There is nothing to learn."
