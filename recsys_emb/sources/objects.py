"""Python objects of one type as an Arrow array, exactly, with any spelling of missing among them."""

from __future__ import annotations

import datetime
import decimal
import functools
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from recsys_emb.errors import KeyTypeError

Converter: TypeAlias = Callable[[list[Any]], pa.Array]

_MISSING_TYPES = (type(None), type(pd.NA), type(pd.NaT))
# Values of these may be missing ones too.
_SPELL_MISSING = (float, np.floating, np.datetime64, np.timedelta64, decimal.Decimal)
_EXACT_FLOAT = 2.0**53


def from_objects(values: Sequence[object], where: str) -> pa.Array:
    """Convert Python objects to Arrow; None, NaN, NaT and ``pd.NA`` become nulls, whatever type spells them.

    Parameters
    ----------
    values
        Booleans, integers, floats, decimals, text, bytes, dates, times, timestamps, durations or UUIDs, or numpy's
        scalars of these; one of them only, but integers may mix with whole floats and with decimals.
    where
        What messages call the column.

    Raises
    ------
    KeyTypeError
        For other types, for more than one, and for values that Arrow does not hold exactly.

    Examples
    --------
    >>> from_objects(["a", None, float("nan")], "colour").to_pylist()
    ['a', None, None]
    """
    types: set[Any] = set(map(type, values)).difference(_MISSING_TYPES)
    families = {_family_of(kind) for kind in types}
    if _DECIMAL in families or (len(families) > 1 and any(issubclass(kind, _SPELL_MISSING) for kind in types)):
        values = [None if _is_missing(value) else value for value in values]
        present: list[Any] = [type(value) for value in values if not isinstance(value, _MISSING_TYPES)]
        types = set(present)
        families = {_family_of(kind) for kind in types}
    if not families:
        return pa.nulls(len(values))
    convert = _converter(families)
    if convert is None:
        raise _mixture(types, where)
    try:
        return convert(list(values))
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise KeyTypeError(
            f"{where}: expected values that Arrow holds exactly, got «{error}». Convert the column."
        ) from None


@dataclass(frozen=True, eq=False)  # compared and hashed by identity, which is quick
class _Family:
    """Python types that hold one kind of value, and how a list of them becomes an array."""

    types: tuple[type[Any], ...]
    convert: Converter


def _as(arrow_type: pa.DataType) -> Converter:
    return lambda values: pa.array(values, arrow_type, from_pandas=True)


def _integers(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values, pa.int64(), from_pandas=True)
    except (OverflowError, pa.ArrowInvalid):
        present = [value for value in values if isinstance(value, (int, np.integer))]
        wide = pa.uint64() if min(present) >= 0 and max(present) < 2**64 else pa.decimal256(76, 0)
        return pa.array(values, wide, from_pandas=True)


def _integers_and_floats(values: list[Any]) -> pa.Array:
    floats = [float(value) for value in values if isinstance(value, (float, np.floating))]
    if all(value.is_integer() and abs(value) < _EXACT_FLOAT for value in floats):
        return _integers([int(value) if isinstance(value, (float, np.floating)) else value for value in values])
    return pa.array(values, pa.float64(), from_pandas=True)  # refuses integers that a float does not hold


def _decimals(values: list[Any]) -> pa.Array:
    exact = [decimal.Decimal(int(value)) if isinstance(value, (int, np.integer)) else value for value in values]
    return pa.array(exact, from_pandas=True)


def _timestamps(values: list[Any]) -> pa.Array:
    stamps = [pd.Timestamp(value) if isinstance(value, np.datetime64) else value for value in values]
    present = [value for value in stamps if not isinstance(value, _MISSING_TYPES)]
    zoned = {value.tzinfo is not None for value in present}
    if len(zoned) > 1:
        raise TypeError("timestamps with and without a time zone")
    unit = "ns" if any(getattr(value, "nanosecond", 0) for value in present) else "us"
    return pa.array(stamps, pa.timestamp(unit, "UTC" if zoned == {True} else None), from_pandas=True)


def _durations(values: list[Any]) -> pa.Array:
    spans = [pd.Timedelta(value) if isinstance(value, np.timedelta64) else value for value in values]
    unit = "ns" if any(getattr(value, "nanoseconds", 0) for value in spans) else "us"
    return pa.array(spans, pa.duration(unit), from_pandas=True)


def _times(values: list[Any]) -> pa.Array:
    if any(getattr(value, "tzinfo", None) is not None for value in values):
        raise TypeError("times with a time zone")
    return pa.array(values, pa.time64("us"), from_pandas=True)


def _uuids(values: list[Any]) -> pa.Array:
    stored = pa.array([value.bytes if isinstance(value, uuid.UUID) else None for value in values], pa.binary(16))
    return pa.ExtensionArray.from_storage(pa.uuid(), stored)


_INTEGER = _Family((int, np.integer), _integers)
_FLOAT = _Family((float, np.floating), _as(pa.float64()))
_DECIMAL = _Family((decimal.Decimal,), _decimals)
# A type belongs to the first family that lists a base of it: bool is an int, timedelta64 a numpy integer,
# datetime a date.
_FAMILIES = (
    _Family((bool, np.bool_), _as(pa.bool_())),
    _Family((datetime.timedelta, np.timedelta64), _durations),
    _INTEGER,
    _FLOAT,
    _DECIMAL,
    _Family((str,), _as(pa.large_string())),
    _Family((bytes, bytearray, memoryview), _as(pa.large_binary())),
    _Family((datetime.datetime, np.datetime64), _timestamps),
    _Family((datetime.date,), _as(pa.date32())),
    _Family((datetime.time,), _times),
    _Family((uuid.UUID,), _uuids),
)


@functools.cache
def _family_of(kind: Any) -> _Family | None:
    return next((family for family in _FAMILIES if issubclass(kind, family.types)), None)


def _converter(families: set[_Family | None]) -> Converter | None:
    if families == {_INTEGER, _FLOAT}:
        return _integers_and_floats
    if families == {_INTEGER, _DECIMAL}:
        return _decimals
    (family, *others) = families
    return None if others or family is None else family.convert


def _is_missing(value: object) -> bool:
    if isinstance(value, decimal.Decimal):
        return value.is_nan()
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(value))
    return isinstance(value, (float, np.floating)) and bool(np.isnan(value))


def _mixture(types: set[Any], where: str) -> KeyTypeError:
    names = ", ".join(sorted(kind.__name__ for kind in types))
    if None in {_family_of(kind) for kind in types}:
        return KeyTypeError(f"{where}: expected integers, text or another flat type, got {names}. Convert the column.")
    return KeyTypeError(f"{where}: expected values of one type, got {names}. Convert the column to one type.")
