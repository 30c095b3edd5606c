"""How good are scores? Of rows, one number over all of them; of rankings, one number per user.

Pointwise metrics take everything at once and rankings are averaged over users, so no metric depends on a batch.
What cannot be said is NaN, with scikit-learn's `UndefinedMetricWarning`.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recsys_emb.errors import DataError, counted

Numbers: TypeAlias = Tensor | NDArray[np.generic] | Sequence[float]
"""One number per row: a tensor, an array, a pandas Series or a list."""


# --- rows ------------------------------------------------------------------------------------------------------


def rmse(label: Numbers, predicted: Numbers) -> float:
    """Root of the mean squared error.

    >>> rmse([1.0, 3.0], [1.0, 1.0])
    1.4142135623730951
    """
    truth, answer = _paired("rmse", label, predicted)
    if not len(truth):
        return undefined("rmse", "a row")
    return float(_scikit_learn("metrics").root_mean_squared_error(truth, answer))


def mae(label: Numbers, predicted: Numbers) -> float:
    """Mean absolute error.

    >>> mae([1.0, 3.0], [1.0, 1.0])
    1.0
    """
    truth, answer = _paired("mae", label, predicted)
    if not len(truth):
        return undefined("mae", "a row")
    return float(_scikit_learn("metrics").mean_absolute_error(truth, answer))


def auc(label: Numbers, score: Numbers) -> float:
    """Chance that a row of label 1 scores above one of label 0, equals counting half (area under the ROC curve).

    NaN, with a warning, when all labels are the same.

    >>> auc([0, 1, 0, 1], [0.1, 0.4, 0.4, 0.8])
    0.875
    """
    truth, answer = _paired("auc", label, score)
    _check_binary("auc", truth)
    if truth.any() and not truth.all():
        return float(_scikit_learn("metrics").roc_auc_score(truth, answer))
    return undefined("auc", "both labels, 0 and 1", f"{truth[0]:g} alone" if len(truth) else "none")


def log_loss(label: Numbers, probability: Numbers) -> float:
    """Mean of -log of the probability given to the label that came true, in nats.

    Probabilities of exactly 0 or 1 are moved by the machine's epsilon, so that one wrong certainty is not infinite.

    >>> round(log_loss([1, 0], [0.8, 0.4]), 4)
    0.367
    """
    truth, answer = _paired("log_loss", label, probability)
    _check_binary("log_loss", truth)
    outside = int(((answer < 0) | (answer > 1)).sum())
    if outside:
        got = f"{counted(outside, 'row')} outside"
        raise DataError(f"log_loss: expected probabilities in [0, 1], got {got}. Use a probabilistic objective.")
    if not len(truth):
        return undefined("log_loss", "a row")
    return float(_scikit_learn("metrics").log_loss(truth, answer, labels=[0.0, 1.0]))


# --- rankings --------------------------------------------------------------------------------------------------
# hits bool (U, K): is the item at this rank relevant to the user; False beyond the end of a shorter list.
# relevant int (U,): how many items are relevant to the user, found or not, reachable or not.
# Each gives float64 (U,), in [0, 1], and NaN for users to whom nothing is relevant.


def recall_at_k(hits: Tensor, relevant: Tensor, k: int) -> Tensor:
    """Share of a user's relevant items among the first k.

    >>> recall_at_k(torch.tensor([[True, False, True]]), torch.tensor([4]), 2)
    tensor([0.2500], dtype=torch.float64)
    """
    return _of_users(hits[:, :k].sum(dim=1, dtype=torch.float64) / relevant, relevant)


def hit_rate_at_k(hits: Tensor, relevant: Tensor, k: int) -> Tensor:
    """Whether there is a relevant item among the first k.

    >>> hit_rate_at_k(torch.tensor([[False, True], [False, False]]), torch.tensor([2, 1]), 2)
    tensor([1., 0.], dtype=torch.float64)
    """
    return _of_users(hits[:, :k].any(dim=1).double(), relevant)


def mrr_at_k(hits: Tensor, relevant: Tensor, k: int) -> Tensor:
    """One over the rank of the first relevant item; 0 if it is not among the first k.

    >>> mrr_at_k(torch.tensor([[False, True], [False, False]]), torch.tensor([2, 1]), 2)
    tensor([0.5000, 0.0000], dtype=torch.float64)
    """
    ranks = torch.arange(1, hits[:, :k].shape[1] + 1, device=hits.device).double()
    best = torch.cat([hits[:, :k] / ranks, ranks.new_zeros(len(hits), 1)], dim=1)
    return _of_users(best.amax(dim=1), relevant)


def ndcg_at_k(hits: Tensor, relevant: Tensor, k: int) -> Tensor:
    """Discounted gain of the first k, over that of the best possible first k (Järvelin & Kekäläinen, 2002).

    A relevant item at rank r gains 1 / log2(r + 1). The best possible list has min(k, relevant) of them at its top,
    so a perfect list is 1.0 however few are relevant.

    >>> ndcg_at_k(torch.tensor([[True, True, False], [False, True, False]]), torch.tensor([2, 1]), 3)
    tensor([1.0000, 0.6309], dtype=torch.float64)
    """
    gains = 1 / torch.arange(2, k + 2, device=hits.device).double().log2()
    found = hits[:, :k]
    # Running sums from 0 on both sides add in the same order, so that a perfect list is 1.0 to the last bit.
    gained = torch.cat([gains.new_zeros(len(hits), 1), found * gains[: found.shape[1]]], dim=1).cumsum(dim=1)[:, -1]
    ideal = torch.cat([gains.new_zeros(1), gains]).cumsum(dim=0)
    return _of_users(gained / ideal[relevant.clamp(max=k)], relevant)


def undefined(where: str, needed: str, got: str = "none") -> float:
    """Give NaN for what cannot be said, and warn that it is for want of ``needed``."""
    category = _scikit_learn("exceptions").UndefinedMetricWarning
    warnings.warn(f"{where}: expected {needed}, got {got}. The answer is NaN.", category, stacklevel=3)
    return float("nan")


def _scikit_learn(room: str) -> ModuleType:
    """Load what only those who judge need."""
    return importlib.import_module(f"sklearn.{room}")


def _of_users(values: Tensor, relevant: Tensor) -> Tensor:
    return values.where(relevant > 0, torch.nan)


def _paired(where: str, label: Numbers, answer: Numbers) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Take both as float64 arrays, one number per row."""
    first, second = _array(label), _array(answer)
    if first.ndim != 1 or first.shape != second.shape:
        got = f"shapes {first.shape} and {second.shape}"
        raise DataError(f"{where}: expected one label and one score per row, got {got}. Score the rows you judge.")
    broken = int((~(np.isfinite(first) & np.isfinite(second))).sum())
    if broken:
        raise DataError(f"{where}: expected finite numbers, got {counted(broken, 'row')} without. Drop or repair them.")
    return first, second


def _array(values: Numbers) -> NDArray[np.float64]:
    plain = values.detach().cpu() if isinstance(values, Tensor) else values
    return np.asarray(plain, dtype=np.float64)


def _check_binary(where: str, label: NDArray[np.float64]) -> None:
    other = int(((label != 0) & (label != 1)).sum())
    if other:
        got = f"{counted(other, 'row')} with another"
        raise DataError(f"{where}: expected labels 0 and 1, got {got}. Say which labels count as 1.")
