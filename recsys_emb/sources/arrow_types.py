"""What an Arrow type holds, whatever its layout and width."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types


def is_list(kind: pa.DataType) -> bool:
    """Whether it holds a list per row."""
    tests = (
        types.is_list,
        types.is_large_list,
        types.is_fixed_size_list,
        types.is_list_view,
        types.is_large_list_view,
    )
    return any(test(kind) for test in tests)


def is_text(kind: pa.DataType) -> bool:
    """Whether it holds a text per row."""
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether it holds a number per row; truth values are none."""
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def type_name(kind: pa.DataType) -> str:
    """Name it as messages do: all ways to store text are "text".

    >>> type_name(pa.large_string()), type_name(pa.list_(pa.string())), type_name(pa.int8())
    ('text', 'list of text', 'int8')
    """
    if is_list(kind):
        return f"list of {type_name(kind.value_type)}"
    plain = kind.value_type if types.is_dictionary(kind) else kind
    return "text" if is_text(plain) else str(plain)
