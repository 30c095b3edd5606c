"""Columns of numbers as float64, and what is refused in them."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_emb.errors import DataError, counted
from recsys_emb.sources.arrow_types import is_number, type_name

Numbers: TypeAlias = npt.NDArray[np.float64]


def read_numbers(array: pa.Array, where: str) -> Numbers:
    """Read an Arrow column as float64 ``(B,)``, NaN where there is no value. Booleans become 0 and 1.

    Raises
    ------
    DataError
        When it holds anything else than numbers: no text is parsed.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    if not (is_number(array.type) or pa.types.is_null(array.type)):
        rows = counted(len(array) - array.null_count, "row")
        raise DataError(
            f"{where}: expected numbers, got {type_name(array.type)} in {rows}. Convert the column to numbers."
        )
    return np.asarray(array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))


def refuse_rows(bad: npt.NDArray[np.bool_], where: str, expected: str, got: str, start: int) -> None:
    """Refuse rows of a column, saying how many and which is the first.

    Raises
    ------
    DataError
        When any of ``bad`` is true.
    """
    if bad.any():
        first = start + int(bad.argmax())
        raise DataError(
            f"{where}: expected {expected}, got {got} in {counted(int(bad.sum()), 'row')} (first: row {first}). "
            "Correct or drop such rows."
        )
