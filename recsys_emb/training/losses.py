"""The objectives: squared error, logistic loss, BPR and sampled softmax.

Each carries the settings that suit it (`Objective.defaults`), for the row-by-row solver. Those of the squared error
and of the logistic loss with negatives were chosen on validation splits of several data sets, where one setting stays
within 0.3 % of the best of a grid on each; those of the logistic loss of a label on two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from recsys_emb.errors import DataError, FitError, counted, listed
from recsys_emb.training.objective import Defaults, EarlyStopping, SharedItems, Units, UnseenItems, whole

# --- labels ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SquaredError:
    """Ratings: ½ · (label − score)², with the label standardised by the training rows.

    Standard units make one learning rate and one L2 fit any scale of ratings; predictions come back in the label's.

    Parameters
    ----------
    clip
        Answer within the range of the training label.

    Examples
    --------
    >>> SquaredError().units(torch.tensor([1.0, 3.0]), None)
    Units(offset=2.0, scale=1.0)
    >>> SquaredError().answer(torch.tensor([5.4]), 1.0, 5.0)
    tensor([5.])
    """

    clip: bool = True

    @property
    def defaults(self) -> Defaults:
        """Settings that suit this objective."""
        return Defaults(0.01, 0.05, 0.1, 0.01, 100, EarlyStopping())

    @property
    def contrast(self) -> None:
        """None: learns labels."""

    def check(self, label: Tensor | None, column: str) -> None:
        """Refuse missing and non-finite labels."""
        _check_finite("SquaredError", label, column)

    def units(self, label: Tensor | None, weight: Tensor | None) -> Units:
        """Weighted mean and standard deviation of the label; a constant label has scale 1."""
        values = torch.empty(0) if label is None else label.double()
        weights = torch.ones_like(values) if weight is None else weight.double()
        mean = (weights * values).sum() / weights.sum()
        spread = ((weights * (values - mean).square()).sum() / weights.sum()).sqrt()
        return Units(float(mean), float(spread) or 1.0)

    def targets(self, label: Tensor, units: Units) -> Tensor:
        """Standardise the label."""
        return ((label.double() - units.offset) / units.scale).float()

    def constant(self, units: Units) -> float:
        """Zero: the mean is in the targets."""
        return 0.0

    def loss(self, scores: Tensor, targets: Tensor) -> Tensor:
        """½ · (target − score)²."""
        return (targets - scores[:, 0]).square() / 2

    def validate(self, scores: Tensor, label: Tensor, low: float, high: float) -> float:
        """Root mean squared error of the answers."""
        return float((self.answer(scores[:, 0], low, high).double() - label).square().mean().sqrt())

    def answer(self, scores: Tensor, low: float, high: float) -> Tensor:
        """Give the rating, within [low, high] if it is clipped."""
        return scores.clamp(low, high) if self.clip else scores


@dataclass(frozen=True)
class Logistic:
    """Clicks: log loss of a 0/1 label; or, with negatives, of every row against unseen items.

    With negatives every row is a positive (where there is a label, every row whose label is above 0), and the
    constant −log(negatives) makes a score of 0 mean the base rate.

    Parameters
    ----------
    negatives
        Items that a user does not have, drawn per row; 0 learns the label.

    Examples
    --------
    >>> Logistic().loss(torch.zeros(1, 1), torch.ones(1))
    tensor([0.6931])
    >>> Logistic().check(torch.tensor([1.0, 4.0, 5.0]), "rating")
    Traceback (most recent call last):
    ...
    recsys_emb.errors.DataError: rating: expected labels 0 or 1, got 4.0, 5.0 in 2 rows. \
Learn ratings with SquaredError(), or rank with Logistic(negatives=5).
    """

    negatives: int = 0

    def __post_init__(self) -> None:
        number = whole("Logistic", "negatives", self.negatives, least=0, remedy="0 learns the label.")
        object.__setattr__(self, "negatives", number)

    @property
    def defaults(self) -> Defaults:
        """Settings that suit this objective."""
        if self.negatives:
            return Defaults(0.02, 0.03, 0.01, 0.1, 60, None)
        # Errors of probabilities are small, and the plateau of a small start long.
        return Defaults(0.03, 0.02, 0.05, 0.01, 100, EarlyStopping(min_epochs=40))

    @property
    def contrast(self) -> UnseenItems | None:
        """Unseen items, if there are negatives."""
        return UnseenItems(self.negatives) if self.negatives else None

    def check(self, label: Tensor | None, column: str) -> None:
        """Refuse labels other than 0 and 1, unless there are negatives."""
        if self.negatives and label is None:
            return
        known = _check_finite("Logistic", label, column)
        wrong = known[(known != 0) & (known != 1)].tolist()
        if wrong and not self.negatives:
            raise DataError(
                f"{column}: expected labels 0 or 1, got {listed(sorted(set(wrong)))} in {counted(len(wrong), 'row')}. "
                "Learn ratings with SquaredError(), or rank with Logistic(negatives=5)."
            )

    def units(self, label: Tensor | None, weight: Tensor | None) -> Units:
        """Log odds of the base rate."""
        if self.negatives:
            return Units(-float(torch.tensor(float(self.negatives), dtype=torch.float64).log()), 1.0)
        values = torch.empty(0) if label is None else label.double()
        weights = torch.ones_like(values) if weight is None else weight.double()
        # Half a row of either class keeps the odds finite when there is one class only.
        positive, total = float((weights * values).sum()), float(weights.sum())
        return Units(float(torch.logit(torch.tensor((positive + 0.5) / (total + 1), dtype=torch.float64))), 1.0)

    def targets(self, label: Tensor, units: Units) -> Tensor:
        """Give the label itself; with negatives, 1."""
        return torch.ones_like(label) if self.negatives else label

    def constant(self, units: Units) -> float:
        """Log odds of the base rate."""
        return units.offset

    def loss(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Log loss of the own item against its target and of the others against 0, summed."""
        own = F.binary_cross_entropy_with_logits(scores[:, 0], targets, reduction="none")
        return own + F.softplus(scores[:, 1:]).sum(1)

    def validate(self, scores: Tensor, label: Tensor, low: float, high: float) -> float:
        """Mean log loss."""
        return float(self.loss(scores, self.targets(label, Units(0.0, 1.0))).double().mean())

    def answer(self, scores: Tensor, low: float, high: float) -> Tensor:
        """Give the probability; the same for a score wherever it stands, which torch's sigmoid is not."""
        # numpy's exp rounds the last elements of an array as it does the others.
        score = np.asarray(scores.numpy(force=True), order="C")
        below = np.exp(-np.abs(score))
        return torch.from_numpy(np.asarray(np.where(score < 0, below, 1.0) / (1.0 + below))).to(scores)


# --- rankings --------------------------------------------------------------------------------------------------


class _Ranking(ABC):
    """What objectives without labels share: units of 1, targets of 1, scores as answers."""

    def check(self, label: Tensor | None, column: str) -> None:
        """Refuse non-finite labels: rows above 0 are the positives."""
        if label is not None:
            _check_finite(type(self).__name__, label, column)

    def units(self, label: Tensor | None, weight: Tensor | None) -> Units:
        """Scores as they are."""
        return Units(0.0, 1.0)

    def targets(self, label: Tensor, units: Units) -> Tensor:
        """Every row is a positive."""
        return torch.ones_like(label)

    def constant(self, units: Units) -> float:
        """Zero: a constant ranks nothing."""
        return 0.0

    @abstractmethod
    def loss(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Loss per row."""

    def validate(self, scores: Tensor, label: Tensor, low: float, high: float) -> float:
        """Mean loss."""
        return float(self.loss(scores, label).double().mean())

    def answer(self, scores: Tensor, low: float, high: float) -> Tensor:
        """Give the score, which orders and has no unit."""
        return scores


@dataclass(frozen=True)
class BPR(_Ranking):
    """Bayesian personalised ranking: −log σ(score − score of an unseen item).

    Every row is a positive (where there is a label, every row whose label is above 0). Biases of the user and of
    the position cancel out and stay as they are.

    References
    ----------
    Rendle, S. et al. "BPR: Bayesian personalized ranking from implicit feedback." UAI 2009.

    Examples
    --------
    >>> BPR().loss(torch.tensor([[1.0, 1.0]]), torch.ones(1))
    tensor([0.6931])
    """

    @property
    def defaults(self) -> Defaults:
        """Settings that suit this objective."""
        return Defaults(0.05, 0.01, 0.01, 0.1, 60, None)

    @property
    def contrast(self) -> UnseenItems:
        """One unseen item per row."""
        return UnseenItems(1)

    def loss(self, scores: Tensor, targets: Tensor) -> Tensor:
        """−log σ(own − other), summed over the others."""
        return F.softplus(scores[:, 1:] - scores[:, :1]).sum(1)


@dataclass(frozen=True)
class SampledSoftmax(_Ranking):
    """Cross-entropy of a row's item against negatives that the batch shares, corrected for how they were drawn.

    A negative that was expected n·q times stands for 1 / (n·q) items, so its score is lowered by log(n·q); the sum
    over the negatives then estimates the sum over the whole catalogue. A negative that is the row's own item is
    masked. Every row is a positive (where there is a label, every row whose label is above 0).

    Parameters
    ----------
    negatives
        Items drawn per batch in proportion to frequency to the power 0.75; None takes the items of the other rows.

    References
    ----------
    Bengio, Y. and Senécal, J.-S. "Adaptive importance sampling to accelerate training of a neural probabilistic
    language model." IEEE Transactions on Neural Networks 19, 2008.
    Yi, X. et al. "Sampling-bias-corrected neural modeling for large corpus item recommendations." RecSys 2019.

    Examples
    --------
    >>> SampledSoftmax().loss(torch.zeros(1, 4), torch.ones(1))
    tensor([1.3863])
    """

    negatives: int | None = None

    def __post_init__(self) -> None:
        if self.negatives is not None:
            remedy = "None takes the items of the other rows."
            number = whole("SampledSoftmax", "negatives", self.negatives, least=1, remedy=remedy)
            object.__setattr__(self, "negatives", number)

    @property
    def defaults(self) -> Defaults:
        """Settings that suit this objective."""
        return Defaults(0.05, 0.03, 0.01, 0.1, 40, None)

    @property
    def contrast(self) -> SharedItems:
        """Negatives shared by the batch."""
        return SharedItems(self.negatives)

    def loss(self, scores: Tensor, targets: Tensor) -> Tensor:
        """−log softmax of the own item."""
        return -scores.log_softmax(1)[:, 0]


def _check_finite(objective: str, label: Tensor | None, column: str) -> Tensor:
    if label is None:
        raise FitError(
            f"{objective}: expected a label to learn, got none. "
            "Declare label= in the schema, or rank with Logistic(negatives=5)."
        )
    wrong = int((~label.isfinite()).sum())
    if wrong:
        raise DataError(
            f"{column}: expected finite labels, got NaN or infinity in {counted(wrong, 'row')}. "
            "Drop or repair these rows."
        )
    return label
