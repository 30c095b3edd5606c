"""Count byte strings as they stream by.

A key is kept once, as a record of 8-byte words: its count, its length, its bytes. A slot of the hash table is 8 bytes,
the upper half of the key's hash and one more than the number of the record's first word. So a row costs two accesses
to memory, and its block of rows has asked for both ahead.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from recsys_emb.kernels.bytes_search import BLOCK, NUMBER, TAG, BytesColumn
from recsys_emb.kernels.integer_table import capacity
from recsys_emb.kernels.jit import inlined, kernel
from recsys_emb.kernels.memory import (
    Bytes,
    Integers,
    Unsigned,
    equal_bytes,
    frozen,
    hash_bytes,
    is_valid,
    load64,
    prefetch,
)

_SMALLEST = 8 * BLOCK
_HEADER = 2  # words before the bytes of a record
_STEP, _WORD_LOG2, _LENGTH, _BYTES = (np.uint64(value) for value in (1, 3, 8, 16))
_MOST_WORDS = 2**32 - 1  # the number of a word has half a slot
_NO_WEIGHTS = np.empty(0, np.int64)


class BytesCounter:
    """Distinct keys in order of arrival, each with the sum of its weights. Grows; for one writer.

    >>> counter = BytesCounter()
    >>> counter.add(BytesColumn.of([b"b", b"a", b"b"]))
    >>> keys, counts = counter.totals()
    >>> keys.data.tobytes(), counts.tolist()
    (b'ba', [2, 1])
    """

    def __init__(self) -> None:
        self._size, self._used, self._bytes = 0, 0, 0  # keys, words of their records, bytes of the keys themselves
        self._records = np.empty(8 * _SMALLEST, np.int64)
        self._slots = np.zeros(_SMALLEST, np.uint64)

    def __len__(self) -> int:
        """Count the distinct keys."""
        return self._size

    def totals(self) -> tuple[BytesColumn, Integers]:
        """Distinct keys in order of arrival, and the sum of weights of each, int64 ``(len,)``."""
        offsets, counts = np.zeros(self._size + 1, np.int64), np.empty(self._size, np.int64)
        data = np.empty(self._bytes, np.uint8)
        lay_out(self._records, offsets, data, counts)
        return BytesColumn(frozen(offsets), frozen(data)), counts

    def add(self, column: BytesColumn, weights: Integers = _NO_WEIGHTS) -> None:
        """Count valid keys once each, or ``weights`` (int64, one per row, at least 1) times."""
        done, rows = 0, column.rows
        while done < rows:
            room = capacity(len(self._slots)) - self._size
            state = (self._size, self._used, self._bytes)
            done, self._size, self._used, self._bytes = count(
                self._slots, self._records, room, state, *column, weights, done
            )
            if done < rows:
                block = column.offsets[done : done + BLOCK + 1]
                self._grow(_most_words(BLOCK, int(block[-1] - block[0])))

    def _grow(self, words: int) -> None:
        if self._size + BLOCK > capacity(len(self._slots)):
            self._slots = np.zeros(2 * len(self._slots), np.uint64)
            place(self._slots, self._records, self._size)
        if self._used + words > _MOST_WORDS:
            raise OverflowError("BytesCounter: expected distinct keys of less than 32 GiB, got more. Shorten the keys.")
        if self._used + words > len(self._records):
            records = np.empty(max(2 * len(self._records), self._used + words), np.int64)
            records[: self._used] = self._records[: self._used]
            self._records = records


def _most_words(keys: int, size: int) -> int:
    """Words that the records of so many keys of ``size`` bytes together may take."""
    return keys * (_HEADER + 1) + size // 8


@kernel
def count(
    slots: Unsigned,
    records: Integers,
    room: int,
    state: tuple[int, int, int],
    offsets: Integers,
    data: Bytes,
    validity: Bytes,
    bit_offset: int,
    weights: Integers,
    start: int,
) -> tuple[int, int, int, int]:
    """Count rows from ``start`` on; return (rows done, keys, words, bytes), early where a buffer must grow first."""
    size, used, total = state
    most, taken = size + room, records.view(np.uint8)
    mask, table, first = np.uint64(len(slots) - 1), np.uint64(slots.ctypes.data), np.uint64(records.ctypes.data)
    text, hashes, at = np.uint64(data.ctypes.data), np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    rows, row = len(offsets) - 1, start
    while row < rows:
        end = min(row + BLOCK, rows)
        words_after = used + BLOCK * (_HEADER + 1) + (offsets[end] - offsets[row]) // 8
        if size + BLOCK > most or words_after > len(records):
            break
        for here in range(row, end):
            begin = offsets[here]
            hashed = hash_bytes(text + np.uint64(begin), np.uint64(offsets[here + 1] - begin))
            hashes[here - row] = hashed
            prefetch(table + ((hashed & mask) << _WORD_LOG2))
        for spot in range(end - row):
            at[spot] = _slot_of_tag(table, mask, hashes[spot], hashes[spot] & mask)
            mark = slots[at[spot]]
            if mark != 0:
                prefetch(first + (((mark & NUMBER) - _STEP) << _WORD_LOG2))
        for here in range(row, end):
            if not is_valid(validity, bit_offset + here):
                continue
            begin, weight = offsets[here], weights[here] if len(weights) else 1
            length, hashed, slot = offsets[here + 1] - begin, hashes[here - row], at[here - row]
            slot = _slot_of_tag(table, mask, hashed, slot)
            while slots[slot] != 0:
                word = np.int64(slots[slot] & NUMBER) - 1
                stored = first + (np.uint64(word) << _WORD_LOG2) + _BYTES
                if records[word + 1] == length and equal_bytes(stored, text + np.uint64(begin), np.uint64(length)):
                    records[word] += weight
                    break
                slot = _slot_of_tag(table, mask, hashed, (slot + _STEP) & mask)
            if slots[slot] == 0:
                records[used], records[used + 1] = weight, length
                spot = (used + _HEADER) * 8
                for byte in range(length):
                    taken[spot + byte] = data[begin + byte]
                slots[slot] = (hashed & TAG) | np.uint64(used + 1)
                used, size, total = used + _HEADER + (length + 7) // 8, size + 1, total + length
        row = end
    return row, size, used, total


@inlined
def _slot_of_tag(table: np.uint64, mask: np.uint64, hashed: np.uint64, slot: np.uint64) -> np.uint64:
    """Next slot from ``slot`` on that is empty or has the tag of a hash."""
    mark = load64(table + (slot << _WORD_LOG2))
    while mark != 0 and (mark ^ hashed) & TAG != 0:
        slot = (slot + _STEP) & mask
        mark = load64(table + (slot << _WORD_LOG2))
    return slot


@kernel
def place(slots: Unsigned, records: Integers, size: int) -> None:
    """Put the first ``size`` records into empty ``slots``."""
    mask, first, word = np.uint64(len(slots) - 1), np.uint64(records.ctypes.data), 0
    for _ in range(size):
        length = records[word + 1]
        hashed = hash_bytes(first + (np.uint64(word) << _WORD_LOG2) + _BYTES, np.uint64(length))
        slot = hashed & mask
        while slots[slot] != 0:
            slot = (slot + _STEP) & mask
        slots[slot] = (hashed & TAG) | np.uint64(word + 1)
        word += _HEADER + (length + 7) // 8


@kernel
def lay_out(records: Integers, offsets: Integers, data: Bytes, counts: Integers) -> None:
    """Write the keys end to end into ``data``, where each begins into ``offsets`` (N + 1,), and their counts."""
    taken, word = records.view(np.uint8), 0
    for number in range(len(counts)):
        counts[number], length = records[word], records[word + 1]
        spot, begin = (word + _HEADER) * 8, offsets[number]
        for byte in range(length):
            data[begin + byte] = taken[spot + byte]
        offsets[number + 1] = begin + length
        word += _HEADER + (length + 7) // 8


def count_reference(keys: Iterable[bytes | None], weights: Iterable[int]) -> dict[bytes, int]:
    """Count the plain way: None is skipped, first arrivals first."""
    counts: dict[bytes, int] = {}
    for key, weight in zip(keys, weights, strict=True):
        if key is not None:
            counts[key] = counts.get(key, 0) + weight
    return counts
