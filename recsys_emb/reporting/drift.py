"""How far what is found has moved from what was fitted: the population stability index."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Counts: TypeAlias = npt.NDArray[np.int64]
Shares: TypeAlias = npt.NDArray[np.float64]

BANDS = 10
LARGE = 0.25
"""From here on an index is held to be a shift (Siddiqi, 2006)."""
# Good's formula is used where so many times as many values as c were counted c times.
_ENOUGH = 5
# Of the kernel density: width, step of the grid, and how many steps the kernel reaches.
_WIDTH, _STEP, _REACH = 0.5, 0.125, 24
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


def expected_counts(counts: Counts) -> Shares:
    """Give what each value is expected to count in another sample of the fitted size.

    Values that were counted often were often lucky, and most values counted once are replaced by others in another
    sample; taken as they are, counts drift by themselves. Where N_c values were counted c times, these are expected to
    count (c + 1) · N_{c+1} together (Good, 1953). That is believed where N_c and N_{c+1} are at least 5 · c; elsewhere
    counts are drawn towards where others lie densely, by Tweedie's formula (Efron, 2011) on 2 · √c, whose sampling
    error is 1 for any c. A count that stands alone stays, and so do those of up to ten values, which are not banded by
    their counts.

    Parameters
    ----------
    counts
        int64 ``(V,)``, how often the fit saw each value, at least once.

    Returns
    -------
    numpy.ndarray
        float64 ``(V,)``.

    References
    ----------
    Good, I. J. "The population frequencies of species and the estimation of population parameters." Biometrika 40,
    1953.
    Efron, B. "Tweedie's formula and selection bias." Journal of the American Statistical Association 106, 2011.

    Examples
    --------
    >>> expected_counts(np.array([900, *[2] * 20, *[1] * 50]))[[0, -1]].round(3).tolist()
    [900.0, 0.8]
    """
    if len(counts) <= BANDS:
        return counts.astype(np.float64)
    distinct, places, times = np.unique(counts, return_inverse=True, return_counts=True)
    expected = _drawn_together(distinct, times)
    enough = times >= _ENOUGH * distinct
    followed = np.flatnonzero((np.diff(distinct) == 1) & enough[:-1] & enough[1:])
    expected[followed] = (distinct * times)[followed + 1] / times[followed]
    everyone: Shares = expected[places]
    return everyone


def _drawn_together(distinct: Counts, times: Counts) -> Shares:
    """Tweedie's formula: add the slope of the log density, here of a kernel density of width ½ on a fine grid."""
    roots = 2 * np.sqrt(distinct)
    cells = np.rint(roots / _STEP).astype(np.int64)
    density = np.bincount(cells, weights=times)
    away = np.arange(-_REACH, _REACH + 1) * _STEP
    kernel = np.exp(-((away / _WIDTH) ** 2) / 2)
    smooth, slope = (
        np.convolve(density, one)[_REACH : _REACH + len(density)][cells] for one in (kernel, -away / _WIDTH**2 * kernel)
    )
    moved: Shares = (roots + slope / smooth) ** 2 / 4
    return moved


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
    bands that were fixed beforehand; where the bands follow the fitted counts, it is up to about twice as much. The
    quantile of χ² is that of Wilson and Hilferty.

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
