"""Drift: known answers, invariants, and silence where nothing has moved."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.reporting.drift import (
    BANDS,
    expected_counts,
    frequency_bands,
    index_by_chance,
    normal_index,
    stability_index,
    unseen_share,
)

COUNTS = st.lists(st.integers(1, 60), min_size=1, max_size=80).map(lambda counts: np.array(counts, np.int64))


def test_the_index_is_the_sum_over_bands_of_the_change_times_its_logarithm() -> None:
    fitted, found = np.array([899.5, 99.5]), np.array([499.5, 499.5])
    by_hand = (0.5 - 0.9) * math.log(0.5 / 0.9) + (0.5 - 0.1) * math.log(0.5 / 0.1)
    assert stability_index(fitted, found) == pytest.approx(by_hand, abs=1e-12)


def test_an_empty_band_leaves_the_index_finite() -> None:
    assert 1 < stability_index(np.array([0, 100]), np.array([100, 0])) < 20


@pytest.mark.parametrize(("fitted", "found"), [([0, 0], [1, 2]), ([1, 2], [0, 0]), ([], [])])
def test_without_occurrences_there_is_no_index(fitted: list[int], found: list[int]) -> None:
    assert math.isnan(stability_index(np.array(fitted, np.int64), np.array(found, np.int64)))


@settings(max_examples=60, deadline=None)
@given(COUNTS, st.integers(2, 50))
def test_the_index_is_zero_for_equal_shares_positive_otherwise_and_the_same_both_ways(
    counts: np.ndarray, times: int
) -> None:
    others = counts[::-1]
    assert stability_index(counts, counts) == 0
    assert stability_index(counts, others) >= 0
    assert stability_index(counts, others) == pytest.approx(stability_index(others, counts))
    assert stability_index(1000 * counts, times * 1000 * counts) < 1e-4


@settings(max_examples=60, deadline=None)
@given(COUNTS)
def test_bands_are_few_and_hold_the_frequent_values_first(counts: np.ndarray) -> None:
    bands = frequency_bands(counts)
    assert set(bands) == set(range(int(bands.max()) + 1))
    assert len(set(bands)) <= BANDS
    order = np.argsort(-counts, kind="stable")
    if len(counts) > BANDS:
        assert (np.diff(bands[order]) >= 0).all()
        assert all(len(set(bands[counts == count])) == 1 for count in counts)


def test_bands_of_many_equal_frequencies_share_the_occurrences_equally() -> None:
    counts = np.repeat(np.arange(1, 101), 100)
    shares = np.bincount(frequency_bands(counts), weights=counts) / counts.sum()
    assert len(shares) == BANDS
    assert abs(shares - 0.1).max() < 0.02


def test_there_are_no_bands_of_nothing() -> None:
    assert frequency_bands(np.empty(0, np.int64)).tolist() == []
    assert expected_counts(np.empty(0, np.int64)).tolist() == []


def test_values_counted_once_are_expected_as_often_as_values_counted_twice_occurred() -> None:
    counts = np.array([1] * 60 + [2] * 12 + [3] * 17 + [400] * 3)
    expected = expected_counts(counts)
    assert expected[counts == 1].sum() == pytest.approx(2 * 12)
    assert expected[counts == 2].sum() == pytest.approx(3 * 17)
    assert expected[counts == 400] == pytest.approx([400] * 3)


def test_counts_are_drawn_towards_others_by_the_slope_of_their_log_density() -> None:
    counts = np.array([900, 961, *(10**power for power in range(4, 13))])
    roots = 2 * np.sqrt(counts)
    weight = math.exp(-((roots[1] - roots[0]) ** 2) / 2 / 0.25)
    slope = weight * (roots[1] - roots[0]) / 0.25 / (1 + weight)
    assert expected_counts(counts)[0] == pytest.approx((roots[0] + slope) ** 2 / 4, rel=1e-3)
    assert expected_counts(counts)[2:] == pytest.approx(counts[2:], rel=1e-6)


def test_up_to_ten_values_keep_their_counts() -> None:
    assert expected_counts(np.array([3, *[2] * 9])).tolist() == [3, *[2] * 9]


def test_equally_likely_values_are_expected_to_count_about_the_same() -> None:
    counts = np.random.default_rng(0).multinomial(100_000, np.full(100, 0.01))
    expected = expected_counts(counts)
    assert expected.std() < 0.4 * counts.std()
    assert expected.mean() == pytest.approx(1000, rel=0.01)


def test_the_share_of_unseen_values_is_that_of_values_seen_once() -> None:
    assert unseen_share(np.array([1, 1, 3])) == 0.4
    assert math.isnan(unseen_share(np.empty(0, np.int64)))


@pytest.mark.parametrize(("num_values", "power"), [(20, 1.0), (100, 0.0), (1000, 0.5), (10_000, 1.0), (100_000, 1.0)])
def test_two_samples_of_one_distribution_do_not_drift(num_values: int, power: float) -> None:
    generator = np.random.default_rng(0)
    weights = np.arange(1.0, num_values + 1) ** -power
    chances = weights / weights.sum()
    fitted, found = generator.multinomial(100_000, chances), generator.multinomial(20_000, chances)
    seen = fitted > 0
    bands = frequency_bands(fitted[seen])
    before = np.bincount(bands, weights=expected_counts(fitted[seen]))
    now = np.bincount(bands, weights=found[seen])
    assert stability_index(before, now) < 2 * index_by_chance(len(before) - 1, before.sum(), now.sum()) < 0.005
    assert 1 - found[seen].sum() / found.sum() == pytest.approx(unseen_share(fitted[seen]), abs=0.005)


def test_fixed_bands_stay_below_chance_in_95_of_100_samples() -> None:
    generator = np.random.default_rng(0)
    chances = np.arange(1.0, 11) / 55
    pairs = [(generator.multinomial(3000, chances), generator.multinomial(1000, chances)) for _ in range(2000)]
    below = np.mean([stability_index(*pair) < index_by_chance(9, 3000, 1000) for pair in pairs])
    assert below == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(("degrees", "quantile"), [(1, 3.841), (2, 5.991), (9, 16.919), (30, 43.773)])
def test_the_quantile_of_chi_squared_is_good_to_two_per_cent(degrees: int, quantile: float) -> None:
    assert index_by_chance(degrees, 2, 2) == pytest.approx(quantile, rel=0.03)


def test_one_band_cannot_move_and_nothing_tells_nothing() -> None:
    assert index_by_chance(0, 5, 5) == 0
    assert math.isnan(index_by_chance(3, 0, 5))


def test_normal_distributions_differ_by_their_divergence_both_ways() -> None:
    mean, std = 2.0, 3.0
    forth = math.log(std) + (1 + mean**2) / (2 * std**2) - 0.5
    back = -math.log(std) + (std**2 + mean**2) / 2 - 0.5
    assert normal_index((0.0, 1.0), (mean, std)) == pytest.approx(forth + back)
    assert normal_index((mean, std), (0.0, 1.0)) == pytest.approx(forth + back)


def test_a_constant_column_has_no_index() -> None:
    assert math.isnan(normal_index((1.0, 0.0), (1.0, 2.0)))
    assert math.isnan(normal_index((1.0, 2.0), (1.0, 0.0)))
