"""Batches by kernels are batches by autograd, up to rounding; what they are not for goes by autograd."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema import Categorical, Hashed, History, MultiCategorical, OneHot, Position, Schema
from recsys_emb.training.losses import BPR, Logistic, SampledSoftmax, SquaredError
from recsys_emb.training.minibatch import Minibatch, MinibatchRun
from recsys_emb.training.objective import Objective
from recsys_emb.training.optim import LazyAdam, RowWiseAdagrad

ModelOf = Callable[..., MatrixFactorization]
RowsOf = Callable[..., Batch]
OPTIMIZERS = {"adagrad": RowWiseAdagrad, "adam": partial(LazyAdam, betas=(0.8, 0.99))}


@pytest.fixture
def schema(request: pytest.FixtureRequest) -> Schema:
    """Give the schema that a test names."""
    return request.getfixturevalue(request.param)


def started(
    model: MatrixFactorization, rows: Batch, objective: Objective, make: Callable[..., torch.optim.Optimizer]
) -> MinibatchRun:
    solver = Minibatch(optimizer=make, learning_rate=0.05, batch_size=16, l2=0.2, bias_l2=0.1)
    return solver.start(model, rows, objective, seed=2)


def states(run: MinibatchRun) -> list[dict[str, object]]:
    return [run._optimizer.state[one] for one in run._optimizer.param_groups[0]["params"]]


def assert_equal(one: MinibatchRun, other: MinibatchRun) -> None:
    for left, right in zip(states(one), states(other), strict=True):
        assert left.keys() == right.keys()
        for key, value in left.items():
            torch.testing.assert_close(value, right[key], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("objective", [SquaredError(), Logistic()], ids=repr)
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("schema", ["ids", "rich"], indirect=True)
def test_epochs_equal_those_of_autograd(
    objective: Objective, name: str, schema: Schema, model_of: ModelOf, rows_of: RowsOf
) -> None:
    rows = rows_of(100)
    rows = dataclasses.replace(rows, label=(rows.label > 2).float(), weight=torch.linspace(0, 2, 100))
    models = model_of(schema), model_of(schema)
    runs = [
        started(model, rows, objective, partial(OPTIMIZERS[name], compiled=compiled))
        for model, compiled in zip(models, (True, False), strict=True)
    ]
    assert [run._compiled is not None for run in runs] == [True, False]
    for _ in range(3):
        assert runs[0].epoch() == pytest.approx(runs[1].epoch(), abs=1e-6)
    for key, value in models[0].state_dict().items():
        torch.testing.assert_close(value, models[1].state_dict()[key], atol=1e-6, rtol=0, msg=key)
    assert_equal(*runs)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_tables_that_are_shared_frozen_or_have_no_vector_learn_as_by_autograd(
    name: str, model_of: ModelOf, rows_of: RowsOf
) -> None:
    schema = Schema(
        user=Categorical("user"),
        item=Categorical("item"),
        user_features=[MultiCategorical("tags", vocabulary="item", share_table=True), Categorical("country")],
        position=Position("slot", max_position=3, vector=False),
        embedding_dim=4,
    )
    models, runs, rows = (model_of(schema), model_of(schema)), [], rows_of(100)
    rows = rows.replacing({"item": rows["item"].clamp(max=7)})
    for model, compiled in zip(models, (True, False), strict=True):
        model.vectors.lookup("country").weight.requires_grad_(False)
        runs.append(started(model, rows, SquaredError(), partial(OPTIMIZERS[name], compiled=compiled)))
        runs[-1].epoch()
    for key, value in models[0].state_dict().items():
        torch.testing.assert_close(value, models[1].state_dict()[key], atol=1e-6, rtol=0, msg=key)
    assert torch.equal(models[0].vectors.lookup("country").weight, model_of(schema).vectors.lookup("country").weight)
    assert_equal(*runs)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("stop", [1, 6, 7, 8])
def test_a_run_that_was_stopped_goes_on_with_the_same_bits(
    name: str, stop: int, rich: Schema, model_of: ModelOf, rows_of: RowsOf
) -> None:
    models, kept, parts = (model_of(rich), model_of(rich)), [], []
    first, second = (started(model, rows_of(100), SquaredError(), OPTIMIZERS[name]) for model in models)

    def note() -> None:
        parts.append(None)
        if len(parts) == stop:
            kept.extend(copy.deepcopy((models[0].state_dict(), first.state())))

    first.after_part = note
    for _ in range(3):
        first.epoch()
    models[1].load_state_dict(kept[0])
    second.restore(kept[1])
    for _ in range(3 if stop <= 7 else 2):  # seven batches are an epoch
        second.epoch()
    assert all(map(torch.equal, models[0].state_dict().values(), models[1].state_dict().values()))
    assert_equal(first, second)


def test_a_state_that_is_looked_at_is_the_one_that_moves(ids: Schema, model_of: ModelOf, rows_of: RowsOf) -> None:
    run = started(model_of(ids), rows_of(100), SquaredError(), LazyAdam)
    seen = states(run)[0]["exp_avg"]
    run.epoch()
    assert isinstance(seen, Tensor)
    assert seen.any()
    assert states(run)[0]["step"] == 7


# --- by autograd -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "objective"),
    [
        (torch.optim.Adam, SquaredError()),
        (partial(LazyAdam, compiled=False), SquaredError()),
        (LazyAdam, BPR()),
        (LazyAdam, Logistic(negatives=2)),
        (RowWiseAdagrad, SampledSoftmax()),
        (lambda given, lr: LazyAdam([{"params": given[:1]}, {"params": given[1:]}], lr=lr), SquaredError()),
    ],
)
def test_other_optimizers_and_objectives_go_by_autograd(
    make: Callable[..., torch.optim.Optimizer], objective: Objective, ids: Schema, model_of: ModelOf, rows_of: RowsOf
) -> None:
    run = started(model_of(ids), rows_of(30), objective, make)
    assert run._compiled is None
    assert run.epoch() > 0


@pytest.mark.parametrize(
    "changed",
    [
        {"user": Categorical("user", table=Hashed(6))},
        {"user": Categorical("user", table=OneHot())},
        {"item_features": [MultiCategorical("tags", pooling="max")]},
        {"user_features": [History("item")]},
    ],
    ids=["hashed", "one-hot", "max", "history"],
)
def test_other_tables_go_by_autograd(changed: dict[str, object], rows_of: RowsOf) -> None:
    schema = Schema(**{"user": Categorical("user"), "item": Categorical("item"), "embedding_dim": 4} | changed)
    sizes = {"user": 9, "item": 10, "tags": 8, "item_history": 10}
    model = MatrixFactorization(SimpleNamespace(schema=schema, num_embeddings=sizes.__getitem__), init_std=0.3)
    model.vectors.remember(rows_of(30), anew=True)
    run = started(model, rows_of(30), SquaredError(), LazyAdam)
    assert run._compiled is None
    assert run.epoch() > 0


def test_double_precision_goes_by_autograd(ids: Schema, model_of: ModelOf, rows_of: RowsOf) -> None:
    run = started(model_of(ids).double(), rows_of(30), SquaredError(), LazyAdam)
    assert run._compiled is None
