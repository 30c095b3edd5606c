"""Losses and gradients of batches, for scores that are sums of table rows: what `sequential` learns one by one.

Nothing moves during a pass. It lists the rows that a batch names, each with the gradient of

    mean over the batch of weight · loss + l2/2 · Σ w²·|W[r]|² + bias_l2/2 · Σ w²·b[r]²

as often as they are named; `row_update` adds them up and moves the rows. The plain twin is in `sequential_reference`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from recsys_emb.kernels.jit import fast_kernel, inlined
from recsys_emb.kernels.row_gather import ask_for_row
from recsys_emb.kernels.row_steps import (
    BIAS_L2,
    BIAS_RATE,
    VECTOR_L2,
    VECTOR_RATE,
    Examples,
    Floats,
    Integers,
    Lists,
    Tables,
    Task,
    error_of,
    gather,
    loss_of,
    product_of,
)

__all__ = ["Entries", "batch_pass"]


# How many examples ahead memory is asked for, one after the other: where an example's lists are, what stands in them,
# and the rows that these name.
_LISTS, _ROWS, _VECTORS = 24, 16, 8


class Entries(NamedTuple):
    """Room for what a batch names, all in order; ``(E,)``, ``(E, D)``, ``(E,)`` and ``(E, 1)``."""

    vector_rows: Integers
    vectors: Floats
    bias_rows: Integers
    biases: Floats


@inlined
def _note(
    lists: Lists,
    j: np.uintp,
    tables: Tables,
    slope: np.float32,
    share: np.float32,
    other: Floats,
    entries: Entries,
    found: tuple[int, int],
) -> tuple[int, int]:
    """Write the gradients of list j behind those that were found; give how many there are then."""
    vectors, biases = found
    for t in range(lists.offsets[j], lists.offsets[j + np.uintp(1)]):
        row, w = lists.rows[np.uintp(t)], lists.weights[np.uintp(t)]
        r, decay = np.uintp(row), share * w * w
        if tables.pace[r, VECTOR_RATE] > 0:
            e, l2, along = np.uintp(vectors), decay * tables.pace[r, VECTOR_L2], slope * w
            entries.vector_rows[e] = row
            for k in range(other.shape[0]):
                entries.vectors[e, k] = along * other[k] + l2 * tables.vectors[r, k]
            vectors += 1
        if tables.pace[r, BIAS_RATE] > 0:
            e = np.uintp(biases)
            entries.bias_rows[e] = row
            entries.biases[e, 0] = slope * w + decay * tables.pace[r, BIAS_L2] * tables.biases[r]
            biases += 1
    return vectors, biases


@inlined
def _ask_ahead(chosen: Integers, n: int, lists: Lists, tables: Tables) -> None:
    """Start to load what the lists of the next examples will need."""
    last = len(chosen) - 1
    near, nearest = np.uintp(chosen[min(n + _ROWS, last)]), np.uintp(chosen[min(n + _VECTORS, last)])
    ask_for_row(lists.offsets, chosen[min(n + _LISTS, last)])
    ask_for_row(lists.rows, lists.offsets[near])
    ask_for_row(lists.weights, lists.offsets[near])
    for t in range(lists.offsets[nearest], lists.offsets[nearest + np.uintp(1)]):
        r = lists.rows[np.uintp(t)]
        ask_for_row(tables.vectors, r)
        ask_for_row(tables.biases, r)
        ask_for_row(tables.pace, r)


@fast_kernel
def batch_pass(
    task: Task, chosen: Integers, examples: Examples, tables: Tables, entries: Entries
) -> tuple[float, tuple[int, int]]:
    """List gradients of the examples ``chosen``, ``(B,)``; give the sum of weight · loss, and how many there are.

    Rows of rate 0 are passed over; histories are not read.
    """
    D = tables.vectors.shape[1]
    user, item = np.empty(D, np.float32), np.empty(D, np.float32)
    total, found, share = 0.0, (0, 0), np.float32(1 / len(chosen))
    for n in range(len(chosen)):
        _ask_ahead(chosen, n, examples.users, tables)
        _ask_ahead(chosen, n, examples.items, tables)
        ask_for_row(examples.targets, chosen[min(n + _LISTS, len(chosen) - 1)])
        ask_for_row(examples.weights, chosen[min(n + _LISTS, len(chosen) - 1)])
        j = np.uintp(chosen[n])
        user[:] = 0
        item[:] = 0
        score = task.offset + gather(examples.users, j, tables, user) + gather(examples.items, j, tables, item)
        score += product_of(user, item)
        weight = examples.weights[j]
        total += weight * loss_of(task.link, examples.targets[j], score)
        slope = -share * weight * error_of(task.link, examples.targets[j], score)
        found = _note(examples.users, j, tables, slope, share, item, entries, found)
        found = _note(examples.items, j, tables, slope, share, user, entries, found)
    return total, found
