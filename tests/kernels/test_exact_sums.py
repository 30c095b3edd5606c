"""Numbers are added up without rounding, as fractions are."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.kernels.exact_sums import LOWEST, POWERS, SUMS, add_up, totals, totals_reference

EXTREME = [
    5e-324,
    -5e-324,
    2.2250738585072014e-308,
    2.225073858507201e-308,
    1.7976931348623157e308,
    0.0,
    -0.0,
    1.0,
    -1.0,
]


def summed(*pieces: list[float]) -> tuple[int, Fraction, Fraction]:
    bins = np.zeros((POWERS, SUMS), np.int64)
    count = sum(add_up(np.array(piece, np.float64), bins) for piece in pieces)
    total, squares = totals(bins)
    return count, total * Fraction(2) ** LOWEST, squares * Fraction(4) ** LOWEST


@settings(max_examples=100, deadline=None)
@given(pieces=st.lists(st.lists(st.floats() | st.sampled_from(EXTREME), max_size=30), max_size=3))
def test_sums_agree_with_the_twin(pieces: list[list[float]]) -> None:
    finite = [number for piece in pieces for number in piece if math.isfinite(number)]
    assert summed(*pieces) == (len(finite), *totals_reference(finite))


@pytest.mark.parametrize("number", EXTREME)
def test_one_number_is_itself(number: float) -> None:
    assert summed([number]) == (1, Fraction(number), Fraction(number) ** 2)


def test_many_equal_numbers_do_not_overflow() -> None:
    number = float(np.nextafter(2.0, 0))  # 53 bits, all of them set
    count, total, squares = summed(*[[number] * 100_000] * 5)
    assert (count, total, squares) == (500_000, 500_000 * Fraction(number), 500_000 * Fraction(number) ** 2)
