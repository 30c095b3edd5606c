"""`FitHistory`: what a training run did, epoch by epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pandas as pd


class Epoch(NamedTuple):
    """One line of a `FitHistory`."""

    epoch: int
    train_loss: float
    validation: float | None


def best_of(lines: Sequence[Epoch]) -> int:
    """Give the first epoch with the lowest validation figure."""
    judged = [line for line in lines if line.validation is not None]
    return min(judged, key=lambda line: line.validation or 0.0).epoch


@dataclass
class FitHistory:
    """What a training run did.

    Parameters
    ----------
    epochs
        The epochs that were run; with held-out rows, those of the search for the best number of epochs. The train
        loss is without L2; the validation figure is `Objective.validate`, for ratings the RMSE.
    best_epoch
        The epoch whose weights the model has; after a search, the number of epochs of the refit.
    refit
        The epochs of the refit on all rows, if there was one.
    seconds
        Wall time.
    interrupted
        Whether the run was interrupted from the keyboard.

    Examples
    --------
    >>> FitHistory(epochs=[Epoch(1, 0.5, 1.1), Epoch(2, 0.4, 0.9)], best_epoch=2).to_frame()
       stage  epoch  train_loss  validation
    0  train      1         0.5         1.1
    1  train      2         0.4         0.9
    """

    epochs: list[Epoch] = field(default_factory=list)
    best_epoch: int = 0
    refit: list[Epoch] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: bool = False

    def to_frame(self) -> pd.DataFrame:
        """Give the epochs as a frame: stage (``"train"`` or ``"refit"``), epoch, train_loss, validation."""
        import pandas as pd  # noqa: PLC0415 — training itself needs no frames

        lines = [("train", *line) for line in self.epochs] + [("refit", *line) for line in self.refit]
        frame = pd.DataFrame(lines, columns=["stage", *Epoch._fields])
        return frame.astype({"train_loss": "float64", "validation": "float64"})
