"""Encoded rows kept small, and picked in any order at one memory access per row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_emb import kernels
from recsys_emb.encoding.batch import Batch, Column, Jagged
from recsys_emb.encoding.filling import Array, Growing
from recsys_emb.errors import DataError

_LARGEST = 2**31 - 1
CELL = np.dtype(np.int32)


@dataclass(frozen=True, eq=False)
class StoredLists:
    """Lists end to end: ``values`` int32 ``(M,)``, ``offsets`` int64 ``(N + 1,)``, ``weights`` float32 or None."""

    values: Array
    offsets: Array
    weights: Array | None = None

    def pick(self, rows: Array) -> Jagged:
        """Give the lists numbered ``rows``."""
        starts, offsets = np.empty(len(rows), np.int64), np.empty(len(rows) + 1, np.int64)
        kernels.row_pick.pick_offsets(self.offsets, rows, starts, offsets)
        values = _laid_out(self.values, starts, offsets, np.int64)
        weights = None if self.weights is None else _laid_out(self.weights, starts, offsets, np.float32)
        return Jagged(values, torch.from_numpy(offsets), weights)


def _laid_out(values: Array, starts: Array, offsets: Array, dtype: type) -> Tensor:
    out: Array = np.empty(int(offsets[-1]), dtype)
    kernels.row_pick.pick_values(values, starts, offsets, out)
    return torch.from_numpy(out)


@dataclass(frozen=True, eq=False)
class RowStore:
    """Encoded rows, row by row.

    Parameters
    ----------
    template
        Batch without rows: which columns there are, in which order.
    cells
        int32 ``(N, W)``, one row's cells side by side: its single indices; then, as the bits of float32, two per
        `Numeric`; then label and weight if they are there.
    lists
        `MultiCategorical` columns by name.

    Examples
    --------
    >>> batch = Batch({"user_id": torch.tensor([3, 4, 5])}, label=torch.tensor([1.0, 0.0, 0.5]))
    >>> picked = RowStore.of([batch]).pick(np.array([2, 0]))
    >>> picked["user_id"], picked.label
    (tensor([5, 3]), tensor([0.5000, 1.0000]))
    """

    template: Batch
    cells: Array
    lists: Mapping[str, StoredLists]

    @classmethod
    def of(cls, batches: Iterable[Batch], *, num_rows: int = 0, room: dict[str, Growing] | None = None) -> RowStore:
        """Keep the rows of ``batches``, of which there is at least one and ``num_rows`` rows, if that is known.

        They are kept in ``room``, which is empty or has held the rows of a store that nobody asks any more; batches
        that were picked from that are not touched.

        Raises
        ------
        DataError
            When there is no batch, or an index does not fit 32 bits.
        """
        grown = {} if room is None else room

        def open_sink(name: str, dtype: npt.DTypeLike) -> Sink:
            return grown.setdefault(name, Growing(dtype)).restart(num_rows)

        template, count = write_rows(batches, open_sink)
        return cls.from_arrays(template, count, {name: one.array for name, one in grown.items()})

    @classmethod
    def from_arrays(cls, template: Batch, num_rows: int, arrays: Mapping[str, Array]) -> RowStore:
        """Put together what `write_rows` wrote."""
        frozen = {name: kernels.memory.frozen(array) for name, array in arrays.items()}
        names = [name for name, column in template.columns.items() if isinstance(column, Jagged)]
        lists = {
            name: StoredLists(frozen[f"{place}.values"], frozen[f"{place}.offsets"], frozen.get(f"{place}.weights"))
            for place, name in enumerate(names)
        }
        return cls(template, frozen["cells"].reshape(num_rows, _Widths.of(template).total), lists)

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.cells)

    def pick(self, rows: Array) -> Batch:
        """Batch of the rows numbered ``rows``, int32 or int64 ``(B,)``."""
        widths = _Widths.of(self.template)
        indices = np.empty((widths.indices, len(rows)), np.int64)
        numbers = np.empty((len(rows), widths.numbers), np.float32)
        answers = np.empty((widths.answers, len(rows)), np.float32)
        kernels.row_pick.pick_cells(self.cells, rows, indices, numbers.view(CELL), answers.view(CELL))
        single, given = iter(torch.from_numpy(indices).unbind()), iter(torch.from_numpy(answers).unbind())
        pairs = iter(torch.from_numpy(numbers.reshape(len(rows), widths.numbers // 2, 2)).unbind(1))
        columns: dict[str, Column] = {}
        for name, column in self.template.columns.items():
            if isinstance(column, Jagged):
                columns[name] = self.lists[name].pick(rows)
            else:
                columns[name] = next(pairs).contiguous() if column.is_floating_point() else next(single)
        label = None if self.template.label is None else next(given)
        return Batch(columns, label, None if self.template.weight is None else next(given), self.template.limits)


@dataclass(frozen=True)
class _Widths:
    """How many cells of a row are indices, numbers and answers."""

    indices: int
    numbers: int
    answers: int

    @classmethod
    def of(cls, batch: Batch) -> _Widths:
        floating = [one.is_floating_point() for one in batch.columns.values() if isinstance(one, Tensor)]
        answers = [one for one in (batch.label, batch.weight) if one is not None]
        return cls(floating.count(False), 2 * floating.count(True), len(answers))

    @property
    def total(self) -> int:
        """Cells of a row."""
        return self.indices + self.numbers + self.answers


class Sink(Protocol):
    """Takes pieces of an array, one after another."""

    def append(self, piece: npt.NDArray[Any], *, rows: int) -> None:
        """Take the next piece; all ``rows`` rows so far are done with it."""


def write_rows(batches: Iterable[Batch], open_sink: Callable[[str, npt.DTypeLike], Sink]) -> tuple[Batch, int]:
    """Write rows as `RowStore` keeps them; return the template and the number of rows.

    Sinks are named "cells", and for the first list column "0.values", "0.offsets" and "0.weights", and so on.
    """
    template, count = None, 0
    for batch in batches:
        if template is None:
            template = batch.select(torch.zeros(0, dtype=torch.int64))
            lists = [_ListWriter(str(place), one, open_sink) for place, one in enumerate(_lists_of(batch))]
            cells = open_sink("cells", CELL)
        count += len(batch)
        cells.append(_cells_of(batch).reshape(-1), rows=count)
        for writer, column in zip(lists, _lists_of(batch), strict=True):
            writer.write(column, count)
    if template is None:
        raise DataError("RowStore: expected at least one batch, got none. Encode an empty frame instead.")
    return template, count


class _ListWriter:
    def __init__(self, place: str, like: Jagged, open_sink: Callable[[str, npt.DTypeLike], Sink]) -> None:
        self._values, self._offsets = open_sink(f"{place}.values", CELL), open_sink(f"{place}.offsets", np.int64)
        self._weights = None if like.weights is None else open_sink(f"{place}.weights", np.float32)
        self._offsets.append(np.zeros(1, np.int64), rows=0)
        self._end = 0

    def write(self, column: Jagged, rows: int) -> None:
        self._values.append(_narrow(column.values), rows=rows)
        self._offsets.append(column.offsets[1:].numpy() + self._end, rows=rows)
        if self._weights is not None and column.weights is not None:
            self._weights.append(column.weights.numpy(), rows=rows)
        self._end += len(column.values)


def _lists_of(batch: Batch) -> list[Jagged]:
    return [column for column in batch.columns.values() if isinstance(column, Jagged)]


def _cells_of(batch: Batch) -> Array:
    """One row's cells side by side, int32 ``(B, W)``."""
    single = [column for column in batch.columns.values() if isinstance(column, Tensor)]
    indices = [_narrow(column) for column in single if not column.is_floating_point()]
    numbers = [column for column in single if column.is_floating_point()]
    answers = [column[:, None] for column in (batch.label, batch.weight) if column is not None]
    cells = np.empty((len(batch), _Widths.of(batch).total), CELL)
    for place, narrow in enumerate(indices):
        cells[:, place] = narrow
    start = len(indices)
    for column in (*numbers, *answers):
        cells[:, start : start + column.shape[1]] = column.numpy().view(CELL)
        start += column.shape[1]
    return cells


def _narrow(indices: Tensor) -> Array:
    if len(indices) and int(indices.max()) > _LARGEST:
        raise DataError(f"RowStore: expected indices of at most {_LARGEST}, got {int(indices.max())}. Load unshuffled.")
    return indices.numpy().astype(CELL)
