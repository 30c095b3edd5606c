from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.encoding.statistics import ExactMoments, NumericStatistics

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def moments_of(*pieces: list[float]) -> ExactMoments:
    moments = ExactMoments()
    for piece in pieces:
        moments = moments.adding(np.array(piece, np.float64))
    return moments


def test_mean_and_population_standard_deviation_of_known_numbers() -> None:
    assert moments_of([2, 4, 4, 4, 5, 5, 7, 9]).statistics() == NumericStatistics(8, 5.0, 2.0, 0)


def test_nan_is_missing_and_no_number() -> None:
    assert moments_of([math.nan, 3.0, math.nan]).statistics() == NumericStatistics(1, 3.0, 0.0, 2)


def test_nothing_has_mean_and_deviation_zero() -> None:
    assert moments_of([]).statistics() == NumericStatistics(0, 0.0, 0.0, 0)
    assert moments_of([math.nan]).statistics() == NumericStatistics(0, 0.0, 0.0, 1)


def test_a_constant_deviates_by_exactly_nothing_and_is_divided_by_one() -> None:
    statistics = moments_of([0.1] * 1000).statistics()
    assert (statistics.mean, statistics.std, statistics.scale) == (0.1, 0.0, 1.0)


@given(st.lists(FINITE, min_size=1, max_size=40))
@settings(max_examples=100, deadline=None)
def test_the_mean_is_the_exact_mean_rounded_once(numbers: list[float]) -> None:
    exact = sum(map(Fraction, numbers)) / len(numbers)
    assert moments_of(numbers).statistics().mean == float(exact)


@given(st.lists(FINITE, max_size=60), st.randoms(use_true_random=False), st.integers(1, 7))
@settings(max_examples=100, deadline=None)
def test_order_and_batching_change_no_bit(numbers: list[float], random: object, pieces: int) -> None:
    shuffled = list(numbers)
    random.shuffle(shuffled)
    assert moments_of(*(shuffled[start::pieces] for start in range(pieces))) == moments_of(numbers)


@pytest.mark.parametrize(
    "numbers",
    [
        [5e-324, 5e-324, -5e-324],
        [1.7e308, 1.7e308, 1.7e308],
        [1e16, 1.0, -1e16],
        [2.0**53 + 2, 2.0**53, 1.0],
        [0.0, -0.0, 2.2250738585072014e-308],
    ],
)
def test_extreme_numbers_agree_with_fractions(numbers: list[float]) -> None:
    mean = sum(map(Fraction, numbers)) / len(numbers)
    variance = sum((Fraction(number) - mean) ** 2 for number in numbers) / len(numbers)
    statistics = moments_of(numbers).statistics()
    assert statistics.mean == float(mean)
    error = abs(Fraction(statistics.std) ** 2 - variance)
    assert error <= variance / 2**51 or statistics.std < 2.3e-308


def test_a_column_longer_than_a_chunk_equals_numpy_to_the_last_digits() -> None:
    numbers = np.random.default_rng(0).normal(3, 5, 50_000)
    statistics = ExactMoments().adding(numbers).statistics()
    assert statistics.mean == pytest.approx(math.fsum(numbers) / len(numbers), rel=1e-15)
    assert statistics.std == pytest.approx(numbers.std(), rel=1e-12)
