"""The best columns of every row of scores, kept from tile to tile.

The state of a row is a binary heap of its best scores and their columns with the worst at the root, so that one
comparison tells whether a column of the next tile is to be kept. Unfilled places hold -inf and column -1.
"""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from recsys_emb.kernels.jit import inlined, kernel

Score = TypeVar("Score", bound=np.floating)
Int64s: TypeAlias = NDArray[np.int64]

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
