"""What a recommender is told is refused where it is said, not at fit, save or load."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from recsys_emb.errors import FitError
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, Schema
from recsys_emb.training.losses import Logistic, SampledSoftmax, SquaredError
from recsys_emb.training.minibatch import Minibatch
from recsys_emb.training.objective import EarlyStopping
from recsys_emb.training.sequential import SequentialSGD

RATED = Schema(user=Categorical("user"), item=Categorical("item"), label="stars", embedding_dim=2)
FRAME = pd.DataFrame({"user": [1, 1, 2, 3], "item": [7, 8, 7, 8], "stars": [1, 2, 3, 4]})


def test_numpy_integers_are_integers_and_survive_the_disk(tmp_path: Path) -> None:
    told = {
        "objective": Logistic(negatives=np.int64(2)),
        "solver": Minibatch(batch_size=np.int32(64), learning_rate=np.float32(0.5), device=torch.device("cpu")),
        "epochs": np.int64(2),
        "early_stopping": EarlyStopping(min_epochs=np.int64(1), patience=np.uint8(2)),
        "seed": np.int64(3),
    }
    recommender = Recommender(RATED, progress=False, **told).fit(FRAME)
    recommender.save(tmp_path / "model")
    plan = Recommender.load(tmp_path / "model")._plan
    assert plan.objective == Logistic(negatives=2)
    assert plan.solver == Minibatch(batch_size=64, learning_rate=0.5, device="cpu")
    assert (plan.epochs, plan.early_stopping, plan.seed) == (2, EarlyStopping(min_epochs=1, patience=2), 3)


def test_a_seed_is_its_number_whatever_its_type() -> None:
    one, other = (Recommender(RATED, epochs=2, seed=seed, progress=False).fit(FRAME) for seed in (3, np.int64(3)))
    pd.testing.assert_series_equal(one.predict(FRAME), other.predict(FRAME), check_exact=True)


@pytest.mark.parametrize("epochs", [2.0, 1.5, True, np.True_, "2"])
def test_epochs_that_are_no_integer_are_refused(epochs: object) -> None:
    with pytest.raises(FitError) as caught:
        Recommender(RATED, epochs=epochs)
    assert str(caught.value) == (
        f"Recommender: expected epochs to be an integer, got {epochs!r}. An epoch is a pass over the rows."
    )


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        (-1, "expected seed of at least 0, got -1"),
        (2**64, f"expected seed of at most {2**63 - 1}, got {2**64}"),
        (1.0, "expected seed to be an integer, got 1.0"),
        (False, "expected seed to be an integer, got False"),
        (None, "expected seed to be an integer, got None"),
    ],
)
def test_seeds_that_generators_do_not_take_are_refused(seed: object, expected: str) -> None:
    with pytest.raises(FitError) as caught:
        Recommender(RATED, seed=seed)
    assert str(caught.value) == f"Recommender: {expected}. The same seed gives the same model."


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: Logistic(negatives=1.5),
            "Logistic: expected negatives to be an integer, got 1.5. 0 learns the label.",
        ),
        (
            lambda: SampledSoftmax(negatives=2.0),
            "SampledSoftmax: expected negatives to be an integer, got 2.0. None takes the items of the other rows.",
        ),
        (
            lambda: EarlyStopping(min_epochs=-1),
            "EarlyStopping: expected min_epochs of at least 0, got -1. 0 lets patience alone decide.",
        ),
        (
            lambda: EarlyStopping(patience=1.5),
            "EarlyStopping: expected patience to be an integer, got 1.5. It counts epochs without a new best.",
        ),
        (
            lambda: EarlyStopping(fraction="half"),
            "EarlyStopping: expected fraction in (0, 1), got 'half'. It is a share of rows.",
        ),
        (
            lambda: Minibatch(batch_size=64.0),
            "Minibatch: expected batch_size to be an integer, got 64.0. It counts rows.",
        ),
        (
            lambda: Minibatch(optimizer="adam"),
            "Minibatch: expected optimizer to be a class or a function that makes one, got 'adam'. "
            "Give it uncalled: optimizer=LazyAdam.",
        ),
        (
            lambda: SequentialSGD(learning_rate="fast"),
            "SequentialSGD: expected learning_rate above 0, got 'fast'. 0.01 suits standardised labels.",
        ),
        (lambda: SequentialSGD(l2=True), "SequentialSGD: expected l2 of at least 0, got True. 0 turns it off."),
    ],
)
def test_settings_of_another_type_are_refused(make, text: str) -> None:
    with pytest.raises(FitError) as caught:
        make()
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (
            {"objective": SquaredError},
            "expected an objective such as SquaredError(), got the class SquaredError. Call it: SquaredError().",
        ),
        (
            {"objective": "mse"},
            "expected an objective such as SquaredError(), got 'mse'. None leaves the choice to the library.",
        ),
        (
            {"solver": Minibatch},
            "expected a solver such as SequentialSGD(), got the class Minibatch. Call it: Minibatch().",
        ),
        (
            {"solver": "sgd"},
            "expected a solver such as SequentialSGD(), got 'sgd'. None leaves the choice to the library.",
        ),
        (
            {"early_stopping": 5},
            "expected early_stopping such as EarlyStopping(), got 5. None leaves the choice to the library.",
        ),
    ],
)
def test_classes_and_names_are_no_objects(told: dict[str, object], text: str) -> None:
    with pytest.raises(FitError) as caught:
        Recommender(RATED, **told)
    assert str(caught.value) == f"Recommender: {text}"
