"""Hash table of byte strings, frozen: the index of each key.

As `integer_table`, over Arrow's layout of strings: int64 offsets into one run of bytes. A slot is 8 bytes, the upper
half of the key's hash and a 32-bit number, so a search reads the bytes of a key only where it will nearly surely
find them equal.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from recsys_emb.kernels.bytes_search import (
    BLOCK,
    IN_CACHE,
    NUMBER,
    TAG,
    BytesColumn,
    approach,
    hash_row,
    places,
    search,
)
from recsys_emb.kernels.integer_table import table_size
from recsys_emb.kernels.jit import kernel
from recsys_emb.kernels.memory import Bytes, Integers, Unsigned, frozen, is_valid, mark_missing


class BytesIndex:
    """Index of each of some distinct keys, frozen: any number of threads may read it.

    Row r of ``column``, which is kept and not copied, gets the index ``first + r``. `repeated` counts keys that
    stood in an earlier row already.

    >>> index, found = BytesIndex(BytesColumn.of([b"b", b"a"]), first=3, unknown=2, missing=1), np.empty(3, int)
    >>> index.find(BytesColumn.of([b"a", b"", b"b"]), found)
    >>> found.tolist(), index.find_one(b"b")
    ([4, 2, 3], 3)
    """

    def __init__(self, column: BytesColumn, *, first: int, unknown: int, missing: int) -> None:
        slots = np.zeros(table_size(column.rows), np.uint64)
        self._offsets, self._data, self._codes = column.offsets, column.data, (first, unknown, missing)
        self.repeated = place(slots, *column)
        self._slots = frozen(slots)

    def find(self, column: BytesColumn, out: Integers) -> None:
        """Write the index of each key into ``out`` int64 (N,)."""
        offsets, data, validity, bit_offset = column
        table = (self._slots, self._offsets, self._data)
        find(*table, offsets, data, validity, bit_offset, self._codes, out)

    def find_one(self, key: bytes) -> int:
        """Index of one key."""
        return find_one(self._slots, self._offsets, self._data, key, self._codes)


@kernel
def place(slots: Unsigned, offsets: Integers, data: Bytes, validity: Bytes, bit_offset: int) -> int:
    """Put 1 + row of each valid key into empty ``slots``; return how many keys were there already."""
    hashes, starts = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    at, rows, repeated = places(slots, offsets, data, offsets, data), len(offsets) - 1, 0
    for row in range(0, rows, BLOCK):
        end = min(row + BLOCK, rows)
        approach(at, row, end, hashes, starts)
        for here in range(row, end):
            if not is_valid(validity, bit_offset + here):
                continue
            slot = search(at, starts[here - row], hashes[here - row], here)
            if slots[slot] != 0:
                repeated += 1
            else:
                slots[slot] = (hashes[here - row] & TAG) | np.uint64(here + 1)
    return repeated


@kernel
def find(
    slots: Unsigned,
    stored_offsets: Integers,
    stored_data: Bytes,
    offsets: Integers,
    data: Bytes,
    validity: Bytes,
    bit_offset: int,
    codes: tuple[int, int, int],
    out: Integers,
) -> None:
    """Write for each key: first + row that `place` met it in, or unknown, or missing; ``codes`` are these three."""
    first, unknown, missing = codes
    hashes, starts = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    at, rows = places(slots, stored_offsets, stored_data, offsets, data), len(offsets) - 1
    ahead = at.mask >= IN_CACHE
    for row in range(0, rows, BLOCK):
        end = min(row + BLOCK, rows)
        if ahead:
            approach(at, row, end, hashes, starts)
        for here in range(row, end):
            hashed = hashes[here - row] if ahead else hash_row(at, here)
            slot = search(at, starts[here - row] if ahead else hashed & at.mask, hashed, here)
            number = np.int64(slots[slot] & NUMBER) - 1
            out[here] = first + number if number >= 0 else unknown
    mark_missing(validity, bit_offset, missing, out)


@kernel
def find_one(
    slots: Unsigned, stored_offsets: Integers, stored_data: Bytes, key: bytes, codes: tuple[int, int, int]
) -> int:
    """Find the index of one key."""
    offsets = np.empty(2, np.int64)
    offsets[0], offsets[1] = 0, len(key)
    at = places(slots, stored_offsets, stored_data, offsets, np.frombuffer(key, np.uint8))
    hashed = hash_row(at, 0)
    number = np.int64(slots[search(at, hashed & at.mask, hashed, 0)] & NUMBER) - 1
    return int(codes[0] + number) if number >= 0 else codes[1]


def find_reference(
    stored: Iterable[bytes | None], keys: Iterable[bytes | None], *, first: int, unknown: int, missing: int
) -> list[int]:
    """Find the plain way."""
    numbers = {key: number for number, key in enumerate(stored, first) if key is not None}
    return [missing if key is None else numbers.get(key, unknown) for key in keys]
