"""Index of each of some integers that lie close together: one array, addressed by the key itself."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from recsys_emb.kernels.integer_table import BLOCK, IntegerColumn
from recsys_emb.kernels.jit import kernel
from recsys_emb.kernels.memory import Bytes, Integers, frozen, is_valid, mark_missing, prefetch

Entries: TypeAlias = npt.NDArray[np.int32]

_SPREAD = 8  # a key costs 4 bytes of range here and 32 in a hash table, so up to this spread the range is cheaper
_IN_CACHE = 1 << 21  # ranges up to this size answer faster without the pass that asks ahead
_LARGEST_INDEX = 2**31 - 1
_ENTRY_BYTES_LOG2 = np.uint64(2)


class DirectIndex:
    """As `IntegerIndex`, for keys whose range is at most 8 times their number.

    >>> column = IntegerColumn(np.array([12, 10]))
    >>> index, found = DirectIndex(column, low=10, high=12, first=3, unknown=2, missing=1), np.empty(4, int)
    >>> index.find(IntegerColumn(np.array([9, 10, 11, 12])), found)
    >>> found.tolist(), index.find_one(12)
    ([2, 4, 2, 3], 3)
    """

    def __init__(self, column: IntegerColumn, *, low: int, high: int, first: int, unknown: int, missing: int) -> None:
        self._low, self._missing = low, missing
        # The last entry answers for every key outside the range.
        indices = np.full(high - low + 2, unknown, np.int32)
        self.repeated = place(indices, low, *column, first, unknown)
        self._indices = frozen(indices)

    @staticmethod
    def suits(low: int, high: int, *, keys: int, first: int) -> bool:
        """Whether ``keys`` keys between ``low`` and ``high`` are better off here than in a hash table."""
        return high - low < max(_SPREAD * keys, BLOCK) and first + keys <= _LARGEST_INDEX

    def find(self, column: IntegerColumn, out: Integers) -> None:
        """Write the index of each key into ``out`` int64 (N,)."""
        find(self._indices, self._low, *column, self._missing, out)

    def find_one(self, key: int) -> int:
        """Index of one key that fits int64."""
        return find_one(self._indices, self._low, key)


@kernel
def place(
    indices: Entries, low: int, keys: Integers, validity: Bytes, bit_offset: int, first: int, unknown: int
) -> int:
    """Write ``first`` + row of each valid key at its place; return how many places were taken already."""
    repeated = 0
    for row in range(len(keys)):
        if is_valid(validity, bit_offset + row):
            spot = keys[row] - low
            if indices[spot] == unknown:
                indices[spot] = first + row
            else:
                repeated += 1
    return repeated


@kernel
def find(
    indices: Entries, low: int, keys: Integers, validity: Bytes, bit_offset: int, missing: int, out: Integers
) -> None:
    """Write the entry at each key's place; keys below ``low`` wrap around and fall beyond the last place."""
    last, address = np.uint64(len(indices) - 1), np.uint64(indices.ctypes.data)
    ahead = len(indices) > _IN_CACHE
    # Unsigned row numbers spare the check for negative ones, which would keep the loop from running full speed.
    rows = np.uintp(len(keys))
    block = np.uintp(BLOCK) if ahead else max(np.uintp(1), rows)
    for row in range(np.uintp(0), rows, block):
        end = min(row + block, rows)
        if ahead:
            for here in range(row, end):
                prefetch(address + (min(np.uint64(keys[here] - low), last) << _ENTRY_BYTES_LOG2))
        for here in range(row, end):
            out[here] = indices[min(np.uint64(keys[here] - low), last)]
    mark_missing(validity, bit_offset, missing, out)


@kernel
def find_one(indices: Entries, low: int, key: int) -> int:
    """Give the entry at a key's place."""
    return int(indices[min(np.uint64(np.int64(key) - low), np.uint64(len(indices) - 1))])
