"""What histories hold while a model trains: never a row that it is judged by, nothing of strangers, given vectors."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from recsys_emb.encoding.batch import Batch
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema import Categorical, History, Schema
from recsys_emb.training.fitting import train
from recsys_emb.training.losses import BPR, Logistic, SquaredError
from recsys_emb.training.minibatch import Minibatch
from recsys_emb.training.objective import Objective
from recsys_emb.training.optim import LazyAdam, RowWiseAdagrad
from recsys_emb.training.plan import user_order
from recsys_emb.training.rows import forget_absent, with_unknown
from recsys_emb.training.scoring import Scorer
from recsys_emb.training.sequential import SequentialSGD
from recsys_emb.training.stack import Stack

SIZES = {"user": 9, "item": 12, "item_history": 12}
SOLVERS = pytest.mark.parametrize("solver", [SequentialSGD(), Minibatch(batch_size=8)], ids=["rows", "batch"])


def schema_of(*, dropout: float = 0.0, **options: object) -> Schema:
    return Schema(
        user=Categorical("user", unknown_dropout=dropout),
        item=Categorical("item"),
        user_features=[History("item", **options)],
        label="rating",
        embedding_dim=4,
    )


def model_of(schema: Schema) -> MatrixFactorization:
    return MatrixFactorization(SimpleNamespace(schema=schema, num_embeddings=SIZES.__getitem__), init_std=0.3)


def rows_of(count: int, *, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    draw = [torch.randint(3, SIZES[name], (count,), generator=generator) for name in ("user", "item")]
    return Batch(dict(zip(("user", "item"), draw, strict=True)), torch.randn(count, generator=generator))


def items_of(model: MatrixFactorization) -> list[set[int]]:
    return [set(one) for one in model.vectors.histories["item_history"].lists().to_lists()]


def items_in(rows: Batch) -> list[set[int]]:
    return [set(rows.indices("item")[rows.indices("user") == user].tolist()) for user in range(SIZES["user"])]


@SOLVERS
def test_validation_rows_are_never_part_of_a_history(solver: SequentialSGD) -> None:
    model, rows = model_of(schema_of()), rows_of(30)
    train(model, rows, SquaredError(), solver, validation=rows_of(30, seed=1), epochs=3)
    assert items_of(model) == items_in(rows)


@SOLVERS
def test_a_run_that_goes_on_adds_to_the_histories(solver: SequentialSGD) -> None:
    model, first, second = model_of(schema_of()), rows_of(20), rows_of(20, seed=1)
    train(model, first, SquaredError(), solver, epochs=2)
    train(model, second, SquaredError(), solver, fresh=False)
    assert items_of(model) == [one | other for one, other in zip(items_in(first), items_in(second), strict=True)]


@SOLVERS
@pytest.mark.parametrize("objective", [BPR(), Logistic(negatives=2)], ids=repr)
def test_ranking_remembers_the_positives_it_learns(solver: SequentialSGD, objective: Objective) -> None:
    model, rows = model_of(schema_of()), rows_of(40)
    train(model, rows, objective, solver, epochs=2)
    assert rows.label is not None
    assert items_of(model) == items_in(rows.select((rows.label > 0).nonzero()[:, 0]))


def test_a_row_that_is_made_unknown_has_no_history_in_either_solver() -> None:
    schema, rows = schema_of(dropout=0.4), rows_of(60)
    models = model_of(schema), model_of(schema)
    for model in models:
        model.vectors.remember(rows)
    run = SequentialSGD(learning_rate=0.05, l2=0.2, bias_l2=0.1).start(models[0], rows, SquaredError(), seed=0)
    # Rows that many share learn more slowly, which autograd cannot know: let all learn alike.
    run._tables.pace[:, [0, 2]] = np.where(run._tables.pace[:, [0, 2]] > 0, 0.05, 0)
    run.epoch()
    in_turn = _one_by_one(models[1], rows, rate=0.05)
    for name, weights in models[0].state_dict().items():
        torch.testing.assert_close(weights, in_turn[name], atol=1e-5, rtol=0, msg=name)


def _one_by_one(model: MatrixFactorization, rows: Batch, *, rate: float) -> dict[str, torch.Tensor]:
    """Take the steps of an epoch of `SequentialSGD` by autograd, in its order."""
    ordered = rows.select(torch.from_numpy(user_order(rows.indices("user").numpy(), 0)))
    ordered = with_unknown(ordered, model.schema, seed=0)
    rng = np.random.default_rng([0, 0])
    rng.integers(2**63)
    bounds = np.linspace(0, len(rows), 51).astype(int)
    order = [row for chunk in rng.permutation(50) for row in range(bounds[chunk], bounds[chunk + 1])]
    settings = SquaredError().defaults.replacing(learning_rate=rate, l2=0.2, bias_l2=0.1)
    scorer, optimizer = Scorer(model, settings), torch.optim.SGD(model.parameters(), lr=rate)
    for row in order:
        one = ordered.select(torch.tensor([row]))
        sides = scorer.sides(one)
        optimizer.zero_grad()
        ((one.label - sides.own()[:, 0]).square() / 2 + sides.penalty).sum().backward()
        optimizer.step()
    return model.state_dict()


@pytest.mark.parametrize("optimizer", [RowWiseAdagrad, LazyAdam])
def test_row_sparse_optimizers_get_sparse_gradients_of_a_history(optimizer: type) -> None:
    model, rows = model_of(schema_of()), rows_of(10)
    model.vectors.remember(rows)
    Minibatch(optimizer=optimizer).start(model, rows, SquaredError(), seed=0).epoch()
    table = model.vectors.histories["item_history"].items
    assert table.weight.grad is not None
    assert table.weight.grad.is_sparse
    assert not table.sparse


def test_given_vectors_survive_although_no_row_names_them() -> None:
    model, rows = model_of(schema_of()), rows_of(20)
    rows = rows.replacing({"item": rows.indices("item").clamp(max=6)})
    given = torch.full((2, 4), 0.5)
    for table in (model.vectors.lookup("item"), model.vectors.histories["item_history"].items):
        table.give(torch.tensor([10, 11]), given)
    model.vectors.remember(rows)
    forget_absent(model.vectors, rows)
    for name in ("item", "item_history"):
        storage = model.vectors.lookup(name).storage()
        assert torch.equal(storage[10:], given)
        assert not storage[7:10].any()


@SOLVERS
def test_a_frozen_history_stays_and_others_learn(solver: SequentialSGD) -> None:
    model, rows = model_of(schema_of()), rows_of(30)
    model.vectors.remember(rows)
    table, users = (model.vectors.lookup(name).weight for name in ("item_history", "user"))
    table.requires_grad_(False)
    before, start = table.clone(), users.clone()
    solver.start(model, rows, SquaredError(), seed=0).epoch()
    assert torch.equal(model.vectors.lookup("item_history").weight, before)
    assert not torch.equal(model.vectors.lookup("user").weight, start)


def test_a_history_that_shares_its_rows_is_refused_by_the_kernels_and_learns_in_batches() -> None:
    model, rows = model_of(schema_of()), rows_of(30)
    model.vectors.histories["item_history"].items = model.vectors.lookup("item")
    assert SequentialSGD().why_not(model, SquaredError()) == (
        "feature 'item_history' shares its rows with another feature, and the kernels move them apart"
    )
    history = train(model, rows, SquaredError(), Minibatch(learning_rate=0.01), epochs=10)
    assert history.epochs[-1].train_loss < history.epochs[0].train_loss
    assert model.vectors.histories["item_history"].weight is model.vectors.lookup("item").weight


def test_histories_learn_as_fast_as_items_do_and_feel_their_own_l2() -> None:
    model = model_of(schema_of(l2_scale=3.0))
    run = SequentialSGD(learning_rate=0.1, l2=0.5).start(model, rows_of(30), SquaredError(), seed=0)
    pace = run._tables.pace[Stack(model).rows_of("item_history")]
    assert pace.tolist() == [pytest.approx([0.1, 1.5, 0.0, 0.3])] * SIZES["item"]
