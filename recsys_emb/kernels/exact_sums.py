"""Sums of numbers and of their squares without any rounding.

A float64 is an integer below 2^53 times a power of two. Numbers of one power share a bin of integer sums, and a bin is
one cache line: the integers in two parts, and the three products of their halves that make a square in two parts each.
No sum overflows before 2^31 numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from recsys_emb.kernels.jit import kernel
from recsys_emb.kernels.memory import Integers

Floats: TypeAlias = npt.NDArray[np.float64]

POWERS = 2047  # of two, that finite numbers have
SUMS = 8  # of a bin
LOWEST = -1075  # bin b holds integers times 2^(b + LOWEST)
_FRACTION_BITS, _INFINITE = 52, 2047
_HALF, _LOW_PART, _WORD = 27, 26, 32


@kernel
def add_up(numbers: Floats, bins: Integers) -> int:
    """Add finite numbers to ``bins``, int64 ``(POWERS, SUMS)``, and leave others out; return how many were added."""
    bits, added = numbers.view(np.int64), 0
    for row in range(len(bits)):
        word = bits[row]
        power = (word >> _FRACTION_BITS) & _INFINITE
        if power == _INFINITE:
            continue
        whole = word & ((1 << _FRACTION_BITS) - 1)
        if power == 0:
            power = 1  # numbers so small that they lack the leading bit
        else:
            whole |= 1 << _FRACTION_BITS
        high, low = whole >> _HALF, whole & ((1 << _HALF) - 1)
        signed = -whole if word < 0 else whole
        bins[power, 0] += signed >> _LOW_PART
        bins[power, 1] += signed & ((1 << _LOW_PART) - 1)
        first, second, third = high * high, high * low, low * low
        bins[power, 2] += first >> _WORD
        bins[power, 3] += first & ((1 << _WORD) - 1)
        bins[power, 4] += second >> _WORD
        bins[power, 5] += second & ((1 << _WORD) - 1)
        bins[power, 6] += third >> _WORD
        bins[power, 7] += third & ((1 << _WORD) - 1)
        added += 1
    return added


def totals(bins: Integers) -> tuple[int, int]:
    """Sum of the numbers in units of 2^`LOWEST`, and of their squares in units of 2^(2 `LOWEST`)."""
    total = squares = 0
    for power in np.flatnonzero(bins.any(axis=1)).tolist():
        one = [int(part) for part in bins[power]]
        first, second, third = (one[place] * 2**_WORD + one[place + 1] for place in (2, 4, 6))
        total += (one[0] * 2**_LOW_PART + one[1]) << power
        squares += ((first << 2 * _HALF) + (second << (_HALF + 1)) + third) << 2 * power
    return total, squares


def totals_reference(numbers: Iterable[float]) -> tuple[Fraction, Fraction]:
    """Add up the plain way: the sum of the numbers and of their squares themselves."""
    exact = [Fraction(number) for number in numbers]
    return sum(exact, Fraction(0)), sum((number * number for number in exact), Fraction(0))
