"""One small class per kind of column: values -> tensor in `encode`, tensor -> values in `decode`, side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import torch
from torch import Tensor

from recsys_emb.encoding.batch import Column, Jagged
from recsys_emb.encoding.filling import Array, Growing, PerRow, numbered
from recsys_emb.encoding.numbers import Numbers, read_numbers, refuse_rows
from recsys_emb.encoding.statistics import NumericStatistics
from recsys_emb.encoding.values import as_declared, is_whole, read_finite, read_key_lists, read_keys, read_positions
from recsys_emb.errors import ColumnError
from recsys_emb.schema import Categorical, MultiCategorical, Numeric, Position
from recsys_emb.sources.lists import Lists, read_lists
from recsys_emb.sources.parts import Rows
from recsys_emb.vocabulary.reserved import MISSING_INDEX, UNKNOWN_INDEX
from recsys_emb.vocabulary.vocabulary import Vocabulary

FIRST_POSITION = 3
_PLAIN_NUMBER = 2.0**53  # below, an integer is a float of the same value, and a float is one of float32's range
_NULLABLE = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype(), pa.bool_(): pd.BooleanDtype()}


class ColumnCodec(Protocol):
    """A fitted column."""

    @property
    def columns(self) -> list[str]:
        """Columns that it reads."""

    @property
    def num_embeddings(self) -> int:
        """Rows of its table."""

    def encode(self, rows: Rows) -> Column:
        """Values of ``rows`` as a column of a `Batch`."""

    def encode_all(self, stream: Iterable[Rows], num_rows: int) -> Column:
        """Values of a stream of ``num_rows`` rows, in memory that is written once."""

    def encode_one(self, row: Mapping[str, Any]) -> int | Column | None:
        """Value of one row of Python values, an index as it is; None where that takes `encode`."""

    def decode(self, column: Column) -> list[pd.Series]:
        """Raw columns, by their names, that `encode` would read as ``column``."""


class CategoricalCodec(PerRow):
    """A value per row ↔ int64 ``(B,)``."""

    def __init__(self, feature: Categorical, vocabulary: Vocabulary) -> None:
        self.feature = feature
        self.vocabulary = vocabulary
        self.columns = [feature.name]

    @property
    def num_embeddings(self) -> int:
        """Rows of its table."""
        return self.vocabulary.num_embeddings

    def encode_one(self, row: Mapping[str, Any]) -> int | None:
        """Look one value up."""
        value = row[self.feature.name]
        return self.vocabulary.encode_one(value) if as_declared(self.feature, value) else None

    def write(self, rows: Rows, out: Array) -> None:
        """Look the values up."""
        self.vocabulary.encode_into(read_keys(self.feature, rows), out, where=rows.where(self.feature.name))

    def decode(self, column: Column) -> list[pd.Series]:
        """Give the values back; missing where the index is a reserved one."""
        indices = _one_per_row(column, self.feature.name)
        return [to_series(self.vocabulary.take(indices), self.feature.name)]


class MultiCategoricalCodec:
    """A list of values per row ↔ `Jagged`."""

    def __init__(self, feature: MultiCategorical, vocabulary: Vocabulary) -> None:
        self.feature = feature
        self.vocabulary = vocabulary
        self.columns = [name for name in (feature.name, feature.weights) if name is not None]

    @property
    def num_embeddings(self) -> int:
        """Rows of its table."""
        return self.vocabulary.num_embeddings

    def encode(self, rows: Rows) -> Jagged:
        """Look the values of all lists up; a missing list is an empty one."""
        return self.encode_all([rows], len(rows))

    def encode_all(self, stream: Iterable[Rows], num_rows: int) -> Jagged:
        """As `encode`, for a stream of rows."""
        values, weights = Growing(np.int64, num_rows), Growing(np.float32, num_rows)
        offsets = np.zeros(num_rows + 1, np.int64)
        for first, last, rows in numbered(stream, num_rows):
            lists = read_key_lists(self.feature, rows)
            kept = lists.cut(self.feature.max_length, self.feature.keep)
            out = values.extend(len(kept.values), rows=last)
            self.vocabulary.encode_into(kept.values, out, where=rows.where(self.feature.name))
            np.add(kept.offsets[1:], offsets[first], out=offsets[first + 1 : last + 1])
            if self.feature.weights is not None:
                weights.extend(len(out), rows=last)[:] = self._weights(lists, rows)
        weighted = None if self.feature.weights is None else torch.from_numpy(weights.array)
        return Jagged(torch.from_numpy(values.array), torch.from_numpy(offsets), weighted)

    def encode_one(self, row: Mapping[str, Any]) -> Jagged | None:
        """Look the values of one list up."""
        found = row[self.feature.name]
        listed = [] if found is None else found
        if self.feature.weights is not None or type(listed) not in (list, tuple):
            return None
        indices = [self.vocabulary.encode_one(one) if as_declared(self.feature, one) else None for one in listed]
        if None in indices:
            return None
        if self.feature.max_length is not None:
            size = self.feature.max_length
            indices = indices[:size] if self.feature.keep == "first" else indices[-size:]
        return Jagged(torch.from_numpy(np.array(indices, np.int64)), torch.from_numpy(np.array([0, len(indices)])))

    def _weights(self, lists: Lists, rows: Rows) -> Array:
        name = self.columns[1]
        where = rows.where(name)
        weights = read_lists(rows.column(name), where)
        expected = f"a weight per value of {self.feature.name!r}"
        refuse_rows(weights.lengths != lists.lengths, where, expected, "another number", rows.start)
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused below
            numbers = read_numbers(weights.values, where).astype(np.float32)
        wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
        bad = np.zeros(len(rows), bool)
        bad[np.searchsorted(weights.offsets, wrong, side="right") - 1] = True
        refuse_rows(bad, where, "finite weights of at least 0", "others", rows.start)
        kept = weights.cut(self.feature.max_length, self.feature.keep).values
        return read_numbers(kept, where).astype(np.float32)

    def decode(self, column: Column) -> list[pd.Series]:
        """Give the lists back as Python lists, None where the index is a reserved one, and their weights."""
        if not isinstance(column, Jagged):
            raise ColumnError(
                f"{self.feature.name}: expected lists of indices, got one per row. Encode with this encoder."
            )
        found = {self.feature.name: self.vocabulary.take(column.values)}
        if self.feature.weights is not None and column.weights is not None:
            found[self.feature.weights] = pa.array(column.weights.cpu().numpy())
        offsets = pa.array(column.offsets.cpu().numpy())
        lists = {name: pa.LargeListArray.from_arrays(offsets, values).to_pylist() for name, values in found.items()}
        return [pd.Series(rows, name=name, dtype=object) for name, rows in lists.items()]


class PositionCodec(PerRow):
    """An integer from 0 to ``max_position`` ↔ ``3 + position``, if the fit saw it."""

    def __init__(self, feature: Position, seen: npt.NDArray[np.int64]) -> None:
        self.feature = feature
        self.columns = [feature.name]
        # One entry for what is below 0, one per position, one for what is beyond.
        self._index = np.full(feature.max_position + 3, UNKNOWN_INDEX, np.int64)
        self._index[seen + 1] = FIRST_POSITION + seen
        if feature.clamp:
            self._index[-1] = self._index[-2]

    @property
    def num_embeddings(self) -> int:
        """Rows of its table."""
        return FIRST_POSITION + self.feature.max_position + 1

    def encode_one(self, row: Mapping[str, Any]) -> int | None:
        """Shift one position."""
        value = row[self.feature.name]
        if value is None:
            return MISSING_INDEX
        if type(value) is not int:
            return None
        return int(self._index[min(max(value, -1), self.feature.max_position + 1) + 1])

    def write(self, rows: Rows, out: Array) -> None:
        """Shift seen positions past the reserved rows; the others are unknown."""
        numbers = read_positions(self.feature, rows)
        missing = np.isnan(numbers)
        places = np.clip(np.where(is_whole(numbers), numbers, -1), -1, self.feature.max_position + 1).astype(np.int64)
        out[:] = np.where(missing, MISSING_INDEX, self._index[places + 1])

    def decode(self, column: Column) -> list[pd.Series]:
        """Shift back; missing where the index is a reserved one."""
        indices = _one_per_row(column, self.feature.name).numpy()
        positions = pa.array(indices - FIRST_POSITION, mask=indices < FIRST_POSITION)
        return [to_series(positions, self.feature.name)]


class NumericCodec(PerRow):
    """A number per row ↔ float32 ``(B, 2)``: the standardised value and 0, or 0 and 1 where there is none."""

    num_embeddings = 2
    dtype, entry = np.float32, (2,)

    def __init__(self, feature: Numeric, statistics: NumericStatistics) -> None:
        self.feature = feature
        self.columns = [feature.name]
        self.statistics = statistics

    def encode_one(self, row: Mapping[str, Any]) -> Tensor | None:
        """Standardise one number."""
        value = row[self.feature.name]
        if value is None or (type(value) is float and math.isnan(value)):
            return torch.from_numpy(np.array([[0, 1]], np.float32))
        if type(value) not in (float, int) or abs(value) >= _PLAIN_NUMBER:
            return None
        standard = (value - self.statistics.mean) / self.statistics.scale
        return torch.from_numpy(np.array([[standard, 0]], np.float32)) if abs(standard) < _PLAIN_NUMBER else None

    def write(self, rows: Rows, out: Array) -> None:
        """Standardise with the mean and standard deviation of the fit."""
        where = rows.where(self.feature.name)
        numbers = read_finite(rows, self.feature.name)
        missing = np.isnan(numbers)
        with np.errstate(over="ignore"):
            standard = ((numbers - self.statistics.mean) / self.statistics.scale).astype(np.float32)
        refuse_rows(np.isinf(standard), where, "numbers within float32 of the fit", "larger ones", rows.start)
        out[:, 0], out[:, 1] = np.where(missing, 0, standard), missing

    def decode(self, column: Column) -> list[pd.Series]:
        """Undo the standardising, to the digits that float32 carries; NaN where there was no number."""
        shape = "lists" if isinstance(column, Jagged) else f"shape {tuple(column.shape)}"
        if isinstance(column, Jagged) or column.ndim != 2:
            raise ColumnError(f"{self.feature.name}: expected float32 (B, 2), got {shape}. Encode with this encoder.")
        standard, missing = column.cpu().double().numpy().T
        deviation = standard * self.statistics.scale
        numbers = _rounded(deviation + self.statistics.mean, np.abs(deviation) * 2.0**-23)
        return [pd.Series(np.where(missing == 1, np.nan, numbers), name=self.feature.name)]


def to_series(array: pa.Array, name: str) -> pd.Series:
    """Values as a pandas column; integers and booleans stay such, in a nullable dtype where some are missing."""
    return pd.Series(array.to_pandas(types_mapper=_NULLABLE.get if array.null_count else None), name=name)


def _one_per_row(column: Column, name: str) -> Tensor:
    if isinstance(column, Jagged):
        raise ColumnError(f"{name}: expected one index per row, got lists. Encode with this encoder.")
    return column.cpu()


def _rounded(numbers: Numbers, error: Numbers) -> Numbers:
    """Drop the decimals that are smaller than the error, so that 4.99 comes back as 4.99."""
    with np.errstate(divide="ignore", over="ignore"):
        decimals = np.clip(np.floor(-np.log10(error)), 0, 15)
        scale = 10.0**decimals
        return np.where(error > 0, np.round(numbers * scale) / scale, numbers)
