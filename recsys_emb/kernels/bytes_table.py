"""Hash tables of byte strings: count keys as they stream by, find the index of each key again.

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
from recsys_emb.kernels.memory import Integers, Unsigned, frozen, is_valid, mark_missing

_SMALLEST = 2 * BLOCK
_NO_WEIGHTS = np.empty(0, np.int64)


class BytesCounter:
    """Distinct keys in order of arrival, each with the sum of its weights. Grows; for one writer.

    >>> counter = BytesCounter()
    >>> counter.add(BytesColumn.of([b"b", b"a", b"b"]))
    >>> counter.column.data.tobytes(), counter.counts.tolist()
    (b'ba', [2, 1])
    """

    def __init__(self) -> None:
        self._size = 0
        self._offsets = np.zeros(_SMALLEST + 1, np.int64)
        self._data = np.empty(16 * _SMALLEST, np.uint8)
        self._counts = np.empty(_SMALLEST, np.int64)
        self._slots = np.zeros(table_size(_SMALLEST), np.uint64)

    def __len__(self) -> int:
        """Count the distinct keys."""
        return self._size

    @property
    def column(self) -> BytesColumn:
        """Distinct keys in order of arrival, a view."""
        offsets = self._offsets[: self._size + 1]
        return BytesColumn(frozen(offsets), frozen(self._data[: offsets[-1]]))

    @property
    def counts(self) -> Integers:
        """Sum of weights per distinct key, a view."""
        return self._counts[: self._size]

    def add(self, column: BytesColumn, weights: Integers = _NO_WEIGHTS) -> None:
        """Count valid keys once each, or ``weights`` (int64, one per row) times."""
        done, rows = 0, column.rows
        while done < rows:
            stored = BytesColumn(self._offsets, self._data)
            done, self._size = count(self._slots, stored, self._counts, self._size, column, weights, done)
            if done < rows:
                block = column.offsets[done : done + BLOCK + 1]
                self._grow(int(block[-1] - block[0]))

    def _grow(self, block_bytes: int) -> None:
        if self._size + BLOCK > len(self._counts):
            spare = np.empty_like(self._counts)
            self._offsets, self._counts = np.append(self._offsets, spare), np.append(self._counts, spare)
            self._slots = np.zeros(table_size(len(self._counts)), np.uint64)
            place(self._slots, self.column)
        used = int(self._offsets[self._size])
        if used + block_bytes > len(self._data):
            data = np.empty(max(2 * len(self._data), used + block_bytes), np.uint8)
            data[:used] = self._data[:used]
            self._data = data


class BytesIndex:
    """Index of each of some distinct keys, frozen: any number of threads may read it.

    Row r of ``column``, which is kept and not copied, gets the index ``first + r``. `repeated` counts keys that
    stood in an earlier row already.

    >>> index, found = BytesIndex(BytesColumn.of([b"b", b"a"]), first=3, unknown=2, missing=1), np.empty(3, int)
    >>> index.find(BytesColumn.of([b"a", b"", b"b"]), found)
    >>> found.tolist()
    [4, 2, 3]
    """

    def __init__(self, column: BytesColumn, *, first: int, unknown: int, missing: int) -> None:
        self._slots = np.zeros(table_size(column.rows), np.uint64)
        self._column, self._codes = column, (first, unknown, missing)
        self.repeated = place(self._slots, column)

    def find(self, column: BytesColumn, out: Integers) -> None:
        """Write the index of each key into ``out`` int64 (N,)."""
        find(self._slots, self._column, column, self._codes, out)


@kernel
def count(
    slots: Unsigned,
    stored: BytesColumn,
    counts: Integers,
    size: int,
    column: BytesColumn,
    weights: Integers,
    start: int,
) -> tuple[int, int]:
    """Count rows from ``start`` on; return (rows done, distinct keys), early where a buffer must grow first."""
    hashes, starts = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    at, rows, row = places(slots, stored, column), len(column.offsets) - 1, start
    while row < rows:
        end = min(row + BLOCK, rows)
        bytes_after = stored.offsets[size] + column.offsets[end] - column.offsets[row]
        if size + BLOCK > len(counts) or bytes_after > len(stored.data):
            break
        approach(at, row, end, hashes, starts)
        for here in range(row, end):
            if not is_valid(column.validity, column.bit_offset + here):
                continue
            weight = weights[here] if len(weights) else 1
            slot = search(at, starts[here - row], hashes[here - row], here)
            number = np.int64(slots[slot] & NUMBER) - 1
            if number >= 0:
                counts[number] += weight
            else:
                begin, until, used = column.offsets[here], column.offsets[here + 1], stored.offsets[size]
                stored.data[used : used + until - begin] = column.data[begin:until]
                stored.offsets[size + 1], counts[size] = used + until - begin, weight
                size += 1
                slots[slot] = (hashes[here - row] & TAG) | np.uint64(size)
        row = end
    return row, size


def count_reference(keys: Iterable[bytes | None], weights: Iterable[int]) -> dict[bytes, int]:
    """Count the plain way: None is skipped, first arrivals first."""
    counts: dict[bytes, int] = {}
    for key, weight in zip(keys, weights, strict=True):
        if key is not None:
            counts[key] = counts.get(key, 0) + weight
    return counts


@kernel
def place(slots: Unsigned, column: BytesColumn) -> int:
    """Put 1 + row of each valid key into empty ``slots``; return how many keys were there already."""
    hashes, starts = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    at, rows, repeated = places(slots, column, column), len(column.offsets) - 1, 0
    for row in range(0, rows, BLOCK):
        end = min(row + BLOCK, rows)
        approach(at, row, end, hashes, starts)
        for here in range(row, end):
            if not is_valid(column.validity, column.bit_offset + here):
                continue
            slot = search(at, starts[here - row], hashes[here - row], here)
            if slots[slot] != 0:
                repeated += 1
            else:
                slots[slot] = (hashes[here - row] & TAG) | np.uint64(here + 1)
    return repeated


@kernel
def find(slots: Unsigned, stored: BytesColumn, column: BytesColumn, codes: tuple[int, int, int], out: Integers) -> None:
    """Write for each key: first + row that `place` met it in, or unknown, or missing; ``codes`` are these three."""
    first, unknown, missing = codes
    hashes, starts = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    at, rows = places(slots, stored, column), len(column.offsets) - 1
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
    mark_missing(column.validity, column.bit_offset, missing, out)


def find_reference(
    stored: Iterable[bytes | None], keys: Iterable[bytes | None], *, first: int, unknown: int, missing: int
) -> list[int]:
    """Find the plain way."""
    numbers = {key: number for number, key in enumerate(stored, first) if key is not None}
    return [missing if key is None else numbers.get(key, unknown) for key in keys]
