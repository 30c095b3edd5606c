"""Hash tables of 64-bit integers: count keys as they stream by, find the index of each key again.

Open addressing with linear probing in 16-byte slots ``(key, mark)``, mark 0 for empty. Rows are taken in blocks: a
first pass asks for every slot of the block, the second finds them already on the way from memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from recsys_emb.kernels.jit import inlined, kernel
from recsys_emb.kernels.memory import (
    ALL_VALID,
    Bytes,
    Integers,
    frozen,
    home_of_integer,
    is_valid,
    mark_missing,
    prefetch,
)

BLOCK = 256
_SMALLEST = 2 * BLOCK
_IN_CACHE = 1 << 16  # tables up to this many slots answer faster without the pass that asks ahead
_ROOMY = 1 << 20  # up to this many keys a table is at most a quarter full, beyond it half full
_STEP = np.uint64(1)
_SLOT_BYTES_LOG2 = np.uint64(4)
_NO_WEIGHTS = np.empty(0, np.int64)


class IntegerColumn(NamedTuple):
    """Keys int64 ``(N,)`` and an Arrow validity bitmap (empty: all valid) that starts at ``bit_offset``."""

    keys: Integers
    validity: Bytes = ALL_VALID
    bit_offset: int = 0


class IntegerCounter:
    """Distinct keys in order of arrival, each with the sum of its weights. Grows; for one writer.

    >>> counter = IntegerCounter()
    >>> counter.add(IntegerColumn(np.array([7, 5, 7])))
    >>> counter.column.keys.tolist(), counter.counts.tolist()
    ([7, 5], [2, 1])
    """

    def __init__(self) -> None:
        self._size = 0
        self._keys = np.empty(_SMALLEST, np.int64)
        self._counts = np.empty(_SMALLEST, np.int64)
        self._slots = _empty_slots(_SMALLEST)

    def __len__(self) -> int:
        """Count the distinct keys."""
        return self._size

    @property
    def column(self) -> IntegerColumn:
        """Distinct keys in order of arrival, a view."""
        return IntegerColumn(frozen(self._keys[: self._size]))

    @property
    def counts(self) -> Integers:
        """Sum of weights per distinct key, a view."""
        return self._counts[: self._size]

    def add(self, column: IntegerColumn, weights: Integers = _NO_WEIGHTS) -> None:
        """Count valid keys once each, or ``weights`` (int64, one per row) times."""
        done, rows = 0, len(column.keys)
        while done < rows:
            state = (self._slots, self._keys, self._counts, self._size)
            done, self._size = count(*state, column, weights, done)
            if done < rows:
                self._grow()

    def _grow(self) -> None:
        spare = np.empty_like(self._keys)
        self._keys, self._counts = np.concatenate([self._keys, spare]), np.concatenate([self._counts, spare])
        self._slots = _empty_slots(len(self._keys))
        place(self._slots, self.column, 1)


class IntegerIndex:
    """Index of each of some distinct keys, frozen: any number of threads may read it.

    Row r of ``column`` gets the index ``first + r``, and ``first`` is at least 1. `repeated` counts keys that
    stood in an earlier row already.

    >>> index, found = IntegerIndex(IntegerColumn(np.array([7, 5])), first=3, unknown=2, missing=1), np.empty(3, int)
    >>> index.find(IntegerColumn(np.array([5, 6, 7])), found)
    >>> found.tolist()
    [4, 2, 3]
    """

    def __init__(self, column: IntegerColumn, *, first: int, unknown: int, missing: int) -> None:
        self._slots = _empty_slots(len(column.keys))
        self._unknown, self._missing = unknown, missing
        self.repeated = place(self._slots, column, first)

    def find(self, column: IntegerColumn, out: Integers) -> None:
        """Write the index of each key into ``out`` int64 (N,)."""
        find(self._slots, column, self._unknown, self._missing, out)


def table_size(keys: int) -> int:
    """Slots for ``keys`` keys: a power of two, of which a quarter is filled at most (half, if they are many)."""
    share = 4 if keys <= _ROOMY else 2
    return 1 << (share * max(keys, 1) - 1).bit_length()


def _empty_slots(keys: int) -> Integers:
    return np.zeros((table_size(keys), 2), np.int64)


@inlined
def _shift_of(slots: Integers) -> np.uint64:
    bits = 0
    while (1 << bits) < len(slots):
        bits += 1
    return np.uint64(64 - bits)


@kernel
def count(
    slots: Integers,
    stored: Integers,
    counts: Integers,
    size: int,
    column: IntegerColumn,
    weights: Integers,
    start: int,
) -> tuple[int, int]:
    """Count rows from ``start`` on; return (rows done, distinct keys), early where the table must grow first."""
    mask, shift, address = np.uint64(len(slots) - 1), _shift_of(slots), np.uint64(slots.ctypes.data)
    keys, row = column.keys, start
    while row < len(keys) and size + BLOCK <= len(stored):
        end = min(row + BLOCK, len(keys))
        if len(slots) > _IN_CACHE:
            for here in range(row, end):
                prefetch(address + (home_of_integer(keys[here], shift) << _SLOT_BYTES_LOG2))
        for here in range(row, end):
            if not is_valid(column.validity, column.bit_offset + here):
                continue
            key = keys[here]
            weight = weights[here] if len(weights) else 1
            slot = home_of_integer(key, shift)
            while slots[slot, 1] != 0 and slots[slot, 0] != key:
                slot = (slot + _STEP) & mask
            number = slots[slot, 1] - 1
            if number >= 0:
                counts[number] += weight
            else:
                slots[slot, 0], slots[slot, 1] = key, size + 1
                stored[size], counts[size] = key, weight
                size += 1
        row = end
    return row, size


def count_reference(keys: Iterable[int | None], weights: Iterable[int]) -> dict[int, int]:
    """Count the plain way: None is skipped, first arrivals first."""
    counts: dict[int, int] = {}
    for key, weight in zip(keys, weights, strict=True):
        if key is not None:
            counts[key] = counts.get(key, 0) + weight
    return counts


@kernel
def place(slots: Integers, column: IntegerColumn, first: int) -> int:
    """Put ``first`` + row of each valid key into empty ``slots``; return how many keys were there already."""
    mask, shift, address = np.uint64(len(slots) - 1), _shift_of(slots), np.uint64(slots.ctypes.data)
    keys, repeated = column.keys, 0
    for row in range(0, len(keys), BLOCK):
        end = min(row + BLOCK, len(keys))
        for here in range(row, end):
            prefetch(address + (home_of_integer(keys[here], shift) << _SLOT_BYTES_LOG2))
        for here in range(row, end):
            if not is_valid(column.validity, column.bit_offset + here):
                continue
            slot = home_of_integer(keys[here], shift)
            while slots[slot, 1] != 0 and slots[slot, 0] != keys[here]:
                slot = (slot + _STEP) & mask
            if slots[slot, 1] != 0:
                repeated += 1
            else:
                slots[slot, 0], slots[slot, 1] = keys[here], first + here
    return repeated


@kernel
def find(slots: Integers, column: IntegerColumn, unknown: int, missing: int, out: Integers) -> None:
    """Write the mark that `place` left for each key, or ``unknown``, or ``missing``."""
    mask, shift, address = np.uint64(len(slots) - 1), _shift_of(slots), np.uint64(slots.ctypes.data)
    keys, ahead = column.keys, len(slots) > _IN_CACHE
    # Unsigned row numbers spare the check for negative ones, which would keep the loop from running full speed.
    rows = np.uintp(len(keys))
    block = np.uintp(BLOCK) if ahead else max(np.uintp(1), rows)
    for row in range(np.uintp(0), rows, block):
        end = min(row + block, rows)
        if ahead:
            for here in range(row, end):
                prefetch(address + (home_of_integer(keys[here], shift) << _SLOT_BYTES_LOG2))
        for here in range(row, end):
            key = keys[here]
            slot = home_of_integer(key, shift)
            # The key is compared first because most are known; an empty slot holds key 0 and mark 0.
            while slots[slot, 0] != key and slots[slot, 1] != 0:
                slot = (slot + _STEP) & mask
            mark = slots[slot, 1]
            if mark != 0:
                out[here] = mark
            else:
                out[here] = unknown
    mark_missing(column.validity, column.bit_offset, missing, out)


def find_reference(
    stored: Iterable[int | None], keys: Iterable[int | None], *, first: int, unknown: int, missing: int
) -> list[int]:
    """Find the plain way."""
    numbers = {key: number for number, key in enumerate(stored, first) if key is not None}
    return [missing if key is None else numbers.get(key, unknown) for key in keys]
