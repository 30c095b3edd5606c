"""Lookups of many features in one stack of tables: which rows of memory are meant, and their gather.

A stack is one matrix, table under table; index i of table t is its row ``firsts[t] + i``. Lookups are given as
addresses, so that neither indices nor vectors nor gradients need to be copied together first. Nothing is checked:
indices are in range, and the caller keeps the memory alive.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recsys_emb.kernels.jit import inlined, kernel
from recsys_emb.kernels.memory import floats_at, load64, prefetch

Floats: TypeAlias = npt.NDArray[np.float32]
Integers: TypeAlias = npt.NDArray[np.int64]

# Columns of a lookup, int64: which table; how many indices, int64 each, where they start and bytes between them; where
# the first vector of D float32 is (or its gradient) and bytes between vectors.
PLACE, COUNT, INDICES, INDEX_STEP, VECTORS, VECTOR_STEP = range(6)

# How many lookups ahead memory is asked for: about as many as pass until it answers.
AHEAD = 16
_LINE = 64


class Stack(NamedTuple):
    """Tables under each other.

    Parameters
    ----------
    weights
        float32 ``(R, D)``.
    firsts, sizes
        int64 ``(T,)``, where each table starts and how many rows it has.
    padding
        The index that reads as zeros and never moves, in every table.
    """

    weights: Floats
    firsts: Integers
    sizes: Integers
    padding: int


@inlined
def address_of(lookups: Integers, s: int, n: int, start: int) -> np.uint64:
    """Address of the n-th index (``start=INDICES``) or vector (``VECTORS``) of lookup s."""
    return np.uint64(lookups[s, start] + n * lookups[s, start + 1])


@inlined
def index_of(lookups: Integers, s: int, n: int) -> np.int64:
    """Index that the n-th vector of lookup s stands for."""
    return np.int64(load64(address_of(lookups, s, n, INDICES)))


@inlined
def ask_for(address: np.uint64, width: int) -> None:
    """Start to load some bytes into the cache."""
    for offset in range(0, width, _LINE):
        prefetch(address + np.uint64(offset))


@inlined
def ask_for_row(array: npt.NDArray[Any], row: int) -> None:
    """Start to load a row of a contiguous array."""
    ask_for(np.uint64(array.ctypes.data + row * array.strides[0]), array.strides[0])


@kernel
def gather(stack: Stack, lookups: Integers) -> None:
    """Write the vectors of lookups, int64 ``(S, 6)``: rows of the stack, and zeros for padding."""
    weights, D = stack.weights, stack.weights.shape[1]
    for s in range(len(lookups)):
        first, last = stack.firsts[lookups[s, PLACE]], lookups[s, COUNT] - 1
        for n in range(lookups[s, COUNT]):
            ask_for_row(weights, first + index_of(lookups, s, min(n + AHEAD, last)))
            vector, index = floats_at(address_of(lookups, s, n, VECTORS)), index_of(lookups, s, n)
            row = np.uintp(first + index)
            if index == stack.padding:
                for c in range(D):
                    vector[c] = 0
            else:
                for c in range(D):
                    vector[c] = weights[row, np.uintp(c)]
