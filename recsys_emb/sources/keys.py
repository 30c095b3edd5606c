"""Any column that a caller may hold, as an Arrow array, exactly: nothing passes through a float on its way."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import torch

from recsys_emb.errors import KeyTypeError
from recsys_emb.sources.objects import from_objects

Values: TypeAlias = Any  # array-likes share no base class
ArrowColumn: TypeAlias = "pa.Array | pa.ChunkedArray"
Integers: TypeAlias = npt.NDArray[np.int64]

_INT64 = np.dtype(np.int64)


def to_arrow(values: Values, where: str) -> ArrowColumn:
    """Convert a one-dimensional array-like to Arrow.

    Parameters
    ----------
    values
        pandas ``Series``, ``Index`` or array of any dtype; numpy array of any byte order and stride, masked arrays
        included; Arrow ``Array`` or ``ChunkedArray``; Polars ``Series``; torch tensor on any device; list or other
        sequence of Python objects; anything with ``__arrow_c_stream__``, ``__arrow_c_array__`` or ``__array__``.
    where
        What messages call the column.

    Returns
    -------
    pyarrow.Array or pyarrow.ChunkedArray
        Shares memory with ``values`` where the layouts agree. None, NaN, NaT and ``pd.NA`` among objects become
        nulls; NaN inside a float array stays NaN.

    Raises
    ------
    KeyTypeError
        For a scalar, a text, a dict or a set, more than one dimension, types that no Arrow array holds exactly, and
        Python objects of more than one type. Integers mix with floats that hold whole numbers, and with decimals.

    Examples
    --------
    >>> to_arrow([2**60 + 1, None], "user_id").to_pylist()
    [1152921504606846977, None]
    >>> to_arrow([1, "1"], "user_id")
    Traceback (most recent call last):
    ...
    recsys_emb.errors.KeyTypeError: user_id: expected values of one type, got int, str. Convert the column to one type.
    """
    return _convert(values, where)


def to_keys(values: Values, where: str) -> ArrowColumn | Integers:
    """As `to_arrow`, but int64 arrays ``(N,)`` of numpy and pandas stay what they are, which is several times faster.

    >>> to_keys(np.array([5, 7]), "user_id")
    array([5, 7])
    """
    held = values
    if isinstance(values, (pd.Series, pd.Index)) and values.dtype == _INT64:
        held = values.values
    if type(held) is np.ndarray and held.dtype == _INT64 and held.strides == (8,):
        return held
    return to_arrow(values, where)


@functools.singledispatch
def _convert(values: Values, where: str) -> ArrowColumn:
    if type(values).__module__.startswith("polars") and hasattr(values, "dtype"):
        return _from_polars(values, where)
    for protocol, read in (("__arrow_c_stream__", pa.chunked_array), ("__arrow_c_array__", pa.array)):
        if hasattr(values, protocol):
            return read(values)
    if hasattr(values, "__array__") and not np.isscalar(values):
        return _convert(np.asarray(values), where)
    raise _not_a_column(values, where)


def _from_polars(values: Any, where: str) -> ArrowColumn:
    if str(values.dtype) == "Object":
        return from_objects(values.to_list(), where)  # Arrow would show addresses as the values
    try:
        return values.to_arrow()
    except pa.ArrowException:
        raise _not_held(values.dtype, where) from None


@_convert.register(pa.Array)
@_convert.register(pa.ChunkedArray)
def _(values: ArrowColumn, where: str) -> ArrowColumn:  # noqa: ARG001 -- the signature of every converter
    return values


@_convert.register(np.ndarray)
def _(values: np.ndarray[Any, Any], where: str) -> ArrowColumn:
    if values.ndim != 1:
        raise KeyTypeError(f"{where}: expected a one-dimensional array, got shape {values.shape}. Pass one column.")
    if isinstance(values, np.ma.MaskedArray):
        if values.dtype.kind == "O":
            return from_objects(values.tolist(), where)  # tolist() writes None where the mask hides
        hidden = np.ma.getmaskarray(values)
        shown = _convert(values.data, where)
        return pc.if_else(pa.array(hidden), pa.scalar(None, shown.type), shown)
    if values.dtype.kind in "OT":
        return from_objects(values.tolist(), where)
    if values.dtype.kind in "mM" or not values.dtype.isnative:
        values = values.astype(_arrow_dtype(values.dtype))
    try:
        return pa.array(np.ascontiguousarray(values))
    except pa.ArrowNotImplementedError:
        raise _not_held(values.dtype, where) from None


@_convert.register(pd.Series)
@_convert.register(pd.Index)
def _(values: Any, where: str) -> ArrowColumn:
    return _convert(values.to_numpy() if isinstance(values.dtype, np.dtype) else values.array, where)


@_convert.register(pd.api.extensions.ExtensionArray)
def _(values: Any, where: str) -> ArrowColumn:
    return pa.array(values) if hasattr(values, "__arrow_array__") else _convert(np.asarray(values), where)


@_convert.register(pd.Categorical)
def _(values: Any, where: str) -> ArrowColumn:
    categories = _convert(values.categories, where)
    if isinstance(categories, pa.ChunkedArray):
        categories = categories.combine_chunks()
    return pa.DictionaryArray.from_arrays(pa.array(values.codes, mask=values.codes < 0), categories)


@_convert.register(torch.Tensor)
def _(values: torch.Tensor, where: str) -> ArrowColumn:
    held = values.detach().cpu()
    return _convert((held.float() if held.dtype == torch.bfloat16 else held).numpy(), where)


@_convert.register(Sequence)
def _(values: Sequence[object], where: str) -> ArrowColumn:
    if isinstance(values, (str, bytes, bytearray, memoryview)):
        raise _not_a_column(values, where)
    return from_objects(values, where)


def _arrow_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Byte order of this machine, and for numpy's times the next finer unit that Arrow has."""
    if dtype.kind not in "mM":
        return dtype.newbyteorder("=")
    unit, _ = np.datetime_data(dtype)
    if unit not in ("s", "ms", "us", "ns"):
        unit = "D" if dtype.kind == "M" and unit in "YMWD" else "s"
    return np.dtype(f"{dtype.kind}8[{unit}]")


def _not_held(dtype: object, where: str) -> KeyTypeError:
    return KeyTypeError(f"{where}: expected a type that Arrow holds, got {dtype}. Convert the column.")


def _not_a_column(values: object, where: str) -> KeyTypeError:
    shown = repr(values)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return KeyTypeError(
        f"{where}: expected a one-dimensional array, got {type(values).__name__} {shown}. "
        "Wrap a single value in a list."
    )
