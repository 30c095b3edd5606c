"""The scan keeps exactly what sorting keeps, tile after tile."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.kernels import topk

Heaps = tuple[np.ndarray, np.ndarray]


def empty(rows: int, capacity: int, dtype: type = np.float32) -> Heaps:
    return np.full((rows, capacity), -np.inf, dtype), np.full((rows, capacity), -1)


def kept(heaps: Heaps) -> list[list[tuple[float, int]]]:
    scores, columns = heaps
    return [sorted(zip(*row, strict=True)) for row in zip(scores.tolist(), columns.tolist(), strict=True)]


def no_columns(rows: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(0, np.int64), np.zeros(rows + 1, np.int64)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(0, 3),
    width=st.integers(0, 300),
    capacity=st.integers(0, 9),
    distinct=st.integers(1, 6),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_the_scan_keeps_what_its_twin_keeps(
    *, seed: int, rows: int, width: int, capacity: int, distinct: int, dtype: type
) -> None:
    rng = np.random.default_rng(seed)
    lists = [np.unique(rng.integers(0, 3 * width + 1, rng.integers(0, 40))) for _ in range(rows)]
    excluded = np.concatenate([*lists, np.zeros(0, np.int64)])
    offsets = np.cumsum([0, *(len(one) for one in lists)])
    fast, slow = empty(rows, capacity, dtype), empty(rows, capacity, dtype)
    for first in range(0, 3 * width, max(width, 1)):
        # Few distinct values make ties; -inf stands for a score that is not to be had.
        tile = rng.integers(0, distinct, (rows, width)).astype(dtype)
        tile[rng.random((rows, width)) < 0.1] = -np.inf
        topk.scan(tile, first, excluded, offsets, *fast)
        topk.scan_reference(tile, first, excluded, offsets, *slow)
    assert kept(fast) == kept(slow)


def test_of_equal_scores_the_lower_columns_are_kept() -> None:
    best = empty(1, 3)
    topk.scan(np.full((1, 200), 7, np.float32), 10, *no_columns(1), *best)
    assert kept(best) == [[(7.0, 10), (7.0, 11), (7.0, 12)]]


def test_the_worst_kept_is_at_the_root() -> None:
    best = empty(1, 4)
    topk.scan(np.array([[5, 9, 1, 7, 3, 8]], np.float32), 0, *no_columns(1), *best)
    assert (best[0][0, 0], best[1][0, 0]) == (5.0, 0)


def test_excluded_columns_make_room_for_the_next() -> None:
    best = empty(2, 1)
    tile = np.array([[1, 3, 2], [1, 3, 2]], np.float32)
    topk.scan(tile, 4, np.array([5]), np.array([0, 1, 1]), *best)
    assert kept(best) == [[(2.0, 6)], [(3.0, 5)]]


def test_with_everything_excluded_nothing_is_kept() -> None:
    best = empty(1, 2)
    topk.scan(np.ones((1, 3), np.float32), 0, np.arange(3), np.array([0, 3]), *best)
    assert kept(best) == [[(-np.inf, -1), (-np.inf, -1)]]


@pytest.mark.parametrize("score", [np.nan, -np.inf])
def test_scores_that_are_none_are_never_kept(score: float) -> None:
    best = empty(1, 1)
    topk.scan(np.full((1, 130), score, np.float32), 0, *no_columns(1), *best)
    assert kept(best) == [[(-np.inf, -1)]]


def test_a_group_is_searched_to_its_end() -> None:
    width = 2 * topk.GROUP + 1
    for place in (0, topk.GROUP - 1, topk.GROUP, width - 1):
        tile = np.zeros((1, width), np.float32)
        tile[0, place] = 1
        best = empty(1, 1)
        topk.scan(tile, 0, *no_columns(1), *best)
        assert kept(best) == [[(1.0, place)]]


# --- settling ------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(0, 3),
    width=st.integers(0, 9),
    count=st.integers(0, 12),
    tied=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_settling_keeps_what_its_twin_keeps_to_the_bit(
    *, seed: int, rows: int, width: int, count: int, tied: bool, dtype: type
) -> None:
    rng = np.random.default_rng(seed)
    users, vectors, biases = rng.normal(size=(rows, width)), rng.normal(size=(20, width)), rng.normal(size=20)
    if tied:
        users, vectors, biases = users.round(), vectors.round(), biases.round()
    columns = np.array([rng.permutation(20)[:count] for _ in range(rows)], np.int64).reshape(rows, count)
    columns[rng.random((rows, count)) < 0.2] = -1
    capacity = int(rng.integers(0, count + 1))
    fast, slow = empty(rows, capacity, np.float64), empty(rows, capacity, np.float64)
    topk.settle(users, vectors.astype(dtype), biases, columns, *fast)
    topk.settle_reference(users, vectors.astype(dtype), biases, columns, *slow)
    np.testing.assert_array_equal(fast[0], slow[0])
    np.testing.assert_array_equal(fast[1], slow[1])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=4), st.integers(0, 2**32 - 1))
def test_lists_of_columns_ascend_like_their_twins(lists: list[list[int]], seed: int) -> None:
    columns = np.random.default_rng(seed).permutation(np.array([-1, -1, 0, 1, 2, 3, 4, 5, 6, 7]))
    items = np.array([item for one in lists for item in one], np.int64)
    offsets = np.cumsum([0, *map(len, lists)])
    fast, slow = np.empty_like(items), np.empty_like(items)
    topk.lists_of_columns(items, offsets, columns, fast)
    topk.lists_of_columns_reference(items, offsets, columns, slow)
    assert fast.tolist() == slow.tolist()
