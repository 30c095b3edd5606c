"""A run that was killed goes on from its last snapshot and ends with the bits of one that was not."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from recsys_emb.artifact.checkpoint import read_checkpoint
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import ArtifactError, FitError
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, History, MultiCategorical, OneHot, Schema
from recsys_emb.training.checkpoints import Checkpoints, Snapshot
from recsys_emb.training.fitting import EarlyStopping, train
from recsys_emb.training.history import FitHistory
from recsys_emb.training.losses import BPR, Logistic, SampledSoftmax, SquaredError
from recsys_emb.training.minibatch import Minibatch
from recsys_emb.training.optim import RowWiseAdagrad
from recsys_emb.training.sequential import SequentialSGD

SCHEMA = Schema(
    user=Categorical("user", unknown_dropout=0.1),
    item=Categorical("item"),
    user_features=[History("item")],
    item_features=[MultiCategorical("tags"), Categorical("brand", table=OneHot())],
    label="stars",
    embedding_dim=3,
)
OFTEN = timedelta(0)
STOPPING = EarlyStopping(fraction=0.2, min_epochs=2, patience=1)


def frame(count: int = 60, seed: int = 0) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    items = generator.integers(0, 9, count)
    return pd.DataFrame(
        {
            "user": generator.integers(0, 12, count),
            "item": items,
            "tags": [[f"t{item % 4}", f"t{item % 3}"] for item in items],
            "brand": items % 3,
            "stars": generator.integers(1, 6, count),
        }
    )


ENCODER = FeatureEncoder(SCHEMA).fit(frame())
ROWS, OTHERS = ENCODER.transform(frame()), ENCODER.transform(frame(20, seed=1))


class Killed(BaseException):
    """What a process does not survive."""


class Memory:
    """Keeps the last snapshot; is killed right after some of them."""

    def __init__(self, kills: set[int]) -> None:
        self.last: Snapshot | None = None
        self.saves, self._kills = 0, kills

    def load(self) -> Snapshot | None:
        return copy.deepcopy(self.last)

    def save(self, snapshot: Snapshot) -> None:
        numbers = json.loads(json.dumps(dict(snapshot.numbers), allow_nan=False))
        self.last = Snapshot(numbers, {name: tensor.clone() for name, tensor in snapshot.tensors.items()})
        self.saves += 1
        if self.saves in self._kills:
            raise Killed


def run(solver, objective, keeper: Memory | None, every=OFTEN, **said) -> tuple[MatrixFactorization, FitHistory]:
    """Train a new model until nobody kills it."""
    checkpoints = None if keeper is None else Checkpoints(keeper, every)
    while True:
        model = MatrixFactorization(ENCODER)
        try:
            history = train(model, ROWS, objective, solver, checkpoints=checkpoints, seed=3, progress=False, **said)
        except Killed:
            continue
        return model, history


def assert_equal(one: tuple[MatrixFactorization, FitHistory], other: tuple[MatrixFactorization, FitHistory]) -> None:
    for name, tensor in one[0].state_dict().items():
        assert torch.equal(tensor, other[0].state_dict()[name]), name
    assert one[1].to_frame().equals(other[1].to_frame())
    assert one[1].best_epoch == other[1].best_epoch


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


SOLVERS = [
    SequentialSGD(learning_rate=0.05),
    Minibatch(batch_size=7, learning_rate=0.01),
    Minibatch(optimizer=RowWiseAdagrad, batch_size=13),
    Minibatch(optimizer=torch.optim.Adam, learning_rate=0.01, batch_size=16),
    Minibatch(optimizer=momentum, batch_size=16),
    SequentialSGD(learning_rate=0.05, blocks=2),
]
NAMES = ["sequential", "lazy Adam", "row-wise Adagrad", "Adam", "momentum", "blocks"]


@pytest.mark.parametrize("solver", SOLVERS, ids=NAMES)
def test_a_run_killed_within_its_epochs_ends_with_the_same_bits(solver) -> None:
    expected = run(solver, SquaredError(), None, epochs=3)
    keeper = Memory(kills={1, 2, 5, 9, 20, 33})
    assert_equal(run(solver, SquaredError(), keeper, epochs=3), expected)
    assert keeper.saves > 9


@pytest.mark.parametrize("solver", SOLVERS[:2], ids=NAMES[:2])
@pytest.mark.parametrize("objective", [Logistic(negatives=3), BPR(), SampledSoftmax(negatives=4)], ids=repr)
def test_negatives_are_drawn_on_as_if_nothing_had_happened(solver, objective) -> None:
    if isinstance(objective, SampledSoftmax) and isinstance(solver, SequentialSGD):
        pytest.skip("the sequential solver has no softmax")
    expected = run(solver, objective, None, epochs=3)
    assert_equal(run(solver, objective, Memory(kills={2, 3, 8, 13}), epochs=3), expected)


@pytest.mark.parametrize("solver", SOLVERS[:2], ids=NAMES[:2])
@pytest.mark.parametrize("kills", [{1}, {30}, {40, 60}, {90, 120}, set(range(1, 400, 7))])
def test_a_search_and_the_training_after_it_are_resumed(solver, kills) -> None:
    said = {"early_stopping": STOPPING, "epochs": 6}
    expected = run(solver, SquaredError(), None, **said)
    assert_equal(run(solver, SquaredError(), Memory(kills), **said), expected)


@pytest.mark.parametrize("solver", SOLVERS[:2], ids=NAMES[:2])
@pytest.mark.parametrize("every", [OFTEN, 1, 2])
def test_the_best_weights_on_validation_rows_survive(solver, every) -> None:
    said = {"early_stopping": STOPPING, "epochs": 9, "validation": OTHERS}
    expected = run(solver, SquaredError(), None, **said)
    assert expected[1].best_epoch < len(expected[1].epochs)
    assert_equal(run(solver, SquaredError(), Memory({1, 3, 4, 50, 100}), every, **said), expected)


def test_snapshots_are_taken_every_so_many_epochs() -> None:
    keeper = Memory(kills=set())
    run(SequentialSGD(), SquaredError(), keeper, 2, epochs=7)
    assert keeper.saves == 3 + 1  # and one when it is over


def test_a_finished_run_is_read_back_and_not_trained_again() -> None:
    keeper = Memory(kills=set())
    first = run(SequentialSGD(), SquaredError(), keeper, 1, epochs=3)
    saves = keeper.saves
    again = run(SequentialSGD(), SquaredError(), keeper, 1, epochs=3)
    assert_equal(again, first)
    assert keeper.saves == saves
    assert again[1].seconds >= first[1].seconds


def test_time_of_earlier_processes_counts() -> None:
    keeper = Memory(kills={4})
    _, history = run(SequentialSGD(), SquaredError(), keeper, epochs=2)
    assert history.seconds > keeper.last.numbers["seconds"] - 1e-3


@pytest.mark.parametrize("every", [0, -1, True, 0.5, "1", timedelta(seconds=-1)])
def test_every_must_say_how_often(every) -> None:
    with pytest.raises(FitError) as caught:
        Checkpoints(Memory(set()), every)
    assert str(caught.value) == (
        f"checkpoint: expected every to be a number of epochs or a timedelta, got {every!r}. "
        "Say every=1 or every=timedelta(minutes=5)."
    )


def test_a_solver_that_cannot_say_where_it_is_is_refused() -> None:
    class Simple(SequentialSGD):
        def start(self, model, batch, objective, *, seed, past=None):
            started = super().start(model, batch, objective, seed=seed)
            return type("SimpleRun", (), {"learning_rate": 0.1, "epoch": lambda _: started.epoch()})()

    with pytest.raises(FitError) as caught:
        run(Simple(), SquaredError(), Memory(set()), epochs=1)
    assert str(caught.value) == (
        "Simple: expected runs that can be resumed (state, restore, after_part), got a SimpleRun. "
        "Train without checkpoints, or with SequentialSGD() or Minibatch()."
    )


def test_an_optimizer_that_holds_something_else_is_refused() -> None:
    class Strange(torch.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            for group in self.param_groups:
                for parameter in group["params"]:
                    self.state[parameter]["past"] = [1]

    with pytest.raises(FitError, match=r"got a list as 'past' of Strange"):
        run(Minibatch(optimizer=lambda p: Strange(p, lr=0.1)), SquaredError(), Memory(set()), epochs=1)


# --- through the recommender ---------------------------------------------------------------------------------------


def recommender(**said) -> Recommender:
    return Recommender(SCHEMA, **{"epochs": 4, "progress": False, **said})


def weights_of(one: Recommender) -> dict[str, torch.Tensor]:
    return one.model.state_dict()


@pytest.mark.parametrize("solver", SOLVERS[:2], ids=NAMES[:2])
def test_a_recommender_goes_on_from_the_folder(tmp_path: Path, solver, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = recommender(solver=solver).fit(frame())
    saves = iter(range(1000))

    def kill_sometimes(self, snapshot) -> None:
        save(self, snapshot)
        if next(saves) in (3, 11, 12):
            raise Killed

    from recsys_emb.serving.resuming import CheckpointFolder

    save = CheckpointFolder.save
    monkeypatch.setattr(CheckpointFolder, "save", kill_sometimes)
    for _ in range(3):
        with pytest.raises(Killed):
            recommender(solver=solver).fit(frame(), checkpoint=tmp_path / "run", every=OFTEN)
    ended = recommender(solver=solver).fit(frame(), checkpoint=tmp_path / "run", every=OFTEN)
    assert all(torch.equal(tensor, weights_of(expected)[name]) for name, tensor in weights_of(ended).items())
    assert ended.predict(frame()).equals(expected.predict(frame()))


@pytest.mark.parametrize(
    ("said", "rows", "other"),
    [
        ({"seed": 1}, frame(), "'settings'"),
        ({"solver": SequentialSGD(l2=0.5)}, frame(), "'settings'"),
        ({"objective": SquaredError(clip=False)}, frame(), "'settings'"),
        ({"epochs": 5}, frame(), "'settings'"),
        ({}, frame().assign(stars=3), "'rows'"),
        ({}, frame().iloc[::-1], "'rows'"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_and_kept(tmp_path: Path, said, rows, other) -> None:
    recommender().fit(frame(), checkpoint=tmp_path / "run")
    with pytest.raises(ArtifactError) as caught:
        recommender(**said).fit(rows, checkpoint=tmp_path / "run")
    assert str(caught.value) == (
        f"run: expected a checkpoint of this run, got one of another in {other}. "
        "Fit as before to go on, or give an empty folder to start anew."
    )
    assert read_checkpoint(tmp_path / "run") is not None


def test_a_checkpoint_of_another_schema_is_refused(tmp_path: Path) -> None:
    recommender().fit(frame(), checkpoint=tmp_path / "run")
    pair = Schema(user=Categorical("user"), item=Categorical("item"), label="stars", embedding_dim=3)
    with pytest.raises(ArtifactError, match="in 'schema', 'rows'"):
        Recommender(pair, epochs=4, progress=False).fit(frame(), checkpoint=tmp_path / "run")


def test_other_validation_rows_are_another_run(tmp_path: Path) -> None:
    recommender().fit(frame(), validation=frame(9, 5), checkpoint=tmp_path / "run")
    with pytest.raises(ArtifactError, match="in 'validation rows'"):
        recommender().fit(frame(), validation=frame(9, 6), checkpoint=tmp_path / "run")


def test_a_checkpoint_and_a_model_are_not_mistaken_for_each_other(tmp_path: Path) -> None:
    fitted = recommender().fit(frame(), checkpoint=tmp_path / "run")
    fitted.save(tmp_path / "model")
    with pytest.raises(ArtifactError) as caught:
        Recommender.load(tmp_path / "run")
    assert str(caught.value) == "run: expected a saved model, got a checkpoint. Give the folder of a model."
    with pytest.raises(ArtifactError, match="expected an artifact or an empty place"):
        fitted.save(tmp_path / "run")
    with pytest.raises(ArtifactError, match="expected a saved checkpoint, got a model"):
        recommender().fit(frame(), checkpoint=tmp_path / "model")
    assert Recommender.load(tmp_path / "model").predict(frame()).equals(fitted.predict(frame()))


def test_a_damaged_checkpoint_is_refused_by_the_name_of_its_file(tmp_path: Path) -> None:
    recommender().fit(frame(), checkpoint=tmp_path / "run")
    path = tmp_path / "run" / "tensors.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match=r"'tensors\.safetensors' altered or cut short"):
        recommender().fit(frame(), checkpoint=tmp_path / "run")


def test_ctrl_c_leaves_a_usable_model_and_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = recommender(epochs=6).fit(frame())
    steps = iter(range(10**6))

    def interrupted(self, *rest):
        if next(steps) == 120:
            raise KeyboardInterrupt
        return learn(self, *rest)

    from recsys_emb.training.sequential import SequentialRun

    learn = SequentialRun._learn
    monkeypatch.setattr(SequentialRun, "_learn", interrupted)
    stopped = recommender(epochs=6)
    with pytest.warns(RuntimeWarning) as caught:
        stopped.fit(frame(), checkpoint=tmp_path / "run")
    assert str(caught[0].message) == (
        "train: interrupted after 2 epochs. The model is usable and holds what it learned until then. "
        "The same call goes on from the last checkpoint."
    )
    assert stopped.history.interrupted
    assert len(stopped.recommend([1, 2], k=3)) == 6
    ended = recommender(epochs=6).fit(frame(), checkpoint=tmp_path / "run")
    assert ended.predict(frame()).equals(expected.predict(frame()))


SCRIPT = """
import sys
from datetime import timedelta
import pandas as pd
from recsys_emb import Categorical, Recommender, Schema
schema = Schema(user=Categorical("user"), item=Categorical("item"), label="stars", embedding_dim=3)
rows = pd.read_parquet(sys.argv[1] + "/rows.parquet")
recommender = Recommender(schema, epochs=30, progress=False)
recommender.fit(rows, checkpoint=sys.argv[1] + "/run", every=timedelta(milliseconds=2))
recommender.save(sys.argv[1] + "/model")
"""


def stamp(folder: Path) -> int | None:
    """Tell one checkpoint from the next; None before the first."""
    try:
        return folder.stat().st_ino
    except FileNotFoundError:
        return None


@pytest.mark.skipif(os.name != "posix", reason="kills processes")
def test_kill_9_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    rows = frame(2000)[["user", "item", "stars"]]
    rows.to_parquet(tmp_path / "rows.parquet")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    generator = np.random.default_rng(0)
    for _ in range(2):
        process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
        before = stamp(tmp_path / "run")
        while process.poll() is None and stamp(tmp_path / "run") == before:
            time.sleep(0.001)
        time.sleep(generator.uniform(0, 0.02))
        process.kill()
        assert process.wait() == -signal.SIGKILL
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    pair = Schema(user=Categorical("user"), item=Categorical("item"), label="stars", embedding_dim=3)
    expected = Recommender(pair, epochs=30, progress=False).fit(rows)
    ended = Recommender.load(tmp_path / "model")
    assert all(torch.equal(tensor, weights_of(expected)[name]) for name, tensor in weights_of(ended).items())
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
