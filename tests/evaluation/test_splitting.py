"""Splits lose no row, keep their order, and never let the future or a repeated pair into the train part unsaid."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.errors import ColumnError, DataError, EmptySourceError, RepeatedPairsWarning
from recsys_emb.evaluation.splitting import split_last, split_random, split_time

PAIR = ("user_id", "item_id")
Split = Callable[[pd.DataFrame], tuple[pd.DataFrame, pd.DataFrame]]
SPLITS: list[Split] = [
    lambda frame: split_random(frame, 0.5),
    lambda frame: split_random(frame, 0.5, pair=PAIR),
    lambda frame: split_last(frame, "user_id", "time"),
    lambda frame: split_time(frame, "time", 0.5),
]


def events() -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "user_id": ["u1", "u1", "u1", "u2", "u2"],
            "item_id": ["i1", "i1", "i2", "i1", "i1"],
            "time": [1, 5, 2, 3, 4],
            "label": [1, 1, 1, 1, 1],
        },
        index=[7, 7, 0, -1, 3],
    )
    frame.index.name = "row"
    return frame


def pairs(frame: pd.DataFrame) -> set[tuple[str, str]]:
    return set(zip(frame["user_id"], frame["item_id"], strict=True))


# --- all splits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", SPLITS)
def test_rows_index_columns_and_types_are_kept_in_order(split: Split) -> None:
    frame = events().assign(row=range(5), kind=pd.Categorical(list("abcab")))
    train, test = split(frame)
    assert sorted([*train["row"], *test["row"]]) == list(range(5))
    for part in (train, test):
        assert part["row"].is_monotonic_increasing
        pd.testing.assert_frame_equal(part, frame.iloc[part["row"].to_numpy()])


@pytest.mark.parametrize("split", SPLITS)
def test_the_frame_of_the_caller_is_untouched(split: Split) -> None:
    frame = events()
    train, test = split(frame)
    train["label"] = 0
    test["label"] = 0
    pd.testing.assert_frame_equal(frame, events())


@pytest.mark.parametrize("split", SPLITS)
def test_no_rows_are_refused(split: Split) -> None:
    with pytest.raises(EmptySourceError, match=r"expected rows to split, got none\. Check the filter before it\.$"):
        split(events().iloc[:0])


@pytest.mark.parametrize("split", SPLITS)
def test_one_row_is_refused(split: Split) -> None:
    with pytest.raises(DataError):
        split(events().iloc[:1])


@pytest.mark.parametrize("split", SPLITS)
def test_what_is_no_pandas_frame_is_refused(split: Split) -> None:
    with pytest.raises(DataError, match=r"expected a pandas DataFrame, got dict\. Convert it to pandas\.$"):
        split({"user_id": [1]})


@pytest.mark.parametrize("split", SPLITS)
def test_a_frame_of_polars_is_called_one(split: Split) -> None:
    expected = r"expected a pandas DataFrame, got a DataFrame of polars\. Convert it to pandas: frame\.to_pandas\(\)\.$"
    with pytest.raises(DataError, match=expected):
        split(pl.DataFrame({"user_id": [1]}))


def test_a_missing_column_is_named_with_the_nearest() -> None:
    with pytest.raises(ColumnError) as caught:
        split_time(events(), "times", 0.5)
    assert str(caught.value) == (
        "split_time: expected a column 'times', got 'user_id', 'item_id', 'time', 'label'. Did you mean 'time'?"
    )


def test_a_column_that_is_there_twice_is_refused() -> None:
    frame = events()
    frame.columns = ["user_id", "user_id", "time", "label"]
    with pytest.raises(ColumnError) as caught:
        split_last(frame, "user_id", "time")
    assert str(caught.value) == "split_last: expected one column 'user_id', got 2. Rename or drop the others."


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, float("nan"), True, "a", None])
def test_a_fraction_is_between_0_and_1(fraction: float) -> None:
    for where, split in (("split_random", split_random), ("split_time", split_time)):
        with pytest.raises(DataError) as caught:
            split(events(), **({"time": "time"} if split is split_time else {}), fraction=fraction)
        assert str(caught.value) == (
            f"{where}: expected fraction between 0 and 1, got {fraction!r}. It is the share of test rows."
        )


# --- at random -------------------------------------------------------------------------------------------------


def test_the_fraction_is_met_and_the_seed_decides() -> None:
    frame = pd.DataFrame({"row": range(1000)})
    first, again, other = (split_random(frame, 0.3, seed=seed)[1] for seed in (1, 1, 2))
    assert len(first) == len(other) == 300
    assert first.equals(again)
    assert not first.equals(other)


def test_every_row_can_be_in_either_part() -> None:
    frame = pd.DataFrame({"row": range(4)})
    drawn = [split_random(frame, 0.25, seed=seed)[1]["row"].item() for seed in range(40)]
    assert set(drawn) == {0, 1, 2, 3}


def test_the_global_random_state_is_left_alone() -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002 — the state that must not move
    split_random(events(), 0.5)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=30), st.integers(0, 9))
def test_repeated_pairs_stay_on_one_side(rows: list[tuple[int, int]], seed: int) -> None:
    frame = pd.DataFrame(rows, columns=["user_id", "item_id"])
    distinct = len(set(rows))
    if distinct < 2:
        return
    train, test = split_random(frame, 0.5, seed=seed, pair=PAIR)
    assert len(train) + len(test) == len(frame)
    assert not pairs(train) & pairs(test)
    assert len(pairs(test)) == round(distinct / 2)


def test_missing_values_make_a_pair_like_any_other() -> None:
    frame = pd.DataFrame({"user_id": [None, None, "a"], "item_id": [1.0, 1.0, np.nan]})
    train, test = split_random(frame, 0.5, pair=PAIR)
    assert sorted([len(train), len(test)]) == [1, 2]


def test_a_fraction_too_small_for_one_row_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        split_random(pd.DataFrame({"row": range(2)}), 0.2)
    assert str(caught.value) == (
        "split_random: expected rows on both sides, got 0 of 2 rows in test with fraction=0.2. "
        "Give more rows or change it."
    )


# --- the last of each user -------------------------------------------------------------------------------------


def test_the_latest_row_of_each_user_is_tested() -> None:
    train, test = split_last(events(), "user_id", "time")
    assert test["time"].tolist() == [5, 4]
    assert train["time"].tolist() == [1, 2, 3]


def test_users_with_too_few_rows_stay_in_train() -> None:
    frame = pd.DataFrame({"user_id": ["a", "b", "b", "c", "c", "c"], "time": [9, 1, 2, 1, 2, 3]})
    assert split_last(frame, "user_id", "time", count=2)[1].index.tolist() == [4, 5]


def test_of_equal_times_the_row_further_down_is_later() -> None:
    frame = pd.DataFrame({"user_id": ["a", "b", "a", "b", "a"], "time": [1, 2, 1, 2, 0]})
    assert split_last(frame, "user_id", "time")[1].index.tolist() == [2, 3]


def test_rows_without_a_user_stay_in_train() -> None:
    frame = pd.DataFrame({"user_id": ["a", None, "a", None], "time": [1, 8, 2, 9]})
    assert split_last(frame, "user_id", "time")[1].index.tolist() == [2]


def test_nobody_with_enough_rows_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        split_last(pd.DataFrame({"u": [1, 2], "t": [1, 2]}), "u", "t")
    assert str(caught.value) == (
        "split_last: expected rows on both sides, got 0 of 2 rows in test with count=1. Give more rows or change it."
    )


@pytest.mark.parametrize("count", [0, -1, 1.0, True])
def test_the_count_is_a_positive_integer(count: int) -> None:
    with pytest.raises(DataError) as caught:
        split_last(events(), "user_id", "time", count=count)
    assert str(caught.value) == (
        f"split_last: expected count to be an integer of at least 1, got {count!r}. Give count=1 or more."
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=30), st.integers(1, 3))
def test_the_last_rows_are_those_of_sorting_each_user(rows: list[tuple[int, int]], count: int) -> None:
    frame = pd.DataFrame(rows, columns=["u", "t"])
    groups = [group.sort_values("t", kind="stable") for _, group in frame.groupby("u")]
    expected = sorted(label for group in groups if len(group) > count for label in group.index[-count:])
    if expected:
        assert split_last(frame, "u", "t", count=count)[1].index.tolist() == expected


# --- in time ---------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=2, max_size=30), st.floats(0.05, 0.95))
def test_train_ends_before_test_begins_at_the_nearest_share(times: list[int], fraction: float) -> None:
    frame = pd.DataFrame({"t": times})
    if len(set(times)) < 2:
        return
    train, test = split_time(frame, "t", fraction)
    assert train["t"].max() < test["t"].min()
    possible = [sum(time >= start for time in times) for start in sorted(set(times))[1:]]
    nearest = min(abs(size - fraction * len(times)) for size in possible)
    assert abs(len(test) - fraction * len(times)) == pytest.approx(nearest)


MOMENTS = [datetime.datetime(2024, 1, day) for day in (3, 1, 2, 4)]
TIMES = {
    "integers": pd.Series([3, 1, 2, 4]),
    "fractions": pd.Series([0.3, 0.1, 0.2, np.inf]),
    "nullable integers": pd.Series([3, 1, 2, 4], dtype="Int64"),
    "timestamps": pd.Series(MOMENTS),
    "timestamps with a zone": pd.Series(MOMENTS).dt.tz_localize("Europe/Paris"),
    "dates": pd.Series([moment.date() for moment in MOMENTS]),
    "durations": pd.Series(MOMENTS) - MOMENTS[1],
    "decimals": pd.Series([Decimal(3), Decimal(1), Decimal(2), Decimal(4)]),
    "Arrow timestamps": pd.Series(MOMENTS, dtype=pd.ArrowDtype(pa.timestamp("us"))),
    "Arrow dates": pd.Series([moment.date() for moment in MOMENTS], dtype=pd.ArrowDtype(pa.date32())),
}


@pytest.mark.parametrize("name", TIMES)
def test_every_kind_of_time_has_its_order(name: str) -> None:
    frame = pd.DataFrame({"u": [1, 1, 2, 2], "t": TIMES[name]})
    assert split_time(frame, "t", 0.25)[1].index.tolist() == [3]
    assert split_last(frame, "u", "t")[1].index.tolist() == [0, 3]


@pytest.mark.parametrize(
    ("times", "contents"),
    [(["10", "9"], "string"), ([1, "2"], "mixed-integer"), ([True, False], "boolean")],
)
def test_what_has_no_order_in_time_is_refused(times: list[object], contents: str) -> None:
    with pytest.raises(DataError) as caught:
        split_time(pd.DataFrame({"t": times}), "t", 0.5)
    assert str(caught.value) == (
        f"split_time: expected numbers, dates or times in 't', got {contents}. Convert the column."
    )


@pytest.mark.parametrize(
    "times", [[1.0, np.nan, 2.0], [pd.NaT, MOMENTS[0], MOMENTS[1]], [None, Decimal(1), Decimal(2)]]
)
def test_missing_times_are_counted_and_refused(times: list[object]) -> None:
    frame = pd.DataFrame({"u": 1, "t": times})
    for where, split in {
        "split_time": lambda: split_time(frame, "t", 0.5),
        "split_last": lambda: split_last(frame, "u", "t"),
    }.items():
        with pytest.raises(DataError) as caught:
            split()
        assert str(caught.value) == (
            f"{where}: expected a time in every row of 't', got 1 missing. Drop or fill these rows."
        )


def test_one_time_cannot_be_split() -> None:
    with pytest.raises(DataError) as caught:
        split_time(pd.DataFrame({"t": [5, 5, 5]}), "t", 0.5)
    assert str(caught.value) == ("split_time: expected at least two times in 't', got one. Split at random or by user.")


# --- repeated pairs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (lambda: split_last(events(), "user_id", "time", pair=PAIR), "split_last: 2 pairs"),
        (lambda: split_time(events(), "time", 0.2, pair=PAIR), "split_time: 1 pair"),
    ],
)
def test_pairs_on_both_sides_are_counted(split: Callable[[], tuple[pd.DataFrame, pd.DataFrame]], message: str) -> None:
    with pytest.warns(RepeatedPairsWarning) as caught:
        train, test = split()
    where, count = message.split(": ")
    assert str(caught[0].message) == (
        f"{where}: expected a pair of 'user_id', 'item_id' in one part, got {count} in both. "
        "Drop repeats before the split."
    )
    assert caught[0].filename == __file__
    assert len(pairs(train) & pairs(test)) == int(count.split()[0])


def test_without_shared_pairs_there_is_no_warning() -> None:
    frame = events().drop_duplicates(list(PAIR), keep="last")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train, test = split_time(frame, "time", 0.5, pair=PAIR)
    assert not pairs(train) & pairs(test)


def test_labels_are_copied_not_added_up() -> None:
    train, test = split_random(events(), 0.5, pair=PAIR)
    assert {*train["label"], *test["label"]} == {1}


@pytest.mark.parametrize("pair", ["ui", ("user_id",), ("user_id", "item_id", "t"), ("user_id", "user_id"), 5])
def test_a_pair_names_two_columns(pair: object) -> None:
    splits = {
        "split_random": lambda: split_random(events(), pair=pair),
        "split_last": lambda: split_last(events(), "user_id", "time", pair=pair),
        "split_time": lambda: split_time(events(), "time", pair=pair),
    }
    for name, split in splits.items():
        with pytest.raises(DataError) as caught:
            split()
        assert str(caught.value) == (
            f"{name}: expected pair to name two columns, the user's and the item's, got {pair!r}. "
            "Give pair=('user_id', 'item_id')."
        )


@pytest.mark.parametrize("seed", [-1, 1.5, True, "a", None])
def test_a_seed_is_an_integer_of_at_least_0(seed: object) -> None:
    with pytest.raises(DataError) as caught:
        split_random(events(), seed=seed)
    assert str(caught.value) == (
        f"split_random: expected seed to be an integer of at least 0, got {seed!r}. The same seed gives the same split."
    )


@pytest.mark.parametrize("kind", [object, pd.ArrowDtype(pa.list_(pa.int64()))])
def test_users_that_are_lists_are_refused(kind: object) -> None:
    frame = events()
    frame["user_id"] = pd.Series([[1]] * len(frame), dtype=kind, index=frame.index)
    remedy = "got lists or other containers. Explode the column into one value per row."
    with pytest.raises(DataError) as caught:
        split_last(frame, "user_id", "time")
    assert str(caught.value) == f"split_last: expected single values in 'user_id', {remedy}"
    with pytest.raises(DataError) as caught:
        split_random(frame, pair=PAIR)
    assert str(caught.value) == f"split_random: expected single values in 'user_id', 'item_id', {remedy}"
