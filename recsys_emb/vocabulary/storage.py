"""Two ways to hold keys in memory, and the tables for each: 64-bit integers and byte strings in Arrow buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_emb import kernels

if TYPE_CHECKING:
    from recsys_emb.kernels.bytes_counter import BytesCounter
    from recsys_emb.kernels.bytes_search import BytesColumn
    from recsys_emb.kernels.bytes_table import BytesIndex
    from recsys_emb.kernels.direct_table import DirectIndex
    from recsys_emb.kernels.integer_counter import IntegerCounter
    from recsys_emb.kernels.integer_table import IntegerColumn, IntegerIndex

_LARGE = (pa.large_binary().id, pa.large_string().id)

_INT64, _INT32, _BYTE = np.dtype(np.int64), np.dtype(np.int32), np.dtype(np.uint8)

Indices: TypeAlias = npt.NDArray[np.int64]


class IntegerStorage:
    """Keys as int64."""

    arrow_type = pa.int64()

    def column(self, array: pa.Array) -> Any:
        """View an integer array of any width, slices and nulls included."""
        return integer_column(array)

    def array(self, column: IntegerColumn) -> pa.Array:
        """Lay keys without nulls out as an array."""
        return pa.array(column.keys)

    def counter(self) -> IntegerCounter:
        """Make an empty counter."""
        return kernels.integer_counter.IntegerCounter()

    def index(self, array: pa.Array, *, first: int, unknown: int, missing: int) -> IntegerIndex | DirectIndex:
        """Freeze distinct keys: row r gets index ``first + r``."""
        column = integer_column(array)
        codes = {"first": first, "unknown": unknown, "missing": missing}
        present = column.keys if array.null_count == 0 else integer_column(array.drop_null()).keys
        if len(present):
            low, high = int(present.min()), int(present.max())
            if kernels.direct_table.DirectIndex.suits(low, high, keys=len(present), first=first):
                return kernels.direct_table.DirectIndex(column, low=low, high=high, **codes)
        return kernels.integer_table.IntegerIndex(column, **codes)

    def stable_hash(self, array: pa.Array) -> npt.NDArray[np.uint64]:
        """Hash every row, the same for ever."""
        return self.hashes(integer_column(array))

    def hashes(self, column: IntegerColumn) -> npt.NDArray[np.uint64]:
        """As `stable_hash`."""
        out = np.empty(len(column.keys), np.uint64)
        kernels.stable_hash.hash_integers(column, out)
        return out

    def pick(self, column: IntegerColumn, rows: Indices) -> IntegerColumn:
        """Copy the keys of some rows, none of them null."""
        return kernels.integer_table.IntegerColumn(kernels.memory.frozen(column.keys[rows]))

    def present(self, column: IntegerColumn) -> npt.NDArray[np.bool_]:
        """Say of each row whether it has a key."""
        return _present(column, len(column.keys))

    def content(self, array: pa.Array) -> list[memoryview]:
        """Give contiguous pieces whose bytes differ where arrays without nulls differ."""
        keys: Indices = integer_column(array).keys
        return [keys.astype("<i8", copy=False).data]


class BytesStorage:
    """Keys as ``large_binary``."""

    arrow_type = pa.large_binary()

    def column(self, array: pa.Array) -> Any:
        """View an array of (large) binary or (large) string, slices and nulls included."""
        validity, offsets, data = array.buffers()
        is_large = array.type.id in _LARGE
        starts = _view(offsets, _INT64 if is_large else _INT32, array.offset, len(array) + 1 if offsets else 0)
        if not len(starts):
            starts = np.zeros(1, np.int64)
        elif not is_large:
            starts = starts.astype(np.int64)
        text = _view(data, _BYTE, 0, data.size if data else 0)
        return kernels.bytes_search.BytesColumn(starts, text, _bitmap(validity, array), array.offset)

    def array(self, column: BytesColumn) -> pa.Array:
        """Lay keys without nulls out as an array."""
        buffers = [None, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
        return pa.Array.from_buffers(self.arrow_type, column.rows, buffers)

    def counter(self) -> BytesCounter:
        """Make an empty counter."""
        return kernels.bytes_counter.BytesCounter()

    def index(self, array: pa.Array, *, first: int, unknown: int, missing: int) -> BytesIndex:
        """Freeze distinct keys: row r gets index ``first + r``."""
        return kernels.bytes_table.BytesIndex(self.column(array), first=first, unknown=unknown, missing=missing)

    def stable_hash(self, array: pa.Array) -> npt.NDArray[np.uint64]:
        """Hash every row, the same for ever."""
        return self.hashes(self.column(array))

    def hashes(self, column: BytesColumn) -> npt.NDArray[np.uint64]:
        """As `stable_hash`."""
        out = np.empty(column.rows, np.uint64)
        kernels.stable_hash.hash_byte_strings(column, out)
        return out

    def pick(self, column: BytesColumn, rows: Indices) -> BytesColumn:
        """Copy the keys of some rows, none of them null."""
        picked: BytesColumn = self.column(self.array(column).take(pa.array(rows)))
        return picked

    def present(self, column: BytesColumn) -> npt.NDArray[np.bool_]:
        """Say of each row whether it has a key."""
        return _present(column, column.rows)

    def content(self, array: pa.Array) -> list[memoryview]:
        """Give contiguous pieces whose bytes differ where arrays without nulls differ."""
        column: BytesColumn = self.column(array)
        data = column.data[column.offsets[0] : column.offsets[-1]]
        return [np.diff(column.offsets).astype("<i8", copy=False).data, data.data]


Storage: TypeAlias = IntegerStorage | BytesStorage
INTEGERS = IntegerStorage()
BYTE_STRINGS = BytesStorage()


def integer_column(array: pa.Array) -> IntegerColumn:
    """View an Arrow array of any integer or float type (or the codes of a dictionary) in its own width."""
    validity, data = array.buffers()
    keys = _view(data, np.dtype(array.type.to_pandas_dtype()), array.offset, len(array))
    return kernels.integer_table.IntegerColumn(keys, _bitmap(validity, array), array.offset)


def _present(column: IntegerColumn | BytesColumn, rows: int) -> npt.NDArray[np.bool_]:
    if not len(column.validity):
        return np.ones(rows, bool)
    bits = np.unpackbits(column.validity, bitorder="little", count=column.bit_offset + rows)
    return bits[column.bit_offset :].astype(bool)


def _bitmap(validity: pa.Buffer | None, array: pa.Array) -> npt.NDArray[np.uint8]:
    if validity is None or array.null_count == 0:
        return kernels.memory.ALL_VALID
    return _view(validity, _BYTE, 0, validity.size)


def _view(buffer: pa.Buffer | None, dtype: np.dtype[Any], start: int, count: int) -> npt.NDArray[Any]:
    if buffer is None or count == 0:
        return kernels.memory.frozen(np.empty(0, dtype))
    view = np.frombuffer(buffer, dtype, count, start * dtype.itemsize)
    view.setflags(write=False)
    return view
