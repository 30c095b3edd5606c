"""Means and standard deviations that do not depend on the order of the rows.

Floating-point sums depend on the order of their terms, so the usual running mean gives other bits for other
batches. Here the sums of values and of squares are exact integers: each float64 is a 53-bit integer times a power
of two, and integers add up in any order to the same total. Only the final figures are rounded, once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from recsys_emb import kernels

# No sum of the kernel overflows before so many numbers.
_CHUNK = 2**30


@dataclass(frozen=True)
class NumericStatistics:
    """What a fit knows about a `Numeric` column.

    Parameters
    ----------
    count
        Rows that hold a number.
    mean, std
        Mean and population standard deviation, rounded once from exact sums; 0 and 0 without any number.
    missing
        Rows that hold none.
    """

    count: int
    mean: float
    std: float
    missing: int

    @property
    def scale(self) -> float:
        """What standardising divides by: ``std``, or 1 for a constant column."""
        return self.std or 1.0


@dataclass(frozen=True)
class ExactMoments:
    """Exact count, sum and sum of squares of float64 numbers.

    Parameters
    ----------
    count, missing
        How many numbers and how many NaN were added.
    total
        Sum of the numbers, an integer in units of 2**-1075.
    squares
        Sum of their squares, an integer in units of 2**-2150.

    Examples
    --------
    Neighbours of 1e16 are 2 apart, so a float sum of these three is 0.0 in this order and 1.0 in another:

    >>> ExactMoments().adding(np.array([1e16, 1.0, -1e16])).statistics().mean == 1 / 3
    True
    >>> ExactMoments().adding(np.array([2.0, 4.0])).adding(np.array([np.nan, 9.0])).statistics()
    NumericStatistics(count=3, mean=5.0, std=2.943920288775949, missing=1)
    """

    count: int = 0
    missing: int = 0
    total: int = 0
    squares: int = 0

    def adding(self, values: npt.NDArray[np.float64]) -> ExactMoments:
        """Moments of the numbers so far and of ``values``, float64 ``(N,)``, finite or NaN."""
        exact_sums = kernels.exact_sums
        count, total, squares = self.count, self.total, self.squares
        for start in range(0, len(values), _CHUNK):
            bins = np.zeros((exact_sums.POWERS, exact_sums.SUMS), np.int64)
            count += exact_sums.add_up(np.ascontiguousarray(values[start : start + _CHUNK]), bins)
            more, more_squares = exact_sums.totals(bins)
            total, squares = total + more, squares + more_squares
        missing = self.missing + len(values) - (count - self.count)
        return ExactMoments(count, missing, total, squares)

    def joined(self, other: ExactMoments) -> ExactMoments:
        """Moments of the numbers of both."""
        return ExactMoments(
            self.count + other.count,
            self.missing + other.missing,
            self.total + other.total,
            self.squares + other.squares,
        )

    def statistics(self) -> NumericStatistics:
        """Round the exact figures to floats."""
        if not self.count:
            return NumericStatistics(0, 0.0, 0.0, self.missing)
        unit = -kernels.exact_sums.LOWEST
        mean = Fraction(self.total, self.count << unit)
        spread = self.count * self.squares - self.total**2
        std = _square_root(Fraction(spread, self.count**2 << 2 * unit))
        return NumericStatistics(self.count, float(mean), std, self.missing)


def _square_root(variance: Fraction) -> float:
    """Square root to the nearest float or its neighbour, also where the variance itself overflows a float."""
    scaled = variance.numerator * variance.denominator << 2 * 128
    return float(Fraction(math.isqrt(scaled), variance.denominator << 128))
