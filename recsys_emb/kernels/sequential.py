"""Stochastic gradient descent row by row on scores that are sums of table rows.

The score of an example is a constant, plus the biases of the rows that it names, plus the product of two sums of
vectors::

    score = offset + Σ w·b[r]  (all rows)  +  ⟨Σ w·W[r] (user side), Σ w·W[r] (item side)⟩

Every row r that an example names with weight w then takes one step, with e the error of the score (minus the
derivative of the loss, times the example's weight) and q the sum of the other side, both taken before any step::

    W[r] += vector_rate[r] · (e·w·q − vector_l2[r]·w²·W[r])
    b[r] += bias_rate[r] · (e·w − bias_l2[r]·w²·b[r])

so L2 is felt once per occurrence, in proportion to the squared weight. `pair_pass` takes one row of weight 1 on
either side, `list_pass` any lists of rows, and `ranking_pass` contrasts each example's item with unseen items; the
latter two add a user's history (Koren, 2008) to the user side. Passes that name no row in common may run at the same
time (see `row_copies`). What they share is in `row_steps`, their plain twins in `sequential_reference`.
"""

from __future__ import annotations

import numpy as np

from recsys_emb.kernels.jit import fast_kernel, inlined
from recsys_emb.kernels.row_steps import (
    BIAS_L2,
    BIAS_RATE,
    LOGISTIC,
    ONE,
    PAIRWISE,
    SQUARED,
    VECTOR_L2,
    VECTOR_RATE,
    ZERO,
    Contrast,
    Examples,
    Floats,
    Histories,
    Integers,
    Lists,
    Span,
    Tables,
    Task,
    close_run,
    copy_to,
    error_of,
    gather,
    has_rows,
    loss_of,
    open_run,
    product_of,
    step,
    step_run,
)

__all__ = [
    "BIAS_L2",
    "BIAS_RATE",
    "LOGISTIC",
    "PAIRWISE",
    "SQUARED",
    "VECTOR_L2",
    "VECTOR_RATE",
    "Contrast",
    "Examples",
    "Histories",
    "Lists",
    "Tables",
    "Task",
    "list_pass",
    "pair_pass",
    "ranking_pass",
]

# --- labels ----------------------------------------------------------------------------------------------------


@fast_kernel
def pair_pass(task: Task, span: Span, examples: Examples, tables: Tables) -> float:
    """Learn the examples of a non-empty span, one row of weight 1 on either side; give the sum of their losses.

    All user rows must have one pace and all item rows one, and no row may stand on both sides.
    """
    vectors, biases, users, items = tables.vectors, tables.biases, examples.users.rows, examples.items.rows
    user_pace, item_pace = tables.pace[users[span[0]]], tables.pace[items[span[0]]]
    user_rate, user_kept = user_pace[VECTOR_RATE], ONE - user_pace[VECTOR_RATE] * user_pace[VECTOR_L2]
    item_rate, item_kept = item_pace[VECTOR_RATE], ONE - item_pace[VECTOR_RATE] * item_pace[VECTOR_L2]
    total = 0.0
    for n in range(span[0], span[1]):
        j = np.uintp(n)
        u, i = np.uintp(users[j]), np.uintp(items[j])
        product = ZERO
        for k in range(vectors.shape[1]):
            product += vectors[u, k] * vectors[i, k]
        score = task.offset + biases[u] + biases[i] + product
        weight = examples.weights[j]
        total += weight * loss_of(task.link, examples.targets[j], score)
        error = weight * error_of(task.link, examples.targets[j], score)
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
    D, histories = tables.vectors.shape[1], examples.histories
    user, item = np.empty(D, np.float32), np.empty(D, np.float32)
    past, start = np.zeros(D, np.float32), np.zeros(D, np.float32)
    owner, kept, pull, left = np.int64(-1), ONE, ZERO, ONE
    total = 0.0
    for n in range(span[0], span[1]):
        j = np.uintp(n)
        own = np.int64(histories.users[j])
        remembers = has_rows(histories.lists, np.uintp(own))
        if remembers and own != owner:
            if owner >= 0:
                close_run(histories.lists, np.uintp(owner), tables, past, start, left)
            owner, left = own, ONE
            kept, pull = open_run(histories.lists, np.uintp(owner), tables, past, start)
        if remembers:
            copy_to(user, past)
        else:
            user[:] = 0
        item[:] = 0
        score = task.offset + gather(examples.users, j, tables, user) + gather(examples.items, j, tables, item)
        score += product_of(user, item)
        weight = examples.weights[j]
        total += weight * loss_of(task.link, examples.targets[j], score)
        error = weight * error_of(task.link, examples.targets[j], score)
        step(examples.users, j, tables, (error, error), item)
        step(examples.items, j, tables, (error, error), user)
        if remembers:
            step_run(past, kept, pull * error, item)
            left *= kept
    if owner >= 0:
        close_run(histories.lists, np.uintp(owner), tables, past, start, left)
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
    loss = ZERO
    for m in range(1, scores.shape[0]):
        if link == PAIRWISE:
            loss += loss_of(LOGISTIC, ONE, scores[0] - scores[m])
            errors[m] = -error_of(LOGISTIC, ONE, scores[0] - scores[m])
            errors[0] -= errors[m]
        else:
            loss += loss_of(LOGISTIC, ZERO, scores[m])
            errors[m] = error_of(LOGISTIC, ZERO, scores[m])
    if link != PAIRWISE:
        loss += loss_of(LOGISTIC, ONE, scores[0])
        errors[0] = error_of(LOGISTIC, ONE, scores[0])
    return loss


@fast_kernel
def ranking_pass(task: Task, span: Span, examples: Examples, contrast: Contrast, tables: Tables) -> tuple[float, int]:
    """Learn to rank the items of a span's examples above unseen ones.

    Negatives are drawn with replacement, by (seed, example, number), from the items that the user does not have;
    an example whose user has all of them is skipped. Gives the sum of losses and the number of examples learned.
    Targets are not read.
    """
    users, items, catalogue, places = examples.users, examples.items, contrast.catalogue, contrast.places
    histories = examples.histories
    D, M = tables.vectors.shape[1], 1 + task.negatives
    user, gradient = np.empty(D, np.float32), np.empty(D, np.float32)
    candidates, drawn = np.empty((M, D), np.float32), np.empty(M, np.int64)
    scores, errors = np.empty(M, np.float32), np.empty(M, np.float32)
    past, start = np.zeros(D, np.float32), np.zeros(D, np.float32)
    owner, kept, pull, left = np.int64(-1), ONE, ZERO, ONE
    total, learned = 0.0, 0
    for n in range(span[0], span[1]):
        j = np.uintp(n)
        first, last = contrast.offsets[contrast.users[j]], contrast.offsets[contrast.users[j] + 1]
        choices = catalogue.offsets.shape[0] - 1 - (last - first)
        if choices <= 0:
            continue
        own = np.int64(histories.users[j])
        remembers = has_rows(histories.lists, np.uintp(own))
        if remembers and own != owner:
            if owner >= 0:
                close_run(histories.lists, np.uintp(owner), tables, past, start, left)
            owner, left = own, ONE
            kept, pull = open_run(histories.lists, np.uintp(owner), tables, past, start)
        if remembers:
            copy_to(user, past)
        else:
            user[:] = 0
        candidates[:] = 0
        base = task.offset + gather(users, j, tables, user) + gather(places, j, tables, candidates[0])
        for m in range(1, M):
            copy_to(candidates[m], candidates[0])
            number = _draw(np.uint64(task.seed), np.uint64(j), np.uint64(m), np.uint64(choices))
            drawn[m] = _unseen(contrast.seen, first, last, number)
            scores[m] = base + gather(catalogue, np.uintp(drawn[m]), tables, candidates[m])
        scores[0] = base + gather(items, j, tables, candidates[0])
        for m in range(M):
            scores[m] += product_of(user, candidates[m])
        total += examples.weights[j] * _contrast(task.link, scores, errors)
        learned += 1
        gradient[:] = 0
        error = ZERO
        for m in range(M):
            errors[m] *= examples.weights[j]
            error += errors[m]
            for k in range(D):
                gradient[k] += errors[m] * candidates[m, k]
        step(users, j, tables, (error, ONE), gradient)
        if remembers:
            step_run(past, kept, pull, gradient)
            left *= kept
        step(places, j, tables, (error, error), user)
        step(items, j, tables, (errors[0], errors[0]), user)
        for m in range(1, M):
            step(catalogue, np.uintp(drawn[m]), tables, (errors[m], errors[m]), user)
    if owner >= 0:
        close_run(histories.lists, np.uintp(owner), tables, past, start, left)
    return total, learned
