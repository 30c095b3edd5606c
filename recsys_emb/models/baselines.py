"""What a model has to beat: popularity, biases, and a linear model on one-hot columns.

Each takes an encoded `Batch`, knows its columns by name, and answers in float64 on the CPU. Predicted ratings are
kept within the labels of the fit. Indices beyond those of the fit are answered as values never seen.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, Ridge
from torch import Tensor

from recsys_emb.encoding.batch import Batch, Column, Jagged
from recsys_emb.errors import DataError, EmptySourceError, FitError, NotFittedError, counted, listed
from recsys_emb.lookup.pooling import pooled_weights
from recsys_emb.vocabulary.reserved import MISSING_INDEX

Floats: TypeAlias = NDArray[np.float64]
LinearEstimator: TypeAlias = Ridge | LogisticRegression


class Popularity:
    """How often an item occurs: every user gets the same ranking.

    Parameters
    ----------
    item
        Name of the item feature.

    Examples
    --------
    >>> popularity = Popularity("item_id").fit(Batch({"item_id": torch.tensor([3, 4, 3])}))
    >>> popularity.item_scores()
    tensor([0., 0., 0., 2., 1.], dtype=torch.float64)
    >>> popularity.predict(Batch({"item_id": torch.tensor([4, 9])}))
    tensor([1., 0.], dtype=torch.float64)
    """

    def __init__(self, item: str) -> None:
        self.item = item
        self._counts: Floats | None = None

    def fit(self, batch: Batch) -> Popularity:
        """Count the rows of each item, or add up their weights where the batch has them.

        Every row counts, whatever its label; select the positives beforehand if only they should.

        Raises
        ------
        EmptySourceError
            When the batch has no rows.
        """
        weights = _weights("Popularity", batch)
        self._counts = _totals(batch.indices(self.item).numpy(force=True), weights, _width(batch, self.item))
        return self

    def item_scores(self) -> Tensor:
        """Score of each item index, float64 ``(V,)``, to rank by."""
        if self._counts is None:
            raise _not_fitted("Popularity")
        return torch.from_numpy(self._counts.copy())

    def predict(self, batch: Batch) -> Tensor:
        """Score of each row's item, float64 ``(B,)``."""
        return torch.from_numpy(_looked_up(self.item_scores().numpy(), batch.indices(self.item)))


class BiasModel:
    """The label's mean and a bias per index of each feature: μ + b_user + b_item.

    Squared error plus ``l2`` times each squared bias. Given all others, the biases of one feature have a closed
    form, Σ residual / (count + l2), which is applied to the features in turn.

    Parameters
    ----------
    names
        Features with one index per row, ``("user_id", "item_id")``.
    l2
        Pulls biases towards 0, like as many rows of residual 0 for each index.
    sweeps
        Rounds over the features.

    References
    ----------
    Koren, Y. "Factor in the neighbors: scalable and accurate collaborative filtering." ACM TKDD 4(1), 2010,
    section 2.1.

    Examples
    --------
    >>> rows = {"user_id": torch.tensor([3, 3, 4, 4]), "item_id": torch.tensor([3, 4, 3, 4])}
    >>> batch = Batch(rows, label=torch.tensor([5.0, 3.0, 4.0, 2.0]))
    >>> BiasModel(("user_id", "item_id"), l2=0.0).fit(batch).predict(batch)
    tensor([5., 3., 4., 2.], dtype=torch.float64)
    """

    def __init__(self, names: Sequence[str], *, l2: float = 10.0, sweeps: int = 10) -> None:
        if not 0 <= l2 < np.inf:
            raise FitError(f"BiasModel: expected l2 of at least 0, got {l2!r}. 0 leaves the biases unbound.")
        if isinstance(sweeps, bool) or not isinstance(sweeps, (int, np.integer)) or sweeps < 1:
            raise FitError(
                f"BiasModel: expected sweeps to be an integer of at least 1, got {sweeps!r}. 10 rounds are enough."
            )
        self.names, self.l2, self.sweeps = tuple(names), l2, sweeps
        self._mean, self._range = 0.0, (-np.inf, np.inf)
        self._biases: dict[str, Floats] | None = None

    def fit(self, batch: Batch) -> BiasModel:
        """Fit to the label; row weights multiply the squared error.

        Raises
        ------
        DataError
            When the batch has no label.
        EmptySourceError
            When it has no rows.
        """
        label, weights = _label("BiasModel", batch), _weights("BiasModel", batch)
        columns = {name: _indices("BiasModel", batch, name).numpy(force=True) for name in self.names}
        masses = {name: _totals(column, weights, _width(batch, name)) + self.l2 for name, column in columns.items()}
        biases = {name: np.zeros_like(mass) for name, mass in masses.items()}
        mean = float(np.average(label, weights=weights))
        residual = label - mean
        for _ in range(self.sweeps):
            for name, column in columns.items():
                residual += biases[name][column]
                totals = _totals(column, weights * residual, len(masses[name]))
                biases[name] = np.divide(totals, masses[name], out=np.zeros_like(totals), where=masses[name] > 0)
                residual -= biases[name][column]
        self._mean, self._biases, self._range = mean, biases, (label.min(), label.max())
        return self

    def biases(self, name: str) -> Tensor:
        """Bias of each index of one feature, float64 ``(V,)``; the item's are scores to rank by."""
        if self._biases is None:
            raise _not_fitted("BiasModel")
        return torch.from_numpy(self._biases[name].copy())

    def predict(self, batch: Batch) -> Tensor:
        """Predict the label, float64 ``(B,)``; an index never seen adds nothing."""
        answer = np.full(len(batch), self._mean)
        for name in self.names:
            answer += _looked_up(self.biases(name).numpy(), batch.indices(name))
        return torch.from_numpy(np.clip(answer, *self._range))


class OneHotLinear:
    """A linear model on one-hot columns, which is a bias per index: no interactions.

    An index becomes a one in its own column; a list, the mean of its entries' ones, by weight if they have any; a
    `Numeric`, its standardised value and its missing indicator. The matrix is sparse.

    Parameters
    ----------
    names
        Features of any kind.
    estimator
        scikit-learn's `Ridge` for ratings (the default), or its `LogisticRegression` for labels 0 and 1. A copy of
        it is fitted.

    Examples
    --------
    >>> rows = {"item_id": torch.tensor([3, 3, 4, 4]), "tags": Jagged.from_lists([[3], [], [3, 4], [4]])}
    >>> batch = Batch(rows, label=torch.tensor([1.0, 1.0, 0.0, 0.0]))
    >>> model = OneHotLinear(("item_id", "tags"), LogisticRegression()).fit(batch)
    >>> (model.predict(batch) > 0.5).tolist()
    [True, True, False, False]
    """

    def __init__(self, names: Sequence[str], estimator: LinearEstimator | None = None) -> None:
        self.names = tuple(names)
        if not self.names:
            raise FitError("OneHotLinear: expected the names of features, got none. Name one at least.")
        self.estimator: LinearEstimator = estimator or Ridge()
        self._widths: dict[str, int] = {}
        self._range = (-np.inf, np.inf)
        self._fitted: LinearEstimator | None = None

    def fit(self, batch: Batch) -> OneHotLinear:
        """Fit to the label, with row weights where the batch has them.

        Raises
        ------
        DataError
            When the batch has no label, or a named feature is not in it.
        EmptySourceError
            When it has no rows.
        FitError
            When a `LogisticRegression` meets labels other than 0 and 1, or only one of them.
        """
        label, weights = _label("OneHotLinear", batch), _weights("OneHotLinear", batch)
        found = np.unique(label)
        if isinstance(self.estimator, LogisticRegression) and not np.array_equal(found, (0.0, 1.0)):
            got = listed(found.tolist())
            raise FitError(f"OneHotLinear: expected labels 0 and 1, both, got {got}. Use Ridge() for ratings.")
        widths = {name: _width(batch, name) for name in self.names}
        fitted = copy.deepcopy(self.estimator)
        fitted.fit(_one_hot(batch, widths), label, sample_weight=weights)
        self._fitted, self._widths, self._range = fitted, widths, (found[0], found[-1])
        return self

    def predict(self, batch: Batch) -> Tensor:
        """Predict the label, or the probability of label 1; float64 ``(B,)``."""
        estimator = self._fitted
        if estimator is None:
            raise _not_fitted("OneHotLinear")
        if not len(batch):
            return torch.zeros(0, dtype=torch.float64)
        matrix = _one_hot(batch, self._widths)
        if isinstance(estimator, LogisticRegression):
            return torch.from_numpy(estimator.predict_proba(matrix)[:, 1])
        return torch.from_numpy(np.clip(estimator.predict(matrix), *self._range))


def _indices(where: str, batch: Batch, name: str) -> Tensor:
    """Give a feature's one index per row; numbers are none."""
    column = batch.indices(name)
    if column.is_floating_point():
        raise DataError(
            f"{where}: expected a feature with one index per row, got numbers in {name!r}. "
            "Learn them with OneHotLinear."
        )
    return column


def _one_hot(batch: Batch, widths: dict[str, int]) -> scipy.sparse.csr_array:
    """Set the features' columns beside each other: ``(B, sum of widths)``."""
    blocks = [_block(batch[name], width) for name, width in widths.items()]
    return scipy.sparse.hstack(blocks, format="csr")


def _block(column: Column, width: int) -> scipy.sparse.csr_array:
    """Turn one feature's rows into ``(B, width)``; indices from ``width`` on are left out."""
    if isinstance(column, Tensor) and column.is_floating_point():
        return scipy.sparse.csr_array(column.double().numpy(force=True))
    lists = column if isinstance(column, Jagged) else Jagged(column, torch.arange(len(column) + 1))
    pooled = pooled_weights(lists.to("cpu"), "mean")
    values, offsets = pooled.values.numpy(), pooled.offsets.numpy()
    weights = np.ones(len(values)) if pooled.weights is None else pooled.weights.double().numpy()
    known = values < width
    return scipy.sparse.csr_array((weights * known, values * known, offsets), shape=(len(column), width))


def _width(batch: Batch, name: str) -> int:
    """Count the columns of a feature: of an index, those that the encoder reserved, or else those in use."""
    column = batch[name]
    if isinstance(column, Tensor) and column.is_floating_point():
        return column.shape[1]
    values = column.values if isinstance(column, Jagged) else column
    # A list may be empty and then stands for the missing row, index 1.
    return max(batch.limits.get(name, 0), int(values.max()) + 1 if len(values) else 0, MISSING_INDEX + 1)


def _totals(indices: NDArray[np.int64], amounts: Floats, width: int) -> Floats:
    """Add up the rows' amounts by index: ``(width,)``."""
    return np.bincount(indices, weights=amounts, minlength=width).astype(np.float64, copy=False)


def _looked_up(table: Floats, indices: Tensor) -> Floats:
    """Look up each index; 0 for those beyond the table."""
    found: Floats = np.append(table, 0.0)[np.minimum(indices.numpy(force=True), len(table))]
    return found


def _weights(where: str, batch: Batch) -> Floats:
    """Row weights, 1 where the batch has none; refuse to learn from nothing."""
    weights = np.ones(len(batch)) if batch.weight is None else batch.weight.double().numpy(force=True)
    if not weights.sum() > 0:
        got = f"{counted(len(batch), 'row')} of weight 0" if len(batch) else "none"
        raise EmptySourceError(f"{where}: expected rows to fit, got {got}. Check the filter before it.")
    return weights


def _label(where: str, batch: Batch) -> Floats:
    if batch.label is None:
        raise DataError(
            f"{where}: expected a batch with a label, got none. Declare Schema(label=...) and encode again."
        )
    return batch.label.double().numpy(force=True)


def _not_fitted(where: str) -> NotFittedError:
    return NotFittedError(f"{where}: expected a fitted model, got one that is not. Call fit first.")
