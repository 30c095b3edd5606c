"""Updates, in place, of the rows of a stack of tables that were looked up (see `row_gather`).

A kernel takes the gradient of what was read and moves each touched row once:

1. The indices of a table are made distinct by a hash table that fits into the cache, or by a plain array where the
   table is small. Gradients of a row that was looked up several times are added up, in the order of the lookups; the
   gradient of a row that was looked up once is read where it is.
2. A row that was looked up n times, with added-up gradient G, moves by ``g = G + n·l2·w`` as its rule says.

Padding never moves. A table belongs to one call, so calls for different tables may run at the same time, and the
result does not depend on how tables are dealt out to threads. Plain twins are in `row_update_reference`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recsys_emb.kernels.jit import fast_kernel, inlined, kernel
from recsys_emb.kernels.memory import floats_at, home_of_integer
from recsys_emb.kernels.row_gather import (
    AHEAD,
    COUNT,
    PLACE,
    VECTORS,
    Floats,
    Integers,
    Stack,
    address_of,
    ask_for,
    ask_for_row,
    gather,
    index_of,
)

__all__ = ["Stack", "adagrad", "gather", "lazy_adam", "row_wise_adagrad", "sgd"]

State: TypeAlias = tuple[Floats, ...]
Move: TypeAlias = Callable[[Any, Any, Any, Any, Any, Any], None]

# Columns of the settings, float32, one row per table.
RATE, L2, EPS, FIRST, SECOND, SPREAD = range(6)

_NONE = -1


class _Distinct(NamedTuple):
    """Room for the distinct indices of a table."""

    slots: npt.NDArray[np.int32]  # a power of two of places in `indices`, or `_NONE`
    shift: np.uint64
    indices: Integers
    times: Floats  # how often each was looked up
    gradients: npt.NDArray[np.uint64]  # where the gradient of each is
    sums: Floats  # where gradients are added up, (N / 2, D)


# --- distinct rows -----------------------------------------------------------------------------------------------


@inlined
def _room_for(lookups: Integers, D: int) -> _Distinct:
    """Make room for the largest table's lookups."""
    most = _most_of_a_table(lookups)
    slots, shift = 2, np.uint64(63)
    while slots < 2 * most:
        slots, shift = 2 * slots, shift - np.uint64(1)
    return _Distinct(
        np.empty(slots, np.int32),
        shift,
        np.empty(most, np.int64),
        np.empty(most, np.float32),
        np.empty(most, np.uint64),
        np.empty((most // 2 + 1, D), np.float32),
    )


@kernel
def _most_of_a_table(lookups: Integers) -> int:
    most = total = 0
    for s in range(len(lookups)):
        total = lookups[s, COUNT] + (total if s and lookups[s, PLACE] == lookups[s - 1, PLACE] else 0)
        most = max(most, total)
    return most


@kernel
def _add_up(lookups: Integers, start: int, stop: int, size: int, padding: int, distinct: _Distinct) -> int:
    """Make the indices of one table's lookups distinct and add their gradients up; give how many there are."""
    slots, D = distinct.slots, distinct.sums.shape[1]
    direct, mask = size <= len(slots), np.uint64(len(slots) - 1)
    slots[: size if direct else len(slots)] = _NONE
    found = summed = 0
    for s in range(start, stop):
        last = lookups[s, COUNT] - 1
        for n in range(lookups[s, COUNT]):
            ask_for(address_of(lookups, s, min(n + AHEAD, last), VECTORS), 4 * D)
            index, gradient = index_of(lookups, s, n), address_of(lookups, s, n, VECTORS)
            if index == padding:
                continue
            slot = np.uint64(index) if direct else home_of_integer(index, distinct.shift)
            place = np.int64(slots[slot])
            while place != _NONE and distinct.indices[place] != index:
                slot = (slot + np.uint64(1)) & mask
                place = np.int64(slots[slot])
            if place == _NONE:
                slots[slot] = found
                distinct.indices[found], distinct.times[found], distinct.gradients[found] = index, 1, gradient
                found += 1
                continue
            if distinct.times[place] == 1:
                _sum_into(distinct.sums, summed, distinct.gradients[place], gradient)
                distinct.gradients[place] = np.uint64(distinct.sums.ctypes.data + 4 * D * summed)
                summed += 1
            else:
                added, total = floats_at(gradient), floats_at(distinct.gradients[place])
                for c in range(D):
                    total[c] += added[c]
            distinct.times[place] += np.float32(1)
    return found


@inlined
def _sum_into(sums: Floats, place: int, left: np.uint64, right: np.uint64) -> None:
    one, other, row = floats_at(left), floats_at(right), np.uintp(place)
    for c in range(sums.shape[1]):
        sums[row, np.uintp(c)] = one[c] + other[c]


@inlined
def _move_rows(stack: Stack, state: Any, fetched: Any, lookups: Integers, settings: Floats, move: Move) -> None:
    """Move every touched row once; lookups of one table stand next to each other."""
    weights, D = stack.weights, stack.weights.shape[1]
    distinct = _room_for(lookups, D)
    start = 0
    while start < len(lookups):
        place, stop = lookups[start, PLACE], start + 1
        while stop < len(lookups) and lookups[stop, PLACE] == place:
            stop += 1
        first = stack.firsts[place]
        found = _add_up(lookups, start, stop, stack.sizes[place], stack.padding, distinct)
        for u in range(found):
            ahead = min(u + AHEAD, found - 1)
            ask_for_row(weights, first + distinct.indices[ahead])
            fetched(state, first + distinct.indices[ahead])
            ask_for(distinct.gradients[ahead], 4 * D)
            row, l2 = np.uintp(first + distinct.indices[u]), settings[place, L2] * distinct.times[u]
            move(weights, state, row, floats_at(distinct.gradients[u]), l2, settings[place])
        start = stop


# --- rules -------------------------------------------------------------------------------------------------------


@inlined
def _fetch_none(_state: State, _row: int) -> None:
    pass


@inlined
def _fetch_one(state: State, row: int) -> None:
    ask_for_row(state[0], row)


@inlined
def _fetch_two(state: State, row: int) -> None:
    ask_for_row(state[0], row)
    ask_for_row(state[1], row)


@inlined
def _move_sgd(weights: Floats, _state: State, row: np.uintp, gradient: Floats, l2: np.float32, setting: Floats) -> None:
    rate = setting[RATE]
    for c in range(weights.shape[1]):
        k = np.uintp(c)
        weights[row, k] -= rate * (gradient[c] + l2 * weights[row, k])


@inlined
def _move_adagrad(
    weights: Floats, state: State, row: np.uintp, gradient: Floats, l2: np.float32, setting: Floats
) -> None:
    sums, rate, eps = state[0], setting[RATE], setting[EPS]
    for c in range(weights.shape[1]):
        k = np.uintp(c)
        step = gradient[c] + l2 * weights[row, k]
        total = sums[row, k] + step * step
        sums[row, k] = total
        weights[row, k] -= rate * step / (np.sqrt(total) + eps)


@inlined
def _move_row_wise_adagrad(
    weights: Floats, state: State, row: np.uintp, gradient: Floats, l2: np.float32, setting: Floats
) -> None:
    D, squares = weights.shape[1], np.float32(0)
    for c in range(D):
        step = gradient[c] + l2 * weights[row, np.uintp(c)]
        squares += step * step
    total = state[0][row] + squares / np.float32(D)
    state[0][row] = total
    rate = setting[RATE] / (np.sqrt(total) + setting[EPS])
    for c in range(D):
        k = np.uintp(c)
        weights[row, k] -= rate * (gradient[c] + l2 * weights[row, k])


@inlined
def _move_lazy_adam(
    weights: Floats, state: State, row: np.uintp, gradient: Floats, l2: np.float32, setting: Floats
) -> None:
    means, squares = state
    touched = False
    for c in range(weights.shape[1]):
        touched |= gradient[c] + l2 * weights[row, np.uintp(c)] != 0
    if not touched:
        return
    rate, eps, first, second, spread = setting[RATE], setting[EPS], setting[FIRST], setting[SECOND], setting[SPREAD]
    for c in range(weights.shape[1]):
        k = np.uintp(c)
        step = gradient[c] + l2 * weights[row, k]
        mean = means[row, k] + first * (step - means[row, k])
        square = squares[row, k] + second * (step * step - squares[row, k])
        means[row, k], squares[row, k] = mean, square
        weights[row, k] -= rate * mean / (spread * np.sqrt(square) + eps)


@kernel
def sgd(stack: Stack, state: State, lookups: Integers, settings: Floats) -> None:
    """``w ← w − rate·g``; no state."""
    _move_rows(stack, state, _fetch_none, lookups, settings, _move_sgd)


@kernel
def adagrad(stack: Stack, state: State, lookups: Integers, settings: Floats) -> None:
    """``s ← s + g²; w ← w − rate·g / (√s + eps)``; s is ``(R, D)``."""
    _move_rows(stack, state, _fetch_one, lookups, settings, _move_adagrad)


@fast_kernel
def row_wise_adagrad(stack: Stack, state: State, lookups: Integers, settings: Floats) -> None:
    """``s ← s + mean(g²); w ← w − rate·g / (√s + eps)``; s is ``(R,)``."""
    _move_rows(stack, state, _fetch_one, lookups, settings, _move_row_wise_adagrad)


@kernel
def lazy_adam(stack: Stack, state: State, lookups: Integers, settings: Floats) -> None:
    """``m ← m + first·(g − m); v ← v + second·(g² − v); w ← w − rate·m / (spread·√v + eps)``; both ``(R, D)``.

    A row whose added-up gradient is zero stays as it is.
    """
    _move_rows(stack, state, _fetch_two, lookups, settings, _move_lazy_adam)
