"""The few keys that decide, for all, which type holds them: what one worker must know of the keys of the others."""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa

from recsys_emb.vocabulary.kinds import DECIMAL, DURATION, MOMENT, SPAN, TIMESTAMP, Part
from recsys_emb.vocabulary.storage import BYTE_STRINGS, INTEGERS, integer_column

_FINE = 1000  # nanoseconds


def deciding(part: Part) -> Part:
    """Pick keys so that `restore` gives them the type, or raises the error, that it would for all of the part.

    Parameters
    ----------
    part
        Keys of one kind in canonical form, none of them null.

    Returns
    -------
    Part
        Six keys at most.

    Examples
    --------
    >>> from recsys_emb.vocabulary.kinds import INTEGER
    >>> deciding(Part(INTEGER, pa.array([7000, 5000, -2, 9000]))).keys.to_pylist()
    [-2, 9000]
    """
    if not len(part.keys):
        return part
    if part.kind is DECIMAL:
        rows = _of_decimals(part.keys)
    elif part.kind.storage is INTEGERS:
        keys = integer_column(part.keys).keys
        # Of times, whose canonical form is nanoseconds, the fine ones decide.
        rows = [int(keys.argmin()), int(keys.argmax()), int((keys % _FINE != 0).argmax())]
    elif part.kind in (TIMESTAMP, MOMENT, DURATION):
        rows = _of_spans(part.keys)
    else:
        rows = [0]
    return Part(part.kind, part.keys.take(pa.array(sorted(set(rows)))))


def _of_spans(keys: pa.Array) -> list[int]:
    column = BYTE_STRINGS.column(keys)
    spans = column.data[column.offsets[0] : column.offsets[-1]].view(SPAN)
    fine = spans["nanoseconds"] % _FINE != 0
    return [int(spans["seconds"].argmin()), int(spans["seconds"].argmax()), int(fine.argmax())]


def _of_decimals(keys: pa.Array) -> list[int]:
    numbers = [decimal.Decimal(key.decode()).as_tuple() for key in keys.to_pylist()]
    # Arrow takes the digits before the point, and those behind it, that the longest numbers have.
    exponents = np.array([int(one.exponent) for one in numbers])
    before = np.array([len(one.digits) for one in numbers]) + exponents
    return [int(before.argmax()), int(exponents.argmin())]
