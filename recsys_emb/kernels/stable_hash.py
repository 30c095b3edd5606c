"""Hashes that never change: the same on every machine, in every process and version, for they end up in saved models.

An integer is hashed by the finaliser of SplitMix64 (Steele, Lea & Flood, 2014) on its 64 bits. A byte string is
hashed by 64-bit FNV-1a (Fowler, Noll & Vo, RFC 9923), and the result by the same finaliser, whose low bits are good.
"""

from __future__ import annotations

import numpy as np

from recsys_emb.kernels.bytes_search import BytesColumn
from recsys_emb.kernels.integer_table import IntegerColumn
from recsys_emb.kernels.jit import inlined, kernel
from recsys_emb.kernels.memory import Unsigned

_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x00000100000001B3)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)
_WORD = 2**64 - 1


@inlined
def _finalise(word: np.uint64) -> np.uint64:
    word = (word ^ (word >> _30)) * _FIRST
    word = (word ^ (word >> _27)) * _SECOND
    return word ^ (word >> _31)


@kernel
def hash_integers(column: IntegerColumn, out: Unsigned) -> None:
    """Write the hash of each key into ``out`` uint64 (N,); nulls get some number too."""
    for row in range(len(column.keys)):
        out[row] = _finalise(np.uint64(column.keys[row]))


@kernel
def hash_byte_strings(column: BytesColumn, out: Unsigned) -> None:
    """Write the hash of each key into ``out`` uint64 (N,); nulls get some number too."""
    for row in range(len(out)):
        state = _BASIS
        for spot in range(column.offsets[row], column.offsets[row + 1]):
            state = (state ^ np.uint64(column.data[spot])) * _PRIME
        out[row] = _finalise(state)


def hash_integer_reference(key: int) -> int:
    """Hash the plain way.

    >>> hash_integer_reference(1)
    6238072747940578789
    """
    word = key & _WORD
    word = (word ^ (word >> 30)) * int(_FIRST) & _WORD
    word = (word ^ (word >> 27)) * int(_SECOND) & _WORD
    return word ^ (word >> 31)


def hash_bytes_reference(key: bytes) -> int:
    """Hash the plain way.

    >>> hash_bytes_reference(b"")
    17665956581633026203
    """
    state = int(_BASIS)
    for byte in key:
        state = (state ^ byte) * int(_PRIME) & _WORD
    return hash_integer_reference(state)
