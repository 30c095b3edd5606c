"""Row weights say how rows compare; their unit says nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

from recsys_emb.encoding.batch import Batch
from recsys_emb.errors import EmptySourceError
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema import Categorical, Schema
from recsys_emb.training.fitting import Solver, train
from recsys_emb.training.losses import BPR, Logistic, SquaredError
from recsys_emb.training.minibatch import Minibatch
from recsys_emb.training.objective import EarlyStopping, Objective
from recsys_emb.training.rows import learnable
from recsys_emb.training.schedule import Schedule
from recsys_emb.training.sequential import SequentialSGD

ModelOf = Callable[..., MatrixFactorization]
WEIGHED = Schema(user=Categorical("user"), item=Categorical("item"), label="y", weight="times", embedding_dim=3)


def weighed(weight: torch.Tensor) -> Batch:
    users, items = torch.tensor(list(itertools.product(range(3, 9), range(3, 8)))).T
    return Batch({"user": users, "item": items}, torch.tensor([0.0, 1.0, 1.0]).repeat(10), weight)


def learned(model: MatrixFactorization, batch: Batch, objective: Objective, solver: Solver) -> torch.Tensor:
    train(model, batch, objective, solver, epochs=5, progress=False)
    with torch.no_grad():
        return model(batch)


@pytest.mark.parametrize("solver", [SequentialSGD(), Minibatch(batch_size=8)], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("objective", [SquaredError(), Logistic(), Logistic(negatives=2), BPR()], ids=repr)
@pytest.mark.parametrize("unit", [20.0, 1e-30, 1e30])
def test_the_unit_of_the_weights_changes_nothing(
    model_of: ModelOf, solver: Solver, objective: Objective, unit: float
) -> None:
    weight = torch.tensor([1.0, 2.0, 1.0, 4.0, 2.0]).repeat(6)
    expected = learned(model_of(WEIGHED), weighed(weight), objective, solver)
    answer = learned(model_of(WEIGHED), weighed(weight * unit), objective, solver)
    assert torch.allclose(answer, expected, rtol=1e-5, atol=1e-6)


def test_learned_weights_have_a_mean_of_1() -> None:
    weight = torch.tensor([5.0, 15.0, 25.0]).repeat(10)
    assert torch.equal(learnable(weighed(weight), WEIGHED, SquaredError()).weight, weight / 15)
    # Labels of 0 are not learned here, and their weight of 5 does not count.
    positives = learnable(weighed(weight), WEIGHED, BPR()).weight
    assert torch.equal(positives, torch.tensor([0.75, 1.25]).repeat(10))


@pytest.mark.parametrize(("objective", "count"), [(SquaredError(), 30), (BPR(), 20)], ids=repr)
def test_rows_that_all_weigh_nothing_are_refused_by_the_column(objective: Objective, count: int) -> None:
    weight = torch.tensor([float(count == 20), 0.0, 0.0]).repeat(10)
    with pytest.raises(EmptySourceError) as caught:
        learnable(weighed(weight), WEIGHED, objective)
    assert str(caught.value) == (
        f"times: expected a weight above 0, got none in {count} rows to learn. "
        "Leave the weights out to count every row."
    )


@pytest.mark.parametrize("count", [1, 2, 3])
def test_one_row_at_least_is_left_to_learn_from(model_of: ModelOf, count: int) -> None:
    batch = weighed(torch.ones(30)).select(torch.arange(count))
    history = train(model_of(WEIGHED), batch, SquaredError(), SequentialSGD(), early_stopping=EarlyStopping(0.9))
    assert history.best_epoch >= 1


def test_validation_rows_that_are_none_are_called_so(model_of: ModelOf) -> None:
    batch = weighed(torch.ones(30))
    with pytest.raises(EmptySourceError) as caught:
        train(model_of(WEIGHED), batch, SquaredError(), SequentialSGD(), validation=batch.select(torch.arange(0)))
    assert str(caught.value) == (
        "train: validation: expected at least one row, got 0 rows. Leave it out, or check its source."
    )


@pytest.mark.parametrize(("fraction", "min_epochs", "epochs"), [(0.9, 3, 3), (0.5, 0, 1)])
def test_a_single_row_of_some_weight_is_learned_from_and_not_held_out(
    model_of: ModelOf, fraction: float, min_epochs: int, epochs: int
) -> None:
    weight = torch.zeros(30)
    weight[7] = 2
    stopping = EarlyStopping(fraction, min_epochs=min_epochs)
    with pytest.warns(RuntimeWarning) as caught:
        history = train(model_of(WEIGHED), weighed(weight), SquaredError(), SequentialSGD(), early_stopping=stopping)
    assert str(caught[0].message) == (
        f"train: expected enough rows of a weight above 0 to hold a share of {fraction!r} out, got 1 in 30 rows. The "
        f"run takes {epochs} epoch{'s' * (epochs > 1)} and is not watched; give validation=... or epochs=..."
    )
    assert (len(history.epochs), history.best_epoch, history.refit) == (epochs, epochs, [])


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_weight_0_are_never_held_out(seed: int) -> None:
    schedule = Schedule.of(SquaredError(), None, EarlyStopping(0.9), watched=False)
    batch = weighed(torch.tensor([0.0, 0.0, 1.0]).repeat(10))
    apart, kept = schedule.split(batch, seed=seed)
    assert sorted([*apart.tolist(), *kept.tolist()]) == list(range(30))
    assert (len(apart), float(batch.weight[apart].min()), float(batch.weight[kept].sum())) == (9, 1.0, 1.0)


def test_rows_that_all_count_are_held_out_at_random() -> None:
    schedule = Schedule.of(SquaredError(), None, EarlyStopping(0.2), watched=False)
    splits = [schedule.split(weighed(torch.ones(30)), seed=seed)[0].tolist() for seed in (0, 0, 1)]
    assert splits[0] == splits[1] != splits[2]
    assert len(splits[0]) == 6
