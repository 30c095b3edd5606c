"""Counters of byte strings count what a Python dict does."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.kernels import bytes_counter
from recsys_emb.kernels.bytes_counter import BytesCounter, count_reference
from recsys_emb.kernels.bytes_search import BytesColumn
from recsys_emb.kernels.memory import frozen

# Every length from 0 to beyond two words, with neighbours that differ in one byte or in trailing zeros only.
strings = st.binary(max_size=40) | st.sampled_from([b"a" * size for size in range(36)] + [b"\0" * 9, b"\0" * 10])
rows = st.lists(st.none() | strings, max_size=50)


def column(keys: list[bytes | None], bit_offset: int = 0) -> BytesColumn:
    laid_out = BytesColumn.of(b"" if key is None else key for key in keys)
    bits = np.array([True] * bit_offset + [key is not None for key in keys], bool)
    validity = np.packbits(bits, bitorder="little") if None in keys else np.empty(0, np.uint8)
    return laid_out._replace(validity=frozen(validity), bit_offset=bit_offset)


def counted(counter: BytesCounter) -> dict[bytes, int]:
    """Keys in order of arrival, and their counts."""
    laid_out, counts = counter.totals()
    ends, data = laid_out.offsets.tolist(), laid_out.data.tobytes()
    assert len(counts) == len(counter)
    return dict(zip([data[start:end] for start, end in itertools.pairwise(ends)], counts.tolist(), strict=True))


@settings(max_examples=80, deadline=None)
@given(batches=st.lists(rows, max_size=3), bit_offset=st.integers(0, 9))
def test_counting_agrees_with_the_twin(batches: list[list[bytes | None]], bit_offset: int) -> None:
    counter = BytesCounter()
    for batch in batches:
        counter.add(column(batch, bit_offset))
    flat = [key for batch in batches for key in batch]
    expected = count_reference(flat, [1] * len(flat))
    assert counted(counter) == expected
    assert list(counted(counter)) == list(expected)


@pytest.mark.parametrize("distinct", [1, 255, 256, 257, 511, 512, 513, 5000, 70_000])
def test_a_counter_grows_through_every_size(distinct: int) -> None:
    keys: list[bytes | None] = [f"key number {number}".encode() for number in range(distinct)]
    counter = BytesCounter()
    for _ in range(2):
        counter.add(column(keys))
    assert counted(counter) == dict.fromkeys(keys, 2)


def test_a_key_longer_than_the_whole_buffer_is_kept() -> None:
    counter = BytesCounter()
    long = b"x" * 1_000_000
    counter.add(column([b"a", long, b"a"]))
    assert counted(counter) == {b"a": 2, long: 1}


def test_a_slice_of_a_column_is_counted_alone() -> None:
    whole = column([b"a", b"bb", b"ccc", b"bb"])
    counter = BytesCounter()
    counter.add(whole._replace(offsets=frozen(whole.offsets[1:])))
    assert counted(counter) == {b"bb": 2, b"ccc": 1}


def test_weights_count_a_row_as_often_as_they_say() -> None:
    counter = BytesCounter()
    counter.add(column([b"b", None, b"a", b"b"]), np.array([10, 100, 1, 3]))
    assert counted(counter) == {b"b": 13, b"a": 1}


def test_more_than_the_table_can_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytes_counter, "_MOST_WORDS", 20_000)
    with pytest.raises(OverflowError) as caught:
        BytesCounter().add(column([f"{number:40}".encode() for number in range(5000)]))
    assert str(caught.value) == (
        "BytesCounter: expected distinct keys of less than 32 GiB, got more. Shorten the keys."
    )
