"""In which order an epoch visits the rows: their own, a random one, or a random one that reads in long runs."""

from __future__ import annotations

import bisect
import hashlib
import itertools
import sys
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from recsys_emb import kernels
from recsys_emb.encoding.filling import Array


def digest_of(blocks: Sequence[int]) -> str:
    """Tell one division into blocks from another."""
    return hashlib.sha256(np.asarray(blocks, np.int64).tobytes()).hexdigest()[:16]


class Order(Protocol):
    """An order of all rows."""

    def rows(self, first: int, last: int) -> Array:
        """Numbers of the rows at places ``first`` to ``last - 1``, int32 or int64 ``(last - first,)``."""


class InOrder:
    """The rows' own order."""

    def rows(self, first: int, last: int) -> Array:
        """Numbers of the rows at places ``first`` to ``last - 1``."""
        return np.arange(first, last)


class Shuffled:
    """An order drawn evenly from all, of ``num_rows`` rows; a function of ``parts``, which are integers from 0.

    >>> sorted(Shuffled(4, [7, 1]).rows(0, 4).tolist())
    [0, 1, 2, 3]
    """

    def __init__(self, num_rows: int, parts: Sequence[int]) -> None:
        self._order: Array = np.empty(num_rows, np.int32 if num_rows < 2**31 else np.int64)
        keys = np.random.SeedSequence(list(parts)).generate_state(2, np.uint64)
        kernels.gather.shuffle(keys, kernels.gather.bucket_bits(num_rows), self._order)

    def rows(self, first: int, last: int) -> Array:
        """Numbers of the rows at places ``first`` to ``last - 1``."""
        return self._order[first:last]


class Windowed:
    """Blocks of rows in random order, and the rows of this sequence shuffled window by window.

    Parameters
    ----------
    blocks
        Rows of each block: a block is read from its beginning to its end.
    size
        Rows of a window.
    first, last
        Places of the sequence to visit, windows lie between them; the first one is cut at random.
    step
        Windows begin at ``first`` and multiples of this beyond it.
    parts
        The order is a function of these integers, from 0, and of the above.

    Examples
    --------
    >>> order = Windowed([2, 2, 2], size=4, first=0, last=6, step=2, parts=[0, 0])
    >>> order.windows, order.sequence(0, 6).tolist(), order.rows(0, 4).tolist(), order.rows(4, 6).tolist()
    ([(0, 4), (4, 6)], [2, 3, 4, 5, 0, 1], [4, 5, 2, 3], [1, 0])
    """

    def __init__(
        self, blocks: Sequence[int], *, size: int, first: int, last: int, step: int, parts: Sequence[int]
    ) -> None:
        self._parts = list(parts)
        self.blocks = Shuffled(len(blocks), [*self._parts, 0]).rows(0, len(blocks)).tolist()
        begins = np.concatenate([[0], np.cumsum(blocks, dtype=np.int64)])
        self._begins = begins[:-1][self.blocks]
        self._ends = np.cumsum(np.asarray(blocks, np.int64)[self.blocks])
        # A whole window, or less: neighbours that a border parts in one epoch are together in another.
        drawn = np.random.default_rng([*self._parts, 1]).integers(1, size // step + 1) * step
        borders = [first, *range(first + int(drawn), last, size), last]
        self.windows = [(start, end) for start, end in itertools.pairwise(borders) if start < end]
        self._shuffled: tuple[int, Array] = (-1, np.empty(0, np.int64))

    def sequence(self, first: int, last: int) -> Array:
        """Numbers of the rows at places ``first`` to ``last - 1`` before windows are shuffled."""
        places = np.arange(first, last)
        blocks = np.searchsorted(self._ends, places, side="right")
        from_end = places - self._ends[blocks] + np.diff(self._ends, prepend=0)[blocks]
        numbers: Array = self._begins[blocks] + from_end
        return numbers

    def within(self, start: int, end: int) -> Array:
        """Order of the rows of a window, counted from its start."""
        return Shuffled(end - start, [*self._parts, 2, start]).rows(0, end - start)

    def window_of(self, place: int) -> tuple[int, int]:
        """Window that a place lies in."""
        return self.windows[bisect.bisect_right(self.windows, (place, sys.maxsize)) - 1]

    def rows(self, first: int, last: int) -> Array:
        """Numbers of the rows at places ``first`` to ``last - 1``, all in one window."""
        start, end = self.window_of(first)
        if self._shuffled[0] != start:
            self._shuffled = (start, self.sequence(start, end)[self.within(start, end)])
        return self._shuffled[1][first - start : last - start]
