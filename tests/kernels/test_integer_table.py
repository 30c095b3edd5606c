"""Tables of integers find what a Python dict does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.kernels import direct_table, integer_table
from recsys_emb.kernels.direct_table import DirectIndex
from recsys_emb.kernels.integer_table import IntegerColumn, IntegerIndex
from recsys_emb.kernels.memory import frozen

CODES = {"first": 5, "unknown": 2, "missing": 1}

int64s = st.integers(-(2**63), 2**63 - 1)
close = st.integers(-9, 40)


def column(keys: list[int | None], bit_offset: int = 0) -> IntegerColumn:
    bits = np.array([True] * bit_offset + [key is not None for key in keys], bool)
    validity = np.packbits(bits, bitorder="little") if None in keys else np.empty(0, np.uint8)
    stored = np.array([0 if key is None else key for key in keys], np.int64)
    return IntegerColumn(frozen(stored), frozen(validity), bit_offset)


def found_by(index: IntegerIndex | DirectIndex, keys: list[int | None], bit_offset: int = 0) -> list[int]:
    out = np.full(len(keys), -1)
    index.find(column(keys, bit_offset), out)
    return out.tolist()


@settings(max_examples=60, deadline=None)
@given(stored=st.lists(int64s, unique=True, max_size=60), extra=st.lists(st.none() | int64s, max_size=60))
def test_finding_agrees_with_the_twin(stored: list[int], extra: list[int | None]) -> None:
    keys = [*stored, *extra]
    index = IntegerIndex(column(stored), **CODES)
    assert index.repeated == 0
    expected = integer_table.find_reference(stored, keys, **CODES)
    assert found_by(index, keys) == expected
    assert [CODES["missing"] if key is None else index.find_one(key) for key in keys] == expected


@settings(max_examples=60, deadline=None)
@given(
    stored=st.lists(close, unique=True, min_size=1, max_size=40),
    extra=st.lists(st.none() | int64s | close, max_size=60),
    bit_offset=st.integers(0, 9),
)
def test_finding_by_address_agrees_with_the_twin(stored: list[int], extra: list[int | None], bit_offset: int) -> None:
    keys = [*stored, *extra]
    index = DirectIndex(column(stored), low=min(stored), high=max(stored), **CODES)
    assert index.repeated == 0
    expected = integer_table.find_reference(stored, keys, **CODES)
    assert found_by(index, keys, bit_offset) == expected
    assert [CODES["missing"] if key is None else index.find_one(key) for key in keys] == expected


def test_a_large_table_that_asks_ahead_finds_the_same() -> None:
    keys = np.random.default_rng(0).integers(-(2**62), 2**62, 100_000)
    index, probes = IntegerIndex(IntegerColumn(frozen(keys)), **CODES), np.concatenate([keys[::-7], [0, 1, 2]])
    out = np.empty(len(probes), np.int64)
    index.find(IntegerColumn(frozen(probes)), out)
    assert out[:-3].tolist() == (np.arange(100_000)[::-7] + 5).tolist()
    assert out[-3:].tolist() == [2, 2, 2]


def test_a_large_range_that_asks_ahead_finds_the_same() -> None:
    keys = np.random.default_rng(0).permutation(400_000) * 6
    index = DirectIndex(IntegerColumn(frozen(keys)), low=0, high=int(keys.max()), **CODES)
    probes = np.concatenate([keys[::-7], [1, -6, 2_400_000]])
    out = np.empty(len(probes), np.int64)
    index.find(IntegerColumn(frozen(probes)), out)
    assert out[:-3].tolist() == (np.arange(400_000)[::-7] + 5).tolist()
    assert out[-3:].tolist() == [2, 2, 2]


def test_key_zero_is_found_only_where_it_was_put() -> None:
    assert found_by(IntegerIndex(column([7]), **CODES), [0, 7]) == [2, 5]
    assert found_by(IntegerIndex(column([0]), **CODES), [0, 7]) == [5, 2]


def test_nothing_is_found_in_an_empty_table() -> None:
    assert found_by(IntegerIndex(column([]), **CODES), [0, None, -1]) == [2, 1, 2]
    assert found_by(IntegerIndex(column([]), **CODES), []) == []


def test_a_null_row_takes_no_place_but_keeps_its_number() -> None:
    assert found_by(IntegerIndex(column([9, None, 4]), **CODES), [9, 0, 4]) == [5, 2, 7]
    assert found_by(DirectIndex(column([9, None, 4]), low=4, high=9, **CODES), [9, 0, 4]) == [5, 2, 7]


def test_repeated_keys_are_counted() -> None:
    assert IntegerIndex(column([3, 4, 3, 3]), **CODES).repeated == 2
    assert DirectIndex(column([3, 4, 3, 3]), low=3, high=4, **CODES).repeated == 2


@pytest.mark.parametrize(
    ("low", "high", "keys", "suits"),
    [
        (0, 79, 10, True),
        (0, 255, 1, True),
        (0, 256, 1, False),
        (-(2**63), 2**63 - 1, 9, False),
        (0, 2**31, 2**31, False),
    ],
)
def test_an_array_suits_keys_that_lie_close_together(low: int, high: int, keys: int, suits: bool) -> None:
    assert direct_table.DirectIndex.suits(low, high, keys=keys, first=3) is suits


@pytest.mark.parametrize("rows", [0, 1, 255, 256, 257, 1000])
def test_blocks_of_any_size_are_found_whole(rows: int) -> None:
    stored = np.arange(300) * 2**40
    probes = np.arange(rows) % 400 * 2**40
    out = np.empty(rows, np.int64)
    IntegerIndex(IntegerColumn(frozen(stored)), **CODES).find(IntegerColumn(frozen(probes)), out)
    assert out.tolist() == [5 + row % 400 if row % 400 < 300 else 2 for row in range(rows)]


@pytest.mark.parametrize(("keys", "size"), [(0, 4), (1, 4), (2, 8), (512, 2048), (2**20, 2**22), (2**20 + 1, 2**22)])
def test_tables_leave_room(keys: int, size: int) -> None:
    assert integer_table.table_size(keys) == size


@pytest.mark.parametrize(("slots", "keys"), [(2048, 512), (2**22, 2**20), (2**23, 2**22)])
def test_a_growing_table_is_a_quarter_full_and_a_large_one_half(slots: int, keys: int) -> None:
    assert integer_table.capacity(slots) == keys
