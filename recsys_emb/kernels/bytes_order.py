"""Order byte strings: seven bytes at a time, as one number; only strings equal so far are read any further."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from recsys_emb.kernels.bytes_search import BytesColumn
from recsys_emb.kernels.jit import kernel
from recsys_emb.kernels.memory import Integers, Unsigned

_STEP = 7
_SMALL = 48  # below this many strings insertion beats eight counting passes
_BYTE, _EIGHT, _FULL = np.uint64(255), np.uint64(8), np.uint64(_STEP)


@kernel
def sort_groups(column: BytesColumn, rows: Integers, bounds: Integers) -> None:
    """Sort ``rows`` (row numbers of distinct strings) in place within each group ``[bounds[g], bounds[g + 1])``."""
    words, spare_words, spare_rows = np.empty(len(rows), np.uint64), np.empty(0, np.uint64), np.empty(0, np.int64)
    waiting, count = np.empty((len(bounds), 3), np.int64), 0  # groups to sort: start, end, bytes that are equal so far
    for group in range(len(bounds) - 1):
        waiting[count, 0], waiting[count, 1], waiting[count, 2] = bounds[group], bounds[group + 1], 0
        count += 1
    while count > 0:
        count -= 1
        start, end, depth = waiting[count, 0], waiting[count, 1], waiting[count, 2]
        if end - start < 2:
            continue
        read_words(column, rows[start:end], depth, words[start:end])
        if end - start <= _SMALL:
            insertion_sort(words[start:end], rows[start:end])
        else:
            if len(spare_words) < end - start:
                spare_words, spare_rows = np.empty(end - start, np.uint64), np.empty(end - start, np.int64)
            radix_sort(words[start:end], rows[start:end], spare_words, spare_rows)
        equal_from = start
        for spot in range(start + 1, end + 1):
            if spot == end or words[spot] != words[equal_from]:
                if spot - equal_from > 1:
                    if count == len(waiting):
                        waiting = _doubled(waiting)
                    waiting[count, 0], waiting[count, 1], waiting[count, 2] = equal_from, spot, depth + _STEP
                    count += 1
                equal_from = spot


@kernel
def _doubled(waiting: Integers) -> Integers:
    larger = np.empty((2 * len(waiting), 3), np.int64)
    for group in range(len(waiting)):
        for field in range(3):
            larger[group, field] = waiting[group, field]
    return larger


@kernel
def read_words(column: BytesColumn, rows: Integers, depth: int, words: Unsigned) -> None:
    """Read seven bytes of each string from ``depth`` on, zeros beyond its end, and then how many they really are.

    As numbers these words compare as the strings do, also where one string is another with zeros behind it.
    """
    for spot in range(len(rows)):
        begin, end = column.offsets[rows[spot]] + depth, column.offsets[rows[spot] + 1]
        word = np.uint64(0)
        for place in range(begin, begin + _STEP):
            word = (word << _EIGHT) | (np.uint64(column.data[place]) if place < end else np.uint64(0))
        words[spot] = (word << _EIGHT) | min(np.uint64(max(end - begin, 0)), _FULL)


@kernel
def insertion_sort(words: Unsigned, rows: Integers) -> None:
    """Sort a few words in place, and their rows along."""
    for spot in range(1, len(words)):
        word, row, hole = words[spot], rows[spot], spot
        while hole > 0 and words[hole - 1] > word:
            words[hole], rows[hole] = words[hole - 1], rows[hole - 1]
            hole -= 1
        words[hole], rows[hole] = word, row


@kernel
def radix_sort(words: Unsigned, rows: Integers, spare_words: Unsigned, spare_rows: Integers) -> None:
    """Sort many words in place, and their rows along, byte by byte from the last; the spare arrays are as long."""
    size = len(words)
    histograms = np.zeros((8, 256), np.int64)
    for spot in range(size):
        word = words[spot]
        for digit in range(8):
            histograms[digit, word & _BYTE] += 1
            word >>= _EIGHT
    for digit in range(8):
        histogram, shift = histograms[digit], np.uint64(8 * digit)
        if histogram[(words[0] >> shift) & _BYTE] == size:
            continue  # all words agree here
        total = 0
        for value in range(256):
            total, histogram[value] = total + histogram[value], total
        for spot in range(size):
            value = (words[spot] >> shift) & _BYTE
            spare_words[histogram[value]], spare_rows[histogram[value]] = words[spot], rows[spot]
            histogram[value] += 1
        for spot in range(size):
            words[spot], rows[spot] = spare_words[spot], spare_rows[spot]


def sort_groups_reference(keys: Sequence[bytes], rows: Sequence[int], bounds: Sequence[int]) -> list[int]:
    """Sort the plain way."""
    groups = [rows[start:end] for start, end in itertools.pairwise(bounds)]
    return [row for group in groups for row in sorted(group, key=keys.__getitem__)]
