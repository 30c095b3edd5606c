"""The few hot loops. Rooms load on first use, so that importing the library does not wait for a compiler.

Write ``import recsys_emb.kernels as kernels`` and call ``kernels.integer_table.…``; each kernel has a plain twin
in its own room that tests hold it to.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from recsys_emb.kernels import (
        batch_pass,
        bytes_counter,
        bytes_order,
        bytes_search,
        bytes_table,
        dictionary_codes,
        direct_table,
        exact_sums,
        integer_counter,
        integer_table,
        memory,
        row_copies,
        row_pick,
        row_update,
        sequential,
        stable_hash,
        topk,
    )

__all__ = [
    "batch_pass",
    "bytes_counter",
    "bytes_order",
    "bytes_search",
    "bytes_table",
    "dictionary_codes",
    "direct_table",
    "exact_sums",
    "gather",
    "integer_counter",
    "integer_table",
    "memory",
    "row_copies",
    "row_pick",
    "row_update",
    "sequential",
    "stable_hash",
    "topk",
]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
