"""How far what is found has moved from what was fitted: the population stability index."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]

BANDS = 10
LARGE = 0.25
"""From here on an index is held to be a shift (Siddiqi, 2006)."""
# Values that share a count, from which on their number can be relied on.
_CROWD = 10
_NORMAL_95 = 1.6448536269514722  # 95 % quantile of the standard normal distribution


def frequency_bands(counts: Counts) -> Counts:
    """Cut values into bands of about equal shares of the occurrences, the frequent values first.

    Parameters
    ----------
    counts
        int64 ``(V,)``, how often each value was seen.

    Returns
    -------
    numpy.ndarray
        int64 ``(V,)``, the band of each value, from 0; at most 10 bands. Up to ten values have a band each;
        otherwise values with equal counts are in one band.

    Examples
    --------
    >>> frequency_bands(np.array([40, 40, *[1] * 10, 10])).tolist()
    [0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]
    """
    if len(counts) <= BANDS:
        return np.arange(len(counts))
    falling, places = np.unique(-counts, return_inverse=True)
    shares = np.bincount(places) * -falling / max(int(counts.sum()), 1)
    middles = shares.cumsum() - shares / 2
    tenths = np.unique((middles * BANDS).astype(np.int64), return_inverse=True)[1]
    bands: Counts = tenths[places]
    return bands


def expected_counts(counts: Counts) -> npt.NDArray[np.float64]:
    """Give what each value is expected to count in another sample of the fitted size.

    Values that were counted often were often lucky, and values counted once are mostly replaced by others in another
    sample. Where N_c values were counted c times, these are expected to count (c + 1) · N_{c+1} together (Good, 1953).
    As in Katz (1987) that is believed where the numbers are large, here at least ten; others keep their count.

    Parameters
    ----------
    counts
        int64 ``(V,)``, how often the fit saw each value.

    Returns
    -------
    numpy.ndarray
        float64 ``(V,)``; summing to less than the counts by what is expected to be values that the fit lacks.

    References
    ----------
    Good, I. J. "The population frequencies of species and the estimation of population parameters." Biometrika 40,
    1953.
    Katz, S. M. "Estimation of probabilities from sparse data for the language model component of a speech
    recognizer." IEEE Transactions on Acoustics, Speech, and Signal Processing 35, 1987.

    Examples
    --------
    >>> expected_counts(np.array([90, *[2] * 20, *[1] * 50])).tolist()[:22]
    [90.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 0.8]
    """
    distinct, places, times = np.unique(counts, return_inverse=True, return_counts=True)
    expected = distinct.astype(np.float64)
    crowded = times >= _CROWD
    followed = np.flatnonzero((np.diff(distinct) == 1) & crowded[:-1] & crowded[1:])
    expected[followed] = (distinct * times)[followed + 1] / times[followed]
    expanded: npt.NDArray[np.float64] = expected[places]
    return expanded


def unseen_share(counts: Counts) -> float:
    """Give the share of another sample that is expected to be values which this one lacks.

    That is the share of those seen once (Good, 1953); NaN without any occurrence.

    >>> unseen_share(np.array([6, 2, 1, 1]))
    0.2
    """
    return float((counts == 1).sum() / counts.sum()) if counts.sum() else float("nan")


def stability_index(fitted: npt.NDArray[Any], found: npt.NDArray[Any]) -> float:
    """Give the population stability index, Σ (q − p) · ln(q / p) over the bands.

    p and q are the shares of each band in the fit and in what is found. Half an occurrence is added to each band,
    so that an empty one leaves the index finite. It is 0 for equal shares and grows with their distance.

    Parameters
    ----------
    fitted, found
        ``(bands,)``, occurrences in each band.

    Returns
    -------
    float
        NaN where either has no occurrence.

    References
    ----------
    Siddiqi, N. "Credit risk scorecards." Wiley, 2006. The index is the divergence of Jeffreys, H. "An invariant form
    for the prior probability in estimation problems." Proceedings of the Royal Society A 186, 1946.

    Examples
    --------
    >>> stability_index(np.array([500, 500]), np.array([50, 50]))
    0.0
    >>> round(stability_index(np.array([500, 500]), np.array([70, 30])), 2)
    0.17
    """
    if not fitted.sum() or not found.sum():
        return float("nan")
    expected, actual = ((counts + 0.5) / (counts + 0.5).sum() for counts in (fitted, found))
    return float(((actual - expected) * np.log(actual / expected)).sum())


def normal_index(fitted: tuple[float, float], found: tuple[float, float]) -> float:
    """Give the same divergence between two normal distributions, each ``(mean, standard deviation)``.

    With m and s the found mean and deviation in fitted standard units: ½ · (s² + m² + (1 + m²) / s²) − 1.
    NaN where a deviation is 0.

    >>> normal_index((10.0, 2.0), (10.0, 2.0)), normal_index((10.0, 2.0), (12.0, 2.0))
    (0.0, 1.0)
    """
    if not fitted[1] or not found[1]:
        return float("nan")
    shift, spread = ((found[0] - fitted[0]) / fitted[1]) ** 2, (found[1] / fitted[1]) ** 2
    return (spread + shift + (1 + shift) / spread) / 2 - 1


def index_by_chance(degrees: int, num_fitted: float, num_found: float) -> float:
    """Give what the index of two samples stays below in 95 of 100 cases when nothing has moved.

    The index is then about (1/n + 1/m) · χ² with ``degrees`` degrees of freedom, the bands less one. That holds for
    bands that were fixed beforehand; bands that follow the fitted counts bring up to a few times as much. The quantile
    of χ² is that of Wilson and Hilferty.

    Returns
    -------
    float
        NaN where there is no occurrence; 0 for a single band.

    References
    ----------
    Yurdakul, B. and Naranjo, J. "Statistical properties of the population stability index." Journal of Risk Model
    Validation 14(4), 2020.
    Wilson, E. B. and Hilferty, M. M. "The distribution of chi-square." PNAS 17, 1931.

    Examples
    --------
    >>> round(index_by_chance(9, 1000, 1000), 4)
    0.0338
    """
    if not num_fitted or not num_found:
        return float("nan")
    if degrees < 1:
        return 0.0
    spread = 2 / (9 * degrees)
    quantile = degrees * (1 - spread + _NORMAL_95 * spread**0.5) ** 3
    return float(quantile * (1 / num_fitted + 1 / num_found))
