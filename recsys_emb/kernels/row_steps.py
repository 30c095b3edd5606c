"""One row, one step: the shared pieces of the row-by-row kernels, and the arguments that they take."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recsys_emb.kernels.jit import inlined

Floats: TypeAlias = npt.NDArray[np.floating]
Integers: TypeAlias = npt.NDArray[np.integer]
Span: TypeAlias = tuple[int, int]

SQUARED, LOGISTIC, PAIRWISE = 0, 1, 2
VECTOR_RATE, VECTOR_L2, BIAS_RATE, BIAS_L2 = 0, 1, 2, 3

ZERO, HALF, ONE = np.float32(0), np.float32(0.5), np.float32(1)


class Lists(NamedTuple):
    """Lists of weighted rows: list j is ``rows[offsets[j]:offsets[j + 1]]``."""

    offsets: Integers  # (N + 1,)
    rows: Integers  # (M,)
    weights: Floats  # (M,)


class Task(NamedTuple):
    """What is minimised."""

    link: int  # SQUARED, LOGISTIC or PAIRWISE
    offset: np.float32  # the constant of every score
    negatives: int  # unseen items drawn per example
    seed: int  # of the drawing


class Histories(NamedTuple):
    """Rows that a user names in each of its examples, all of one weight and one pace, as SVD++ does."""

    users: Integers  # (N,), the list of each example
    lists: Lists  # (U,)


class Examples(NamedTuple):
    """What the examples name on either side, what they want, and what their errors are multiplied by."""

    users: Lists
    items: Lists
    histories: Histories
    targets: Floats  # (N,)
    weights: Floats  # (N,)


class Contrast(NamedTuple):
    """What an example's own item is contrasted with: items that its user does not have."""

    users: Integers  # (N,), the number of each example's user
    offsets: Integers  # (U + 1,)
    seen: Integers  # (S,), per user the numbers of the items that it has, ascending, no repeats
    catalogue: Lists  # the rows of each item
    places: Lists  # per example, rows of the item side that its negatives share with it (its position)


class Tables(NamedTuple):
    """What is learned, in place, and how fast each row learns."""

    vectors: Floats  # (V, D)
    biases: Floats  # (V,)
    pace: Floats  # (V, 4), see the constants; a row whose vector rate is 0 keeps its vector


@inlined
def error_of(link: int, target: np.float32, score: np.float32) -> np.float32:
    """Give minus the derivative of the loss."""
    if link == SQUARED:
        return target - score
    return np.float32(target - ONE / (ONE + np.exp(-score)))


@inlined
def loss_of(link: int, target: np.float32, score: np.float32) -> np.float32:
    """Give ½·(target − score)², or the log loss of a score in log odds."""
    if link == SQUARED:
        return HALF * (target - score) * (target - score)
    return np.float32(max(score, ZERO) - target * score + np.log1p(np.exp(-abs(score))))


@inlined
def gather(lists: Lists, j: np.uintp, tables: Tables, total: Floats) -> np.float32:
    """Add the vectors of list j to ``total`` and give the sum of its biases."""
    bias = ZERO
    for t in range(lists.offsets[j], lists.offsets[j + np.uintp(1)]):
        r, w = np.uintp(lists.rows[np.uintp(t)]), lists.weights[np.uintp(t)]
        bias += w * tables.biases[r]
        for k in range(total.shape[0]):
            total[k] += w * tables.vectors[r, k]
    return bias


@inlined
def step(lists: Lists, j: np.uintp, tables: Tables, errors: tuple[np.float32, np.float32], other: Floats) -> None:
    """Move the rows of list j: biases along the first error, vectors along the second times ``other``."""
    for t in range(lists.offsets[j], lists.offsets[j + np.uintp(1)]):
        r, w = np.uintp(lists.rows[np.uintp(t)]), lists.weights[np.uintp(t)]
        rate = tables.pace[r, VECTOR_RATE]
        bias_change = errors[0] * w - tables.pace[r, BIAS_L2] * w * w * tables.biases[r]
        tables.biases[r] += tables.pace[r, BIAS_RATE] * bias_change
        if rate > 0:
            kept, moved = ONE - rate * tables.pace[r, VECTOR_L2] * w * w, rate * errors[1] * w
            for k in range(other.shape[0]):
                tables.vectors[r, k] = kept * tables.vectors[r, k] + moved * other[k]


@inlined
def product_of(left: Floats, right: Floats) -> np.float32:
    """Multiply two vectors."""
    total = ZERO
    for k in range(left.shape[0]):
        total += left[k] * right[k]
    return total


@inlined
def copy_to(target: Floats, source: Floats) -> None:
    """Copy ``(D,)``; between slices the compiler would look for an overlap first, which costs more than the copy."""
    for k in range(target.shape[0]):
        target[k] = source[k]


# --- histories -------------------------------------------------------------------------------------------------
#
# While a user's examples follow each other, all n rows of its history take the same linear steps: with rate a, weight
# w and k = 1 − a·L2·w², one example does W ← k·W + a·w·e·q to each row, and hence P ← k·P + a·n·w²·e·q to their
# weighted sum P. After m examples P tells what all rows are: W ← kᵐ·W + (P − kᵐ·P₀) / (n·w), with P₀ the sum at the
# start. So an example costs O(D), however long the history, and examples without one do not end the run.


@inlined
def has_rows(lists: Lists, j: np.uintp) -> bool:
    """Whether list j names any row."""
    return bool(lists.offsets[j] < lists.offsets[j + np.uintp(1)])


@inlined
def open_run(lists: Lists, j: np.uintp, tables: Tables, past: Floats, start: Floats) -> tuple[np.float32, np.float32]:
    """Sum history j into ``past`` (P) and ``start`` (P₀); give k and what moves P per error, a·n·w²."""
    past[:] = 0
    gather(lists, j, tables, past)
    copy_to(start, past)
    first, last = lists.offsets[j], lists.offsets[j + np.uintp(1)]
    r, w = np.uintp(lists.rows[np.uintp(first)]), lists.weights[np.uintp(first)]
    rate = tables.pace[r, VECTOR_RATE]
    return ONE - rate * tables.pace[r, VECTOR_L2] * w * w, rate * w * w * np.float32(last - first)


@inlined
def step_run(past: Floats, kept: np.float32, moved: np.float32, other: Floats) -> None:
    """Let all rows of a history take one step along ``other``."""
    for k in range(past.shape[0]):
        past[k] = kept * past[k] + moved * other[k]


@inlined
def close_run(lists: Lists, j: np.uintp, tables: Tables, past: Floats, start: Floats, left: np.float32) -> None:
    """Write the rows of history j, of which ``left`` (kᵐ) is left; ``start`` is used up."""
    first, last = lists.offsets[j], lists.offsets[j + np.uintp(1)]
    share = ONE / (lists.weights[np.uintp(first)] * np.float32(last - first))
    for k in range(past.shape[0]):
        start[k] = share * (past[k] - left * start[k])
    for t in range(first, last):
        r = np.uintp(lists.rows[np.uintp(t)])
        for k in range(past.shape[0]):
            tables.vectors[r, k] = left * tables.vectors[r, k] + start[k]
