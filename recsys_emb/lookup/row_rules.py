"""Rules by which the rows of a `FusedEmbedding` move in backward.

Each is what the optimizer of the same name does. G is the added-up gradient of a row, n how often it was looked up, w
the row. Rows that were not looked up keep their numbers and their state; padding never moves.
"""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias, cast

from torch import Tensor

from recsys_emb import kernels
from recsys_emb.errors import FitError

if TYPE_CHECKING:
    from recsys_emb.kernels.row_gather import Floats, Integers, Stack

Number: TypeAlias = float | Tensor


class Settings(NamedTuple):
    """Numbers of one step of one table; the columns of the settings of `recsys_emb.kernels.row_update`.

    Of several tables at once, tensors ``(U, 1)`` of the rows at hand.
    """

    rate: Number
    l2: Number
    eps: Number = 0.0
    first: Number = 0.0
    second: Number = 0.0
    spread: Number = 0.0


@dataclass(frozen=True, kw_only=True)
class RowRule(ABC):
    """What moves a row.

    Parameters
    ----------
    lr
        Learning rate.
    l2
        L2 per occurrence: a row moves by ``g = G + n·l2·w``, which is what the term ``l2/2 · Σ |x|²`` over all
        vectors that were looked up adds to a loss. Where the loss is a mean over B rows, so should this be: give
        ``l2 / B``.
    """

    lr: float
    l2: float = 0.0

    # State beside the table, and whether it has an entry per number of a row (True) or one per row.
    state: ClassVar[Mapping[str, bool]] = {}

    def __post_init__(self) -> None:
        self._check("lr", self.lr, "above 0", lambda lr: lr > 0, "0.01 is a usual one.")
        self._check("l2", self.l2, "of at least 0", lambda l2: l2 >= 0, "0 turns it off.")

    @property
    def start(self) -> float:
        """What state begins with."""
        return 0.0

    def settings(self, step: int) -> Settings:
        """Give the numbers of a table's step, which counts from 1."""
        return Settings(self.lr, self.l2)

    @abstractmethod
    def run(self, stack: Stack, state: tuple[Floats, ...], lookups: Integers, settings: Floats) -> None:
        """Move the rows of some lookups by the compiled kernel."""

    @abstractmethod
    def moved(self, gradient: Tensor, state: Mapping[str, Tensor], settings: Settings) -> Tensor:
        """Bring the state of some rows up to date in place, and give what to subtract from them: ``(U, D)``.

        Parameters
        ----------
        gradient
            g, ``(U, D)``; none is all zero.
        state
            Of these rows: ``(U, D)`` or ``(U,)`` each.
        settings
            Of these rows' tables.
        """

    def _check(self, name: str, value: object, wanted: str, is_right: Callable[[float], bool], remedy: str) -> None:
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not (is_number and is_right(cast("float", value)) and math.isfinite(cast("float", value))):
            raise FitError(f"{type(self).__name__}: expected {name} {wanted}, got {value!r}. {remedy}")


@dataclass(frozen=True, kw_only=True)
class SGDUpdate(RowRule):
    """Plain gradient descent: ``w ← w − lr·g``. No state.

    Examples
    --------
    >>> SGDUpdate(lr=-1)
    Traceback (most recent call last):
    ...
    recsys_emb.errors.FitError: SGDUpdate: expected lr above 0, got -1. 0.01 is a usual one.
    """

    def run(self, stack: Stack, state: tuple[Floats, ...], lookups: Integers, settings: Floats) -> None:
        """Move the rows of some lookups by the compiled kernel."""
        kernels.row_update.sgd(stack, state, lookups, settings)

    def moved(self, gradient: Tensor, state: Mapping[str, Tensor], settings: Settings) -> Tensor:
        """Give ``lr·g``."""
        return gradient * settings.rate


@dataclass(frozen=True, kw_only=True)
class AdagradUpdate(RowRule):
    """Adagrad: ``s ← s + g²; w ← w − lr·g / (√s + eps)``. D numbers of state per row.

    Parameters
    ----------
    eps
        Keeps the first step from dividing by zero.
    initial_accumulator_value
        s at the start.

    References
    ----------
    Duchi, J., Hazan, E. and Singer, Y. "Adaptive subgradient methods." JMLR 12, 2011.
    """

    eps: float = 1e-8
    initial_accumulator_value: float = 0.0

    state: ClassVar[Mapping[str, bool]] = {"sum": True}

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("eps", self.eps, "above 0", lambda eps: eps > 0, "It divides where there is no history.")
        start = self.initial_accumulator_value
        self._check(
            "initial_accumulator_value", start, "of at least 0", lambda sum_: sum_ >= 0, "It is a sum of squares."
        )

    @property
    def start(self) -> float:
        """What state begins with."""
        return self.initial_accumulator_value

    def settings(self, step: int) -> Settings:
        """Give the numbers of a table's step."""
        return super().settings(step)._replace(eps=self.eps)

    def run(self, stack: Stack, state: tuple[Floats, ...], lookups: Integers, settings: Floats) -> None:
        """Move the rows of some lookups by the compiled kernel."""
        kernels.row_update.adagrad(stack, state, lookups, settings)

    def moved(self, gradient: Tensor, state: Mapping[str, Tensor], settings: Settings) -> Tensor:
        """Give ``lr·g / (√s + eps)``."""
        total = state["sum"].addcmul_(gradient, gradient)
        return gradient / total.sqrt().add_(settings.eps) * settings.rate


@dataclass(frozen=True, kw_only=True)
class RowWiseAdagradUpdate(AdagradUpdate):
    """Adagrad with one number of state per row: ``s ← s + mean(g²); w ← w − lr·g / (√s + eps)``.

    See `RowWiseAdagrad`, the optimizer.
    """

    state: ClassVar[Mapping[str, bool]] = {"sum": False}

    def run(self, stack: Stack, state: tuple[Floats, ...], lookups: Integers, settings: Floats) -> None:
        """Move the rows of some lookups by the compiled kernel."""
        kernels.row_update.row_wise_adagrad(stack, state, lookups, settings)

    def moved(self, gradient: Tensor, state: Mapping[str, Tensor], settings: Settings) -> Tensor:
        """Give ``lr·g / (√s + eps)``."""
        total = state["sum"].add_(gradient.square().mean(1))
        return gradient * (settings.rate / (total.sqrt().unsqueeze_(1) + settings.eps))


@dataclass(frozen=True, kw_only=True)
class LazyAdamUpdate(RowRule):
    """Adam whose moments are decayed, and whose rows move, when a row is looked up. 2D numbers of state per row.

    With t the number of steps of the table, not of the row::

        m ← m + (1 − β₁)·(g − m)
        v ← v + (1 − β₂)·(g² − v)
        w ← w − lr / (1 − β₁ᵗ) · m / (√(v / (1 − β₂ᵗ)) + eps)

    A row whose g is all zero stays as it is. See `LazyAdam`, the optimizer.

    Parameters
    ----------
    betas
        Decay of the two moments, β₁ and β₂.
    eps
        Keeps the step finite.
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    state: ClassVar[Mapping[str, bool]] = {"exp_avg": True, "exp_avg_sq": True}

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("eps", self.eps, "above 0", lambda eps: eps > 0, "It divides where there is no history.")
        for beta in self.betas:
            self._check("betas", beta, "in [0, 1)", lambda share: 0 <= share < 1, "They are shares that are kept.")

    def settings(self, step: int) -> Settings:
        """Give the numbers of a table's step; the bias corrections are worked out in double precision."""
        first, second = self.betas
        rate, spread = self.lr / (1 - first**step), 1 / math.sqrt(1 - second**step)
        return Settings(rate, self.l2, self.eps, 1 - first, 1 - second, spread)

    def run(self, stack: Stack, state: tuple[Floats, ...], lookups: Integers, settings: Floats) -> None:
        """Move the rows of some lookups by the compiled kernel."""
        kernels.row_update.lazy_adam(stack, state, lookups, settings)

    def moved(self, gradient: Tensor, state: Mapping[str, Tensor], settings: Settings) -> Tensor:
        """Give ``rate·m / (spread·√v + eps)``."""
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean.add_((gradient - mean).mul_(settings.first))
        square.add_((gradient.square() - square).mul_(settings.second))
        return mean / square.sqrt().mul_(settings.spread).add_(settings.eps) * settings.rate
