"""How long a training run goes on."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch
from recsys_emb.errors import counted
from recsys_emb.training.history import Epoch, best_of
from recsys_emb.training.objective import EarlyStopping, Objective, whole


@dataclass(frozen=True)
class Schedule:
    """How long to train."""

    epochs: int
    stopping: EarlyStopping | None

    @classmethod
    def of(cls, objective: Objective, epochs: int | None, stopping: EarlyStopping | None, *, watched: bool) -> Schedule:
        """Fill in the objective's defaults; ``watched`` says whether there are validation rows."""
        if epochs is not None:
            epochs = whole("train", "epochs", epochs, least=1, remedy="An epoch is a pass over the rows.")
        default = objective.defaults.early_stopping
        if watched:
            default = default or EarlyStopping()
        elif epochs is not None:
            default = None
        return cls(objective.defaults.epochs if epochs is None else epochs, stopping or default)

    @property
    def unwatched(self) -> int:
        """Epochs of a run that cannot be watched: of a search, the least that it would run."""
        return self.epochs if self.stopping is None else min(self.epochs, max(1, self.stopping.min_epochs))

    def split(self, rows: Batch, *, seed: int) -> tuple[Tensor, Tensor]:
        """Draw which rows a search holds out, maybe none, and which it learns from: int64, one after the other.

        Rows of weight 0 teach nothing, so that they are never held out, and do not count where a row must be left.
        """
        order = torch.from_numpy(np.random.default_rng([seed, len(rows)]).permutation(len(rows)))
        weighty = order if rows.weight is None else order[(rows.weight > 0).cpu()[order]]
        apart = torch.zeros(len(rows), dtype=torch.bool)
        apart[weighty[: self._held_out(len(weighty))]] = True
        if self.stopping is not None and self._held_out(len(rows)) and not apart.any():
            warnings.warn(
                f"train: expected enough rows of a weight above 0 to hold a share of {self.stopping.fraction!r} out, "
                f"got {len(weighty)} in {counted(len(rows), 'row')}. The run takes {counted(self.unwatched, 'epoch')} "
                "and is not watched; give validation=... or epochs=...",
                RuntimeWarning,
                stacklevel=4,
            )
        return order[apart[order]], order[~apart[order]]

    def _held_out(self, num_rows: int) -> int:
        return 0 if self.stopping is None else min(round(self.stopping.fraction * num_rows), num_rows - 1)

    def is_over(self, lines: Sequence[Epoch]) -> bool:
        """Whether the last epochs brought nothing."""
        if self.stopping is None or not lines or lines[-1].validation is None:
            return False
        patient = lines[-1].epoch - best_of(lines) < self.stopping.patience
        return lines[-1].epoch >= self.stopping.min_epochs and not patient
