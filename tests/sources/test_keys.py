"""Every container a caller may hold becomes the same Arrow values, or is refused by name."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from recsys_emb.errors import KeyTypeError
from recsys_emb.sources.keys import to_arrow

BIG = 2**60 + 1  # a float would make it 2**60
UTC = datetime.timezone.utc
DAY = datetime.date(2024, 3, 1)
NOON = datetime.datetime(2024, 3, 1, 12)


class Capsule:
    """A column of another library that speaks Arrow's C interface."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return pa.array([BIG, None]).__arrow_c_array__(requested_schema)


class Duck:
    """A column that only turns into a numpy array."""

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return np.array([BIG, 7])


@pytest.mark.parametrize(
    "values",
    [
        [BIG, None],
        (BIG, float("nan")),
        [np.int64(BIG), pd.NA],
        [BIG, np.float32("nan")],
        np.array([BIG, None], object),
        np.ma.array([BIG, 7], mask=[False, True]),
        np.ma.array(np.array([BIG, 7], object), mask=[False, True]),
        pd.Series([BIG, None], dtype="Int64"),
        pd.Series([BIG, None], dtype="int64[pyarrow]"),
        pd.Series([BIG, None], dtype=object),
        pd.Index([BIG, None], dtype="Int64"),
        pd.Series([BIG, None], dtype="Int64").array,
        pd.Series(pd.array([BIG, None], "Int64")).astype("category"),
        pl.Series([BIG, None]),
        pl.Series([BIG, None], dtype=pl.Object),
        pa.array([BIG, None]),
        pa.chunked_array([[BIG], [None]]),
        Capsule(),
    ],
    ids=lambda values: type(values).__name__,
)
def test_a_large_integer_beside_a_missing_one_stays_exact(values: Any) -> None:
    assert to_arrow(values, "id").to_pylist() == [BIG, None]


@pytest.mark.parametrize(
    "values",
    [
        [BIG, 7],
        np.array([BIG, 7]),
        np.array([BIG, 7], ">i8"),
        np.array([7, BIG])[::-1],
        np.array([[BIG, 0], [7, 0]])[:, 0],
        pd.Series([BIG, 7], index=[5, 5]),
        pd.Index([BIG, 7]),
        pd.Series(pd.arrays.SparseArray([BIG, 7])),
        pl.Series([BIG, 7]),
        torch.tensor([BIG, 7]),
        Duck(),
        [BIG, 7.0],
    ],
    ids=lambda values: type(values).__name__,
)
def test_integers_arrive_whatever_their_layout(values: Any) -> None:
    assert to_arrow(values, "id").to_pylist() == [BIG, 7]


def test_a_read_only_array_is_taken_without_a_copy() -> None:
    values = np.arange(5)
    values.flags.writeable = False
    assert to_arrow(values, "id").buffers()[1].address == values.ctypes.data


def test_a_range_and_a_range_index_are_integers() -> None:
    assert to_arrow(range(3), "id").to_pylist() == to_arrow(pd.RangeIndex(3), "id").to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, -(2**63)])
def test_integers_fill_all_64_bits(number: int) -> None:
    for values in ([number], np.array([number]), pd.Series([number]), pl.Series([number])):
        assert to_arrow(values, "id").to_pylist() == [number]


def test_integers_that_no_64_bits_hold_become_decimals() -> None:
    assert to_arrow([2**64, -1], "id").to_pylist() == [Decimal(2**64), Decimal(-1)]


@pytest.mark.parametrize(
    "values",
    [
        ["x", None],
        ["x", float("nan")],
        ["x", np.float32("nan")],
        [np.str_("x"), pd.NaT],
        ["x", np.datetime64("NaT")],
        ["x", np.timedelta64("NaT")],
        ["x", Decimal("NaN")],
        np.array(["x", None], object),
        pd.Series(["x", None], dtype="str"),
        pd.Series(["x", None], dtype="string"),
        pd.Series(["x", None], dtype=pd.StringDtype("python")),
        pd.Series(["x", None], dtype=pd.ArrowDtype(pa.string_view())),
        pd.Series(["x", None], dtype="category"),
        pd.Categorical(["x", None], categories=["unused", "x"]),
        pl.Series(["x", None]),
        pl.Series(["x", None], dtype=pl.Categorical),
        pl.Series(["x", None], dtype=pl.Enum(["unused", "x"])),
    ],
    ids=lambda values: type(values).__name__,
)
def test_text_arrives_with_any_spelling_of_missing(values: Any) -> None:
    assert to_arrow(values, "name").to_pylist() == ["x", None]


def test_numpy_text_of_any_kind_arrives() -> None:
    for values in (np.array(["é", "b"]), np.array(["é", "b"], ">U4"), np.array(["é", "b"], np.dtypes.StringDType())):
        assert to_arrow(values, "name").to_pylist() == ["é", "b"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([True, None], pa.array([True, None])),
        (np.array([True, False]), pa.array([True, False])),
        (pd.Series([True, None], dtype="boolean"), pa.array([True, None])),
        ([1.5, None], pa.array([1.5, None])),
        (np.array([1.5], np.float16), pa.array(np.array([1.5], np.float16))),
        (torch.tensor([1.5], dtype=torch.bfloat16), pa.array([1.5], pa.float32())),
        ([1, 2.5], pa.array([1.0, 2.5])),
        ([Decimal("1.10"), 2, None], pa.array([Decimal("1.10"), Decimal("2.00"), None])),
        ([b"\xff", bytearray(b"A"), None], pa.array([b"\xff", b"A", None], pa.large_binary())),
        (np.array([b"\xff"]), pa.array([b"\xff"])),
        ([DAY, None], pa.array([DAY, None])),
        (np.array(["2024-03-01", "NaT"], "M8[D]"), pa.array([DAY, None])),
        (np.array(["2024", "2025"], "M8[Y]"), pa.array([datetime.date(2024, 1, 1), datetime.date(2025, 1, 1)])),
        (np.array(["2024-03-01T12"], "M8[h]"), pa.array([NOON], pa.timestamp("s"))),
        (np.array(["2024-03-01T12:00"], ">M8[m]"), pa.array([NOON], pa.timestamp("s"))),
        (np.array([2], "m8[W]"), pa.array([datetime.timedelta(14)], pa.duration("s"))),
        ([NOON, pd.NaT], pa.array([NOON, None])),
        ([np.datetime64("2024-03-01T12"), np.datetime64("NaT")], pa.array([NOON, None])),
        ([NOON.replace(tzinfo=UTC)], pa.array([NOON], pa.timestamp("us", "UTC"))),
        ([pd.Timestamp(1, unit="ns"), None], pa.array([1, None], pa.timestamp("ns"))),
        ([pd.Timedelta(1, unit="ns"), None], pa.array([1, None], pa.duration("ns"))),
        ([np.timedelta64(1, "s")], pa.array([datetime.timedelta(seconds=1)])),
        ([datetime.time(1, 2, 3, 4)], pa.array([datetime.time(1, 2, 3, 4)])),
        ([uuid.UUID(int=1), None], pa.array([uuid.UUID(int=1), None], pa.uuid())),
        ([None, float("nan")], pa.array([None, None], pa.float64())),
        ([None, pd.NA, pd.NaT], pa.nulls(3)),
        ([], pa.nulls(0)),
    ],
    ids=repr,
)
def test_other_types_arrive_exactly(values: Any, expected: pa.Array) -> None:
    arrived = to_arrow(values, "key")
    assert arrived.type == expected.type
    assert arrived.to_pylist() == expected.to_pylist()


def test_a_zoned_series_arrives_as_its_moments() -> None:
    series = pd.Series(pd.to_datetime(["2024-03-01 12:00"])).dt.tz_localize("Europe/Paris")
    assert to_arrow(series, "at").cast(pa.timestamp("us", "UTC")).to_pylist() == [NOON.replace(hour=11, tzinfo=UTC)]


def test_a_sliced_categorical_keeps_its_categories_in_one_piece() -> None:
    arrived = to_arrow(pd.Series(pd.Categorical(["b", None, "a"]))[1:], "name")
    assert isinstance(arrived, pa.DictionaryArray)
    assert arrived.to_pylist() == [None, "a"]


def test_categories_in_several_arrow_chunks_arrive() -> None:
    categories = pd.Index(pd.array(pa.chunked_array([["a"], ["b"]]), dtype=pd.ArrowDtype(pa.string())))
    values = pd.Categorical.from_codes([1, -1, 0], categories=categories)
    assert to_arrow(values, "name").to_pylist() == ["b", None, "a"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (7, "id: expected a one-dimensional array, got int 7. Wrap a single value in a list."),
        ("abc", "id: expected a one-dimensional array, got str 'abc'. Wrap a single value in a list."),
        (b"abc", "id: expected a one-dimensional array, got bytes b'abc'. Wrap a single value in a list."),
        (np.int64(7), "id: expected a one-dimensional array, got int64 np.int64(7). Wrap a single value in a list."),
        ({"a": 1}, "id: expected a one-dimensional array, got dict {'a': 1}. Wrap a single value in a list."),
        ({7}, "id: expected a one-dimensional array, got set {7}. Wrap a single value in a list."),
        (None, "id: expected a one-dimensional array, got NoneType None. Wrap a single value in a list."),
        (
            "x" * 100,
            f"id: expected a one-dimensional array, got str '{'x' * 56}.... Wrap a single value in a list.",
        ),
        (np.zeros((2, 3)), "id: expected a one-dimensional array, got shape (2, 3). Pass one column."),
        (torch.tensor(3), "id: expected a one-dimensional array, got shape (). Pass one column."),
        (pl.Series([1], dtype=pl.Int128), "id: expected a type that Arrow holds, got Int128. Convert the column."),
        (np.array([1j]), "id: expected a type that Arrow holds, got complex128. Convert the column."),
        (np.array([1], np.longdouble), "id: expected a type that Arrow holds, got float128. Convert the column."),
        (
            [1, "1", True, 1.5],
            "id: expected values of one type, got bool, float, int, str. Convert the column to one type.",
        ),
        ([Decimal(1), 2.5], "id: expected values of one type, got Decimal, float. Convert the column to one type."),
        ([DAY, NOON], "id: expected values of one type, got date, datetime. Convert the column to one type."),
        ([b"a", "a"], "id: expected values of one type, got bytes, str. Convert the column to one type."),
        ([[1], [2]], "id: expected integers, text or another flat type, got list. Convert the column."),
        ([1, {}], "id: expected integers, text or another flat type, got dict, int. Convert the column."),
        (
            pd.MultiIndex.from_tuples([(1, 2)]),
            "id: expected integers, text or another flat type, got tuple. Convert the column.",
        ),
        (
            [NOON, NOON.replace(tzinfo=UTC)],
            "id: expected values that Arrow holds exactly, got «timestamps with and without a time zone». "
            "Convert the column.",
        ),
        (
            [datetime.time(1, tzinfo=UTC)],
            "id: expected values that Arrow holds exactly, got «times with a time zone». Convert the column.",
        ),
    ],
    ids=repr,
)
def test_what_is_no_column_of_one_type_is_refused(values: Any, message: str) -> None:
    with pytest.raises(KeyTypeError) as caught:
        to_arrow(values, "id")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "values",
    [["\ud800"], [2**300], [BIG, 1.5], [Decimal("Infinity")], [datetime.datetime(9999, 1, 1), pd.Timestamp(1)]],
)
def test_what_arrow_does_not_hold_exactly_is_refused(values: list[object]) -> None:
    with pytest.raises(
        KeyTypeError, match=r"id: expected values that Arrow holds exactly, got «.+»\. Convert the column\."
    ):
        to_arrow(values, "id")


def test_a_polars_column_of_python_objects_is_never_read_as_addresses() -> None:
    with pytest.raises(KeyTypeError, match="id: expected integers, text or another flat type, got object"):
        to_arrow(pl.Series([object()], dtype=pl.Object), "id")
