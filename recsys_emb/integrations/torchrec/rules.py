"""Rules by which rows move, in the words of TorchRec."""

from __future__ import annotations

import math
from typing import Any

import torch

from recsys_emb.errors import FitError
from recsys_emb.integrations.torchrec.door import torchrec
from recsys_emb.lookup.row_rules import AdagradUpdate, RowRule, RowWiseAdagradUpdate, SGDUpdate


def check_rule(update: RowRule) -> None:
    """Refuse a rule that sharded tables cannot follow.

    Raises
    ------
    FitError
        When there is none of its kind, or it has L2, which training adds to the loss.
    """
    if type(update) not in (SGDUpdate, AdagradUpdate, RowWiseAdagradUpdate):
        raise FitError(
            "ShardedFactorization: expected SGDUpdate, AdagradUpdate or RowWiseAdagradUpdate, got "
            f"{type(update).__name__}. FBGEMM has no other on the CPU."
        )
    if update.l2:
        raise FitError(
            f"ShardedFactorization: expected an update without l2, got l2={update.l2!r}. Give it to train_sharded."
        )


def optimizer_of(update: RowRule, width: int, padded: int) -> tuple[type[torch.optim.Optimizer], dict[str, float]]:
    """Give the optimizer, and its settings for tables that were made wider than they are.

    The columns that fill a table up stay zero. The mean of squares over a row then is smaller by ``width / padded``,
    and so is row-wise Adagrad's state: a learning rate and an ``eps`` smaller by its root give the same steps.
    """
    match update:
        case RowWiseAdagradUpdate():
            kind: Any = torchrec("optim").RowWiseAdagrad
            share = math.sqrt(width / padded)
            return kind, {"lr": update.lr * share, "eps": update.eps * share}
        case AdagradUpdate():
            return torch.optim.Adagrad, {"lr": update.lr, "eps": update.eps}
        case _:
            return torch.optim.SGD, {"lr": update.lr}


def first_state(update: RowRule, width: int, padded: int) -> float:
    """Give what the state of such a table begins with."""
    return update.start * (width / padded if isinstance(update, RowWiseAdagradUpdate) else 1.0)
