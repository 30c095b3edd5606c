"""Pick rows in any order: one pass over the rows asked for, each of which was asked of memory some rows before."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recsys_emb.kernels.jit import kernel
from recsys_emb.kernels.memory import Integers, prefetch

Cells: TypeAlias = npt.NDArray[np.int32]
RowNumbers: TypeAlias = npt.NDArray[np.int32] | npt.NDArray[np.int64]

AHEAD = 16  # rows between asking and reading
_CELL_BYTES, _OFFSET_BYTES = np.uint64(4), np.uint64(8)
_NEXT = np.uint64(1)


@kernel
def pick_cells(cells: Cells, rows: RowNumbers, indices: Integers, numbers: Cells, answers: Cells) -> None:
    """Split the cells of some rows: first indices, widened, then numbers, then answers, as they are.

    ``cells`` is ``(N, C + F + A)``, ``indices`` ``(C, B)`` and ``answers`` ``(A, B)`` hold a column per row,
    ``numbers`` is ``(B, F)``.
    """
    width, count = cells.shape[1], len(rows)
    first, size = np.uint64(cells.ctypes.data), np.uint64(width) * _CELL_BYTES
    split = len(indices) + numbers.shape[1]
    for here in range(count):
        if here + AHEAD < count and width > 0:
            address = first + np.uint64(rows[here + AHEAD]) * size
            prefetch(address)
            prefetch(address + size - _NEXT)  # a row may begin in one cache line and end in the next
        row = np.intp(rows[here])
        for column in range(len(indices)):
            indices[column, here] = cells[row, column]
        for column in range(numbers.shape[1]):
            numbers[here, column] = cells[row, len(indices) + column]
        for column in range(len(answers)):
            answers[column, here] = cells[row, split + column]


def pick_cells_reference(cells: Cells, rows: RowNumbers, indices: int, numbers: int) -> tuple[Any, Any, Any]:
    """Pick the plain way, with ``indices`` cells of the first kind and ``numbers`` of the second in a row."""
    picked = cells[rows]
    split = indices + numbers
    return picked[:, :indices].T.astype(np.int64), picked[:, indices:split], picked[:, split:].T


@kernel
def pick_offsets(offsets: Integers, rows: RowNumbers, out: Integers) -> None:
    """Write where lists begin when some of them are laid end to end: ``out`` is int64 ``(B + 1,)``."""
    first, count = np.uint64(offsets.ctypes.data), len(rows)
    out[0] = 0
    for here in range(count):
        if here + AHEAD < count:
            prefetch(first + np.uint64(rows[here + AHEAD]) * _OFFSET_BYTES)
        row = np.intp(rows[here])
        out[here + 1] = out[here] + offsets[row + 1] - offsets[row]


@kernel
def pick_values(values: Any, offsets: Integers, rows: RowNumbers, out_offsets: Integers, out: Any) -> None:
    """Lay the values of some lists end to end, widened; ``out_offsets`` are those of `pick_offsets`."""
    first, item, count = np.uint64(values.ctypes.data), np.uint64(values.itemsize), len(rows)
    for here in range(count):
        if here + AHEAD < count:
            prefetch(first + np.uint64(offsets[np.intp(rows[here + AHEAD])]) * item)
        shift = offsets[np.intp(rows[here])] - out_offsets[here]
        for place in range(out_offsets[here], out_offsets[here + 1]):
            out[place] = values[place + shift]


def pick_lists_reference(
    values: Sequence[Any], offsets: Sequence[int], rows: Sequence[int]
) -> tuple[list[Any], list[int]]:
    """Pick lists the plain way: their values, and where they begin."""
    lists = [values[offsets[row] : offsets[row + 1]] for row in rows]
    return list(itertools.chain(*lists)), list(itertools.accumulate(map(len, lists), initial=0))
