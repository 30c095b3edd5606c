"""Stochastic gradient descent row by row on scores that are sums of table rows.

The score of an example is a constant, plus the biases of the rows that it names, plus the product of two sums of
vectors::

    score = offset + Σ w·b[r]  (all rows)  +  ⟨Σ w·W[r] (user side), Σ w·W[r] (item side)⟩

Every row r that an example names with weight w then takes one step, with e the error of the score (minus the
derivative of the loss, times the example's weight) and q the sum of the other side, both taken before any step::

    W[r] += vector_rate[r] · (e·w·q − vector_l2[r]·w²·W[r])
    b[r] += bias_rate[r] · (e·w − bias_l2[r]·w²·b[r])

so L2 is felt once per occurrence, in proportion to the squared weight. `pair_pass` takes one row of weight 1 on
either side, `list_pass` any lists of rows, and `ranking_pass` contrasts each example's item with unseen items.
Their plain twins are in `sequential_reference`.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recsys_emb.kernels.jit import fast_kernel, inlined

Floats: TypeAlias = npt.NDArray[np.floating]
Integers: TypeAlias = npt.NDArray[np.integer]
Span: TypeAlias = tuple[int, int]

SQUARED, LOGISTIC, PAIRWISE = 0, 1, 2
VECTOR_RATE, VECTOR_L2, BIAS_RATE, BIAS_L2 = 0, 1, 2, 3

_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)


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


class Examples(NamedTuple):
    """What the examples name on either side, what they want, and what their errors are multiplied by."""

    users: Lists
    items: Lists
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


# --- shared pieces ---------------------------------------------------------------------------------------------


@inlined
def _error(link: int, target: np.float32, score: np.float32) -> np.float32:
    if link == SQUARED:
        return target - score
    return np.float32(target - _ONE / (_ONE + np.exp(-score)))


@inlined
def _loss(link: int, target: np.float32, score: np.float32) -> np.float32:
    if link == SQUARED:
        return _HALF * (target - score) * (target - score)
    return np.float32(max(score, _ZERO) - target * score + np.log1p(np.exp(-abs(score))))


@inlined
def _gather(lists: Lists, j: np.uintp, tables: Tables, total: Floats) -> np.float32:
    """Add the vectors of list j to ``total`` and give the sum of its biases."""
    bias = _ZERO
    for t in range(lists.offsets[j], lists.offsets[j + np.uintp(1)]):
        r, w = np.uintp(lists.rows[np.uintp(t)]), lists.weights[np.uintp(t)]
        bias += w * tables.biases[r]
        for k in range(total.shape[0]):
            total[k] += w * tables.vectors[r, k]
    return bias


@inlined
def _step(lists: Lists, j: np.uintp, tables: Tables, errors: tuple[np.float32, np.float32], other: Floats) -> None:
    """Move the rows of list j: biases along the first error, vectors along the second times ``other``."""
    for t in range(lists.offsets[j], lists.offsets[j + np.uintp(1)]):
        r, w = np.uintp(lists.rows[np.uintp(t)]), lists.weights[np.uintp(t)]
        rate = tables.pace[r, VECTOR_RATE]
        bias_change = errors[0] * w - tables.pace[r, BIAS_L2] * w * w * tables.biases[r]
        tables.biases[r] += tables.pace[r, BIAS_RATE] * bias_change
        if rate > 0:
            kept, moved = _ONE - rate * tables.pace[r, VECTOR_L2] * w * w, rate * errors[1] * w
            for k in range(other.shape[0]):
                tables.vectors[r, k] = kept * tables.vectors[r, k] + moved * other[k]


@inlined
def _product(left: Floats, right: Floats) -> np.float32:
    total = _ZERO
    for k in range(left.shape[0]):
        total += left[k] * right[k]
    return total


# --- labels ----------------------------------------------------------------------------------------------------


@fast_kernel
def pair_pass(task: Task, span: Span, examples: Examples, tables: Tables) -> float:
    """Learn the examples of a non-empty span, one row of weight 1 on either side; give the sum of their losses.

    All user rows must have one pace and all item rows one, and no row may stand on both sides.
    """
    vectors, biases, users, items = tables.vectors, tables.biases, examples.users.rows, examples.items.rows
    user_pace, item_pace = tables.pace[users[span[0]]], tables.pace[items[span[0]]]
    user_rate, user_kept = user_pace[VECTOR_RATE], _ONE - user_pace[VECTOR_RATE] * user_pace[VECTOR_L2]
    item_rate, item_kept = item_pace[VECTOR_RATE], _ONE - item_pace[VECTOR_RATE] * item_pace[VECTOR_L2]
    total = 0.0
    for n in range(span[0], span[1]):
        j = np.uintp(n)
        u, i = np.uintp(users[j]), np.uintp(items[j])
        product = _ZERO
        for k in range(vectors.shape[1]):
            product += vectors[u, k] * vectors[i, k]
        score = task.offset + biases[u] + biases[i] + product
        weight = examples.weights[j]
        total += weight * _loss(task.link, examples.targets[j], score)
        error = weight * _error(task.link, examples.targets[j], score)
        biases[u] += user_pace[BIAS_RATE] * (error - user_pace[BIAS_L2] * biases[u])
        biases[i] += item_pace[BIAS_RATE] * (error - item_pace[BIAS_L2] * biases[i])
        user_moved, item_moved = user_rate * error, item_rate * error
        for k in range(vectors.shape[1]):
            p, q = vectors[u, k], vectors[i, k]
            vectors[u, k] = user_kept * p + user_moved * q
            vectors[i, k] = item_kept * q + item_moved * p
    return total


@fast_kernel
def list_pass(task: Task, span: Span, examples: Examples, tables: Tables) -> float:
    """Learn the examples of a span; give the sum of their losses."""
    D = tables.vectors.shape[1]
    user, item = np.empty(D, np.float32), np.empty(D, np.float32)
    total = 0.0
    for n in range(span[0], span[1]):
        j = np.uintp(n)
        user[:] = 0
        item[:] = 0
        score = task.offset + _gather(examples.users, j, tables, user) + _gather(examples.items, j, tables, item)
        score += _product(user, item)
        weight = examples.weights[j]
        total += weight * _loss(task.link, examples.targets[j], score)
        error = weight * _error(task.link, examples.targets[j], score)
        _step(examples.users, j, tables, (error, error), item)
        _step(examples.items, j, tables, (error, error), user)
    return total


# --- unseen items ----------------------------------------------------------------------------------------------


@inlined
def _draw(seed: np.uint64, j: np.uint64, m: np.uint64, choices: np.uint64) -> np.int64:
    """Draw from ``range(choices)`` for the m-th negative of example j, by SplitMix64 (Steele et al., 2014)."""
    x = seed + (j * np.uint64(0x100000001B3) + m) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = (x ^ (x >> np.uint64(31))) >> np.uint64(32)
    return np.int64((x * choices) >> np.uint64(32))


@inlined
def _unseen(seen: Integers, first: np.int64, last: np.int64, n: np.int64) -> np.int64:
    """Give the n-th item that is not among ``seen[first:last]``: n plus the number of seen items before it."""
    low, high = first, last
    while low < high:
        middle = (low + high) >> 1
        if seen[middle] - (middle - first) <= n:
            low = middle + 1
        else:
            high = middle
    return n + low - first


@inlined
def _contrast(link: int, scores: Floats, errors: Floats) -> np.float32:
    """Fill the errors of an example's item (first) and its negatives; give the loss."""
    errors[0] = 0
    loss = _ZERO
    for m in range(1, scores.shape[0]):
        if link == PAIRWISE:
            loss += _loss(LOGISTIC, _ONE, scores[0] - scores[m])
            errors[m] = -_error(LOGISTIC, _ONE, scores[0] - scores[m])
            errors[0] -= errors[m]
        else:
            loss += _loss(LOGISTIC, _ZERO, scores[m])
            errors[m] = _error(LOGISTIC, _ZERO, scores[m])
    if link != PAIRWISE:
        loss += _loss(LOGISTIC, _ONE, scores[0])
        errors[0] = _error(LOGISTIC, _ONE, scores[0])
    return loss


@fast_kernel
def ranking_pass(task: Task, span: Span, examples: Examples, contrast: Contrast, tables: Tables) -> tuple[float, int]:
    """Learn to rank the items of a span's examples above unseen ones.

    Negatives are drawn with replacement, by (seed, example, number), from the items that the user does not have;
    an example whose user has all of them is skipped. Gives the sum of losses and the number of examples learned.
    Targets are not read.
    """
    users, items, catalogue, places = examples.users, examples.items, contrast.catalogue, contrast.places
    D, M = tables.vectors.shape[1], 1 + task.negatives
    user, gradient = np.empty(D, np.float32), np.empty(D, np.float32)
    candidates, drawn = np.empty((M, D), np.float32), np.empty(M, np.int64)
    scores, errors = np.empty(M, np.float32), np.empty(M, np.float32)
    total, learned = 0.0, 0
    for n in range(span[0], span[1]):
        j = np.uintp(n)
        first, last = contrast.offsets[contrast.users[j]], contrast.offsets[contrast.users[j] + 1]
        choices = catalogue.offsets.shape[0] - 1 - (last - first)
        if choices <= 0:
            continue
        user[:] = 0
        candidates[:] = 0
        base = task.offset + _gather(users, j, tables, user) + _gather(places, j, tables, candidates[0])
        for m in range(1, M):
            candidates[m] = candidates[0]
            number = _draw(np.uint64(task.seed), np.uint64(j), np.uint64(m), np.uint64(choices))
            drawn[m] = _unseen(contrast.seen, first, last, number)
            scores[m] = base + _gather(catalogue, np.uintp(drawn[m]), tables, candidates[m])
        scores[0] = base + _gather(items, j, tables, candidates[0])
        for m in range(M):
            scores[m] += _product(user, candidates[m])
        total += examples.weights[j] * _contrast(task.link, scores, errors)
        learned += 1
        gradient[:] = 0
        error = _ZERO
        for m in range(M):
            errors[m] *= examples.weights[j]
            error += errors[m]
            for k in range(D):
                gradient[k] += errors[m] * candidates[m, k]
        _step(users, j, tables, (error, _ONE), gradient)
        _step(places, j, tables, (error, error), user)
        _step(items, j, tables, (errors[0], errors[0]), user)
        for m in range(1, M):
            _step(catalogue, np.uintp(drawn[m]), tables, (errors[m], errors[m]), user)
    return total, learned
