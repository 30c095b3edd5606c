"""`train`: the loop around a solver. Starts a model, stops it in time, and says what happened."""

from __future__ import annotations

import contextlib
import copy
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Protocol

from torch import Tensor
from tqdm import tqdm

from recsys_emb.encoding.batch import Batch
from recsys_emb.errors import FitError, counted
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.training.checkpoints import Checkpoints, Journal
from recsys_emb.training.history import Epoch, FitHistory, best_of
from recsys_emb.training.judge import Judge
from recsys_emb.training.objective import EarlyStopping, Objective
from recsys_emb.training.past import Experience, Past
from recsys_emb.training.rows import forget_absent, learnable
from recsys_emb.training.schedule import Schedule

__all__ = ["EarlyStopping", "Epoch", "FitHistory", "Run", "Solver", "train"]


class Run(Protocol):
    """A started solver."""

    learning_rate: float

    def epoch(self) -> float:
        """Learn all rows once and give the mean loss; the model's tensors are then up to date."""


class Solver(Protocol):
    """A way to train a model."""

    def why_not(self, model: MatrixFactorization, objective: Objective) -> str | None:
        """Say why this solver cannot train the model, as a clause; None when it can."""

    def start(self, model: MatrixFactorization, batch: Batch, objective: Objective, *, seed: int) -> Run:
        """Prepare a run over training rows. One that goes on from earlier rows is given ``past=`` too."""


def train(
    model: MatrixFactorization,
    batch: Batch,
    objective: Objective,
    solver: Solver,
    *,
    epochs: int | None = None,
    early_stopping: EarlyStopping | None = None,
    validation: Batch | None = None,
    fresh: bool = True,
    past: Past | None = None,
    checkpoints: Checkpoints | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> FitHistory:
    """Train a model in place.

    With ``validation`` the model keeps its best weights on these rows. Without, early stopping holds a share of the
    rows out, finds the best number of epochs, and trains once more from the start on all rows for as many.

    Parameters
    ----------
    model
        Trained in place.
    batch
        The training rows.
    objective, solver
        What to minimise, and how.
    epochs
        Passes over the rows, at most; the objective's default unless given. Given without ``validation`` and
        ``early_stopping``: exactly as many.
    early_stopping
        When to stop; the objective's default unless given.
    validation
        Rows to stop and to choose weights by.
    fresh
        True draws the model anew with the objective's standard deviation, learns the label's units, and sets rows
        that do not occur to zero. False continues from the weights and units that the model has.
    past
        What came before, for a run that continues with new rows alone: negatives are then drawn among all items but
        those that a user ever had, and rows that have learned much move little (see `Experience`).
    checkpoints
        Where to keep snapshots of a fresh run. If there is one of the same run, it goes on from there, and ends with
        the bits that it would have ended with.
    seed
        Of everything: first weights, held-out rows, order, negatives.
    progress
        True shows a bar on stderr, False does not, None does on a terminal.

    Raises
    ------
    EmptySourceError
        When there are no rows, or none that the objective can learn.
    DataError
        When a label or a weight cannot be learned; the message names the column and the number of rows.
    FitError
        When the solver cannot train the model, or its runs cannot be resumed, or the run diverges.

    Notes
    -----
    An interrupt from the keyboard ends the run with a warning and leaves a usable model: with the weights that it has
    then, the best ones of a run with ``validation``, or, in the second training of a search, those of the first.

    Row weights say how rows compare; they are scaled to a mean of 1 over the rows learned.

    Rows of weight 0 teach nothing and are never held out. Where too few others are there to hold any out, the run
    takes ``early_stopping.min_epochs`` epochs, one at least; it warns if the weights are why. A `History` holds what
    users had in the rows that are learned, never in those held out.
    """
    reason = solver.why_not(model, objective)
    if reason is not None:
        raise FitError(
            f"{type(solver).__name__}: expected a model that it can train, but {reason}. "
            "Train with another solver, or change the model."
        )
    schedule = Schedule.of(objective, epochs, early_stopping, watched=validation is not None)
    rows = learnable(batch, model.schema, objective)
    watched = None if validation is None else learnable(validation, model.schema, objective, where="train: validation")
    history = FitHistory()
    journal = Journal(model, history, checkpoints)
    training = _Training(
        model,
        objective,
        solver,
        schedule,
        journal,
        seed=seed,
        fresh=fresh,
        past=None if past is None else past.pooled(model.schema),
        hidden=_hidden(progress),
    )
    try:
        training.fill(history, rows, watched)
    except KeyboardInterrupt:
        history.interrupted = True
        history.best_epoch = history.best_epoch or len(history.epochs)
        warnings.warn(
            f"train: interrupted after {counted(len(history.epochs) + len(history.refit), 'epoch')}. "
            f"The model is usable and holds what it learned until then.{_resumption(checkpoints)}",
            RuntimeWarning,
            stacklevel=2,
        )
    history.seconds = journal.seconds
    return history


def _resumption(checkpoints: Checkpoints | None) -> str:
    """Say how an interrupted run goes on, if it can."""
    return "" if checkpoints is None else " The same call goes on from the last checkpoint."


def _hidden(progress: bool | None) -> bool | None:
    """Give tqdm's ``disable``, for which None is a terminal's choice."""
    return None if progress is None else not progress


class _Training:
    """Runs of one solver on one model."""

    def __init__(
        self,
        model: MatrixFactorization,
        objective: Objective,
        solver: Solver,
        schedule: Schedule,
        journal: Journal,
        *,
        seed: int,
        fresh: bool,
        past: Past | None,
        hidden: bool | None,
    ) -> None:
        self._model, self._objective, self._solver, self._schedule = model, objective, solver, schedule
        self._journal = journal
        self._seed, self._fresh, self._past, self._hidden = seed, fresh, past, hidden

    def fill(self, history: FitHistory, rows: Batch, validation: Batch | None) -> None:
        """Train as the schedule says, and note every epoch down."""
        if self._journal.open():
            return
        if validation is not None:
            self._keep_best(history, rows, validation)
        else:
            apart, kept = self._schedule.split(rows, seed=self._seed)
            if len(apart):
                self._search(history, rows, apart, kept)
            else:
                for line in self._epochs(history.epochs, rows, self._schedule.unwatched):
                    history.best_epoch = line.epoch
        self._journal.finish()

    def _keep_best(self, history: FitHistory, rows: Batch, validation: Batch) -> None:
        try:
            for line in self._epochs(history.epochs, rows, self._schedule.epochs, validation):
                if best_of(history.epochs) == line.epoch:
                    history.best_epoch, self._journal.best = line.epoch, copy.deepcopy(self._model.state_dict())
        finally:
            if self._journal.best:
                self._model.load_state_dict(self._journal.best)

    def _search(self, history: FitHistory, rows: Batch, apart: Tensor, kept: Tensor) -> None:
        """Find the best number of epochs on rows held apart; train on all, from the same start, for as many."""
        start = {} if self._fresh else copy.deepcopy(self._model.state_dict())
        found: dict[str, Tensor] = {}
        if self._journal.stage == "train":
            watched = rows.select(apart)
            for _ in self._epochs(history.epochs, rows.select(kept), self._schedule.epochs, watched):
                pass
            history.best_epoch, self._journal.stage = best_of(history.epochs), "refit"
            found = copy.deepcopy(self._model.state_dict())
        if start:
            self._model.load_state_dict(start)
        try:
            for _ in self._epochs(history.refit, rows, history.best_epoch):
                pass
        except KeyboardInterrupt:
            if found:
                self._model.load_state_dict(found)
            raise

    def _epochs(self, lines: list[Epoch], rows: Batch, limit: int, validation: Batch | None = None) -> Iterator[Epoch]:
        """Begin, or go on, and add a line per epoch until the limit or the schedule's end."""
        self._begin(rows)
        past = {} if self._past is None else {"past": self._past}
        run = self._solver.start(self._model, rows, self._objective, seed=self._seed, **past)
        held = self._held(rows)
        judge = None
        if validation is not None:
            judge = Judge(self._model, self._objective, rows, validation, seed=self._seed, past=self._past)
        self._journal.follow(run, self._solver)
        with tqdm(total=limit, initial=len(lines), desc="train", unit="epoch", disable=self._hidden) as bar:
            while len(lines) < limit and not self._schedule.is_over(lines):
                with held():
                    loss = run.epoch()
                line = Epoch(len(lines) + 1, loss, None if judge is None else judge())
                figures = [line.train_loss, 0.0 if line.validation is None else line.validation]
                self._check(all(map(math.isfinite, figures)), line, run)
                lines.append(line)
                bar.set_postfix(loss=line.train_loss, validation=line.validation, refresh=False)
                bar.update()
                yield line
                self._journal.after_epoch()
        self._check(all(bool(one.isfinite().all()) for one in self._model.parameters()), lines[-1], run)

    def _held(self, rows: Batch) -> Callable[[], contextlib.AbstractContextManager[None]]:
        """Give what to wrap an epoch in: what has learned before moves little."""
        if self._past is None:
            return contextlib.nullcontext
        draws = self._objective.contrast is not None
        return Experience(self._model, rows, self._past, draws=draws).held

    def _begin(self, rows: Batch) -> None:
        self._model.vectors.remember(rows, anew=self._fresh)
        if self._fresh:
            self._model.reset_parameters(init_std=self._objective.defaults.init_std, seed=self._seed)
            self._model.set_units(*self._objective.units(rows.label, rows.weight))
            forget_absent(self._model.vectors, rows)

    def _check(self, is_finite: bool, line: Epoch, run: Run) -> None:
        if not is_finite:
            raise FitError(
                f"{type(self._solver).__name__}: expected finite weights and losses, got a loss of "
                f"{line.train_loss!r} in epoch {line.epoch}. The run diverged; use a learning_rate below "
                f"{run.learning_rate!r}."
            )
