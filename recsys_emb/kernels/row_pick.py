"""Pick rows in any order: memory is asked for each some rows before it is read."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recsys_emb.kernels.jit import inlined, kernel
from recsys_emb.kernels.memory import Integers, prefetch

Cells: TypeAlias = npt.NDArray[np.int32]
RowNumbers: TypeAlias = npt.NDArray[np.int32] | npt.NDArray[np.int64]

# Rows between asking and reading: as many as memory answers while it is busy, several times what a lone miss takes.
AHEAD = 64
_CELL_BYTES, _OFFSET_BYTES, _LINE_BYTES = np.uint64(4), np.uint64(8), np.uint64(64)
_NEXT = np.uint64(1)
# Unsigned: a compiler need not ask whether a place counts from the end.
_place = np.uintp


@kernel
def pick_cells(cells: Cells, rows: RowNumbers, indices: Integers, numbers: Cells, answers: Cells) -> None:
    """Split the cells of some rows: first indices, widened, then numbers, then answers, as they are.

    ``cells`` is ``(N, C + F + A)``, ``indices`` ``(C, B)`` and ``answers`` ``(A, B)`` hold a column per row,
    ``numbers`` is ``(B, F)``. Some rows at a time, column by column, so that writing is in one place at a time.
    """
    count, width = len(rows), _place(cells.shape[1])
    first_number, first_answer = _place(len(indices)), _place(len(indices) + numbers.shape[1])
    flat = cells.reshape(-1)
    _ask_for(cells, rows, 0, min(AHEAD, count))
    for start in range(0, count, AHEAD):
        end = min(start + AHEAD, count)
        _ask_for(cells, rows, end, min(end + AHEAD, count))
        for column in range(len(indices)):
            for here in range(start, end):
                cell = _place(rows[_place(here)]) * width + _place(column)
                indices[_place(column), _place(here)] = flat[cell]
        for here in range(start, end):
            cell = _place(rows[_place(here)]) * width + first_number
            for column in range(_place(numbers.shape[1])):
                numbers[_place(here), column] = flat[cell + column]
        for column in range(len(answers)):
            for here in range(start, end):
                cell = _place(rows[_place(here)]) * width + first_answer + _place(column)
                answers[_place(column), _place(here)] = flat[cell]


@inlined
def _ask_for(cells: Any, rows: Any, start: Any, end: Any) -> None:
    """Prefetch the rows numbered ``rows[start:end]``."""
    first, size = np.uint64(cells.ctypes.data), np.uint64(cells.shape[1]) * _CELL_BYTES
    for here in range(start, end if size > 0 else start):
        address = first + np.uint64(rows[here]) * size
        for line in range(np.uint64(0), size, _LINE_BYTES):
            prefetch(address + line)
        prefetch(address + size - _NEXT)  # a row may begin in one cache line and end in the next


def pick_cells_reference(cells: Cells, rows: RowNumbers, indices: int, numbers: int) -> tuple[Any, Any, Any]:
    """Pick the plain way, with ``indices`` cells of the first kind and ``numbers`` of the second in a row."""
    picked = cells[rows]
    split = indices + numbers
    return picked[:, :indices].T.astype(np.int64), picked[:, indices:split], picked[:, split:].T


@kernel
def pick_offsets(offsets: Integers, rows: RowNumbers, starts: Integers, out: Integers) -> None:
    """Write where some lists begin, int64 ``(B,)``, and where they do end to end: ``out`` is int64 ``(B + 1,)``."""
    first, count, end = np.uint64(offsets.ctypes.data), len(rows), 0
    out[0] = 0
    for here in range(count):
        if here + AHEAD < count:
            prefetch(first + np.uint64(rows[here + AHEAD]) * _OFFSET_BYTES)
        row = _place(rows[_place(here)])
        starts[_place(here)] = offsets[row]
        end += offsets[row + _place(1)] - offsets[row]
        out[_place(here + 1)] = end


@kernel
def pick_values(values: Any, starts: Integers, out_offsets: Integers, out: Any) -> None:
    """Lay the values of some lists end to end, widened; both arrays of numbers are those of `pick_offsets`."""
    first, item, count = np.uint64(values.ctypes.data), np.uint64(values.itemsize), len(starts)
    for here in range(count):
        if here + AHEAD < count:
            prefetch(first + np.uint64(starts[here + AHEAD]) * item)
        start, out_start = _place(starts[_place(here)]), _place(out_offsets[_place(here)])
        for place in range(_place(out_offsets[_place(here + 1)]) - out_start):
            out[out_start + _place(place)] = values[start + _place(place)]


def pick_lists_reference(
    values: Sequence[Any], offsets: Sequence[int], rows: Sequence[int]
) -> tuple[list[Any], list[int]]:
    """Pick lists the plain way: their values, and where they begin."""
    lists = [values[offsets[row] : offsets[row + 1]] for row in rows]
    return list(itertools.chain(*lists)), list(itertools.accumulate(map(len, lists), initial=0))
