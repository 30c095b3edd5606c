"""The frequent values of a stream: exact while there is room, within a stated error beyond."""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import datetime, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.reporting.frequent import FrequentValues

PIECES = st.lists(st.lists(st.integers(0, 12), max_size=20), max_size=8)


def counted(pieces: list[list[int]], capacity: int) -> FrequentValues:
    values = FrequentValues("n", capacity=capacity)
    for piece in pieces:
        values.add(pa.array(piece, pa.int64()))
    return values


@settings(max_examples=60, deadline=None)
@given(PIECES)
def test_with_room_for_all_counts_are_exact(pieces: list[list[int]]) -> None:
    values, exact = counted(pieces, 13), Counter(value for piece in pieces for value in piece)
    assert values.top(13) == tuple(sorted(exact.items(), key=lambda pair: (-pair[1], pair[0])))
    assert (values.error, values.distinct) == (0, len(exact))


@settings(max_examples=60, deadline=None)
@given(PIECES, st.integers(1, 6))
def test_without_room_counts_are_too_low_by_no_more_than_the_error(pieces: list[list[int]], capacity: int) -> None:
    values, exact = counted(pieces, capacity), Counter(value for piece in pieces for value in piece)
    top = dict(values.top(100))
    assert len(top) <= capacity
    assert all(exact[value] - values.error <= count <= exact[value] for value, count in top.items())
    assert all(value in top for value, count in exact.items() if count > values.error)
    assert values.error <= sum(exact.values()) / (capacity + 1)
    assert values.distinct <= len(exact)


def test_a_stream_of_ever_new_values_does_not_grow() -> None:
    values = FrequentValues("n", capacity=100)
    for start in range(0, 20_000, 50):
        values.add(pa.array([*range(start, start + 50), -7, -7]))
    [(value, count), *others] = values.top(1000)
    assert value == -7
    assert 800 - values.error <= count <= 800
    assert len(others) < 100


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("ü\n", pa.string()),
        (b"\xff", pa.binary()),
        (2**63, pa.uint64()),
        (-5, pa.int8()),
        (Decimal("1.50"), pa.decimal128(10, 2)),
        (datetime(2020, 1, 1, tzinfo=timezone.utc), pa.timestamp("ms", "UTC")),
        (True, pa.bool_()),
        (0.5, pa.float32()),
    ],
)
def test_values_of_any_kind_come_back_raw(value: object, kind: pa.DataType) -> None:
    values = FrequentValues("column", capacity=1)
    values.add(pa.array([value, None, value], kind))
    assert values.top(5) == ((value, 2),)


def test_uuids_come_back_raw() -> None:
    one = uuid.UUID(int=5)
    values = FrequentValues("column")
    values.add(pa.ExtensionArray.from_storage(pa.uuid(), pa.array([one.bytes] * 2, pa.binary(16))))
    assert values.top(5) == ((one, 2),)


def test_dictionaries_and_types_that_differ_between_pieces_count_together() -> None:
    values = FrequentValues("column")
    for piece in (
        pa.array([7, 8]),
        pa.array([7.0, 2.5]),
        pa.array(["x"])[:0],
        pa.DictionaryArray.from_arrays([0], [7]),
    ):
        values.add(piece)
    assert values.top(1) == ((7, 3),)


def test_nothing_has_no_frequent_values() -> None:
    values = FrequentValues("column")
    values.add(pa.nulls(3))
    assert (values.top(3), values.distinct, values.error) == ((), 0, 0)


def test_ties_stand_in_the_order_of_the_values() -> None:
    values = FrequentValues("column", capacity=3)
    for letter in np.array(list("dbac")):
        values.add(pa.array([letter, letter]))
    assert [value for value, _ in values.top(9)] == sorted(value for value, _ in values.top(9))
