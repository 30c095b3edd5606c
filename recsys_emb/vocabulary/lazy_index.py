"""`LazyIndex`: the table of a large vocabulary, built when enough is asked for; few keys are looked for one by one."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_emb import kernels
from recsys_emb.errors import DataError
from recsys_emb.vocabulary.storage import INTEGERS, Indices, Storage, integer_column

if TYPE_CHECKING:
    from recsys_emb.kernels.bytes_search import BytesColumn
    from recsys_emb.kernels.integer_table import IntegerColumn

LARGE = 2**17  # keys from which on a table takes noticeable time to build
_FEW, _SEARCHES = 8, 64


class LazyIndex:
    """As the index that a storage makes, without the time to make it.

    Parameters
    ----------
    storage
        How the keys lie in memory.
    keys
        Distinct keys in canonical form, nulls in rows of other kinds; row r has the index ``first + r``.
    first, unknown, missing
        Codes to give.

    Examples
    --------
    >>> index, found = LazyIndex(INTEGERS, pa.array([7, 5]), first=3, unknown=2, missing=1), np.empty(3, np.int64)
    >>> index.find(integer_column(pa.array([5, 6, None])), found)
    >>> found.tolist(), index.is_built
    ([4, 2, 1], False)
    """

    def __init__(self, storage: Storage, keys: pa.Array, *, first: int, unknown: int, missing: int) -> None:
        self._storage, self._keys = storage, keys
        self._codes = {"first": first, "unknown": unknown, "missing": missing}
        self._table: Any = None
        self._searches = 0

    @property
    def is_built(self) -> bool:
        """Whether there is a table."""
        return self._table is not None

    @property
    def repeated(self) -> int:
        """How many keys stood there before."""
        repeated: int = self._built().repeated
        return repeated

    def find(self, column: IntegerColumn | BytesColumn, out: Indices) -> None:
        """Write the index of each key into ``out`` int64 (N,)."""
        if self._table is None and len(out) <= _FEW and self._searches < _SEARCHES:
            self._searches += len(out)
            out[:] = [self._search(key) for key in _read(column)]
        else:
            self._built().find(column, out)

    def find_one(self, key: int | bytes) -> int:
        """Index of one key."""
        if self._table is None and self._searches < _SEARCHES:
            self._searches += 1
            return self._search(key)
        index: int = self._built().find_one(key)
        return index

    def _search(self, key: int | bytes | None) -> int:
        if key is None:
            return self._codes["missing"]
        if self._storage is INTEGERS:
            rows = np.flatnonzero(integer_column(self._keys).keys == key)
            # A row of another kind holds any number under its null.
            row = next((int(row) for row in rows if self._keys[int(row)].is_valid), -1)
        else:
            row = pc.index(self._keys, pa.scalar(key, self._keys.type)).as_py()
        return self._codes["unknown"] if row < 0 else self._codes["first"] + row

    def _built(self) -> Any:
        # Two threads may build it at the same time; either table will do.
        table = self._table
        if table is None:
            table = self._storage.index(self._keys, **self._codes)
            if table.repeated:
                raise DataError(f"vocabulary: expected distinct values, got {table.repeated} repeated. Save it again.")
            self._table = table
        return table


def _read(column: IntegerColumn | BytesColumn) -> list[int | bytes | None]:
    """Give the keys of a column of a few rows; None for missing ones."""
    keys: list[Any] = getattr(column, "keys", np.empty(0)).tolist()
    if isinstance(column, kernels.bytes_search.BytesColumn):
        keys = [column.data[start:end].tobytes() for start, end in itertools.pairwise(column.offsets.tolist())]
    if not len(column.validity):
        return keys
    places = range(column.bit_offset, column.bit_offset + len(keys))
    present = [column.validity[place >> 3] >> (place & 7) & 1 for place in places]
    return [key if there else None for key, there in zip(keys, present, strict=True)]
