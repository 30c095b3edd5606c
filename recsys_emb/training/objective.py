"""What an objective is: a frozen declaration that solvers read.

An objective turns scores into a loss, says in which units a model learns the label, and what a score means as an
answer. Ranking objectives contrast each row's item with others; `Objective.contrast` says which. The objectives
themselves are in `losses`.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from torch import Tensor

from recsys_emb.errors import FitError


def whole(where: str, name: str, value: Any, *, least: int, most: int | None = None, remedy: str) -> int:
    """Give a whole number, of whatever integer type it came, as a Python integer.

    >>> whole("Minibatch", "batch_size", 64.0, least=1, remedy="It counts rows.")
    Traceback (most recent call last):
    ...
    recsys_emb.errors.FitError: Minibatch: expected batch_size to be an integer, got 64.0. It counts rows.

    Raises
    ------
    FitError
        When it is no integer (a boolean is none), or outside [least, most].
    """
    try:
        number = None if isinstance(value, (bool, np.bool)) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise FitError(f"{where}: expected {name} to be an integer, got {value!r}. {remedy}")
    if number < least:
        raise FitError(f"{where}: expected {name} of at least {least}, got {value!r}. {remedy}")
    if most is not None and number > most:
        raise FitError(f"{where}: expected {name} of at most {most}, got {value!r}. {remedy}")
    return number


def whole_seed(where: str, seed: object) -> int:
    """Give a seed that every generator takes, as a Python integer."""
    return whole(where, "seed", seed, least=0, most=2**63 - 1, remedy="The same seed gives the same model.")


def is_number(value: object) -> bool:
    """Whether a value is a real number; booleans are none."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


@dataclass(frozen=True)
class EarlyStopping:
    """Stop when rows that are held out no longer improve.

    A factorization that starts small first learns its biases and leaves a plateau only later; without a minimum
    number of epochs it would stop there.

    Parameters
    ----------
    fraction
        Share of the rows to hold out when no validation rows are given.
    min_epochs
        Never stop before.
    patience
        Epochs without a new best before stopping.

    Examples
    --------
    >>> EarlyStopping(patience=0)
    Traceback (most recent call last):
    ...
    recsys_emb.errors.FitError: EarlyStopping: expected patience of at least 1, got 0. \
It counts epochs without a new best.
    """

    fraction: float = 0.1
    min_epochs: int = 25
    patience: int = 10

    def __post_init__(self) -> None:
        if not (is_number(self.fraction) and 0 < self.fraction < 1):
            raise FitError(f"EarlyStopping: expected fraction in (0, 1), got {self.fraction!r}. It is a share of rows.")
        for name, least, remedy in (
            ("min_epochs", 0, "0 lets patience alone decide."),
            ("patience", 1, "It counts epochs without a new best."),
        ):
            number = whole("EarlyStopping", name, getattr(self, name), least=least, remedy=remedy)
            object.__setattr__(self, name, number)


class Defaults(NamedTuple):
    """Settings that suit an objective, used wherever none are given."""

    learning_rate: float
    l2: float
    bias_l2: float
    init_std: float
    epochs: int
    early_stopping: EarlyStopping | None

    def replacing(self, *, learning_rate: float | None, l2: float | None, bias_l2: float | None) -> Defaults:
        """Copy with what is given in place of the defaults."""
        return self._replace(
            learning_rate=self.learning_rate if learning_rate is None else learning_rate,
            l2=self.l2 if l2 is None else l2,
            bias_l2=self.bias_l2 if bias_l2 is None else bias_l2,
        )


def check_settings(where: str, *, learning_rate: float | None, l2: float | None, bias_l2: float | None) -> None:
    """Refuse a solver's settings that cannot train."""
    if learning_rate is not None and not (is_number(learning_rate) and 0 < learning_rate < float("inf")):
        raise FitError(
            f"{where}: expected learning_rate above 0, got {learning_rate!r}. 0.01 suits standardised labels."
        )
    for name, value in {"l2": l2, "bias_l2": bias_l2}.items():
        if value is not None and not (is_number(value) and 0 <= value < float("inf")):
            raise FitError(f"{where}: expected {name} of at least 0, got {value!r}. 0 turns it off.")


class Units(NamedTuple):
    """The model's answer is ``offset + scale · raw score``."""

    offset: float
    scale: float


@dataclass(frozen=True)
class UnseenItems:
    """Each row draws ``count`` items, uniformly, from those that its user does not have."""

    count: int


@dataclass(frozen=True)
class SharedItems:
    """All rows of a batch share their negatives: ``count`` items drawn by frequency, or (None) each other's items."""

    count: int | None


Contrast: TypeAlias = UnseenItems | SharedItems


class Objective(Protocol):
    """What a training run minimises: the mean over rows of ``weight · loss`` plus L2 per occurrence."""

    @property
    def defaults(self) -> Defaults:
        """Settings that suit this objective."""

    @property
    def contrast(self) -> Contrast | None:
        """Which items a row's own item is contrasted with; None learns labels."""

    def check(self, label: Tensor | None, column: str) -> None:
        """Refuse labels that this objective cannot learn, naming the column and the number of rows."""

    def units(self, label: Tensor | None, weight: Tensor | None) -> Units:
        """Give the units in which a model learns the training rows' label."""

    def targets(self, label: Tensor, units: Units) -> Tensor:
        """Give the label in the units of raw scores, ``(B,)``."""

    def constant(self, units: Units) -> float:
        """Give the constant that `loss` expects in front of raw scores."""

    def loss(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Give the loss per row, ``(B,)``: scores ``(B, 1 + n)``, the row's own item first; targets ``(B,)``."""

    def validate(self, scores: Tensor, label: Tensor, low: float, high: float) -> float:
        """Give one number that falls as a model improves, from its outputs ``(B, 1 + n)`` and the label ``(B,)``."""

    def answer(self, scores: Tensor, low: float, high: float) -> Tensor:
        """Give what a prediction means, from the model's output and the range of the training label; any shape."""
