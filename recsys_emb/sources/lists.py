"""List columns as values and offsets, whatever their layout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from recsys_emb.errors import KeyTypeError
from recsys_emb.sources.arrow_types import is_list, type_name
from recsys_emb.sources.keys import to_arrow

Offsets: TypeAlias = npt.NDArray[np.int64]

_LISTS = (list, tuple, np.ndarray)


@dataclass(frozen=True)
class Lists:
    """Lists end to end: list b is ``values[offsets[b]:offsets[b + 1]]``. A missing list is an empty one.

    Examples
    --------
    >>> lists = read_lists(pa.array([[1, 2, 3], None, [4]]), "tags")
    >>> lists.values.to_pylist(), lists.offsets.tolist()
    ([1, 2, 3, 4], [0, 3, 3, 4])
    >>> lists.cut(2, "last").values.to_pylist()
    [2, 3, 4]
    """

    values: pa.Array
    offsets: Offsets

    @property
    def lengths(self) -> Offsets:
        """int64 ``(B,)``, the length of each list."""
        return np.diff(self.offsets)

    def cut(self, max_length: int | None, keep: Literal["first", "last"]) -> Lists:
        """Keep at most ``max_length`` values of each list, those at its ``keep`` end."""
        lengths = self.lengths
        if max_length is None or not (lengths > max_length).any():
            return self
        kept = np.minimum(lengths, max_length)
        starts = self.offsets[:-1] if keep == "first" else self.offsets[1:] - kept
        offsets = _offsets(kept)
        places = np.repeat(starts - offsets[:-1], kept) + np.arange(offsets[-1])
        return Lists(self.values.take(pa.array(places)), offsets)


def read_lists(array: pa.Array, where: str) -> Lists:
    """Take an Arrow list array of any layout apart.

    A column of missing values alone has any type: pandas writes it as floats.

    Raises
    ------
    KeyTypeError
        When the column holds single values.
    """
    if not is_list(array.type):
        if pc.all(pc.is_null(array, nan_is_null=True), min_count=0).as_py():
            return Lists(pa.nulls(0), np.zeros(len(array) + 1, np.int64))
        raise KeyTypeError(
            f"{where}: expected a list per row, got {type_name(array.type)}. "
            "Declare it Categorical, or split the values."
        )
    # Both leave out what lies hidden under a null list or outside a slice.
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return Lists(pc.list_flatten(array), _offsets(lengths))


def holds_lists(values: Any) -> bool:
    """Whether a column of Python objects has a list per row, judging by the first that is there."""
    if isinstance(values, (pd.Series, np.ndarray)) and values.dtype != object:
        return False
    if not isinstance(values, (pd.Series, np.ndarray, list, tuple)):
        return False
    first = next((value for value in values if not _is_missing(value)), None)
    return isinstance(first, _LISTS)


def lists_to_arrow(values: Iterable[Any], where: str) -> pa.Array:
    """Convert a column of Python lists to an Arrow list array.

    Parameters
    ----------
    values
        Lists, tuples or numpy arrays ``(L,)``, and any missing marker for a missing list.
    where
        What messages call it.

    Raises
    ------
    KeyTypeError
        When some rows hold something else, or the values in the lists are of several types.
    """
    rows = [None if _is_missing(row) else row for row in values]
    there = [row for row in rows if row is not None]
    strange = sorted({type(row).__name__ for row in there if not isinstance(row, _LISTS)})
    if strange:
        raise KeyTypeError(f"{where}: expected a list per row, got {', '.join(strange)} too. Wrap it in a list.")
    flat = to_arrow(_chained(there), where)
    elements = flat.combine_chunks() if isinstance(flat, pa.ChunkedArray) else flat
    offsets = _offsets(np.array([0 if row is None else len(row) for row in rows], np.int64))
    mask = pa.array([row is None for row in rows], pa.bool_())
    return pa.LargeListArray.from_arrays(pa.array(offsets), elements, mask=mask)


def _chained(rows: Sequence[Any]) -> Any:
    """All values in one array; arrays of different types become objects, so that no integer passes through a float."""
    types = {row.dtype if isinstance(row, np.ndarray) else None for row in rows if len(row)}
    if len(types) == 1 and None not in types:
        return np.concatenate([row for row in rows if len(row)])
    values = chain.from_iterable(row.tolist() if isinstance(row, np.ndarray) else row for row in rows)
    return pd.Series(list(values), dtype=object)


def _offsets(lengths: npt.NDArray[Any]) -> Offsets:
    return np.concatenate([np.zeros(1, np.int64), lengths.cumsum(dtype=np.int64)])


def _is_missing(value: Any) -> bool:
    return value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and np.isnan(value))
