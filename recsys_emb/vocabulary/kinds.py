"""Kinds of key: two keys are one exactly if they have the same kind and the same canonical form.

Integers are int64 wherever they came from: int8, the float 5.0, the decimal 5.00. Only what an int64 does not hold
goes into the kinds beside it.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_emb.errors import KeyTypeError
from recsys_emb.vocabulary.storage import BYTE_STRINGS, INTEGERS, Storage, integer_column

# Canonical form of a moment or a span: whole seconds, rounded down, and the nanoseconds beyond them.
SPAN = np.dtype([("seconds", "<i8"), ("nanoseconds", "<i4")])
EXACT_FLOAT = 2**53  # from here on a float no longer tells neighbouring integers apart
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, eq=False, repr=False)
class Kind:
    """A kind of key.

    Parameters
    ----------
    name, plural
        What messages call one and many.
    storage
        How its canonical form lies in memory.
    typed
        From canonical form to an Arrow array of its own type. Nulls only in numeric kinds.
    """

    name: str
    plural: str
    storage: Storage
    typed: Callable[[pa.Array], pa.Array]

    def __reduce__(self) -> tuple[Callable[[str], Kind], tuple[str]]:
        """Stay the one that it is, in another process too."""
        return kind_named, (self.name,)


class Part(NamedTuple):
    """The keys of one kind in an array: their canonical form in their own rows, null in all others."""

    kind: Kind
    keys: pa.Array


def restore(parts: Sequence[Part], where: str) -> pa.Array:
    """Put parts that belong together back into one array of their own type.

    Raises
    ------
    KeyTypeError
        When no type holds all the keys exactly: negative integers beside such of 2^63 and more, or integers of 2^53
        and more beside fractional floats; or when text is not UTF-8.

    Examples
    --------
    >>> halves = pa.array([None, 4602678819172646912])
    >>> restore([Part(INTEGER, pa.array([5, None])), Part(FLOAT, halves)], "size").to_pylist()
    [5.0, 0.5]
    """
    if not parts:
        return pa.nulls(0)
    for part in parts:
        if part.kind is TEXT:
            _check_text(part.keys, where)
    columns = {part.kind: part.kind.typed(part.keys) for part in parts}
    if len(parts) == 1:
        return columns[parts[0].kind]
    if DECIMAL in columns:
        rows = zip(*(column.to_pylist() for column in columns.values()), strict=True)
        values = [next((value for value in row if value is not None), None) for row in rows]
        return pa.array([None if value is None else decimal.Decimal(value) for value in values])
    _check_range(columns, where)
    target = pa.float64() if FLOAT in columns else pa.uint64()
    return pc.coalesce(*(column.cast(target) for column in columns.values()))


def _check_text(keys: pa.Array, where: str) -> None:
    """Refuse bytes that a column of text holds although they are none, as files written elsewhere may."""
    is_large = keys.type in (pa.large_string(), pa.large_binary())
    raw = keys.cast(pa.large_binary() if is_large else pa.binary())
    try:
        raw.cast(pa.large_string() if is_large else pa.string())
    except pa.ArrowInvalid:
        wrong = next(key for key in raw.to_pylist() if key is not None and not _is_utf8(key))
        raise KeyTypeError(
            f"{where}: expected text in UTF-8, got {wrong!r}. Write the column again as UTF-8."
        ) from None


def _is_utf8(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def join(first: Sequence[Part], second: Sequence[Part]) -> list[Part]:
    """Lay the parts of two arrays end to end."""
    joined = []
    for kind in dict.fromkeys(part.kind for part in (*first, *second)):
        halves = [_keys_of(kind, parts) for parts in (first, second) if parts]
        joined.append(Part(kind, pa.concat_arrays([half.cast(kind.storage.arrow_type) for half in halves])))
    return joined


def _keys_of(kind: Kind, parts: Sequence[Part]) -> pa.Array:
    absent = pa.nulls(len(parts[0].keys), kind.storage.arrow_type)
    return next((part.keys for part in parts if part.kind is kind), absent)


def _check_range(columns: Mapping[Kind, pa.Array], where: str) -> None:
    integers = pc.min_max(columns[INTEGER]).as_py() if INTEGER in columns else {"min": 0, "max": 0}
    if UNSIGNED in columns:
        integers["max"] = pc.max(columns[UNSIGNED]).as_py()
    if UNSIGNED in columns and integers["min"] < 0:
        raise KeyTypeError(
            f"{where}: expected no negative integers beside {integers['max']}, got {integers['min']}. "
            "Store them as text."
        )
    largest = max(integers.values(), key=abs)
    if FLOAT in columns and abs(largest) >= EXACT_FLOAT:
        raise KeyTypeError(
            f"{where}: expected integers below 2**53 in magnitude beside fractions, got {largest}. "
            "Store them as decimals or text."
        )


def agree(kinds: Collection[Kind]) -> bool:
    """Whether keys of these kinds may stand in one column: one kind, or numbers, but not fractions of two kinds."""
    distinct = set(kinds)
    return len(distinct) <= 1 or (distinct <= NUMERIC and not {FLOAT, DECIMAL} <= distinct)


def spokesman(kinds: Collection[Kind]) -> Kind:
    """Kind that messages name for a column with keys of ``kinds``."""
    return next(kind for kind in (DECIMAL, FLOAT, INTEGER, *kinds) if kind in kinds)


def _same(keys: pa.Array) -> pa.Array:
    return keys


def _decimals(keys: pa.Array) -> pa.Array:
    return pa.array([None if key is None else decimal.Decimal(key.decode()) for key in keys.to_pylist()])


def _times(keys: pa.Array) -> pa.Array:
    nanoseconds = integer_column(keys).keys
    if (nanoseconds % 1000).any():
        return keys.cast(pa.time64("ns"))
    return pa.array(nanoseconds // 1000).cast(pa.time64("us"))


def _spans(make: Callable[[str], pa.DataType]) -> Callable[[pa.Array], pa.Array]:
    def typed(keys: pa.Array) -> pa.Array:
        column = BYTE_STRINGS.column(keys)
        spans = column.data[column.offsets[0] : column.offsets[-1]].view(SPAN)
        unit, per_second = ("ns", 10**9) if (spans["nanoseconds"] % 1000).any() else ("us", 10**6)
        limit = _INT64_MAX // per_second - 1
        if (np.abs(spans["seconds"]) > limit).any():
            raise KeyTypeError(f"{make(unit)}: expected keys within {limit} seconds of 0, got one beyond. Use text.")
        ticks = spans["seconds"] * per_second + spans["nanoseconds"] // (10**9 // per_second)
        return pa.array(ticks).cast(make(unit))

    return typed


def _uuids(keys: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(pa.uuid(), keys.cast(pa.binary(16)))


INTEGER = Kind("integer", "integers", INTEGERS, _same)
UNSIGNED = Kind("unsigned integer", "integers", INTEGERS, lambda keys: keys.view(pa.uint64()))  # 2^63 and above
FLOAT = Kind("float", "floats", INTEGERS, lambda keys: keys.view(pa.float64()))  # fractions
DECIMAL = Kind("decimal", "decimals", BYTE_STRINGS, _decimals)  # fractions, and integers beyond 64 bits
TEXT = Kind("text", "text", BYTE_STRINGS, lambda keys: keys.cast(pa.large_string()))
BYTES = Kind("bytes", "bytes", BYTE_STRINGS, _same)
BOOLEAN = Kind("boolean", "booleans", INTEGERS, lambda keys: keys.cast(pa.bool_()))
DATE = Kind("date", "dates", INTEGERS, lambda keys: keys.cast(pa.int32()).cast(pa.date32()))
TIME = Kind("time", "times", INTEGERS, _times)
TIMESTAMP = Kind("timestamp", "timestamps", BYTE_STRINGS, _spans(pa.timestamp))
MOMENT = Kind(
    "zoned timestamp", "timestamps with a time zone", BYTE_STRINGS, _spans(lambda unit: pa.timestamp(unit, "UTC"))
)
DURATION = Kind("duration", "durations", BYTE_STRINGS, _spans(pa.duration))
UUID = Kind("uuid", "UUIDs", BYTE_STRINGS, _uuids)

NUMERIC = frozenset({INTEGER, UNSIGNED, FLOAT, DECIMAL})
_KINDS = (*NUMERIC, TEXT, BYTES, BOOLEAN, DATE, TIME, TIMESTAMP, MOMENT, DURATION, UUID)


def kind_named(name: str) -> Kind:
    """Give the kind of that name."""
    return {kind.name: kind for kind in _KINDS}[name]
