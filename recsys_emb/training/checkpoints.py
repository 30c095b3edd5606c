"""Where a run stands, kept so that another process can go on from there and end with the same bits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, cast, runtime_checkable

from torch import Tensor

from recsys_emb.errors import FitError
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.training.history import Epoch, FitHistory


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Numbers and tensors that describe a state.

    Parameters
    ----------
    numbers
        JSON-able.
    tensors
        By name.

    Examples
    --------
    >>> inner = Snapshot({"epoch": 3})
    >>> outer = Snapshot({"stage": "train"}).adding("run", inner)
    >>> outer.numbers, outer.part("run").numbers
    ({'stage': 'train', 'run': {'epoch': 3}}, {'epoch': 3})
    """

    numbers: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    def adding(self, name: str, part: Snapshot) -> Snapshot:
        """Copy with another state inside, called ``name``."""
        inner = {f"{name}/{key}": tensor for key, tensor in part.tensors.items()}
        return Snapshot({**self.numbers, name: dict(part.numbers)}, {**self.tensors, **inner})

    def part(self, name: str) -> Snapshot:
        """Take the state called ``name`` out."""
        start = f"{name}/"
        inner = {key[len(start) :]: tensor for key, tensor in self.tensors.items() if key.startswith(start)}
        return Snapshot(self.numbers[name], inner)


class Keeper(Protocol):
    """Where snapshots are kept."""

    def load(self) -> Snapshot | None:
        """Give the last one; None where there is none."""

    def save(self, snapshot: Snapshot) -> None:
        """Keep this one in place of the last, in one step."""


@runtime_checkable
class Resumable(Protocol):
    """A started solver that says where it is, and can be put there."""

    after_part: Callable[[], None]
    """Called whenever a part of an epoch is done and `state` holds."""

    def state(self) -> Snapshot:
        """Give all that the run holds beside the model's tensors."""

    def restore(self, snapshot: Snapshot) -> None:
        """Go to where `state` was called."""


@dataclass(frozen=True)
class Checkpoints:
    """Where to keep snapshots, and how often.

    Parameters
    ----------
    keeper
        Where.
    every
        Epochs, or the time between two snapshots, which are then taken within epochs too.
    """

    keeper: Keeper
    every: int | timedelta = 1

    def __post_init__(self) -> None:
        every = self.every
        counts = isinstance(every, int) and not isinstance(every, bool) and every >= 1
        if not counts and not (isinstance(every, timedelta) and every >= timedelta(0)):
            raise FitError(
                f"checkpoint: expected every to be a number of epochs or a timedelta, got {every!r}. "
                "Say every=1 or every=timedelta(minutes=5)."
            )


class Journal:
    """Keeps a training run's snapshots, or does nothing where none are asked for.

    Parameters
    ----------
    model, history
        What is trained, and what happened so far.
    checkpoints
        None keeps nothing.

    Attributes
    ----------
    stage
        ``"train"``, or ``"refit"`` in the second training of a search.
    best
        The best weights so far, where a run keeps them.
    """

    def __init__(self, model: MatrixFactorization, history: FitHistory, checkpoints: Checkpoints | None) -> None:
        self.stage = "train"
        self.best: dict[str, Tensor] = {}
        self._model, self._history, self._checkpoints = model, history, checkpoints
        self._pending: Snapshot | None = None
        self._run: Resumable | None = None
        self._began, self._saved, self._epochs = time.perf_counter(), time.perf_counter(), 0

    def open(self) -> bool:
        """Read the last snapshot, if any; whether it is that of a finished run, which the model then holds."""
        found = None if self._checkpoints is None else self._checkpoints.keeper.load()
        if found is None:
            return False
        numbers = found.numbers
        for name in ("epochs", "refit"):
            getattr(self._history, name).extend(Epoch(*line) for line in numbers[name])
        self._history.best_epoch, self.stage = numbers["best_epoch"], numbers["stage"]
        self._began -= numbers["seconds"]
        if numbers["finished"]:
            self._model.load_state_dict(found.part("model").tensors)
            return True
        self.best = dict(found.part("best").tensors)
        self._pending = found
        return False

    def follow(self, run: object, solver: object) -> None:
        """Take a started run back to where the last snapshot was taken, and take more of it.

        Raises
        ------
        FitError
            When it cannot say where it is.
        """
        if self._checkpoints is None:
            return
        if not isinstance(run, Resumable):
            raise FitError(
                f"{type(solver).__name__}: expected runs that can be resumed (state, restore, after_part), got a "
                f"{type(run).__name__}. Train without checkpoints, or with SequentialSGD() or Minibatch()."
            )
        self._run = run
        if self._pending is not None:
            self._model.load_state_dict(self._pending.part("model").tensors)
            run.restore(self._pending.part("run"))
            self._pending = None
        run.after_part = self._after_part

    def after_epoch(self) -> None:
        """Say that an epoch is over and noted down."""
        self._epochs += 1
        every = None if self._checkpoints is None else self._checkpoints.every
        if isinstance(every, int) and self._epochs >= every:
            self._save()
        self._after_part()

    def finish(self) -> None:
        """Say that the run is over."""
        if self._checkpoints is not None:
            self._save(finished=True)

    @property
    def seconds(self) -> float:
        """Wall time of the run, earlier processes included."""
        return time.perf_counter() - self._began

    def _after_part(self) -> None:
        every = None if self._checkpoints is None else self._checkpoints.every
        if isinstance(every, timedelta) and time.perf_counter() - self._saved >= every.total_seconds():
            self._save()

    def _save(self, *, finished: bool = False) -> None:
        history, run = self._history, cast("Resumable", self._run)
        numbers = {"stage": self.stage, "finished": finished, "best_epoch": history.best_epoch, "seconds": self.seconds}
        lines = {"epochs": [list(line) for line in history.epochs], "refit": [list(line) for line in history.refit]}
        snapshot = Snapshot({**numbers, **lines}).adding("model", Snapshot({}, self._model.state_dict()))
        if not finished:
            snapshot = snapshot.adding("best", Snapshot({}, self.best)).adding("run", run.state())
        cast("Checkpoints", self._checkpoints).keeper.save(snapshot)
        self._saved, self._epochs = time.perf_counter(), 0
