"""`train_sharded`: the loop of every process, which survives being killed."""

from __future__ import annotations

import time
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, distributed

from recsys_emb.encoding.batch import Batch
from recsys_emb.errors import DataError, EmptySourceError, FitError, counted
from recsys_emb.integrations.torchrec.agreement import Claim
from recsys_emb.integrations.torchrec.checkpoints import ShardedCheckpoints, load_checkpoint, save_checkpoint
from recsys_emb.integrations.torchrec.factorization import ShardedFactorization
from recsys_emb.loading.loader import BatchLoader
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.training.history import Epoch, FitHistory
from recsys_emb.training.objective import Defaults, Objective, Units
from recsys_emb.training.ranks import mean_over_ranks
from recsys_emb.training.rows import with_pooling_weights, with_unknown
from recsys_emb.training.scoring import Scorer


def train_sharded(
    model: ShardedFactorization,
    loader: BatchLoader,
    objective: Objective,
    *,
    epochs: int,
    l2: float | None = None,
    bias_l2: float | None = None,
    checkpoints: ShardedCheckpoints | None = None,
    seed: int = 0,
) -> FitHistory:
    """Train a model in place, on all processes at once; each calls this, with a loader of its own rank.

    A step follows what a step of `Minibatch` follows, on the batches of all processes taken together: the mean over
    their rows of ``weight · loss`` and of L2 per occurrence. Row weights are taken as they are.

    Parameters
    ----------
    model
        State its units before, from the label of all rows: ``model.set_units(*objective.units(label, weight))``.
    loader
        Its ``rank`` and ``world_size`` are those of this process.
    objective
        One that learns a label: `SquaredError`, or `Logistic` without negatives.
    epochs
        Passes over the rows.
    l2, bias_l2
        L2 per occurrence of vectors and of biases; the objective's defaults unless given.
    checkpoints
        Where to keep checkpoints. If there is one, training goes on from it and ends as it would have ended; in the
        midst of an epoch only with as many processes as wrote it, between two with any number.
    seed
        Of ``unknown_dropout``, which is drawn anew for every batch.

    Returns
    -------
    FitHistory
        The mean loss of each epoch, over all rows, L2 apart.

    Raises
    ------
    FitError
        When the objective contrasts items, or processes disagree on what they train, or the loss is no longer finite.
        All processes raise.
    EmptySourceError, DataError
        When there is no batch, the loader is that of another rank, or a checkpoint is that of other rows. A label that
        cannot be learned is refused by the process that has it; the others wait for it until their timeout, which is
        why torchrun ends them.
    """
    settings = objective.defaults.replacing(learning_rate=None, l2=l2, bias_l2=bias_l2)
    _check(model, loader, objective, settings)
    run = _Run(model, loader, objective, settings, checkpoints=checkpoints, seed=seed)
    began = time.perf_counter()
    history = run.to(epochs)
    history.seconds = time.perf_counter() - began
    return history


class _Run:
    """Where a process is in its training."""

    def __init__(
        self,
        model: ShardedFactorization,
        loader: BatchLoader,
        objective: Objective,
        settings: Defaults,
        *,
        checkpoints: ShardedCheckpoints | None,
        seed: int,
    ) -> None:
        self._model, self._loader, self._objective, self._settings = model, loader, objective, settings
        self._checkpoints, self._seed = checkpoints, seed
        self._losses: list[float] = []
        self._sums = torch.zeros(2, dtype=torch.float64)  # of losses and of rows, of this process, in this epoch
        # Batches done in this epoch and ever, and how many of these the last checkpoint holds.
        self._begun, self._steps, self._kept = 0, 0, -1
        if checkpoints is not None:
            load_checkpoint(model, checkpoints.folder, self._resume)

    def to(self, epochs: int) -> FitHistory:
        """Train until so many epochs are done."""
        units = Units(float(self._model.offset), float(self._model.scale))
        while len(self._losses) < epochs:
            self._loader.set_epoch(len(self._losses))
            for number, batch in enumerate(self._loader, self._begun):
                self._learn(batch, units, number)
                self._begun, self._steps = number + 1, self._steps + 1
                if self._begun == len(self._loader):
                    self._end_epoch()
                self._keep()
        self._keep(finished=True)
        return self._history()

    def _learn(self, batch: Batch, units: Units, number: int) -> None:
        objective, schema = self._objective, self._model.plain.schema
        objective.check(batch.label, schema.label or "label")
        drawn = np.random.SeedSequence([self._seed, len(self._losses), number, self._loader.rank])
        rows = with_unknown(batch.to(self._model.device), schema, seed=int(drawn.generate_state(1)[0]))
        scores, penalties = self._model.asked(rows, self._scored)
        targets = objective.targets(cast("Tensor", rows.label), units)
        losses = objective.loss(objective.constant(units) + scores, targets)
        losses = losses if rows.weight is None else losses * rows.weight
        torch.autograd.backward(mean_over_ranks(losses + penalties, self._model.ranks.group))
        self._sums += torch.stack([losses.detach().double().sum().cpu(), torch.tensor(float(len(rows)))])

    def _scored(self, model: MatrixFactorization, rows: Batch) -> tuple[Tensor, Tensor]:
        sides = Scorer(model, self._settings).sides(with_pooling_weights(rows, model.schema))
        return sides.own(), sides.penalty

    def _end_epoch(self) -> None:
        everywhere = self._sums.clone()
        distributed.all_reduce(everywhere, group=self._model.ranks.talk)
        mean = float(everywhere[0] / everywhere[1].clamp(min=1))
        if not np.isfinite(mean):
            raise FitError(
                f"train_sharded: expected finite losses, got {mean!r} in epoch {len(self._losses) + 1}. The run "
                "diverged; use an update with a smaller lr."
            )
        self._losses.append(mean)
        self._sums.zero_()
        self._begun = 0

    def _keep(self, *, finished: bool = False) -> None:
        """Write a checkpoint where one is due, and is not there."""
        kept, due = self._checkpoints, finished or (self._checkpoints and self._steps % self._checkpoints.every == 0)
        if kept is None or not due or self._steps == self._kept:
            return
        place = {key: value for key, value in self._loader.state_dict().items() if key != "rank"}
        place |= {"epoch": len(self._losses), "batch": self._begun}
        sums = self._model.ranks.everyone(self._sums.tolist())
        numbers = {"losses": self._losses, "sums": sums, "place": place, "steps": self._steps}
        save_checkpoint(self._model, kept, self._steps, numbers)
        self._kept = self._steps

    def _resume(self, numbers: dict[str, Any]) -> None:
        place = numbers["place"]
        self._losses, self._begun = numbers["losses"], place["batch"]
        if self._begun:
            self._loader.load_state_dict({**place, "rank": self._loader.rank})
            self._sums = torch.tensor(numbers["sums"][self._model.ranks.rank], dtype=torch.float64)
        self._steps = self._kept = numbers["steps"]

    def _history(self) -> FitHistory:
        history = FitHistory()
        history.epochs.extend(Epoch(number, loss, None) for number, loss in enumerate(self._losses, 1))
        history.best_epoch = len(self._losses)
        return history


def _check(model: ShardedFactorization, loader: BatchLoader, objective: Objective, settings: Defaults) -> None:
    if objective.contrast is not None:
        raise FitError(
            f"train_sharded: expected an objective that learns a label, got {objective!r}. "
            "Use SquaredError() or Logistic()."
        )
    if not len(loader):
        raise EmptySourceError(
            f"train_sharded: expected at least one batch on every rank, got {counted(loader.num_rows, 'row')} for "
            f"{counted(loader.world_size, 'rank')}. Give more rows, a smaller batch_size, or drop_last=False."
        )
    ranks = model.ranks
    if (loader.rank, loader.world_size) != (ranks.rank, ranks.size):
        raise DataError(
            f"train_sharded: expected a loader of rank {ranks.rank} of {ranks.size}, got rank {loader.rank} of "
            f"{loader.world_size}. Give BatchLoader the rank and world_size of its process."
        )
    claims = {
        "number of batches": Claim(len(loader), "Give every rank the same rows, batch_size and drop_last."),
        "objective": Claim(repr(objective), "Give every rank the same."),
        "l2 and bias_l2": Claim((settings.l2, settings.bias_l2), "Give every rank the same."),
        "units": Claim((float(model.offset), float(model.scale)), "Call set_units with the same on every rank."),
    }
    ranks.agree("train_sharded", claims)
