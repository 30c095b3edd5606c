"""The values of one feature, read from rows and checked."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_emb.encoding.numbers import Numbers, read_numbers, refuse_rows
from recsys_emb.errors import DataError, KeyTypeError, SchemaError
from recsys_emb.schema import Keyed, MultiCategorical, Position
from recsys_emb.sources.arrow_types import is_number, type_name
from recsys_emb.sources.lists import Lists, read_lists
from recsys_emb.sources.parts import Rows

_PYTHON_TYPES = {"int64": int, "string": str, "large_string": str}


def read_keys(feature: Keyed, rows: Rows) -> pa.Array:
    """Values of a column with one key per row, of the declared type if one is declared."""
    return _as_declared(rows.column(feature.name), feature, rows)


def read_key_lists(feature: MultiCategorical, rows: Rows) -> Lists:
    """Values of a column with a list of keys per row, not yet cut."""
    lists = read_lists(rows.column(feature.name), rows.where(feature.name))
    return Lists(_as_declared(lists.values, feature, rows), lists.offsets)


def read_positions(feature: Position, rows: Rows) -> Numbers:
    """Positions as float64 ``(B,)``, NaN where there is none."""
    array = rows.column(feature.name)
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if not (is_number(kind) or pa.types.is_null(kind)):
        raise KeyTypeError(
            f"{rows.where(feature.name)}: expected integer positions, got {type_name(kind)}. "
            "Convert the column to integers."
        )
    return read_numbers(array, rows.where(feature.name))


def is_whole(numbers: Numbers) -> npt.NDArray[np.bool_]:
    """Which numbers are integers; neither NaN nor infinity is."""
    return np.asarray(np.isfinite(numbers) & (numbers == np.floor(numbers)))


def read_finite(rows: Rows, name: str) -> Numbers:
    """Numbers as float64 ``(B,)``, NaN where there is none; infinite ones are refused."""
    numbers = read_numbers(rows.column(name), rows.where(name))
    refuse_rows(np.isinf(numbers), rows.where(name), "finite numbers", "infinity", rows.start)
    return numbers


def declared_type(feature: Keyed) -> pa.DataType | None:
    """Type that the feature is declared to be read as, if any.

    Raises
    ------
    SchemaError
        When it is not the name of an Arrow type.
    """
    try:
        return None if feature.dtype is None else pa.type_for_alias(feature.dtype)
    except ValueError:
        raise SchemaError(
            f"{type(feature).__name__}({feature.name!r}): expected dtype to name an Arrow type, got {feature.dtype!r}. "
            "Write for instance dtype='int64'."
        ) from None


def as_declared(feature: Keyed, value: object) -> bool:
    """Whether a Python value is of the declared type as it stands, or none is declared."""
    return feature.dtype is None or _PYTHON_TYPES.get(feature.dtype) is type(value)


def _as_declared(values: pa.Array, feature: Keyed, rows: Rows) -> pa.Array:
    kind = declared_type(feature)
    if kind is None or values.type == kind:
        return values
    plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    if pa.types.is_floating(plain.type):
        plain = pc.if_else(pc.is_nan(plain), None, plain)
    try:
        return plain.cast(kind)
    except pa.ArrowException as error:
        raise DataError(
            f"{rows.where(feature.name)}: expected values that are {feature.dtype}, got an error: {error}. "
            "Correct them, or leave dtype= out."
        ) from None
