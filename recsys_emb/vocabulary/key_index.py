"""Frozen map from keys, in any container, to indices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from recsys_emb import kernels
from recsys_emb.errors import KeyTypeError, listed
from recsys_emb.vocabulary.identity import plain, split
from recsys_emb.vocabulary.kinds import EXACT_FLOAT, INTEGER, TEXT, Kind, Part, agree, spokesman
from recsys_emb.vocabulary.lazy_index import LARGE, LazyIndex
from recsys_emb.vocabulary.reserved import MISSING_INDEX, UNKNOWN_INDEX
from recsys_emb.vocabulary.storage import Indices, integer_column

if TYPE_CHECKING:
    from recsys_emb.sources.keys import ArrowColumn, Integers


class KeyIndex:
    """Index of each of some distinct values; safe to read from any number of threads.

    Parameters
    ----------
    values
        Flat array without nulls; value r has index ``2 + unknown_rows + r``.
    unknown_rows
        Rows for unknown values, from `UNKNOWN_INDEX` on. A value takes row ``stable_hash(value) % unknown_rows``,
        so it keeps its row for ever, in any container and process (`recsys_emb.kernels.stable_hash`).
    lazily
        Build the tables of many values only when enough is asked for (`LazyIndex`); the values must be distinct.

    Examples
    --------
    >>> index = KeyIndex(pa.array(["b", "a"]), unknown_rows=1)
    >>> index.find_all(pa.array(["a", "z", None]), "colour").tolist()
    [4, 2, 1]
    """

    def __init__(self, values: pa.Array, *, unknown_rows: int, lazily: bool = False) -> None:
        first, parts = UNKNOWN_INDEX + unknown_rows, split(values, "values")
        codes = {"first": first, "unknown": UNKNOWN_INDEX, "missing": MISSING_INDEX}
        if lazily and len(values) >= LARGE:
            self._tables: dict[Kind, Any] = {
                part.kind: LazyIndex(part.kind.storage, part.keys, **codes) for part in parts
            }
        else:
            self._tables = {part.kind: part.kind.storage.index(part.keys, **codes) for part in parts}
        self._unknown_rows = unknown_rows

    @classmethod
    def of_tables(cls, tables: Mapping[Kind, Any], *, unknown_rows: int) -> KeyIndex:
        """Make the index whose tables were made elsewhere."""
        made = cls(pa.nulls(0), unknown_rows=unknown_rows)
        made._tables = dict(tables)
        return made

    @property
    def repeated(self) -> int:
        """How many of the values stood there before; 0 in a sound vocabulary."""
        return sum(table.repeated for table in self._tables.values())

    @property
    def is_lazy(self) -> bool:
        """Whether tables may still have to be built."""
        return any(isinstance(table, LazyIndex) for table in self._tables.values())

    def find_all(self, values: ArrowColumn | Integers, where: str) -> Indices:
        """Find the indices int64 ``(N,)`` of a flat array of any type; `MISSING_INDEX` where it is missing.

        Raises
        ------
        KeyTypeError
            When ``values`` holds keys of another kind.
        """
        out = np.empty(len(values), np.int64)
        self.find(values, out, where)
        return out

    def find(self, values: ArrowColumn | Integers, out: Indices, where: str) -> None:
        """As `find_all`, into ``out``."""
        if isinstance(values, np.ndarray):
            self._find_integers(values, out, where)
            return
        done = 0
        for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else (values,):
            self._find(plain(chunk), out[done : done + len(chunk)], where)
            done += len(chunk)

    def find_one(self, value: object) -> int | None:
        """Index of one Python value where that is plain to see; None where `find` must decide.

        >>> index = KeyIndex(pa.array(["b", "a"]), unknown_rows=1)
        >>> index.find_one("a"), index.find_one("z"), index.find_one(None), index.find_one(b"a")
        (4, 2, 1, None)
        """
        if value is None:
            return MISSING_INDEX
        if type(value) is float and value.is_integer() and abs(value) < EXACT_FLOAT:
            value = int(value)
        index: int | None = None
        if type(value) is int and -(2**63) <= value < 2**63 and INTEGER in self._tables:
            index = self._tables[INTEGER].find_one(value)
        elif type(value) is str and TEXT in self._tables and (key := _utf8(value)) is not None:
            index = self._tables[TEXT].find_one(key)
        return None if index == UNKNOWN_INDEX and self._unknown_rows > 1 else index

    def unknown(self, values: pa.Array) -> Indices:
        """Find the indices int64 ``(N,)`` that values without nulls have where they are unknown."""
        out = np.full(len(values), UNKNOWN_INDEX)
        for part in split(values, "values"):
            self._spread(part, np.flatnonzero(part.keys.is_valid().to_numpy(zero_copy_only=False)), out)
        return out

    def _find_integers(self, keys: Integers, out: Indices, where: str) -> None:
        table = self._tables.get(INTEGER)
        if table is None or self._unknown_rows > 1:
            self._find(pa.array(keys), out, where)
        else:
            table.find(kernels.integer_table.IntegerColumn(kernels.memory.frozen(keys)), out)

    def _find(self, array: pa.Array, out: Indices, where: str) -> None:
        if isinstance(array, pa.DictionaryArray):
            if len(array.dictionary) <= len(array):
                entries = np.empty(len(array.dictionary), np.int64)
                self._find(array.dictionary, entries, where)
                codes = integer_column(array.indices)
                kernels.dictionary_codes.translate(codes, entries, MISSING_INDEX, out)
                return
            array = array.dictionary_decode()
        parts = split(array, where)
        if len(parts) == 1:
            self._find_part(parts[0], out, where)
            return
        out[:] = MISSING_INDEX
        for part in parts:
            found = np.empty(len(out), np.int64)
            self._find_part(part, found, where)
            np.copyto(out, found, where=found != MISSING_INDEX)

    def _find_part(self, part: Part, out: Indices, where: str) -> None:
        table = self._tables.get(part.kind)
        if table is None:
            self._check(part, where)
            out[:] = np.where(part.keys.is_valid().to_numpy(zero_copy_only=False), UNKNOWN_INDEX, MISSING_INDEX)
        else:
            table.find(part.kind.storage.column(part.keys), out)
        if self._unknown_rows > 1:
            self._spread(part, np.flatnonzero(out == UNKNOWN_INDEX), out)

    def _spread(self, part: Part, rows: Indices, out: Indices) -> None:
        """Add to the index of unknown keys, which stand in ``rows``, the bucket of each."""
        hashes = part.kind.storage.stable_hash(part.keys.take(pa.array(rows)))
        out[rows] += (hashes % np.uint64(self._unknown_rows)).astype(np.int64)

    def _check(self, part: Part, where: str) -> None:
        if not agree((*self._tables, part.kind)):
            own = spokesman(self._tables)
            raise KeyTypeError(
                f"{where}: expected {own.name} keys, got {part.kind.name} ({examples(part)}). "
                f"Convert the column to {own.plural} before encoding."
            )


def _utf8(text: str) -> bytes | None:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None


def examples(part: Part) -> str:
    """Name the first few distinct keys of a part."""
    shown = part.kind.typed(part.keys.drop_null()[:50]).to_pylist()
    return listed(list(dict.fromkeys(shown))[:5])
