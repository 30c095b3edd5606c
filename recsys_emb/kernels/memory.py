"""What Python cannot say about memory: unaligned loads, prefetch, a 128-bit product; and the hashes built on them.

Helpers are compiled into the kernels that call them. Addresses are ``uint64`` and unchecked: the caller keeps the
buffers alive and the reads inside them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from recsys_emb.kernels.jit import inlined

Bytes: TypeAlias = npt.NDArray[np.uint8]
Integers: TypeAlias = npt.NDArray[np.int64]
Unsigned: TypeAlias = npt.NDArray[np.uint64]

# Multipliers of wyhash (Wang Yi, public domain) and 2**64 / golden ratio.
_SEED = np.uint64(0x9E3779B97F4A7C15)
_FOLD = np.uint64(0xA0761D6478BD642F)
_LAST = np.uint64(0xE7037ED1A0B428DB)
_LENGTH = np.uint64(0xFF51AFD7ED558CCD)
# numba turns int64 + uint64 into float64, so every constant beside an address is uint64 too.
_0, _1, _4, _8, _16, _32 = (np.uint64(value) for value in (0, 1, 4, 8, 16, 32))

Scalar = TypeVar("Scalar", bound=np.generic)
_Typing: TypeAlias = Callable[[Any, Any], tuple[Any, Callable[..., Any]]]
_Word: TypeAlias = Callable[[np.uint64], np.uint64]


def _load(bits: int) -> _Typing:
    def typed(_typing: Any, _address: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            loaded = builder.load(builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer()))
            loaded.align = 1
            return loaded if bits == 64 else builder.zext(loaded, ir.IntType(64))

        return types.uint64(types.uint64), generate

    return typed


def _prefetch(_typing: Any, _address: Any) -> tuple[Any, Callable[..., Any]]:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        flag = ir.IntType(32)
        pointer = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        signature = ir.FunctionType(ir.VoidType(), [pointer.type, flag, flag, flag])
        target = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], signature)
        builder.call(target, [pointer, flag(0), flag(3), flag(1)])  # for reading, into every level, data
        return context.get_dummy_value()

    return types.void(types.uint64), generate


def _floats_at(_typing: Any, _address: Any) -> tuple[Any, Callable[..., Any]]:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.FloatType().as_pointer())

    pointer_to: Any = types.CPointer
    return pointer_to(types.float32)(types.uint64), generate


def _folded_product(_typing: Any, _left: Any, _right: Any) -> tuple[Any, Callable[..., Any]]:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        wide, word = ir.IntType(128), ir.IntType(64)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        return builder.xor(builder.trunc(product, word), builder.trunc(builder.lshr(product, wide(64)), word))

    return types.uint64(types.uint64, types.uint64), generate


load8 = cast("_Word", intrinsic(_load(8)))
load32 = cast("_Word", intrinsic(_load(32)))
load64 = cast("_Word", intrinsic(_load(64)))
prefetch = cast("Callable[[np.uint64], None]", intrinsic(_prefetch))
floats_at = cast("Callable[[np.uint64], npt.NDArray[np.float32]]", intrinsic(_floats_at))
folded_product = cast("Callable[[np.uint64, np.uint64], np.uint64]", intrinsic(_folded_product))


def frozen(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """View ``array`` read-only: kernels are compiled apart for writable and read-only arrays, so columns are one."""
    view = array[:]
    view.flags.writeable = False
    return view


ALL_VALID = frozen(np.empty(0, np.uint8))


@inlined
def is_valid(validity: Bytes, row: int) -> bool:
    """Whether bit ``row`` of an Arrow validity bitmap is set; an empty bitmap says yes to all."""
    return validity.size == 0 or (validity[row >> 3] >> (row & 7)) & 1 != 0


@inlined
def mark_missing(validity: Bytes, bit_offset: int, missing: int, out: Integers) -> None:
    """Overwrite what was found for rows whose validity bit is not set."""
    if validity.size:
        for row in range(len(out)):
            if not is_valid(validity, bit_offset + row):
                out[row] = missing


@inlined
def home_of_integer(key: np.int64, shift: np.uint64) -> np.uint64:
    """Slot where the search for a key starts in a table of 2^(64 - shift) slots (Fibonacci hashing; Knuth, 6.4)."""
    word = np.uint64(key)
    return ((word ^ (word >> _32)) * _SEED) >> shift


@inlined
def hash_bytes(address: np.uint64, length: np.uint64) -> np.uint64:
    """Hash ``length`` bytes for a table in memory, after wyhash; never stored. Reads nothing beyond them."""
    head, tail, state = _0, _0, _SEED ^ (length * _LENGTH)
    if length > _16:
        end = address + length
        while address + _16 < end:
            state = folded_product(load64(address) ^ _LAST, load64(address + _8) ^ state)
            address += _16
        head, tail = load64(end - _16), load64(end - _8)
    elif length >= _8:
        head, tail = load64(address), load64(address + length - _8)
    elif length >= _4:
        head, tail = load32(address), load32(address + length - _4)
    elif length > _0:
        head, tail = load8(address) | (load8(address + (length >> _1)) << _8), load8(address + length - _1)
    return folded_product(head ^ _FOLD, tail ^ state)


@inlined
def equal_bytes(left: np.uint64, right: np.uint64, length: np.uint64) -> bool:
    """Whether ``length`` bytes at two addresses are equal. Reads nothing beyond them."""
    if length >= _8:
        done = _0
        while done + _8 < length:
            if load64(left + done) != load64(right + done):
                return False
            done += _8
        return bool(load64(left + length - _8) == load64(right + length - _8))
    if length >= _4:
        tail = length - _4
        return bool(load32(left) == load32(right) and load32(left + tail) == load32(right + tail))
    done = _0
    while done < length and load8(left + done) == load8(right + done):
        done += _1
    return bool(done == length)
