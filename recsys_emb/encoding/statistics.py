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

# frexp gives exponents from -1073 (the smallest subnormal) to 1024, so value = mantissa * 2**(place - UNIT).
_LOWEST = -1073
_MANTISSA_BITS = 53
_UNIT = _MANTISSA_BITS - _LOWEST
# Squares are summed as products of 18-bit limbs: below 3 * 2**36 each, so this many stay exact in a float64.
_LIMB_BITS = 18
_CHUNK = 2**14


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
        Sum of the numbers, an integer in units of 2**-1126.
    squares
        Sum of their squares, an integer in units of 2**-2252.

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
        numbers = values[~np.isnan(values)]
        total, squares = self.total, self.squares
        for start in range(0, len(numbers), _CHUNK):
            more, more_squares = _exact_sums(numbers[start : start + _CHUNK])
            total, squares = total + more, squares + more_squares
        count, missing = self.count + len(numbers), self.missing + len(values) - len(numbers)
        return ExactMoments(count, missing, total, squares)

    def statistics(self) -> NumericStatistics:
        """Round the exact figures to floats."""
        if not self.count:
            return NumericStatistics(0, 0.0, 0.0, self.missing)
        mean = Fraction(self.total, self.count << _UNIT)
        spread = self.count * self.squares - self.total**2
        std = _square_root(Fraction(spread, self.count**2 << 2 * _UNIT))
        return NumericStatistics(self.count, float(mean), std, self.missing)


def _exact_sums(numbers: npt.NDArray[np.float64]) -> tuple[int, int]:
    """Sum of at most `_CHUNK` finite numbers and of their squares, in the units of `ExactMoments`."""
    fraction, exponent = np.frexp(numbers)
    mantissa = np.ldexp(fraction, _MANTISSA_BITS).astype(np.int64)
    place = exponent.astype(np.int64) - _LOWEST
    sign = np.where(mantissa < 0, -1.0, 1.0)
    low, middle, high = _limbs(np.abs(mantissa))
    total = _placed([sign * low, sign * middle, sign * high], place, step=1)
    products = [low * low, 2 * low * middle, 2 * low * high + middle * middle, 2 * middle * high, high * high]
    return total, _placed(products, place, step=2)


def _limbs(mantissa: npt.NDArray[np.int64]) -> list[npt.NDArray[np.float64]]:
    mask = (1 << _LIMB_BITS) - 1
    return [((mantissa >> shift * _LIMB_BITS) & mask).astype(np.float64) for shift in range(3)]


def _placed(limbs: list[npt.NDArray[np.float64]], place: npt.NDArray[np.int64], *, step: int) -> int:
    """Sum limb l of each number times 2**(18 l + step * place), grouped by place so that floats stay exact."""
    total = 0
    for order, limb in enumerate(limbs):
        sums = np.bincount(place, weights=limb)
        for at in np.flatnonzero(sums):
            total += int(sums[at]) << (order * _LIMB_BITS + step * int(at))
    return total


def _square_root(variance: Fraction) -> float:
    """Square root to the nearest float or its neighbour, also where the variance itself overflows a float."""
    scaled = variance.numerator * variance.denominator << 2 * 128
    return float(Fraction(math.isqrt(scaled), variance.denominator << 128))
