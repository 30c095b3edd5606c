"""Columns that are written piece by piece where they stay: nothing is copied together afterwards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_emb.errors import DataError
from recsys_emb.sources.parts import Rows

Array: TypeAlias = npt.NDArray[Any]


class PerRow(ABC):
    """Encodes a column with one entry per row; a subclass says what an entry is."""

    dtype: Any = np.int64
    entry: tuple[int, ...] = ()
    """Shape of an entry."""

    @abstractmethod
    def write(self, rows: Rows, out: Array) -> None:
        """Write the entries of ``rows`` into ``out``, ``(B, *entry)``."""

    def encode(self, rows: Rows) -> Tensor:
        """Give the entries of ``rows``, ``(B, *entry)``."""
        out = np.empty((len(rows), *self.entry), self.dtype)
        self.write(rows, out)
        return torch.from_numpy(out)

    def encode_all(self, stream: Iterable[Rows], num_rows: int) -> Tensor:
        """Give the entries of a stream of ``num_rows`` rows."""
        out = np.empty((num_rows, *self.entry), self.dtype)
        for first, last, rows in numbered(stream, num_rows):
            self.write(rows, out[first:last])
        return torch.from_numpy(out)


def numbered(stream: Iterable[Rows], num_rows: int) -> Iterable[tuple[int, int, Rows]]:
    """Give the number of the first row of each piece, and of the one after its last.

    Raises
    ------
    DataError
        When there are not ``num_rows`` rows.
    """
    last = 0
    for rows in stream:
        first, last = last, last + len(rows)
        if last > num_rows:
            break
        yield first, last, rows
    if last != num_rows:
        got = "more" if last > num_rows else f"{last}"
        raise DataError(f"source: expected {num_rows} rows, got {got}. Leave it as it is while it is read.")


class Growing:
    """An array that grows at its end.

    Parameters
    ----------
    dtype
        Of the array.
    num_rows
        Rows that it will belong to in the end, if that is known: it then has its final size early.

    Examples
    --------
    >>> grown = Growing(np.int64)
    >>> grown.append([7, 8])
    >>> grown.extend(1)[:] = 9
    >>> grown.array.tolist()
    [7, 8, 9]
    >>> grown.restart(0).array.tolist()
    []
    """

    def __init__(self, dtype: npt.DTypeLike, num_rows: int = 0) -> None:
        self._held = np.empty(0, dtype)
        self._size, self._num_rows = 0, num_rows

    @property
    def array(self) -> Array:
        """What was written, a view."""
        return self._held[: self._size]

    def restart(self, num_rows: int) -> Growing:
        """Forget what was written and keep the memory: first writes to fresh memory are the slow ones."""
        self._size, self._num_rows = 0, num_rows
        return self

    def append(self, piece: npt.ArrayLike, *, rows: int = 0) -> None:
        """Write a piece at the end; ``rows`` rows are done then, if that is known."""
        given = np.asarray(piece, self._held.dtype)
        self.extend(len(given), rows=rows)[:] = given

    def extend(self, count: int, *, rows: int = 0) -> Array:
        """Make room for ``count`` more at the end, to write into; ``rows`` rows are done then, if that is known."""
        start, self._size = self._size, self._size + count
        if self._size > len(self._held):
            # Memory that is never written costs nothing, so there is some to spare.
            likely = self._size * self._num_rows // rows if rows else 0
            held = np.empty(max(likely + likely // 10, 3 * self._size // 2), self._held.dtype)
            held[:start] = self._held[:start]
            self._held = held
        return self._held[start : self._size]
