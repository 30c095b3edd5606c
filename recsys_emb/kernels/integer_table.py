"""Hash table of 64-bit integers, frozen: the index of each key.

Open addressing with linear probing in 16-byte slots ``(key, mark)``, mark 0 for empty. Rows are taken in blocks: in
large tables a first pass asks for every slot of the block and the second finds them already on the way from memory.
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
IN_CACHE = 1 << 16  # tables up to this many slots answer faster without the pass that asks ahead
SLOT_BYTES_LOG2 = np.uint64(4)
_ROOMY = 1 << 20  # up to this many keys a table is at most a quarter full, beyond it half full
_STEP = np.uint64(1)


class IntegerColumn(NamedTuple):
    """Keys int64 ``(N,)`` and an Arrow validity bitmap (empty: all valid) that starts at ``bit_offset``."""

    keys: Integers
    validity: Bytes = ALL_VALID
    bit_offset: int = 0


class IntegerIndex:
    """Index of each of some distinct keys, frozen: any number of threads may read it.

    Row r of ``column`` gets the index ``first + r``, and ``first`` is at least 1. `repeated` counts keys that
    stood in an earlier row already.

    >>> index, found = IntegerIndex(IntegerColumn(np.array([7, 5])), first=3, unknown=2, missing=1), np.empty(3, int)
    >>> index.find(IntegerColumn(np.array([5, 6, 7])), found)
    >>> found.tolist(), index.find_one(7)
    ([4, 2, 3], 3)
    """

    def __init__(self, column: IntegerColumn, *, first: int, unknown: int, missing: int) -> None:
        slots = np.zeros((table_size(len(column.keys)), 2), np.int64)
        self._unknown, self._missing = unknown, missing
        self.repeated = place(slots, *column, first)
        self._slots = frozen(slots)

    def find(self, column: IntegerColumn, out: Integers) -> None:
        """Write the index of each key into ``out`` int64 (N,)."""
        find(self._slots, *column, self._unknown, self._missing, out)

    def find_one(self, key: int) -> int:
        """Index of one key that fits int64."""
        return find_one(self._slots, key, self._unknown)


def table_size(keys: int) -> int:
    """Slots for ``keys`` keys: a power of two, of which a quarter is filled at most (half, if they are many)."""
    share = 4 if keys <= _ROOMY else 2
    return 1 << (share * max(keys, 1) - 1).bit_length()


def capacity(slots: int) -> int:
    """Keys that a growing table of so many slots may hold: a quarter of them (half, if they are many)."""
    return slots // (4 if slots <= 4 * _ROOMY else 2)


@inlined
def shift_of(slots: Integers) -> np.uint64:
    """How far to shift a hash to get a slot of a table whose size is a power of two."""
    bits = 0
    while (1 << bits) < len(slots):
        bits += 1
    return np.uint64(64 - bits)


@kernel
def place(slots: Integers, keys: Integers, validity: Bytes, bit_offset: int, first: int) -> int:
    """Put ``first`` + row of each valid key into empty ``slots``; return how many keys were there already."""
    mask, shift, address = np.uint64(len(slots) - 1), shift_of(slots), np.uint64(slots.ctypes.data)
    repeated = 0
    for row in range(0, len(keys), BLOCK):
        end = min(row + BLOCK, len(keys))
        for here in range(row, end):
            prefetch(address + (home_of_integer(keys[here], shift) << SLOT_BYTES_LOG2))
        for here in range(row, end):
            if not is_valid(validity, bit_offset + here):
                continue
            slot = home_of_integer(keys[here], shift)
            while slots[slot, 1] != 0 and slots[slot, 0] != keys[here]:
                slot = (slot + _STEP) & mask
            if slots[slot, 1] != 0:
                repeated += 1
            else:
                slots[slot, 0], slots[slot, 1] = keys[here], first + here
    return repeated


@inlined
def _search(slots: Integers, key: np.int64, shift: np.uint64, mask: np.uint64) -> np.int64:
    """Mark of a key, 0 where it is not there. Most keys are known, so the key is compared first."""
    slot = home_of_integer(key, shift)
    while slots[slot, 0] != key and slots[slot, 1] != 0:
        slot = (slot + _STEP) & mask
    mark: np.int64 = slots[slot, 1]
    return mark


@kernel
def find_one(slots: Integers, key: int, unknown: int) -> int:
    """Give the mark that `place` left for a key, or ``unknown``."""
    mark = _search(slots, np.int64(key), shift_of(slots), np.uint64(len(slots) - 1))
    return int(mark) if mark != 0 else unknown


@kernel
def find(
    slots: Integers, keys: Integers, validity: Bytes, bit_offset: int, unknown: int, missing: int, out: Integers
) -> None:
    """Write the mark that `place` left for each key, or ``unknown``, or ``missing``.

    Nearly all keys stand in the slot where the search starts. A branch on the others would be guessed wrong often, so
    these are only noted at first.
    """
    mask, shift, address = np.uint64(len(slots) - 1), shift_of(slots), np.uint64(slots.ctypes.data)
    others = np.empty(BLOCK, np.uintp)
    # Unsigned row numbers spare the check for negative ones, which would keep the loop from running full speed.
    rows, block = np.uintp(len(keys)), np.uintp(BLOCK)
    for row in range(np.uintp(0), rows, block):
        end, noted = min(row + block, rows), np.uintp(0)
        if len(slots) > IN_CACHE:
            for here in range(row, end):
                prefetch(address + (home_of_integer(keys[here], shift) << SLOT_BYTES_LOG2))
        for here in range(row, end):
            slot = home_of_integer(keys[here], shift)
            mark = slots[slot, 1]
            out[here] = mark
            others[noted] = here
            noted += np.uintp((slots[slot, 0] != keys[here]) | (mark == 0))  # an empty slot looks like key 0
        for spot in range(np.uintp(0), noted):
            mark = _search(slots, keys[others[spot]], shift, mask)
            out[others[spot]] = mark if mark != 0 else unknown
    mark_missing(validity, bit_offset, missing, out)


def find_reference(
    stored: Iterable[int | None], keys: Iterable[int | None], *, first: int, unknown: int, missing: int
) -> list[int]:
    """Find the plain way."""
    numbers = {key: number for number, key in enumerate(stored, first) if key is not None}
    return [missing if key is None else numbers.get(key, unknown) for key in keys]
