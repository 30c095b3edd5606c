"""The convex problems that folding a stranger in comes down to, and Newton's method, which solves them.

Each is a function of θ, float64 ``(P,)``: a sum of losses of scores ``offset + row·θ`` plus ½ Σ ridge·θ².
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

_STEPS, _HALVINGS = 60, 40
_TOLERANCE = 1e-12
# Scores of one block of contrasts, held at once.
_BLOCK = 2**22


class Local(NamedTuple):
    """A function where it was asked: value ``()``, gradient ``(P,)``, Hessian ``(P, P)``."""

    value: Tensor
    gradient: Tensor
    hessian: Tensor


class Problem(Protocol):
    """A convex function of θ."""

    @property
    def size(self) -> int:
        """Length of θ, P."""

    def at(self, theta: Tensor) -> Local:
        """Value, gradient and Hessian."""


class Scores(NamedTuple):
    """Scores that are linear in θ: ``rows`` ``(N, P)`` and ``offsets`` ``(N,)``, float64."""

    rows: Tensor
    offsets: Tensor

    def at(self, theta: Tensor) -> Tensor:
        """Give the scores, ``(N,)``."""
        return self.offsets + self.rows @ theta

    def select(self, chosen: Tensor) -> Scores:
        """Pick scores by number or mask."""
        return Scores(self.rows[chosen], self.offsets[chosen])


def minimise(problem: Problem) -> Tensor:
    """Find θ ``(P,)`` by Newton's method with halved steps, from 0; flat directions stay at 0.

    Examples
    --------
    >>> rows, offsets = torch.ones(3, 1).double(), torch.zeros(3).double()
    >>> targets, weights = torch.tensor([1.0, 2.0, 6.0]).double(), torch.ones(3).double()
    >>> minimise(Regression(Scores(rows, offsets), targets, weights, ridge=torch.ones(1).double(), logistic=False))
    tensor([2.2500], dtype=torch.float64)
    """
    theta: Tensor = torch.zeros(problem.size, dtype=torch.float64)
    here = problem.at(theta)
    for _ in range(_STEPS):
        step = torch.linalg.lstsq(here.hessian, -here.gradient.unsqueeze(1), driver="gelsd").solution[:, 0]
        slope = float(here.gradient @ step)
        if -slope <= _TOLERANCE * max(1.0, abs(float(here.value))):
            theta = theta + step  # so near the end, a whole step squares the error that is left
            break
        for _ in range(_HALVINGS):
            there = problem.at(theta + step)
            if float(there.value) <= float(here.value) + 1e-4 * slope:
                break
            step, slope = step / 2, slope / 2
        else:
            break
        theta, here = theta + step, there
    return theta


@dataclass(frozen=True, eq=False)
class Regression:
    """Scores against targets: Σ weight · loss(score, target), with ½ · (target − score)² or the log loss."""

    scores: Scores
    targets: Tensor  # (N,)
    weights: Tensor  # (N,)
    ridge: Tensor  # (P,)
    logistic: bool

    @property
    def size(self) -> int:
        """Length of θ."""
        return len(self.ridge)

    def at(self, theta: Tensor) -> Local:
        """Value, gradient and Hessian."""
        scores, rows = self.scores.at(theta), self.scores.rows
        if self.logistic:
            losses, chance = F.softplus(scores) - self.targets * scores, scores.sigmoid()
            slopes, curves = chance - self.targets, chance * (1 - chance)
        else:
            slopes = scores - self.targets
            losses, curves = slopes.square() / 2, torch.ones_like(scores)
        value = (self.weights * losses).sum() + (self.ridge * theta.square()).sum() / 2
        gradient = rows.T @ (self.weights * slopes) + self.ridge * theta
        return Local(value, gradient, rows.T @ ((self.weights * curves).unsqueeze(1) * rows) + self.ridge.diag())


@dataclass(frozen=True, eq=False)
class Pairwise:
    """Own scores against others': Σ weight · mean over the others of −log σ(own − other)."""

    own: Scores
    weights: Tensor  # (n,)
    others: Scores
    ridge: Tensor  # (P,)

    @property
    def size(self) -> int:
        """Length of θ."""
        return len(self.ridge)

    def at(self, theta: Tensor) -> Local:
        """Value, gradient and Hessian."""
        others, against = self.others.rows, self.others.at(theta)
        value, gradient = (self.ridge * theta.square()).sum() / 2, self.ridge * theta
        hessian, curved = self.ridge.diag(), against.new_zeros(len(against))
        for chosen in _blocks(len(self.weights), len(against)):
            own = self.own.select(chosen)
            gaps = against - own.at(theta).unsqueeze(1)
            weights = self.weights[chosen].unsqueeze(1) / max(1, len(against))
            slopes = weights * gaps.sigmoid()
            curves = slopes * (-gaps).sigmoid()
            value = value + (weights * F.softplus(gaps)).sum()
            gradient = gradient + others.T @ slopes.sum(0) - own.rows.T @ slopes.sum(1)
            mixed = own.rows.T @ (curves @ others)
            hessian = hessian + own.rows.T @ (curves.sum(1).unsqueeze(1) * own.rows) - mixed - mixed.T
            curved = curved + curves.sum(0)
        return Local(value, gradient, hessian + others.T @ (curved.unsqueeze(1) * others))


@dataclass(frozen=True, eq=False)
class Softmax:
    """Own scores among others': Σ weight · −log of the own one's share of exp(own) + Σ exp(others).

    ``places`` names the own item among the others, which then counts once, or is -1.
    """

    own: Scores
    weights: Tensor  # (n,)
    places: Tensor  # (n,)
    others: Scores
    ridge: Tensor  # (P,)

    @property
    def size(self) -> int:
        """Length of θ."""
        return len(self.ridge)

    def at(self, theta: Tensor) -> Local:
        """Value, gradient and Hessian."""
        others, against = self.others.rows, self.others.at(theta)
        value, gradient = (self.ridge * theta.square()).sum() / 2, self.ridge * theta
        hessian, shared = self.ridge.diag(), against.new_zeros(len(against))
        for chosen in _blocks(len(self.weights), len(against)):
            own, places = self.own.select(chosen), self.places[chosen]
            logits = torch.cat([own.at(theta).unsqueeze(1), against.expand(len(chosen), -1)], 1)
            named = (places >= 0).nonzero()[:, 0]
            logits[named, places[named] + 1] = -torch.inf
            shares, weights = logits.softmax(1), self.weights[chosen].unsqueeze(1)
            means = shares[:, :1] * own.rows + shares[:, 1:] @ others
            value = value - (weights * logits.log_softmax(1)[:, :1]).sum()
            gradient = gradient + (weights * (means - own.rows)).sum(0)
            hessian = hessian + own.rows.T @ (weights * shares[:, :1] * own.rows) - means.T @ (weights * means)
            shared = shared + (weights * shares[:, 1:]).sum(0)
        return Local(value, gradient, hessian + others.T @ (shared.unsqueeze(1) * others))


def _blocks(count: int, width: int) -> tuple[Tensor, ...]:
    """Cut ``count`` contrasts with ``width`` others each into blocks of bounded size."""
    return torch.split(torch.arange(count), max(1, _BLOCK // max(1, width)))
