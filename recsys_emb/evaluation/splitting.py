"""Train and test rows: at random, the last of each user, or the latest of all.

Rows keep their order, index and columns, and the given frame is left as it is. A repeated user-item pair that
stands on both sides makes a model look better than it is: name the ``pair`` of columns, and `split_random` keeps
all rows of a pair on one side, while the splits in time count the pairs that time puts on both sides and warn. Any
other rule for repeats is applied before the split, with pandas: ``frame.drop_duplicates(pair, keep="last")``.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from recsys_emb.errors import (
    ColumnError,
    DataError,
    EmptySourceError,
    RepeatedPairsWarning,
    counted,
    did_you_mean,
    listed,
)

Split: TypeAlias = tuple[pd.DataFrame, pd.DataFrame]

# What pandas calls the contents of columns whose order is not an order in time.
NO_TIMES = {"string", "bytes", "boolean", "mixed", "mixed-integer", "categorical", "complex"}


def split_random(
    frame: pd.DataFrame, fraction: float = 0.2, *, seed: int = 0, pair: Sequence[str] | None = None
) -> Split:
    """Put a random fraction of the rows into the test part.

    Parameters
    ----------
    frame
        Any rows.
    fraction
        Share of the rows in the test part, rounded to whole rows; with ``pair``, share of the distinct pairs.
    seed
        The same seed gives the same split of the same number of rows.
    pair
        User and item column, ``("user_id", "item_id")``: rows with the same pair go to the same side. None takes
        every row by itself.

    Returns
    -------
    tuple of pandas.DataFrame
        Train and test rows, each in the order of ``frame``.

    Raises
    ------
    ColumnError
        When a column of ``pair`` is missing or there twice.
    DataError
        When ``fraction`` is not between 0 and 1, or leaves a side empty.

    Examples
    --------
    >>> frame = pd.DataFrame({"user_id": [1, 1, 2, 2], "item_id": [7, 7, 7, 8]})
    >>> train, test = split_random(frame, 0.34, pair=("user_id", "item_id"))
    >>> len(train) + len(test), len(train.merge(test, on=["user_id", "item_id"]))
    (4, 0)
    """
    _check_frame("split_random", frame, _columns_of("split_random", pair))
    _check_fraction("split_random", fraction)
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or seed < 0:
        got = f"{seed!r}. The same seed gives the same split."
        raise DataError(f"split_random: expected seed to be an integer of at least 0, got {got}")
    groups = np.arange(len(frame)) if pair is None else _group_numbers("split_random", frame, pair)
    count = int(groups.max()) + 1
    in_test = np.zeros(count, dtype=bool)
    in_test[np.random.default_rng(seed).permutation(count)[: round(fraction * count)]] = True
    return _parted("split_random", frame, in_test[groups], f"fraction={fraction}")


def split_last(
    frame: pd.DataFrame, user: str, time: str, *, count: int = 1, pair: Sequence[str] | None = None
) -> Split:
    """Put the last ``count`` rows of every user into the test part.

    Users with at most ``count`` rows stay in the train part as a whole, and so do rows without a user. Of rows of
    one user at one time, those further down in ``frame`` are later.

    Parameters
    ----------
    frame
        Any rows.
    user, time
        Column of the user; column of numbers, dates or times that says which row is later.
    count
        Test rows of each user, at least 1.
    pair
        User and item column; pairs on both sides are counted and reported.

    Returns
    -------
    tuple of pandas.DataFrame
        Train and test rows, each in the order of ``frame``.

    Raises
    ------
    ColumnError
        When a column is missing or there twice.
    DataError
        When times are missing or have no order, or nobody has more than ``count`` rows.

    Warns
    -----
    RepeatedPairsWarning
        When pairs stand on both sides.

    Examples
    --------
    >>> frame = pd.DataFrame({"user_id": ["a", "a", "b"], "t": [2, 1, 1]})
    >>> split_last(frame, "user_id", "t")[1]
      user_id  t
    0       a  2
    """
    _check_frame("split_last", frame, (user, time, *_columns_of("split_last", pair)))
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
        raise DataError(
            f"split_last: expected count to be an integer of at least 1, got {count!r}. Give count=1 or more."
        )
    times = _time_numbers("split_last", frame, time)
    users = np.where(frame[user].isna(), -1, _group_numbers("split_last", frame, [user]))
    order = np.lexsort((times, users))
    of_user = users[order]
    # Rows of one user lie together, the latest at the end of their run.
    start, end = np.searchsorted(of_user, of_user, side="left"), np.searchsorted(of_user, of_user, side="right")
    is_last = (np.arange(len(order)) >= end - count) & (end - start > count) & (of_user >= 0)
    in_test = np.zeros(len(frame), dtype=bool)
    in_test[order] = is_last
    return _parted("split_last", frame, in_test, f"count={count}", pair)


def split_time(frame: pd.DataFrame, time: str, fraction: float = 0.2, *, pair: Sequence[str] | None = None) -> Split:
    """Put the latest rows of all users into the test part: every train row is earlier than every test row.

    Parameters
    ----------
    frame
        Any rows.
    time
        Column of numbers, dates or times.
    fraction
        Share of the rows in the test part. Rows at one time stay together, so the share is the nearest possible.
    pair
        User and item column; pairs on both sides are counted and reported.

    Returns
    -------
    tuple of pandas.DataFrame
        Train and test rows, each in the order of ``frame``.

    Raises
    ------
    ColumnError
        When a column is missing or there twice.
    DataError
        When times are missing, have no order or are all equal, or ``fraction`` is not between 0 and 1.

    Warns
    -----
    RepeatedPairsWarning
        When pairs stand on both sides.

    Examples
    --------
    >>> train, test = split_time(pd.DataFrame({"t": [3, 1, 3, 2]}), "t", 0.25)
    >>> train["t"].tolist(), test["t"].tolist()
    ([1, 2], [3, 3])
    """
    _check_frame("split_time", frame, (time, *_columns_of("split_time", pair)))
    _check_fraction("split_time", fraction)
    times = _time_numbers("split_time", frame, time)
    earlier = np.cumsum(np.bincount(times))[:-1]
    if not len(earlier):
        raise DataError(f"split_time: expected at least two times in {time!r}, got one. Split at random or by user.")
    first_of_test = 1 + np.argmin(np.abs(earlier - (1 - fraction) * len(frame)))
    return _parted("split_time", frame, times >= first_of_test, f"fraction={fraction}", pair)


def _check_frame(where: str, frame: pd.DataFrame, columns: Sequence[str]) -> None:
    if not isinstance(frame, pd.DataFrame):
        house, name = type(frame).__module__.partition(".")[0], type(frame).__name__
        got = name if house == "builtins" else f"a {name} of {house}"
        how = ": frame.to_pandas()" if hasattr(frame, "to_pandas") else ""
        raise DataError(f"{where}: expected a pandas DataFrame, got {got}. Convert it to pandas{how}.")
    names = [str(name) for name in frame.columns]
    for column in columns:
        found = names.count(column)
        if found == 0:
            raise ColumnError(
                f"{where}: expected a column {column!r}, got {listed(names)}.{did_you_mean(column, names)}"
            )
        if found > 1:
            raise ColumnError(f"{where}: expected one column {column!r}, got {found}. Rename or drop the others.")
    if not len(frame):
        raise EmptySourceError(f"{where}: expected rows to split, got none. Check the filter before it.")


def _check_fraction(where: str, fraction: float) -> None:
    number = isinstance(fraction, (int, float, np.integer, np.floating)) and not isinstance(fraction, bool)
    if not number or not 0 < fraction < 1:
        raise DataError(f"{where}: expected fraction between 0 and 1, got {fraction!r}. It is the share of test rows.")


def _columns_of(where: str, pair: Sequence[str] | None) -> Sequence[str]:
    """Name the columns of a pair, none if there is no pair."""
    if pair is None:
        return ()
    two = isinstance(pair, (list, tuple)) and len(pair) == 2 and pair[0] != pair[1]
    if not two:
        got = f"{pair!r}. Give pair=('user_id', 'item_id')."
        raise DataError(f"{where}: expected pair to name two columns, the user's and the item's, got {got}")
    return pair


def _group_numbers(where: str, frame: pd.DataFrame, columns: Sequence[str]) -> NDArray[np.int64]:
    """Give each row the number of its values in some columns, from 0; missing values are values."""
    try:
        groups = frame.groupby(list(columns), sort=False, dropna=False, observed=True)
        return groups.ngroup().to_numpy().astype(np.int64)
    except (TypeError, NotImplementedError) as error:
        raise DataError(
            f"{where}: expected single values in {listed(columns)}, got lists or other containers. "
            "Explode the column into one value per row."
        ) from error


def _time_numbers(where: str, frame: pd.DataFrame, time: str) -> NDArray[np.int64]:
    """Give each row the number of its time, from 0 in ascending order."""
    contents = pd.api.types.infer_dtype(frame[time], skipna=True)
    if contents in NO_TIMES:
        raise DataError(f"{where}: expected numbers, dates or times in {time!r}, got {contents}. Convert the column.")
    numbers, _ = pd.factorize(frame[time], sort=True)
    missing = int((numbers < 0).sum())
    if missing:
        raise DataError(
            f"{where}: expected a time in every row of {time!r}, got {missing} missing. Drop or fill these rows."
        )
    return numbers.astype(np.int64)


def _parted(
    where: str, frame: pd.DataFrame, in_test: NDArray[np.bool], option: str, pair: Sequence[str] | None = None
) -> Split:
    """Cut the frame in two, refuse an empty part, and warn about pairs that stand in both."""
    if in_test.all() or not in_test.any():
        got = f"{in_test.sum()} of {counted(len(frame), 'row')} in test"
        raise DataError(f"{where}: expected rows on both sides, got {got} with {option}. Give more rows or change it.")
    if pair is not None:
        numbers = _group_numbers(where, frame, pair)
        shared = len(np.intersect1d(numbers[in_test], numbers[~in_test]))
        if shared:
            got = f"{counted(shared, 'pair')} in both"
            message = (
                f"{where}: expected a pair of {listed(pair)} in one part, got {got}. Drop repeats before the split."
            )
            warnings.warn(message, RepeatedPairsWarning, stacklevel=3)
    return frame[~in_test], frame[in_test]
