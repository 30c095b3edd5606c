"""What a caller may hand to `Recommender`: refused where it is said, not epochs later."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

from recsys_emb.errors import FitError, counted, listed
from recsys_emb.training.objective import EarlyStopping, whole, whole_seed

_OBJECTIVE = ("defaults", "contrast", "check", "units", "targets", "constant", "loss", "validate", "answer")
_SOLVER = ("why_not", "start")


def check_declared(objective: object, solver: object, early_stopping: object) -> None:
    """Refuse what is no objective, no solver or no rule for stopping; None is fine everywhere.

    >>> from recsys_emb.training.losses import BPR
    >>> check_declared(BPR, None, None)
    Traceback (most recent call last):
    ...
    recsys_emb.errors.FitError: Recommender: expected an objective such as SquaredError(), got the class BPR. \
Call it: BPR().

    Raises
    ------
    FitError
        Saying what was expected instead.
    """
    rule = tuple(EarlyStopping.__dataclass_fields__)
    _check("an objective such as SquaredError()", objective, has=_OBJECTIVE)
    _check("a solver such as SequentialSGD()", solver, has=_SOLVER)
    _check("early_stopping such as EarlyStopping()", early_stopping, has=rule)


def read_numbers(epochs: object, seed: object) -> tuple[int | None, int]:
    """Give the number of epochs, if there is one, and the seed as Python integers.

    >>> import numpy as np
    >>> read_numbers(np.int64(20), np.int64(7))
    (20, 7)

    Raises
    ------
    FitError
        When one of them is no integer, or too small.
    """
    remedy = "An epoch is a pass over the rows."
    number = None if epochs is None else whole("Recommender", "epochs", epochs, least=1, remedy=remedy)
    return number, whole_seed("Recommender", seed)


def _check(expected: str, value: object, *, has: tuple[str, ...]) -> None:
    if isinstance(value, type):
        name = value.__name__
        raise FitError(f"Recommender: expected {expected}, got the class {name}. Call it: {name}().")
    if value is not None and not all(hasattr(value, one) for one in has):
        raise FitError(f"Recommender: expected {expected}, got {value!r}. None leaves the choice to the library.")


def warn_of_labels(label: Tensor | None, low: float, high: float, *, name: str) -> None:
    """Say so when labels to go on with are not on the scale of those so far, which went from ``low`` to ``high``.

    Further off than the range is wide, and than its numbers are large, nothing suggests that it is one scale.
    """
    if label is None or not math.isfinite(high - low):
        return
    allowed = max(high - low, abs(low), abs(high))
    strange = label[(label < low - allowed) | (label > high + allowed)]
    if len(strange):
        warnings.warn(
            f"Recommender.partial_fit: {name}: expected labels like those so far, from {low:g} to {high:g}, got "
            f"{listed(torch.unique(strange).tolist())} in {counted(len(strange), 'row')}. They count as they stand, "
            "and ratings up to them may be predicted from now on. Bring them to the same scale.",
            UserWarning,
            stacklevel=4,
        )
