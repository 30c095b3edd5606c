"""The best columns of every row of scores, kept from tile to tile, and settled by exact scores.

The state of a row is a binary heap of its best scores and their columns with the worst at the root, so that one
comparison tells whether a column of the next tile is to be kept. Unfilled places hold -inf and column -1.
"""

from __future__ import annotations

import itertools
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from recsys_emb.kernels.jit import inlined, kernel

Score = TypeVar("Score", bound=np.floating)
Int64s: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

# Columns tested against the threshold together; most groups hold nothing to keep.
GROUP = 128


@inlined
def _is_worse(score: Score, column: np.int64, other_score: Score, other_column: np.int64) -> bool:
    return bool(score < other_score or (score == other_score and column > other_column))


@kernel
def _contains(ascending: Int64s, start: np.int64, end: np.int64, column: np.int64) -> bool:
    while start < end:
        middle = (start + end) >> 1
        if ascending[middle] < column:
            start = middle + 1
        elif ascending[middle] > column:
            end = middle
        else:
            return True
    return False


@kernel
def _replace_root(scores: NDArray[Score], columns: Int64s, score: Score, column: np.int64) -> None:
    hole, child, size = 0, 1, len(scores)
    while child < size:
        right = child + 1
        if right < size and _is_worse(scores[right], columns[right], scores[child], columns[child]):
            child = right
        if not _is_worse(scores[child], columns[child], score, column):
            break
        scores[hole], columns[hole] = scores[child], columns[child]
        hole, child = child, 2 * child + 1
    scores[hole], columns[hole] = score, column


@kernel
def scan(
    tile: NDArray[Score],
    first: int,
    excluded: Int64s,
    offsets: Int64s,
    best_scores: NDArray[Score],
    best_columns: Int64s,
) -> None:
    """Take a tile's columns into the best of every row, in place.

    Parameters
    ----------
    tile
        ``(B, W)`` scores of the columns ``first`` to ``first + W - 1``. Tiles come in ascending order of columns.
    first
        Column of ``tile[:, 0]``.
    excluded, offsets
        int64 ``(N,)`` and ``(B + 1,)``; row b never keeps a column of ``excluded[offsets[b]:offsets[b + 1]]``,
        which ascends.
    best_scores, best_columns
        ``(B, C)`` and int64 ``(B, C)``, the heaps: at first all -inf and -1. Of equal scores the lower columns
        are kept. Scores of -inf and NaN are never kept.
    """
    rows, width = tile.shape
    capacity = best_scores.shape[1]
    # Unsigned indices and a plain "or" let the compiler turn the test of a group into a few vector comparisons.
    end, step = np.uintp(width), np.uintp(GROUP)
    for row in range(rows if capacity else 0):
        scores = tile[row]
        threshold = best_scores[row, 0]
        for start in range(np.uintp(0), end, step):
            stop = min(np.uintp(start + step), end)
            above = False
            for place in range(start, stop):
                above |= scores[place] > threshold
            if not above:
                continue
            for place in range(start, stop):
                score, column = scores[place], np.int64(first) + np.int64(place)
                if score > threshold and not _contains(excluded, offsets[row], offsets[row + 1], column):
                    _replace_root(best_scores[row], best_columns[row], score, column)
                    threshold = best_scores[row, 0]


@kernel
def lists_of_columns(items: Int64s, offsets: Int64s, columns: Int64s, out: Int64s) -> None:
    """Turn lists of items into ascending lists of their columns.

    Parameters
    ----------
    items, offsets
        int64 ``(N,)`` and ``(B + 1,)``.
    columns
        int64 ``(I,)``, the column of each item; -1 for none, which comes first.
    out
        int64 ``(N,)``, written.
    """
    for place in range(len(items)):
        out[place] = columns[items[place]]
    for row in range(len(offsets) - 1):
        out[offsets[row] : offsets[row + 1]].sort()


def lists_of_columns_reference(items: Int64s, offsets: Int64s, columns: Int64s, out: Int64s) -> None:
    """Do the same list by list."""
    for start, end in itertools.pairwise(offsets):
        out[start:end] = np.sort(columns[items[start:end]])


@kernel
def _folded(terms: Floats) -> float:
    size = len(terms)
    while size > 1:
        half = size >> 1
        for place in range(half):
            terms[place] += terms[half + place]
        if size & 1:
            terms[half] = terms[size - 1]
        size -= half
    return float(terms[0])


@kernel
def settle(
    users: NDArray[np.floating],
    vectors: NDArray[np.floating],
    biases: NDArray[np.floating],
    columns: Int64s,
    best_scores: Floats,
    best_columns: Int64s,
) -> None:
    """Score the columns of every row exactly, and keep the best of them in order.

    A score is the sum of the float64 products of a user's and a column's vector, and the column's bias, added up by
    folding this row of terms in half again and again: the same bits wherever it is taken.

    Parameters
    ----------
    users, vectors, biases
        Floating-point ``(B, D)``, ``(C, D)`` and ``(C,)``.
    columns
        int64 ``(B, N)``; -1 for none.
    best_scores, best_columns
        float64 and int64 ``(B, K)``, K at most N, written: score descending, then column ascending; -inf and -1
        where fewer are left.
    """
    width = vectors.shape[1]
    terms = np.empty(width + 1)
    for row in range(len(columns)):
        scores, chosen = best_scores[row], best_columns[row]
        scores[:], chosen[:] = -np.inf, -1
        for column in columns[row]:
            if column < 0:
                continue
            for place in range(width):
                terms[place] = np.float64(users[row, place]) * np.float64(vectors[column, place])
            terms[width] = biases[column]
            score = _folded(terms)
            if len(scores) and _is_worse(scores[0], chosen[0], score, column):
                _replace_root(scores, chosen, score, column)
        # The root is the worst of those left: it goes to their end.
        for size in range(len(scores) - 1, 0, -1):
            score, column = scores[size], chosen[size]
            scores[size], chosen[size] = scores[0], chosen[0]
            _replace_root(scores[:size], chosen[:size], score, column)


def settle_reference(
    users: NDArray[np.floating],
    vectors: NDArray[np.floating],
    biases: NDArray[np.floating],
    columns: Int64s,
    best_scores: Floats,
    best_columns: Int64s,
) -> None:
    """Do the same by sorting."""
    best_scores[:], best_columns[:] = -np.inf, -1
    for row, chosen in enumerate(columns):
        pairs = []
        for column in chosen[chosen >= 0]:
            terms = np.append(users[row].astype(np.float64) * vectors[column].astype(np.float64), biases[column])
            while len(terms) > 1:
                half = len(terms) // 2
                terms = np.append(terms[:half] + terms[half : 2 * half], terms[2 * half :])
            pairs.append((float(terms[0]), int(column)))
        pairs.sort(key=lambda pair: (-pair[0], pair[1]))
        for place, (score, column) in enumerate(pairs[: best_scores.shape[1]]):
            best_scores[row, place], best_columns[row, place] = score, column


def scan_reference(
    tile: NDArray[Score],
    first: int,
    excluded: Int64s,
    offsets: Int64s,
    best_scores: NDArray[Score],
    best_columns: Int64s,
) -> None:
    """Do the same by sorting; the best of a row are the same set, in order instead of a heap."""
    rows, capacity = best_scores.shape
    for row in range(rows):
        barred = set(excluded[offsets[row] : offsets[row + 1]].tolist())
        kept = list(zip(best_scores[row].tolist(), best_columns[row].tolist(), strict=True))
        for place, score in enumerate(tile[row].tolist()):
            if score > -np.inf and first + place not in barred:
                kept.append((score, first + place))
        kept.sort(key=lambda pair: (-pair[0], pair[1]))
        for place, (score, column) in enumerate(kept[:capacity]):
            best_scores[row, place], best_columns[row, place] = score, column
