"""What the keys of an Arrow array are, whatever holds them: `split` sorts them by kind, in canonical form."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_emb.errors import KeyTypeError, listed
from recsys_emb.vocabulary import kinds
from recsys_emb.vocabulary.kinds import Part
from recsys_emb.vocabulary.storage import integer_column

_Splitter: TypeAlias = Callable[[pa.Array, str], list[Part]]
_Mask: TypeAlias = npt.NDArray[np.bool_]
# By width: what messages call it, and from which power of two on it no longer tells neighbouring integers apart.
_EXACT_BELOW = {16: ("float16", 11), 32: ("float32", 24), 64: ("float", 53)}


def split(array: pa.Array, where: str) -> list[Part]:
    """Sort the keys of a flat array by kind.

    Every key stands in one part; rows that are null in all parts are missing. Arrays of text, of integers and of
    most other types give one part, mixed numbers up to two or three, arrays without any key none.

    Raises
    ------
    KeyTypeError
        For a type that is no key (lists, structs, ...), and for floats of 2^53 (float32: 2^24) or more, which no
        longer tell neighbouring integers apart.

    Examples
    --------
    >>> [(part.kind.name, part.keys.to_pylist()) for part in split(pa.array([5.0, None, -0.0]), "item_id")]
    [('integer', [5, None, 0])]
    >>> split(pa.nulls(3), "item_id")
    []
    >>> split(pa.array([[5]]), "item_id")
    Traceback (most recent call last):
    ...
    recsys_emb.errors.KeyTypeError: item_id: expected flat keys, got list<item: int64>. Declare it MultiCategorical.
    """
    splitter = _SPLITTERS.get(array.type.id)
    if splitter is None:
        raise not_a_key(array.type, where)
    return [part for part in splitter(array, where) if part.keys.null_count < len(part.keys)]


def plain(array: pa.Array) -> pa.Array:
    """Lay out views and runs, in a dictionary too, in types that all of Arrow's functions take.

    >>> str(plain(pa.array(["a"], pa.string_view())).type)
    'large_string'
    """
    if isinstance(array, pa.DictionaryArray):
        entries = plain(array.dictionary)
        unchanged = entries is array.dictionary or entries.type == array.dictionary.type
        return array if unchanged else pa.DictionaryArray.from_arrays(array.indices, entries)
    if isinstance(array, pa.RunEndEncodedArray):
        runs = pa.RunEndEncodedArray.from_arrays(array.run_ends, plain(array.values))
        return pc.run_end_decode(runs[array.offset : array.offset + len(array)])
    laid_out = _LAID_OUT.get(array.type.id)
    return array if laid_out is None else array.cast(laid_out)


def not_a_key(arrow_type: pa.DataType, where: str) -> KeyTypeError:
    """Say that values of a type cannot be keys."""
    nested = pa.types.is_nested(arrow_type) and "list" in str(arrow_type)
    remedy = "Declare it MultiCategorical." if nested else "Convert the column."
    return KeyTypeError(f"{where}: expected flat keys, got {arrow_type}. {remedy}")


def _one(kind: kinds.Kind, convert: Callable[[pa.Array], pa.Array]) -> _Splitter:
    return lambda array, _where: [Part(kind, convert(array))]


def _cast(*types: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    def convert(array: pa.Array) -> pa.Array:
        for arrow_type in types:
            array = array.cast(arrow_type, safe=False)
        return array

    return convert


def _same(array: pa.Array) -> pa.Array:
    return array


def _unsigned(array: pa.Array, _where: str) -> list[Part]:
    keys = array.view(pa.int64())
    low = integer_column(keys).keys >= 0
    if low.all():
        return [Part(kinds.INTEGER, keys)]
    return [Part(kinds.INTEGER, _only(keys, low)), Part(kinds.UNSIGNED, _only(keys, ~low))]


def _floats(array: pa.Array, where: str) -> list[Part]:
    wide = array.cast(pa.float64())
    numbers: Any = integer_column(wide).keys
    present = _present(wide) & ~np.isnan(numbers)
    numbers = np.where(present, numbers, 0.0)
    name, bits = _EXACT_BELOW[array.type.bit_width]
    large = ~(np.abs(numbers) < 2.0**bits)
    if large.any():
        raise KeyTypeError(
            f"{where}: expected {name} keys below 2**{bits} in magnitude, got {listed(numbers[large].tolist())}. "
            "Store them as integers or text."
        )
    whole = present & (np.floor(numbers) == numbers)
    integers = np.where(whole, numbers, 0.0).astype(np.int64)
    parts = [Part(kinds.INTEGER, pa.array(integers, mask=~whole))]
    if not (whole == present).all():
        parts.append(Part(kinds.FLOAT, pa.array(numbers.view(np.int64), mask=whole | ~present)))
    return parts


def _decimals(array: pa.Array, _where: str) -> list[Part]:
    wide = array if array.type.bit_width >= 128 else array.cast(pa.decimal128(18, array.type.scale))
    encoded = wide.dictionary_encode()
    rows: dict[kinds.Kind, list[Any]] = {kind: [] for kind in (kinds.INTEGER, kinds.UNSIGNED, kinds.DECIMAL)}
    for value in encoded.dictionary.to_pylist():
        kind, key = _decimal_key(value)
        for other, keys in rows.items():
            keys.append(key if other is kind else None)
    return [Part(kind, pa.array(keys, kind.storage.arrow_type).take(encoded.indices)) for kind, keys in rows.items()]


def _decimal_key(value: decimal.Decimal) -> tuple[kinds.Kind, int | bytes]:
    whole = int(value)
    if whole == value and -(2**63) <= whole < 2**63:
        return kinds.INTEGER, whole
    if whole == value and 0 <= whole < 2**64:
        return kinds.UNSIGNED, whole - 2**64
    return kinds.DECIMAL, str(_EXACT.normalize(value)).encode()


def _timestamps(array: pa.Array, _where: str) -> list[Part]:
    return [Part(kinds.TIMESTAMP if array.type.tz is None else kinds.MOMENT, _spans(array))]


def _durations(array: pa.Array, _where: str) -> list[Part]:
    return [Part(kinds.DURATION, _spans(array))]


def _spans(array: pa.Array) -> pa.Array:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[array.type.unit]
    ticks = integer_column(array.view(pa.int64())).keys
    spans = np.empty(len(ticks), kinds.SPAN)
    spans["seconds"], spans["nanoseconds"] = ticks // per_second, ticks % per_second * (10**9 // per_second)
    stored = pa.Array.from_buffers(pa.binary(kinds.SPAN.itemsize), len(spans), [None, pa.py_buffer(spans)])
    return _only(stored.cast(pa.large_binary()), _present(array))


def _times(array: pa.Array) -> pa.Array:
    return array.cast(pa.time64("ns")).view(pa.int64())


def _extension(array: pa.Array, where: str) -> list[Part]:
    if array.type.extension_name == "arrow.uuid":
        return [Part(kinds.UUID, array.storage.cast(pa.large_binary()))]
    if array.type.extension_name == "arrow.bool8":
        return [Part(kinds.BOOLEAN, array.storage.cast(pa.bool_()).cast(pa.int64()))]
    raise not_a_key(array.type, where)


def _present(array: pa.Array) -> _Mask:
    mask: _Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def _only(keys: pa.Array, rows: _Mask) -> pa.Array:
    return pc.if_else(pa.array(rows), keys, pa.scalar(None, keys.type))


_EXACT = decimal.Context(prec=100)
# The two small ones are younger than the oldest pyarrow that is supported.
_DECIMAL_TYPES = [getattr(pa, f"decimal{bits}") for bits in (32, 64, 128, 256) if hasattr(pa, f"decimal{bits}")]
_LAID_OUT = {pa.string_view().id: pa.large_string(), pa.binary_view().id: pa.large_binary()}
_RUNS = pa.run_end_encoded(pa.int32(), pa.null())
_BY_TYPE: tuple[tuple[_Splitter, tuple[pa.DataType, ...]], ...] = (
    (lambda _array, _where: [], (pa.null(),)),
    (_one(kinds.INTEGER, _same), (pa.int64(),)),
    (_one(kinds.INTEGER, _cast(pa.int64())), (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32())),
    (_unsigned, (pa.uint64(),)),
    (_floats, (pa.float16(), pa.float32(), pa.float64())),
    (_decimals, tuple(make(5, 2) for make in _DECIMAL_TYPES)),
    (_one(kinds.TEXT, _same), (pa.string(), pa.large_string())),
    (_one(kinds.BYTES, _same), (pa.binary(), pa.large_binary())),
    (_one(kinds.BYTES, _cast(pa.large_binary())), (pa.binary(1),)),
    (_one(kinds.BOOLEAN, _cast(pa.int64())), (pa.bool_(),)),
    (_one(kinds.DATE, _cast(pa.int32(), pa.int64())), (pa.date32(),)),
    (_one(kinds.DATE, _cast(pa.date32(), pa.int32(), pa.int64())), (pa.date64(),)),
    (_one(kinds.TIME, _times), (pa.time32("s"), pa.time64("us"))),
    (_timestamps, (pa.timestamp("us"),)),
    (_durations, (pa.duration("us"),)),
    (_extension, (pa.uuid(),)),
    (lambda array, where: split(plain(array), where), (pa.string_view(), pa.binary_view(), _RUNS)),
)
_SPLITTERS = {arrow_type.id: splitter for splitter, arrow_types in _BY_TYPE for arrow_type in arrow_types}
