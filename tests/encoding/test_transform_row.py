"""`transform_row` gives what `transform` gives for a table of one row, errors included."""

from __future__ import annotations

import datetime
import math
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import ColumnError, DataError, NotFittedError, RecsysEmbError
from recsys_emb.schema import (
    Categorical,
    MultiCategorical,
    Numeric,
    Position,
    RefuseUnknown,
    Schema,
    UnknownBuckets,
)

SCHEMA = Schema(
    user=Categorical("user"),
    item=Categorical("item", unknown=UnknownBuckets(3)),
    position=Position("slot", max_position=9, clamp=True),
    user_features=[Numeric("age"), MultiCategorical("recent", max_length=2, keep="last")],
    item_features=[MultiCategorical("tags", weights="tag_weights"), Categorical("brand", dtype="string")],
    context_features=[Categorical("shop", dtype="int64"), Categorical("page", unknown=RefuseUnknown())],
    label="rating",
)
FRAME = pd.DataFrame(
    {
        "rating": [4.0, 3.5, 1.0],
        "user": [70, 90, 70],
        "item": ["b", "a", "b"],
        "slot": [0, 2, 9],
        "age": [30.0, np.nan, 40.0],
        "recent": [["a", "c"], [], None],
        "tags": [["x", "y"], None, ["y"]],
        "tag_weights": [[0.5, 1.0], None, [2.0]],
        "brand": ["x", "y", "5"],
        "shop": [1, 2, 5],
        "page": ["p", "q", "p"],
    }
)
ENCODER = FeatureEncoder(SCHEMA).fit(FRAME)
LIKELY_ROW = {
    "user": 90, "item": "a", "slot": 2, "age": 35, "recent": ["a", "b", None, "z"], "tags": ["x"], "tag_weights": [0.5],
    "brand": "y", "shop": 2, "page": "q",
}  # fmt: skip
SCALARS: list[object] = [
    None, np.nan, pd.NA, pd.NaT, np.float32("nan"), True, np.True_, 0, 1, 5, 70, -1, 9, 10, 2**53, 2**60, 2**63, 2**64,
    10**30, -(2**63), 5.0, 70.0, 2.5, -0.0, 1e300, math.inf, 2.0**53, np.int8(5), np.int64(70), np.uint64(2**63),
    np.float64(5), Decimal("70.00"), Decimal("2.5"), "", "a", "b", "x", "5", "\ud800", "naïve", np.str_("a"), b"a",
    bytearray(b"a"),
    datetime.date(2024, 1, 1), uuid.UUID(int=5), [], ["a"], ("a", "z"), [5], [5, "a"], [None], [2.5],
    np.array(["a", "b"]), np.array([5, 6]), {"a": 1}, {"a"}, object(), [[5]], ["\ud800"], ["a"] * 5, [True],
]  # fmt: skip


def outcome(encode: Callable[[], Batch]) -> Any:
    """What came out: a batch as Python values, or the error."""
    try:
        batch = encode()
    except RecsysEmbError as error:
        return type(error), str(error)
    columns = [
        (name, column.to_lists(), column.values.dtype, None if column.weights is None else column.weights.tolist())
        if isinstance(column, Jagged)
        else (name, column.tolist(), column.dtype)
        for name, column in batch.columns.items()
    ]
    return columns, dict(batch.limits), batch.label, batch.weight


def assert_one_row(row: dict[str, Any]) -> None:
    table = {column: [one] for column, one in row.items()}
    expected = outcome(lambda: ENCODER.transform(table, with_label=False))
    assert outcome(lambda: ENCODER.transform_row(row)) == expected, row


@pytest.mark.parametrize("name", [name for name in LIKELY_ROW if name != "tag_weights"])
def test_one_row_is_encoded_as_a_table_of_one_row(name: str) -> None:
    for value in SCALARS:
        assert_one_row({**LIKELY_ROW, "tag_weights": None, "tags": None, name: value})


@given(
    row=st.fixed_dictionaries(
        {
            "user": st.none() | st.integers(-(2**65), 2**65) | st.sampled_from([70, 90]) | st.floats(),
            "item": st.none() | st.text(max_size=3) | st.sampled_from(["a", "b", "c"]),
            "slot": st.none() | st.integers(-3, 13) | st.floats(-3, 13),
            "age": st.none() | st.integers(-(2**60), 2**60) | st.floats(),
            "recent": st.none() | st.lists(st.none() | st.text(max_size=2) | st.sampled_from("abc"), max_size=5),
            "tags": st.lists(st.sampled_from("xyz"), min_size=1, max_size=1),
            "brand": st.sampled_from(["x", "z", None, 5]),
            "shop": st.sampled_from([1, 9, None, "2", 2.0]),
            "page": st.sampled_from(["p", "q", None]),
        }
    )
)
@settings(max_examples=150, deadline=None)
def test_any_row_is_encoded_as_a_table_of_one_row(row: dict[str, Any]) -> None:
    assert_one_row({**row, "tag_weights": [1.0], "ignored": object()})


def test_a_row_without_a_column_is_refused_as_a_table_is() -> None:
    with pytest.raises(ColumnError) as caught:
        ENCODER.transform_row({name: value for name, value in LIKELY_ROW.items() if name != "slot"})
    assert str(caught.value).startswith("mapping: expected a column 'slot', got 'user', 'item', 'age'")


def test_a_row_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        ENCODER.transform_row(FRAME.iloc[0])
    assert str(caught.value) == (
        "FeatureEncoder.transform_row: expected a mapping of columns to values, got Series. Use transform for tables."
    )


def test_a_row_of_an_unfitted_encoder_is_refused() -> None:
    with pytest.raises(NotFittedError):
        FeatureEncoder(SCHEMA).transform_row(LIKELY_ROW)
