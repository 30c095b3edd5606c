"""What may be expected of a user before anything is known of it: the spread of the users that training knew."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.serving.scoring import at_rest
from recsys_emb.training.history import FitHistory
from recsys_emb.training.losses import SquaredError
from recsys_emb.training.objective import Objective

# Users that are looked at; more would not make variances any better.
_LOOKED_AT = 2**17
# Entries that hardly differ are held where they are; any less would swamp the others in a solution.
_LEAST = 1e-9


class Prior(NamedTuple):
    """A normal distribution of the rows of users around that of an unknown one.

    Parameters
    ----------
    noise
        How much a loss weighs against it: the variance of a label around its score, in standard units; 1 for losses
        that are negative log likelihoods.
    spread
        Variance of each entry of the vectors of the known users, and of their bias: D + 1 numbers, infinite where
        nothing can be said.
    """

    noise: float
    spread: tuple[float, ...]

    @classmethod
    def of(
        cls, model: MatrixFactorization, name: str, users: Tensor, objective: Objective, history: FitHistory
    ) -> Prior:
        """Measure the own rows of known users, int64 ``(U,)``, of the feature called ``name``."""
        chosen = users[:: max(1, len(users) // _LOOKED_AT)].to(model.offset.device)
        width = model.vectors.embedding_dim + 1
        if len(chosen) < 2:
            return cls(_noise(objective, history), (torch.inf,) * width)
        with at_rest(model):
            rows = torch.cat([tables.lookup(name)(chosen) for tables in (model.vectors, model.biases)], 1).double()
        return cls(_noise(objective, history), tuple(rows.var(0).tolist()))

    @property
    def precision(self) -> Tensor:
        """How strongly each number is drawn to where it starts, float64 ``(D + 1,)``."""
        spread = torch.tensor(self.spread, dtype=torch.float64)
        return self.noise / spread.clamp(min=_LEAST)


def _noise(objective: Objective, history: FitHistory) -> float:
    """Variance of labels around scores, as training left it: its loss is half of that."""
    lines = history.refit or [line for line in history.epochs if line.epoch == history.best_epoch]
    if not isinstance(objective, SquaredError) or not lines:
        return 1.0
    return 2 * lines[-1].train_loss
