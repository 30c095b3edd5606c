"""One decorator for all kernels: compiled without the interpreter lock, cached on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile an exact kernel (no reordering of floating-point sums)."""
    return cast("Callable[P, R]", numba.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy")(function))


def fast_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a kernel whose sums may be reordered to vectorise; equal to its twin within 1e-5."""
    return cast(
        "Callable[P, R]",
        numba.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy", fastmath=True)(function),
    )


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a helper to be inlined into the kernels that call it."""
    return cast("Callable[P, R]", numba.njit(inline="always")(function))
