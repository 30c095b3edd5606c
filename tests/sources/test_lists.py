from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from recsys_emb.errors import KeyTypeError
from recsys_emb.sources.lists import Lists, holds_lists, lists_to_arrow, read_lists

LAYOUTS = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view]


def as_python(lists: Lists) -> list[list[object]]:
    values = lists.values.to_pylist()
    return [values[start:end] for start, end in zip(lists.offsets[:-1], lists.offsets[1:], strict=True)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_reads_alike(layout: object) -> None:
    array = pa.array([[1, 2], None, [], [3, None]], layout(pa.int64()))
    assert as_python(read_lists(array, "tags")) == [[1, 2], [], [], [3, None]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_slice_reads_only_its_own_rows(layout: object) -> None:
    array = pa.array([[9], [1, 2], None, [3], [8]], layout(pa.int64()))
    assert as_python(read_lists(array.slice(1, 3), "tags")) == [[1, 2], [], [3]]


def test_lists_of_fixed_size_skip_what_lies_under_a_missing_one() -> None:
    array = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2))
    assert as_python(read_lists(array, "tags")) == [[1, 2], [], [3, 4]]
    assert as_python(read_lists(array.slice(1), "tags")) == [[], [3, 4]]


def test_values_hidden_under_a_null_list_do_not_appear() -> None:
    mask = pa.array([False, True, False])
    array = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4], pa.int32()), pa.array([1, 77, 78, 4]), mask=mask)
    assert as_python(read_lists(array, "tags")) == [[1], [], [4]]


def test_a_column_of_nulls_is_a_column_of_empty_lists() -> None:
    assert as_python(read_lists(pa.nulls(2), "tags")) == [[], []]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([np.nan, np.nan]),
        pa.array([np.nan, None]),
        pa.nulls(2, pa.string()),
        pa.array([None, None], pa.string()).dictionary_encode(),
    ],
    ids=str,
)
def test_a_column_of_missing_values_alone_is_a_column_of_empty_lists_whatever_its_type(array: pa.Array) -> None:
    assert as_python(read_lists(array, "tags")) == [[], []]


def test_no_rows_give_no_lists() -> None:
    assert as_python(read_lists(pa.array([], pa.list_(pa.int64())), "tags")) == []


def test_single_values_are_refused() -> None:
    with pytest.raises(KeyTypeError) as caught:
        read_lists(pa.array(["a|b"]), "tags")
    assert str(caught.value) == (
        "tags: expected a list per row, got text. Declare it Categorical, or split the values."
    )


@pytest.mark.parametrize(
    ("keep", "expected"), [("first", [[1, 2], [], [4], [5, 6]]), ("last", [[2, 3], [], [4], [5, 6]])]
)
def test_a_cut_keeps_one_end(keep: object, expected: list[list[int]]) -> None:
    lists = read_lists(pa.array([[1, 2, 3], None, [4], [5, 6]]), "tags")
    assert as_python(lists.cut(2, keep)) == expected


def test_nothing_to_cut_copies_nothing() -> None:
    lists = read_lists(pa.array([[1, 2], [3]]), "tags")
    assert lists.cut(2, "last") is lists
    assert lists.cut(None, "last") is lists


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA, pd.NaT])
def test_python_lists_arrays_and_tuples_mix_and_any_missing_is_a_null_list(missing: object) -> None:
    column = pd.Series([missing, [1, 2], np.array([3]), (4, None), []], dtype=object)
    assert holds_lists(column)
    assert lists_to_arrow(column, "tags").to_pylist() == [None, [1, 2], [3], [4, None], []]


def test_large_integers_in_arrays_of_different_types_stay_exact() -> None:
    column = pd.Series([np.array([2**60 + 1]), np.array([3], np.int8)], dtype=object)
    assert lists_to_arrow(column, "tags").to_pylist() == [[2**60 + 1], [3]]


def test_arrays_of_text_are_lists_too() -> None:
    column = pd.Series([np.array(["a", None], dtype=object), np.array([], dtype=object)], dtype=object)
    assert lists_to_arrow(column, "tags").to_pylist() == [["a", None], []]


def test_rows_that_are_no_lists_are_refused() -> None:
    with pytest.raises(KeyTypeError) as caught:
        lists_to_arrow(pd.Series([["a"], "b"], dtype=object), "tags")
    assert str(caught.value) == "tags: expected a list per row, got str too. Wrap it in a list."


def test_values_of_several_types_are_refused() -> None:
    with pytest.raises(KeyTypeError) as caught:
        lists_to_arrow(pd.Series([["a"], [1]], dtype=object), "tags")
    assert str(caught.value) == "tags: expected values of one type, got int, str. Convert the column to one type."


@pytest.mark.parametrize(
    "column", [pd.Series(["a"], dtype=object), pd.Series([1]), ["a"], "ab", np.arange(2), pa.array([1])]
)
def test_other_columns_hold_no_lists(column: object) -> None:
    assert not holds_lists(column)
