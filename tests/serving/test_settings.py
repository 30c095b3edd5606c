"""Settings go through JSON and come back, and nothing else does."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

from recsys_emb.errors import ArtifactError
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, Schema
from recsys_emb.serving.fitted import LabelRange
from recsys_emb.serving.settings import (
    describe,
    read_history,
    read_label,
    read_objective,
    read_plan,
    restore,
)
from recsys_emb.training.history import Epoch, FitHistory
from recsys_emb.training.losses import BPR, Logistic, SampledSoftmax, SquaredError
from recsys_emb.training.minibatch import Minibatch
from recsys_emb.training.objective import EarlyStopping
from recsys_emb.training.optim import LazyAdam, RowWiseAdagrad
from recsys_emb.training.sequential import SequentialSGD

DECLARATIONS = [
    SquaredError(clip=False),
    Logistic(negatives=3),
    BPR(),
    SampledSoftmax(negatives=None),
    SequentialSGD(learning_rate=0.5),
    Minibatch(batch_size=7, optimizer=RowWiseAdagrad),
    Minibatch(optimizer=LazyAdam, device="cpu"),
    EarlyStopping(patience=3),
]


@pytest.mark.parametrize("declared", DECLARATIONS, ids=lambda one: type(one).__name__)
def test_every_declaration_of_the_library_comes_back(declared: object) -> None:
    described = json.loads(json.dumps(describe(declared)))
    assert restore(described, type(declared)) == declared


def adam(parameters, lr: float = 0.1) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=lr)


class Slow(EarlyStopping):
    pass


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"solver": Minibatch(optimizer=torch.optim.AdamW)}, "a solver of recsys_emb, got the optimizer AdamW"),
        ({"solver": Minibatch(optimizer=adam)}, "a solver of recsys_emb, got the optimizer adam"),
        ({"early_stopping": Slow(min_epochs=1)}, "a rule for stopping of recsys_emb, got Slow"),
    ],
)
def test_what_is_not_saved_is_said(told: dict[str, object], expected: str, tmp_path: Path) -> None:
    schema = Schema(user=Categorical("user"), item=Categorical("item"), label="stars", embedding_dim=2)
    frame = pd.DataFrame({"user": [1, 1, 2, 3], "item": [7, 8, 7, 8], "stars": [1, 2, 3, 4]})
    recommender = Recommender(schema, epochs=2, progress=False, **told).fit(frame)
    with pytest.warns(UserWarning, match="^Recommender.save: ") as caught:
        recommender.save(tmp_path / "model")
    assert [str(one.message) for one in caught] == [
        f"Recommender.save: expected {expected}. It is not saved; the loaded recommender serves as this one does, "
        "and chooses for itself where training goes on."
    ]
    assert caught[0].filename == __file__
    loaded = Recommender.load(tmp_path / "model")
    pd.testing.assert_series_equal(loaded.predict(frame), recommender.predict(frame), check_exact=True)
    assert loaded._plan.solver is None or not told.get("solver")


def test_an_optimizer_of_the_library_is_saved_in_silence(tmp_path: Path) -> None:
    schema = Schema(user=Categorical("user"), item=Categorical("item"), label="stars", embedding_dim=2)
    frame = pd.DataFrame({"user": [1, 1, 2, 3], "item": [7, 8, 7, 8], "stars": [1, 2, 3, 4]})
    solver = Minibatch(optimizer=RowWiseAdagrad, learning_rate=0.1, device=torch.device("cpu"))
    Recommender(schema, solver=solver, epochs=2, progress=False).fit(frame).save(tmp_path / "model")
    assert Recommender.load(tmp_path / "model")._plan.solver == replace(solver, device="cpu")


@pytest.mark.parametrize(
    ("plan", "got"),
    [
        ({"epochs": 0}, "expected epochs of at least 1, got 0. An epoch is a pass over the rows"),
        ({"seed": -1}, "expected seed of at least 0, got -1. The same seed gives the same model"),
    ],
)
def test_a_plan_that_nobody_could_have_told_is_refused(plan: dict[str, object], got: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        read_plan({"plan": plan})
    assert str(caught.value) == f"recommender.json: expected a plan, got Recommender: {got}. Save it again."


@pytest.mark.parametrize("declared", [Minibatch(optimizer=torch.optim.SGD), object(), None, "SquaredError"])
def test_what_belongs_to_the_caller_is_not_described(declared: object) -> None:
    assert describe(declared) is None


def test_a_subclass_of_the_caller_is_not_taken_for_ours() -> None:
    class SteepError(SquaredError):
        pass

    assert describe(SteepError()) is None


@pytest.mark.parametrize(
    ("described", "text"),
    [
        ({"kind": "os.system"}, "expected one of 'Logistic', got 'os.system'. Save it again."),
        ({}, "expected one of 'Logistic', got None. Save it again."),
        ("Logistic", "expected a declaration to be an object, got 'Logistic'. Save it again."),
        (
            {"kind": "Logistic", "negatives": -1},
            "expected settings of Logistic, got Logistic: expected negatives of at least 0, got -1. "
            "0 learns the label. Save it again.",
        ),
    ],
)
def test_what_is_no_declaration_is_refused(described: object, text: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        restore(described, Logistic)
    assert str(caught.value) == f"recommender.json: {text}"


def test_fields_of_a_later_version_are_refused() -> None:
    with pytest.raises(ArtifactError, match=r"^recommender\.json: expected settings of Logistic, got "):
        restore({"kind": "Logistic", "warmth": 3}, Logistic)


def test_an_objective_is_needed() -> None:
    with pytest.raises(ArtifactError) as caught:
        read_objective({})
    assert str(caught.value) == "recommender.json: expected an objective, got none. Save the recommender again."


def test_an_unbounded_label_is_unbounded_again() -> None:
    assert read_label({"label": {"low": None, "high": None, "binary": False}}) == LabelRange()
    assert read_label({}) == LabelRange(-math.inf, math.inf)


def test_a_history_comes_back() -> None:
    said = {"history": {"epochs": [[1, 0.5, None], [2, None, 0.25]], "best_epoch": 2, "seconds": 1.5}}
    history = read_history(said)
    assert isinstance(history, FitHistory)
    assert history.epochs[0] == Epoch(1, 0.5, None)
    assert math.isnan(history.epochs[1].train_loss)
    assert (history.best_epoch, history.seconds, history.refit) == (2, 1.5, [])


@pytest.mark.parametrize("epochs", [[[1]], [1], "abc", [["x", "y", "z"]]])
def test_what_is_no_history_is_refused(epochs: object) -> None:
    with pytest.raises(ArtifactError, match=r"^recommender\.json: history: expected epochs, got "):
        read_history({"history": {"epochs": epochs}})


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"epochs": "3"}, "expected epochs to be an integer, got '3'. Save it again."),
        ({"seed": 1.5}, "expected seed to be an integer, got 1.5. Save it again."),
        ("x", "expected plan to be an object, got 'x'. Save it again."),
    ],
)
def test_what_is_no_plan_is_refused(said: object, text: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        read_plan({"plan": said})
    assert str(caught.value) == f"recommender.json: {text}"


def test_a_range_that_is_no_number_is_refused() -> None:
    with pytest.raises(ArtifactError) as caught:
        read_label({"label": {"low": "1"}})
    assert str(caught.value) == "recommender.json: expected low to be a number, got '1'. Save it again."
