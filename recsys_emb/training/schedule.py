"""How long a training run goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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

    def held_out(self, num_rows: int) -> int:
        """Rows to hold out for the search, which leave one at least to learn from."""
        return 0 if self.stopping is None else min(round(self.stopping.fraction * num_rows), num_rows - 1)

    def is_over(self, lines: Sequence[Epoch]) -> bool:
        """Whether the last epochs brought nothing."""
        if self.stopping is None or not lines or lines[-1].validation is None:
            return False
        patient = lines[-1].epoch - best_of(lines) < self.stopping.patience
        return lines[-1].epoch >= self.stopping.min_epochs and not patient
