from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.loading.orders import InOrder, Shuffled, Windowed


def visited(order: Windowed, first: int, last: int) -> list[int]:
    return [row for start, end in order.windows for row in order.rows(start, end).tolist()]


def displacement(rows: list[int]) -> float:
    return float(np.abs(np.array(rows) - np.arange(len(rows))).mean())


def test_the_rows_own_order_counts_up() -> None:
    assert InOrder().rows(3, 6).tolist() == [3, 4, 5]


def test_a_shuffle_is_a_function_of_its_parts() -> None:
    orders = [Shuffled(50, parts).rows(0, 50).tolist() for parts in ([1, 2], [1, 2], [2, 1], [1, 2, 7])]
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) == 3
    assert all(sorted(order) == list(range(50)) for order in orders)


@settings(max_examples=80, deadline=None)
@given(
    blocks=st.lists(st.integers(0, 30), max_size=8),
    step=st.integers(1, 10),
    steps=st.integers(1, 5),
    ranks=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_windows_of_all_ranks_visit_every_row_exactly_once(
    blocks: list[int], step: int, steps: int, ranks: int, seed: int
) -> None:
    total = sum(blocks)
    rows = []
    for rank in range(ranks):
        first, last = total * rank // ranks, total * (rank + 1) // ranks
        order = Windowed(blocks, size=steps * step, first=first, last=last, step=step, parts=[seed, 0])
        assert all((start - first) % step == 0 and end - start <= steps * step for start, end in order.windows)
        assert [*itertools.chain(*order.windows)] == sorted(itertools.chain(*order.windows))
        rows += visited(order, first, last)
        assert all(order.window_of(place) == (start, end) for start, end in order.windows for place in (start, end - 1))
    assert sorted(rows) == list(range(total))


@settings(max_examples=40, deadline=None)
@given(blocks=st.lists(st.integers(0, 9), max_size=8), seed=st.integers(0, 99))
def test_the_sequence_is_the_blocks_one_after_another(blocks: list[int], seed: int) -> None:
    total = sum(blocks)
    order = Windowed(blocks, size=5, first=0, last=total, step=1, parts=[seed])
    begins = np.cumsum([0, *blocks]).tolist()
    expected = [row for block in order.blocks for row in range(begins[block], begins[block] + blocks[block])]
    assert order.sequence(0, total).tolist() == expected
    assert order.sequence(total // 3, total).tolist() == expected[total // 3 :]


def test_within_one_block_a_row_moves_by_a_third_of_a_window() -> None:
    moved = []
    for epoch in range(20):
        order = Windowed([20_000], size=1000, first=0, last=20_000, step=10, parts=[0, epoch])
        rows = visited(order, 0, 20_000)
        moved.append(displacement(rows))
        assert np.abs(np.array(rows) - np.arange(20_000)).max() < 1000
    assert abs(np.mean(moved) / (1000 / 3) - 1) < 0.05


def test_many_blocks_spread_rows_over_the_whole_epoch() -> None:
    moved = [
        displacement(visited(Windowed([100] * 200, size=1000, first=0, last=20_000, step=10, parts=[0, epoch]), 0, 0))
        for epoch in range(20)
    ]
    assert abs(np.mean(moved) / (20_000 / 3) - 1) < 0.05


def test_a_window_mixes_as_many_places_as_it_has_blocks() -> None:
    order = Windowed([100] * 200, size=1000, first=0, last=20_000, step=100, parts=[3])
    start, end = order.windows[5]
    batch = order.rows(start, start + 100) // 100
    assert end - start == 1000
    assert len(set(batch.tolist())) == 10
    assert np.ptp(batch) > 50


def test_borders_move_from_epoch_to_epoch() -> None:
    first = {
        Windowed([1000], size=100, first=0, last=1000, step=10, parts=[0, epoch]).windows[0] for epoch in range(30)
    }
    assert len(first) > 5
    assert max(end for _, end in first) <= 100


def test_rows_within_a_window_are_equally_likely_at_every_place() -> None:
    counts = np.zeros((8, 8))
    for epoch in range(4000):
        order = Windowed([8], size=8, first=0, last=8, step=8, parts=[0, epoch])
        counts[np.arange(8), order.rows(0, 8)] += 1
    chi_squared = float(((counts - 500) ** 2 / 500).sum())
    assert chi_squared < 49 + 5 * np.sqrt(2 * 49)  # 49 degrees of freedom, five deviations
