"""Count 64-bit integers as they stream by.

Keys that lie close together are counted in an array that the key itself addresses, all others in a hash table: open
addressing with linear probing in 16-byte slots ``(key, count)``, count 0 for empty, so that a row costs one access to
memory. Rows are taken in blocks: a first pass asks for every place of the block, the second finds them on their way.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from recsys_emb.kernels.integer_table import BLOCK, IN_CACHE, SLOT_BYTES_LOG2, IntegerColumn, capacity, shift_of
from recsys_emb.kernels.jit import kernel
from recsys_emb.kernels.memory import Bytes, Integers, frozen, home_of_integer, is_valid, prefetch

_SMALLEST = 8 * BLOCK
_SPREAD = 4  # a place costs 8 bytes, a key in a table 32 or more: up to this spread an array is no larger
_SMALL_RANGE = 2048  # so few places fit beside everything else in the first-level cache
_STEP = np.uint64(1)
_COUNT_BYTES_LOG2 = np.uint64(3)
_MIN, _MAX = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_NO_WEIGHTS = np.empty(0, np.int64)


class IntegerCounter:
    """Distinct keys, each with the sum of its weights. Grows; for one writer.

    >>> counter = IntegerCounter()
    >>> counter.add(IntegerColumn(np.array([7, 5, 7, 10**9])))
    >>> keys, counts = counter.totals()
    >>> dict(zip(keys.keys.tolist(), counts.tolist()))
    {5: 1, 7: 2, 1000000000: 1}
    """

    def __init__(self) -> None:
        self._size = 0  # keys in the table
        self._slots = np.zeros((_SMALLEST, 2), np.int64)
        self._low = 0  # key of the first place of the array
        self._places = np.zeros(0, np.int64)

    def __len__(self) -> int:
        """Count the distinct keys."""
        return self._size + int(np.count_nonzero(self._places))

    def totals(self) -> tuple[IntegerColumn, Integers]:
        """Distinct keys, in no particular order, and the sum of weights of each, int64 ``(len,)``."""
        used, counted = self._slots[:, 1] != 0, self._places != 0
        close = np.flatnonzero(counted) + self._low
        keys = np.concatenate([close, self._slots[used, 0]])
        return IntegerColumn(frozen(keys)), np.concatenate([self._places[counted], self._slots[used, 1]])

    def add(self, column: IntegerColumn, weights: Integers = _NO_WEIGHTS) -> None:
        """Count valid keys once each, or ``weights`` (int64, one per row, at least 1) times."""
        done, rows, is_first = 0, len(column.keys), not self._size
        while done < rows:
            room = capacity(len(self._slots))
            table = (self._places, self._low, self._slots, room, self._size)
            done, self._size = count(*table, *column, weights, done)
            if done < rows and not self._draw_together():
                larger = np.zeros((2 * len(self._slots), 2), np.int64)
                move(self._slots, larger)
                self._slots = larger
        if is_first and self._size:
            self._draw_together()

    def _draw_together(self) -> bool:
        """Move the keys from the table into the array, if they lie close enough."""
        most = max(_SPREAD * len(self), _SMALL_RANGE)
        low, high = extent(self._slots, self._places, self._low, most)
        if high - low >= most:
            return False
        (keys, _, _), counts = self.totals()
        # Twice the range, since larger keys are likely to come.
        self._low, self._places = low, np.zeros(max(2 * (high - low + 1), _SMALL_RANGE), np.int64)
        self._places[keys - low] = counts
        self._slots, self._size = np.zeros((_SMALLEST, 2), np.int64), 0
        return True


@kernel
def count(
    places: Integers,
    low: int,
    slots: Integers,
    room: int,
    size: int,
    keys: Integers,
    validity: Bytes,
    bit_offset: int,
    weights: Integers,
    start: int,
) -> tuple[int, int]:
    """Count rows from ``start`` on; return (rows done, keys in the table), early where the table must grow first."""
    mask, shift, address = np.uint64(len(slots) - 1), shift_of(slots), np.uint64(slots.ctypes.data)
    close, first_place = np.uint64(len(places)), np.uint64(places.ctypes.data)
    ahead = len(slots) > IN_CACHE or len(places) > 2 * IN_CACHE
    row = start
    while row < len(keys) and size + BLOCK <= room:
        end = min(row + BLOCK, len(keys))
        if ahead:
            for here in range(row, end):
                place = np.uint64(keys[here] - low)
                if place < close:
                    prefetch(first_place + (place << _COUNT_BYTES_LOG2))
                else:
                    prefetch(address + (home_of_integer(keys[here], shift) << SLOT_BYTES_LOG2))
        for here in range(row, end):
            if not is_valid(validity, bit_offset + here):
                continue
            key = keys[here]
            weight = weights[here] if len(weights) else 1
            place = np.uint64(key - low)
            if place < close:
                places[place] += weight
                continue
            slot = home_of_integer(key, shift)
            while slots[slot, 1] != 0 and slots[slot, 0] != key:
                slot = (slot + _STEP) & mask
            size += slots[slot, 1] == 0
            slots[slot, 0] = key
            slots[slot, 1] += weight
        row = end
    return row, size


@kernel
def extent(slots: Integers, places: Integers, first: int, most: int) -> tuple[int, int]:
    """Least and greatest key of a table and an array, of at least one; a part of them if these lie ``most`` apart."""
    low, high = _MAX, _MIN
    for place in range(len(places)):
        if places[place] != 0:
            low, high = min(low, first + place), max(high, first + place)
    for slot in range(len(slots)):
        if slots[slot, 1] != 0:
            low, high = min(low, slots[slot, 0]), max(high, slots[slot, 0])
            if np.uint64(high - low) >= np.uint64(most):
                break
    return low, high


@kernel
def move(slots: Integers, larger: Integers) -> None:
    """Put what ``slots`` hold into a larger, empty table."""
    mask, shift = np.uint64(len(larger) - 1), shift_of(larger)
    for old in range(len(slots)):
        if slots[old, 1] != 0:
            slot = home_of_integer(slots[old, 0], shift)
            while larger[slot, 1] != 0:
                slot = (slot + _STEP) & mask
            larger[slot, 0], larger[slot, 1] = slots[old, 0], slots[old, 1]


def count_reference(keys: Iterable[int | None], weights: Iterable[int]) -> dict[int, int]:
    """Count the plain way: None is skipped."""
    counts: dict[int, int] = {}
    for key, weight in zip(keys, weights, strict=True):
        if key is not None:
            counts[key] = counts.get(key, 0) + weight
    return counts
