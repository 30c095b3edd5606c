from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.kernels.gather import bucket_bits, shuffle, shuffle_reference


def keys_of(seed: int) -> npt.NDArray[np.uint64]:
    return np.random.SeedSequence(seed).generate_state(2, np.uint64)


def order_of(size: int, seed: int, bits: int) -> npt.NDArray[np.int32]:
    order = np.empty(size, np.int32)
    shuffle(keys_of(seed), bits, order)
    return order


@given(size=st.integers(0, 300), seed=st.integers(0, 2**64), bits=st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_the_kernel_is_its_plain_twin(size: int, seed: int, bits: int) -> None:
    order, expected = np.empty(size, np.int64), np.empty(size, np.int64)
    shuffle(keys_of(seed), bits, order)
    shuffle_reference(keys_of(seed), bits, expected)
    assert order.tolist() == expected.tolist()


@pytest.mark.parametrize("size", [0, 1, 2, 8191, 8192, 8193, 100_000])
def test_every_row_comes_exactly_once(size: int) -> None:
    assert (np.sort(order_of(size, 7, bucket_bits(size))) == np.arange(size)).all()


def test_narrow_and_wide_orders_agree() -> None:
    wide = np.empty(1000, np.int64)
    shuffle(keys_of(3), 2, wide)
    assert order_of(1000, 3, 2).tolist() == wide.tolist()


@pytest.mark.parametrize("bits", [0, 2])
def test_all_orders_of_five_rows_are_equally_likely(bits: int) -> None:
    each = 100
    counts = dict.fromkeys(itertools.permutations(range(5)), 0)
    for seed in range(each * math.factorial(5)):
        counts[tuple(order_of(5, seed, bits).tolist())] += 1
    chi_squared = sum((count - each) ** 2 / each for count in counts.values())
    # 119 degrees of freedom: the mean is 119, and 200 is 5 standard deviations above it.
    assert chi_squared < 200


def test_every_row_is_equally_likely_at_every_place() -> None:
    size, draws = 40, 2000
    counts = np.zeros((size, size))
    for seed in range(draws):
        counts[np.arange(size), order_of(size, seed, 3)] += 1
    expected = draws / size
    degrees = (size - 1) ** 2
    chi_squared = float(((counts - expected) ** 2 / expected).sum())
    assert abs(chi_squared - degrees) < 5 * math.sqrt(2 * degrees)
