"""Keys are what they are, whatever Arrow type holds them."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from recsys_emb.errors import KeyTypeError
from recsys_emb.vocabulary import kinds
from recsys_emb.vocabulary.identity import plain, split
from recsys_emb.vocabulary.kinds import Part, agree, join, restore

DAY = datetime.date(2024, 3, 1)
NOON = datetime.datetime(2024, 3, 1, 12)
FAR = datetime.datetime(9999, 12, 31)

# Every entry: arrays of different types that hold the same keys, and the values they are restored to.
FORMS: dict[str, tuple[list[pa.Array], list[Any]]] = {
    "integers": (
        [
            *[pa.array([5, None, 0], kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())],
            *[pa.array([5, None, 0], kind) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())],
            pa.array([5, None, 0], pa.float32()),
            pa.array([5.0, float("nan"), -0.0]),
            pa.array(np.array([5, np.nan, 0], np.float16)),
            pa.array([Decimal("5.00"), None, Decimal("0.00")]),
            pa.array([Decimal(5), None, Decimal(0)], pa.decimal256(50, 3)),
            pa.array([9, 5, None, 0, 9])[1:4],
            pc.run_end_encode(pa.array([5, None, 0])),
        ],
        [5, None, 0],
    ),
    "large integers": (
        [pa.array([2**64 - 1, None, 7], pa.uint64()), pa.array([Decimal(2**64 - 1), None, Decimal(7)])],
        [2**64 - 1, None, 7],
    ),
    "fractions": (
        [pa.array([0.5, None, 2.0]), pa.array([0.5, float("nan"), 2.0], pa.float32())],
        [0.5, None, 2.0],
    ),
    "decimals": (
        [
            pa.array([Decimal("1.10"), None, Decimal(2)]),
            pa.array([Decimal("1.1"), None, Decimal(2)]),
            pa.array([Decimal("1.1"), None, Decimal(2)], pa.decimal256(60, 30)),
            *([pa.array([Decimal("1.1"), None, Decimal(2)], pa.decimal32(5, 2))] if hasattr(pa, "decimal32") else []),
        ],
        [Decimal("1.1"), None, Decimal(2)],
    ),
    "text": (
        [pa.array(["b", None, ""], kind) for kind in (pa.string(), pa.large_string(), pa.string_view())]
        + [pa.array(["?", "b", None, "", "?"])[1:4]],
        ["b", None, ""],
    ),
    "bytes": (
        [
            pa.array([b"\xff", None, b"A"], kind)
            for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1))
        ],
        [b"\xff", None, b"A"],
    ),
    "booleans": (
        [pa.array([True, None, False]), pa.array([True, None, False]).cast(pa.int8()).cast(pa.bool8())],
        [True, None, False],
    ),
    "dates": ([pa.array([DAY, None], kind) for kind in (pa.date32(), pa.date64())], [DAY, None]),
    "times": (
        [
            pa.array([datetime.time(1, 2), None], kind)
            for kind in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))
        ],
        [datetime.time(1, 2), None],
    ),
    "timestamps": ([pa.array([NOON, None], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")], [NOON, None]),
    "far timestamps": ([pa.array([FAR, None], pa.timestamp(unit)) for unit in ("s", "ms", "us")], [FAR, None]),
    "moments": (
        [pa.array([NOON, None], pa.timestamp("us", zone)) for zone in ("UTC", "Europe/Paris", "+03:00")],
        [NOON.replace(tzinfo=datetime.timezone.utc), None],
    ),
    "durations": (
        [pa.array([datetime.timedelta(seconds=-1), None], pa.duration(unit)) for unit in ("s", "ms", "us", "ns")],
        [datetime.timedelta(seconds=-1), None],
    ),
    "uuids": ([pa.array([uuid.UUID(int=2), None], pa.uuid())], [uuid.UUID(int=2), None]),
}


def canonical(array: pa.Array) -> list[tuple[str, list[Any]]]:
    return [(part.kind.name, part.keys.to_pylist()) for part in split(array, "key")]


@pytest.mark.parametrize("arrays", [arrays for arrays, _ in FORMS.values()], ids=FORMS)
def test_every_type_that_holds_a_key_gives_the_same_canonical_form(arrays: list[pa.Array]) -> None:
    as_text = [
        [(name, [k.encode() if isinstance(k, str) else k for k in keys]) for name, keys in canonical(array)]
        for array in arrays
    ]
    assert as_text == as_text[:1] * len(arrays)


@pytest.mark.parametrize(("arrays", "values"), FORMS.values(), ids=FORMS)
def test_canonical_forms_are_restored_to_equal_values(arrays: list[pa.Array], values: list[Any]) -> None:
    present = [value for value in values if value is not None]
    for array in arrays:
        parts = split(array, "key")
        if not {part.kind for part in parts} <= kinds.NUMERIC:
            parts = [Part(part.kind, part.keys.drop_null()) for part in parts]
        assert [value for value in restore(parts, "key").to_pylist() if value is not None] == present


@pytest.mark.parametrize(
    "array",
    [
        pa.nulls(2),
        pa.array([None, None], pa.string()),
        pa.array([float("nan")] * 2),
        pa.array([], pa.int64()),
        pa.array([], pa.date32()),
    ],
)
def test_without_a_key_there_is_no_kind(array: pa.Array) -> None:
    assert split(array, "key") == []


def test_runs_and_views_are_laid_out_slices_included() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(
        pa.array([2, 3, 5], pa.int32()), pa.array(["a", None, "b"], pa.string_view())
    )
    assert plain(runs[1:4]).equals(pa.array(["a", None, "b"], pa.large_string()))
    views = pa.DictionaryArray.from_arrays(pa.array([1, None, 0]), pa.array(["a", "b"], pa.string_view()))
    assert plain(views).to_pylist() == ["b", None, "a"]
    assert plain(views).type.value_type == pa.large_string()


def test_mixed_numbers_stand_in_parts_of_their_own() -> None:
    assert canonical(pa.array([1.0, 0.5, None])) == [
        ("integer", [1, None, None]),
        ("float", [None, 4602678819172646912, None]),
    ]
    assert canonical(pa.array([1, 2**63], pa.uint64())) == [
        ("integer", [1, None]),
        ("unsigned integer", [None, -(2**63)]),
    ]
    assert canonical(pa.array([Decimal("1.50"), Decimal(10) ** 30])) == [("decimal", [b"1.5", b"1E+30"])]


def test_what_lies_under_a_null_does_not_count() -> None:
    hidden_huge = pa.Array.from_buffers(pa.float64(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([1e300, 7.0]))])
    assert canonical(hidden_huge) == [("integer", [None, 7])]
    hidden_high = pa.Array.from_buffers(
        pa.uint64(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([2**64 - 1, 7], np.uint64))]
    )
    assert canonical(hidden_high) == [("integer", [None, 7])]


def test_nanoseconds_are_part_of_a_time() -> None:
    for kind in (pa.timestamp("ns"), pa.duration("ns"), pa.time64("ns")):
        values = pa.array([1, 1001], pa.int64()).cast(kind)
        assert restore(split(values, "key"), "key").equals(values)


def test_a_zoned_timestamp_is_not_a_naive_one() -> None:
    naive, zoned = pa.array([NOON]), pa.array([NOON], pa.timestamp("us", "UTC"))
    assert [part.kind for array in (naive, zoned) for part in split(array, "key")] == [kinds.TIMESTAMP, kinds.MOMENT]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (pa.array([[5]]), "key: expected flat keys, got list<item: int64>. Declare it MultiCategorical."),
        (pa.array([{"a": 5}]), "key: expected flat keys, got struct<a: int64>. Convert the column."),
        (
            pa.array([2**53, 5, -(2.0**60)]),
            "key: expected float keys below 2**53 in magnitude, got 9007199254740992.0, -1.152921504606847e+18. "
            "Store them as integers or text.",
        ),
        (
            pa.array([float("inf")]),
            "key: expected float keys below 2**53 in magnitude, got inf. Store them as integers or text.",
        ),
    ],
)
def test_what_cannot_be_a_key_is_refused(array: pa.Array, message: str) -> None:
    with pytest.raises(KeyTypeError) as caught:
        split(array, "key")
    assert str(caught.value) == message


def test_kinds_agree_where_one_column_may_hold_them() -> None:
    assert agree([])
    assert agree([kinds.TEXT, kinds.TEXT])
    assert agree([kinds.INTEGER, kinds.UNSIGNED, kinds.FLOAT])
    assert agree([kinds.INTEGER, kinds.DECIMAL])
    assert not agree([kinds.FLOAT, kinds.DECIMAL])
    assert not agree([kinds.INTEGER, kinds.TEXT])
    assert not agree([kinds.TIMESTAMP, kinds.MOMENT])


def test_parts_are_joined_row_by_row() -> None:
    first, second = split(pa.array([1.0, 0.5]), "key"), split(pa.array([7]), "key")
    assert restore(join(first, second), "key").to_pylist() == [1.0, 0.5, 7.0]
    assert restore(join(second, first), "key").to_pylist() == [7.0, 1.0, 0.5]
    assert restore(join([], second), "key").to_pylist() == [7]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            pa.array([-1, 5]),
            pa.array([2**64 - 1], pa.uint64()),
            "key: expected no negative integers beside 18446744073709551615, got -1. Store them as text.",
        ),
        (
            pa.array([0.5]),
            pa.array([-(2**53)]),
            "key: expected integers below 2**53 in magnitude beside fractions, got -9007199254740992. "
            "Store them as decimals or text.",
        ),
        (
            pa.array([0.5]),
            pa.array([2**64 - 1], pa.uint64()),
            "key: expected integers below 2**53 in magnitude beside fractions, got 18446744073709551615. "
            "Store them as decimals or text.",
        ),
    ],
)
def test_numbers_that_no_type_holds_together_are_refused(first: pa.Array, second: pa.Array, message: str) -> None:
    with pytest.raises(KeyTypeError) as caught:
        restore(join(split(first, "key"), split(second, "key")), "key")
    assert str(caught.value) == message


def test_nanoseconds_far_from_1970_are_refused() -> None:
    near, far = pa.array([1], pa.timestamp("ns")), pa.array([FAR])
    with pytest.raises(KeyTypeError) as caught:
        restore(join(split(near, "key"), split(far, "key")), "key")
    expected = "timestamp[ns]: expected keys within 9223372035 seconds of 0, got one beyond. Use text."
    assert str(caught.value) == expected


def test_a_part_names_its_kind() -> None:
    assert Part(kinds.UUID, pa.nulls(0)).kind.plural == "UUIDs"


def test_text_that_is_not_utf8_is_refused() -> None:
    latin = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 5], np.int32)), pa.py_buffer(b"acaf\xe9")]
    )
    with pytest.raises(KeyTypeError) as caught:
        restore(split(latin, "city"), "city")
    assert str(caught.value) == "city: expected text in UTF-8, got b'caf\\xe9'. Write the column again as UTF-8."
