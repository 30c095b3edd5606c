"""Tables of byte strings find what a Python dict does."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.kernels import bytes_table
from recsys_emb.kernels.bytes_search import BytesColumn
from recsys_emb.kernels.bytes_table import BytesIndex
from recsys_emb.kernels.memory import frozen

CODES = {"first": 5, "unknown": 2, "missing": 1}

# Every length from 0 to beyond two words, with neighbours that differ in one byte or in trailing zeros only.
strings = st.binary(max_size=40) | st.sampled_from([b"a" * size for size in range(36)] + [b"\0" * 9, b"\0" * 10])
rows = st.lists(st.none() | strings, max_size=50)


def column(keys: list[bytes | None], bit_offset: int = 0) -> BytesColumn:
    laid_out = BytesColumn.of(b"" if key is None else key for key in keys)
    bits = np.array([True] * bit_offset + [key is not None for key in keys], bool)
    validity = np.packbits(bits, bitorder="little") if None in keys else np.empty(0, np.uint8)
    return laid_out._replace(validity=frozen(validity), bit_offset=bit_offset)


def found_by(index: BytesIndex, keys: list[bytes | None], bit_offset: int = 0) -> list[int]:
    out = np.full(len(keys), -1)
    index.find(column(keys, bit_offset), out)
    return out.tolist()


@settings(max_examples=80, deadline=None)
@given(stored=st.lists(strings, unique=True, max_size=50), extra=rows, bit_offset=st.integers(0, 9))
def test_finding_agrees_with_the_twin(stored: list[bytes], extra: list[bytes | None], bit_offset: int) -> None:
    keys = [*stored, *extra]
    index = BytesIndex(column(stored), **CODES)
    assert index.repeated == 0
    expected = bytes_table.find_reference(stored, keys, **CODES)
    assert found_by(index, keys, bit_offset) == expected
    assert [CODES["missing"] if key is None else index.find_one(key) for key in keys] == expected


def test_a_large_table_that_asks_ahead_finds_the_same() -> None:
    keys = [f"{number * 7919 % 100_003:x}".encode() for number in range(100_000)]
    index = BytesIndex(column(keys), **CODES)
    found = found_by(index, [*keys[::-3], b"", None, b"unseen"])
    assert found == [*(np.arange(100_000)[::-3] + 5).tolist(), 2, 1, 2]


def test_nothing_is_found_in_an_empty_table() -> None:
    assert found_by(BytesIndex(column([]), **CODES), [b"", None, b"a"]) == [2, 1, 2]
    assert found_by(BytesIndex(column([]), **CODES), []) == []


def test_a_null_row_takes_no_place_but_keeps_its_number() -> None:
    assert found_by(BytesIndex(column([b"a", None, b"c"]), **CODES), [b"a", b"", b"c"]) == [5, 2, 7]


def test_repeated_keys_are_counted() -> None:
    assert BytesIndex(column([b"a", b"b", b"a", b"a"]), **CODES).repeated == 2
