"""Counters of integers count what a Python dict does, in a table or in an array."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.kernels.integer_counter import IntegerCounter, count_reference
from recsys_emb.kernels.integer_table import IntegerColumn
from recsys_emb.kernels.memory import frozen

int64s = st.integers(-(2**63), 2**63 - 1)
edges = st.sampled_from([-(2**63), -(2**63) + 1, -1, 0, 1, 2047, 2048, 4096, 2**63 - 2, 2**63 - 1])
close = st.integers(-9, 3000)


def column(keys: list[int | None], bit_offset: int = 0) -> IntegerColumn:
    bits = np.array([True] * bit_offset + [key is not None for key in keys], bool)
    validity = np.packbits(bits, bitorder="little") if None in keys else np.empty(0, np.uint8)
    stored = np.array([0 if key is None else key for key in keys], np.int64)
    return IntegerColumn(frozen(stored), frozen(validity), bit_offset)


def counted(counter: IntegerCounter) -> dict[int, int]:
    keys, counts = counter.totals()
    assert len(keys.keys) == len(counts) == len(counter)
    return dict(zip(keys.keys.tolist(), counts.tolist(), strict=True))


@pytest.mark.parametrize("keys", [int64s, edges, close, close | int64s], ids=["anywhere", "edges", "close", "both"])
def test_counting_agrees_with_the_twin(keys: st.SearchStrategy[int]) -> None:
    @settings(max_examples=50, deadline=None)
    @given(batches=st.lists(st.lists(st.none() | keys, max_size=60), max_size=4), bit_offset=st.integers(0, 9))
    def check(batches: list[list[int | None]], bit_offset: int) -> None:
        counter = IntegerCounter()
        for batch in batches:
            counter.add(column(batch, bit_offset))
        flat = [key for batch in batches for key in batch]
        assert counted(counter) == count_reference(flat, [1] * len(flat))

    check()


@pytest.mark.parametrize("step", [1, 3, 5, 2**40], ids=["dense", "close", "not so close", "sparse"])
@pytest.mark.parametrize("distinct", [1, 255, 256, 257, 511, 512, 513, 5000, 70_000])
def test_a_counter_grows_through_every_size(distinct: int, step: int) -> None:
    keys = np.random.default_rng(distinct).permutation(distinct) * step - 2**50
    counter = IntegerCounter()
    for _ in range(2):
        counter.add(IntegerColumn(frozen(keys)))
    assert counted(counter) == dict.fromkeys(keys.tolist(), 2)


def test_keys_outside_the_array_go_into_the_table_and_may_join_it_later() -> None:
    counter, expected = IntegerCounter(), {}
    batches = [np.arange(1000), np.arange(-5, 2500), np.array([2**62, -(2**62)]), np.arange(3000) * 7, np.arange(9000)]
    for batch in batches:
        counter.add(IntegerColumn(frozen(batch)))
        for key in batch.tolist():
            expected[key] = expected.get(key, 0) + 1
        assert counted(counter) == expected


def test_memory_grows_with_the_distinct_keys_and_not_with_their_range() -> None:
    counter = IntegerCounter()
    counter.add(IntegerColumn(frozen(np.arange(1000) * 10**12)))
    assert counter._slots.nbytes + counter._places.nbytes < 200_000


def test_weights_count_a_row_as_often_as_they_say() -> None:
    counter = IntegerCounter()
    counter.add(column([7, None, 5, 7]), np.array([10, 100, 1, 3]))
    counter.add(column([5, 2**50]), np.array([2, 4]))
    assert counted(counter) == {7: 13, 5: 3, 2**50: 4}


def test_nothing_is_counted_where_nothing_is() -> None:
    counter = IntegerCounter()
    counter.add(column([]))
    counter.add(column([None, None]))
    assert counted(counter) == {}
