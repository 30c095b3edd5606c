"""How a byte string is searched for in a table: Arrow's layout of strings, tagged slots, blocks asked for ahead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from recsys_emb.kernels.jit import inlined
from recsys_emb.kernels.memory import (
    ALL_VALID,
    Bytes,
    Integers,
    Unsigned,
    equal_bytes,
    frozen,
    hash_bytes,
    load64,
    prefetch,
)

BLOCK = 256
TAG = np.uint64(0xFFFFFFFF00000000)
NUMBER = np.uint64(0x00000000FFFFFFFF)
IN_CACHE = np.uint64(1 << 17)  # tables up to this many slots answer faster without asking ahead
_STEP = np.uint64(1)
_WORD_BYTES_LOG2 = np.uint64(3)


class BytesColumn(NamedTuple):
    """N keys: key r is ``data[offsets[r]:offsets[r + 1]]``; and an Arrow validity bitmap as in `IntegerColumn`."""

    offsets: Integers
    data: Bytes
    validity: Bytes = ALL_VALID
    bit_offset: int = 0

    @classmethod
    def of(cls, keys: Iterable[bytes]) -> BytesColumn:
        """Lay out Python bytes."""
        listed = list(keys)
        offsets = np.cumsum([0, *(len(key) for key in listed)], dtype=np.int64)
        return cls(frozen(offsets), np.frombuffer(b"".join(listed), np.uint8))

    @property
    def rows(self) -> int:
        """Number of keys, N."""
        return len(self.offsets) - 1


class Places(NamedTuple):
    """Where a kernel reads. Plain addresses, because an array passed to a helper costs two atomic counts a call."""

    slots: np.uint64
    mask: np.uint64
    stored_offsets: np.uint64
    stored_data: np.uint64
    offsets: np.uint64
    data: np.uint64


@inlined
def places(slots: Unsigned, stored_offsets: Integers, stored_data: Bytes, offsets: Integers, data: Bytes) -> Places:
    """Take the addresses of a table, of its keys, and of the keys to search for."""
    return Places(
        np.uint64(slots.ctypes.data),
        np.uint64(len(slots) - 1),
        np.uint64(stored_offsets.ctypes.data),
        np.uint64(stored_data.ctypes.data),
        np.uint64(offsets.ctypes.data),
        np.uint64(data.ctypes.data),
    )


@inlined
def _word(address: np.uint64, number: np.uint64) -> np.uint64:
    return load64(address + (number << _WORD_BYTES_LOG2))


@inlined
def hash_row(at: Places, row: int) -> np.uint64:
    """Hash the key of a row: the upper half is its tag, the lower bits its slot."""
    begin = _word(at.offsets, np.uint64(row))
    return hash_bytes(at.data + begin, _word(at.offsets, np.uint64(row + 1)) - begin)


@inlined
def approach(at: Places, row: int, end: int, hashes: Unsigned, starts: Unsigned) -> None:
    """Hash rows ``row`` to ``end``; for each, write its hash and a slot where the search for it may start.

    Every step asks ahead for what the next one reads: the slot, the offset, the bytes.
    """
    for here in range(row, end):
        hashed = hash_row(at, here)
        hashes[here - row], starts[here - row] = hashed, hashed & at.mask
        prefetch(at.slots + ((hashed & at.mask) << _WORD_BYTES_LOG2))
    for spot in range(end - row):
        slot = starts[spot]
        mark = _word(at.slots, slot)
        while mark != 0 and (mark ^ hashes[spot]) & TAG != 0:
            slot = (slot + _STEP) & at.mask
            mark = _word(at.slots, slot)
        starts[spot] = slot
        prefetch(at.stored_offsets + ((mark & NUMBER) << _WORD_BYTES_LOG2))
    for spot in range(end - row):
        mark = _word(at.slots, starts[spot])
        if mark != 0:
            prefetch(at.stored_data + _word(at.stored_offsets, (mark & NUMBER) - _STEP))


@inlined
def search(at: Places, start: np.uint64, hashed: np.uint64, row: int) -> np.uint64:
    """Slot that holds the key of a row, or the empty slot where it belongs."""
    begin, slot = _word(at.offsets, np.uint64(row)), start
    length = _word(at.offsets, np.uint64(row + 1)) - begin
    while True:
        mark = _word(at.slots, slot)
        if mark == 0:
            break
        if (mark ^ hashed) & TAG == 0:
            number = (mark & NUMBER) - _STEP
            stored = _word(at.stored_offsets, number)
            same_length = _word(at.stored_offsets, number + _STEP) - stored == length
            if same_length and equal_bytes(at.stored_data + stored, at.data + begin, length):
                break
        slot = (slot + _STEP) & at.mask
    return slot
