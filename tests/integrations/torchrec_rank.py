"""What one of several processes does in the tests of sharded tables: ``torchrec_rank.py <case> <folder> [rank size]``.

Started by torchrun, rank and size come from the environment.
"""

from __future__ import annotations

import copy
import hashlib
import os
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, distributed
from torch.distributed.checkpoint import FileSystemWriter

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.stacking import stack_rows
from recsys_emb.integrations.torchrec import (
    ColumnWise,
    RowWise,
    ShardedCheckpoints,
    ShardedFactorization,
    TableWise,
    checkpoints,
    train_sharded,
)
from recsys_emb.loading.loader import BatchLoader
from recsys_emb.lookup.row_rules import AdagradUpdate, LazyAdamUpdate, RowRule, RowWiseAdagradUpdate, SGDUpdate
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema import Categorical, Hashed, MultiCategorical, Numeric, Position, Schema
from recsys_emb.training.losses import BPR, SquaredError
from recsys_emb.training.objective import Units
from recsys_emb.training.optim import RowWiseAdagrad
from recsys_emb.training.ranks import mean_over_ranks
from recsys_emb.training.rows import with_pooling_weights
from recsys_emb.training.scoring import Scorer

ROWS = 75
SCHEMA = Schema(
    user=Categorical("user.id"),
    item=Categorical("item"),
    position=Position("slot", max_position=3),
    user_features=[Numeric("age")],
    item_features=[MultiCategorical("tags"), MultiCategorical("words", pooling="max")],
    context_features=[Categorical("seen before", vocabulary="item", share_table=True)],
    label="stars",
    embedding_dim=6,
)
UPDATES: dict[str, tuple[RowRule, Callable[..., torch.optim.Optimizer]]] = {
    "SGD": (SGDUpdate(lr=0.1), partial(torch.optim.SGD, lr=0.1)),
    "Adagrad": (
        AdagradUpdate(lr=0.1, initial_accumulator_value=0.02),
        partial(torch.optim.Adagrad, lr=0.1, eps=1e-8, initial_accumulator_value=0.02),
    ),
    "row-wise Adagrad": (
        RowWiseAdagradUpdate(lr=0.1, initial_accumulator_value=0.02),
        partial(RowWiseAdagrad, lr=0.1, initial_accumulator_value=0.02),
    ),
}
PLACEMENTS: dict[str, Any] = {
    "row-wise": RowWise(),
    "table-wise": TableWise(),
    "column-wise": ColumnWise(),
    "mixed": {"item": RowWise(), "user.id": TableWise()},
}
UNITS = Units(3.0, 1.3)
# Rows of each process in each step: as many, more, fewer, and none.
DEALT = [(8, 8), (8, 5), (3, 8), (4, 0)]


def frame(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    lists = [rng.integers(0, 9, rng.integers(0, 4)).tolist() for _ in range(2 * ROWS)]
    return pd.DataFrame(
        {
            "user.id": rng.integers(0, 20, ROWS),
            "item": rng.integers(0, 30, ROWS),
            "slot": rng.integers(0, 3, ROWS),
            "age": np.where(rng.random(ROWS) < 0.2, np.nan, rng.normal(size=ROWS)),
            "tags": lists[:ROWS],
            "words": lists[ROWS:],
            "seen before": rng.integers(0, 40, ROWS),
            "stars": rng.integers(1, 6, ROWS).astype(float),
        }
    )


FRAME = frame()
ENCODER = FeatureEncoder(SCHEMA).fit(FRAME)


def sharded(update: RowRule = UPDATES["row-wise Adagrad"][0], **options: Any) -> ShardedFactorization:
    model = ShardedFactorization(ENCODER, update=update, **{"init_std": 0.3, "seed": 3, **options})
    model.set_units(*UNITS)
    return model


def loader_of(rank: int, size: int, **options: Any) -> BatchLoader:
    return BatchLoader(ENCODER, FRAME, rank=rank, world_size=size, **{"batch_size": 6, "shuffle": True, **options})


def largest_difference(found: MatrixFactorization, expected: MatrixFactorization) -> float:
    pairs = zip(found.state_dict().values(), expected.state_dict().values(), strict=True)
    return max(float((one.double() - other.double()).abs().max()) for one, other in pairs)


def alone(begun: MatrixFactorization, make: Callable[..., torch.optim.Optimizer]) -> Iterator[MatrixFactorization]:
    """Train one process in float64; send it the loss of each step."""
    model = copy.deepcopy(begun).double()
    optimizer = make(model.parameters())
    loss = yield model
    while True:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss = yield model


# --- cases -------------------------------------------------------------------------------------------------------


def learn(rank: int, size: int, folder: Path) -> dict[Any, Any]:
    """Steps by hand on unequal batches, and `train_sharded` with L2, against one process in float64."""
    del folder
    found: dict[Any, Any] = {}
    for rule, (update, make) in UPDATES.items():
        for place, placement in PLACEMENTS.items():
            if (rule, place) != ("row-wise Adagrad", "column-wise"):
                found[rule, place, "steps"] = _steps(rank, update, make, placement)
                found[rule, place, "epochs"] = _epochs(rank, size, update, make, placement)
    return found


def _steps(rank: int, update: RowRule, make: Callable[..., torch.optim.Optimizer], placement: Any) -> dict[str, Any]:
    model = sharded(update, placement=placement)
    begun = model.gathered()
    rows = ENCODER.transform(FRAME)
    numbers = torch.arange(ROWS).split([*(count for pair in DEALT for count in pair), ROWS - sum(map(sum, DEALT))])
    steps = [[rows.select(one) for one in numbers[2 * step : 2 * step + 2]] for step in range(len(DEALT))]
    for step in steps:
        mean_over_ranks((model(step[rank]) - step[rank].label).square()).backward()
    scores, trained = model(rows), model.gathered()
    if rank != 0:
        return {}
    plain = MatrixFactorization(ENCODER, init_std=0.3, seed=3)
    plain.set_units(*UNITS)
    reference = alone(begun, make)
    expected = next(reference)
    for step in steps:
        together = [(expected(batch) - batch.label).square() for batch in step if len(batch)]
        expected = reference.send(torch.cat(together).mean())
    return {
        "birth": largest_difference(begun, plain),
        "difference": largest_difference(trained, expected),
        "moved": largest_difference(trained, begun),
        "scores": float((scores - trained(rows)).abs().max()),
    }


def _epochs(
    rank: int, size: int, update: RowRule, make: Callable[..., torch.optim.Optimizer], placement: Any
) -> dict[str, Any]:
    model = sharded(update, placement=placement)
    begun = model.gathered()
    history = train_sharded(model, loader_of(rank, size), SquaredError(), epochs=2, l2=0.02, bias_l2=0.01)
    trained = model.gathered()
    if rank != 0:
        return {}
    objective, losses = SquaredError(), []
    settings = objective.defaults.replacing(learning_rate=None, l2=0.02, bias_l2=0.01)
    reference = alone(begun, make)
    expected = next(reference)
    loaders = [loader_of(one, size) for one in range(size)]
    for epoch in range(2):
        for loader in loaders:
            loader.set_epoch(epoch)
        total = 0.0
        for batches in zip(*loaders, strict=True):
            rows = with_pooling_weights(stack_rows(batches), SCHEMA)
            sides = Scorer(expected, settings).sides(rows)
            loss = objective.loss(sides.own(), objective.targets(rows.label, UNITS).double())
            total += float(loss.sum())
            expected = reference.send(loss.mean() + sides.penalty.mean())
        losses.append(total / ROWS)
    said = [epoch.train_loss for epoch in history.epochs]
    return {
        "difference": largest_difference(trained, expected),
        "moved": largest_difference(trained, begun),
        "losses": max(abs(one - other) for one, other in zip(said, losses, strict=True)),
    }


def refuse(rank: int, size: int, folder: Path) -> dict[str, str]:
    """Everything that is refused, with what is raised on this process."""
    other_schema = FeatureEncoder(Schema(user=SCHEMA.user, item=SCHEMA.item, label="stars")).fit(FRAME)
    other_rows = FeatureEncoder(SCHEMA).fit(frame(seed=1))
    hashed = FeatureEncoder(Schema(user=Categorical("user.id", table=Hashed(7)), item=Categorical("item"))).fit(FRAME)
    update = SGDUpdate(lr=0.1)
    model = sharded(update)

    def made(encoder: FeatureEncoder = ENCODER, **options: Any) -> Callable[[], object]:
        return lambda: ShardedFactorization(encoder, **{"update": update, **options})

    def trained(loader: BatchLoader, objective: Any) -> Callable[[], object]:
        return lambda: train_sharded(model, loader, objective, epochs=1)

    fewer = BatchLoader(ENCODER, FRAME.iloc[: ROWS - 20 * rank], batch_size=6, rank=rank, world_size=size)
    too_few = loader_of(rank, size, batch_size=ROWS, drop_last=True)
    attempts = {
        "schema": made(ENCODER if rank == 0 else other_schema),
        "encoder": made(ENCODER if rank == 0 else other_rows),
        "seed": made(seed=7 * rank),
        "placement": made(placement=RowWise() if rank == 0 else TableWise()),
        "hashed": made(hashed),
        "columns": made(update=RowWiseAdagradUpdate(lr=0.1), placement=ColumnWise()),
        "name": made(placement={"user": RowWise()}),
        "kind": made(placement={"item": RowWise}),
        "rule": made(update=LazyAdamUpdate(lr=0.1)),
        "l2": made(update=SGDUpdate(lr=0.1, l2=0.5)),
        "contrast": trained(loader_of(rank, size), BPR()),
        "rank": trained(loader_of(0, 1), SquaredError()),
        "batches": trained(fewer, SquaredError()),
        "no batch": trained(too_few, SquaredError()),
        "checkpoint": lambda: checkpoints.load_checkpoint(_of(other_rows), folder / "refused"),
        "other rule": lambda: checkpoints.load_checkpoint(sharded(AdagradUpdate(lr=0.1)), folder / "refused"),
    }
    checkpoints.save_checkpoint(model, ShardedCheckpoints(folder / "refused"), 1, {})
    found = {name: _refusal(attempt) for name, attempt in attempts.items()}
    schemas = [hashlib.sha256(one.to_state().schema.to_json().encode()).hexdigest() for one in (ENCODER, other_schema)]
    found["shown schema"] = " ".join(one[:12] for one in schemas)
    found["shown encoder"] = " ".join(one.fingerprint[:12] for one in (ENCODER, other_rows))
    # The other process does not come.
    if rank == 0:
        began = time.monotonic()
        found["absent"] = _refusal(made(timeout=timedelta(seconds=2)))
        found["waited"] = str(time.monotonic() - began)
    else:
        time.sleep(6)
    return found


def _of(encoder: FeatureEncoder) -> ShardedFactorization:
    return ShardedFactorization(encoder, update=SGDUpdate(lr=0.1))


def _refusal(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def write(rank: int, size: int, folder: Path) -> dict[str, Any]:
    """An epoch with row-wise Adagrad, a checkpoint, and one more step."""
    model = sharded()
    kept = ShardedCheckpoints(folder / "kept", every=3, keep=9)
    train_sharded(model, loader_of(rank, size), SquaredError(), epochs=1, checkpoints=kept)
    trained = model.gathered()
    if rank == 0:
        shutil.copytree(folder / "kept" / "step-000000000003", folder / "within" / "step-000000000003")
    return {"trained": _state(trained), **_one_more_step(model, rank, size)}


def read(rank: int, size: int, folder: Path) -> dict[str, Any]:
    """That checkpoint on another number of processes, placed otherwise, and that one more step."""
    model = sharded(placement=TableWise(), seed=9)
    numbers: dict[str, Any] = {}
    assert checkpoints.load_checkpoint(model, folder / "kept", numbers.update)
    assert not checkpoints.load_checkpoint(model, folder / "nothing")
    found = {"trained": _state(model.gathered()), "numbers": numbers, **_one_more_step(model, rank, size)}
    again = sharded(seed=9)
    if rank == 0:
        torch.save(found["stepped"], folder / "weights")
    distributed.barrier()
    again.load(torch.load(folder / "weights", mmap=True))
    found["loaded"] = _state(again.gathered())
    # What was begun by two goes on with these, between two epochs and not within one.
    if rank == 0:
        shutil.copytree(folder / "kept", folder / f"kept{size}")
    distributed.barrier()
    within, between = (ShardedCheckpoints(folder / name) for name in ("within", f"kept{size}"))
    loader = loader_of(rank, size)
    before = _state(again.gathered())
    found["within"] = _refusal(lambda: train_sharded(again, loader, SquaredError(), epochs=2, checkpoints=within))
    found["untouched"] = (before, _state(again.gathered()))
    history = train_sharded(again, loader, SquaredError(), epochs=2, checkpoints=between)
    last = checkpoints.last_checkpoint(between.folder)
    return {**found, "losses": [epoch.train_loss for epoch in history.epochs], "last": last.name if last else ""}


def _one_more_step(model: ShardedFactorization, rank: int, size: int) -> dict[str, Any]:
    rows = ENCODER.transform(FRAME.iloc[10:40])
    mine = rows.select(torch.arange(30).tensor_split(size)[rank])
    mean_over_ranks((model(mine) - mine.label).square()).backward()
    return {"stepped": _state(model.gathered())}


def _state(model: MatrixFactorization | None) -> dict[str, Tensor] | None:
    return None if model is None else model.state_dict()


class DeadlySquaredError(SquaredError):
    """A squared error that kills its process at the n-th batch."""

    def __init__(self, at: int) -> None:
        super().__init__()
        object.__setattr__(self, "dying", _deadly_at(at, super().loss))

    def loss(self, scores: Tensor, targets: Tensor) -> Tensor:
        return self.dying(scores, targets)

    def __repr__(self) -> str:
        return repr(SquaredError())


def survive(rank: int, size: int, folder: Path) -> dict[str, Any]:
    """Three epochs; killed in a step, then in the midst of writing, then before what was written got its name."""
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "9"))
    kept = ShardedCheckpoints(folder / f"kept{attempt == 9}", every=3)
    objective = DeadlySquaredError(8) if (attempt, rank) == (0, 1) else SquaredError()
    if (attempt, rank) == (1, 1):
        FileSystemWriter.write_data = _deadly_at(2, FileSystemWriter.write_data)
    if (attempt, rank) == (2, 0):
        checkpoints.flush = _deadly_at(1, checkpoints.flush)
    before = checkpoints.last_checkpoint(kept.folder)
    with (folder / f"starts{rank}").open("a") as file:
        file.write(f"{attempt} {before.name if before else None}\n")
    model = sharded()
    history = train_sharded(model, loader_of(rank, size), objective, epochs=3, checkpoints=kept)
    return {"trained": _state(model.gathered()), "losses": [epoch.train_loss for epoch in history.epochs]}


def _deadly_at(call: int, function: Callable[..., Any]) -> Callable[..., Any]:
    left = [call]

    def wrapped(*arguments: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)

    return wrapped


CASES = {"learn": learn, "refuse": refuse, "write": write, "read": read, "survive": survive}


def main(case: str, folder: Path, rank: int, size: int, meeting: str | None) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    options = {} if meeting is None else {"init_method": meeting, "rank": rank, "world_size": size}
    distributed.init_process_group("gloo", timeout=timedelta(seconds=60), **options)
    torch.save(CASES[case](rank, size, folder), folder / f"{case}.{size}.{rank}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    given, at = sys.argv[1], Path(sys.argv[2])
    if "TORCHELASTIC_RUN_ID" in os.environ:
        main(given, at, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), None)
    else:
        number, of = int(sys.argv[3]), int(sys.argv[4])
        main(given, at, number, of, f"file://{at}/meeting-{given}-{of}")
