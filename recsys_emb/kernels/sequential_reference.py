"""The plain twins of `sequential` and `batch_pass`: the same steps, slowly and obviously, in float64."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from recsys_emb.kernels.row_steps import (
    LOGISTIC,
    PAIRWISE,
    SQUARED,
    Contrast,
    Examples,
    Floats,
    Integers,
    Lists,
    Span,
    Tables,
    Task,
)

_Rows: TypeAlias = tuple[Integers, Floats]

_WORD = 2**64 - 1


def list_pass_reference(task: Task, span: Span, examples: Examples, tables: Tables) -> float:
    """Plain twin of `list_pass` and of `pair_pass`."""
    total = 0.0
    for j in range(*span):
        users, items, weight = _user_side(examples, j), _named(examples.items, j), float(examples.weights[j])
        (user, user_bias), (item, item_bias) = _sums(users, tables), _sums(items, tables)
        score = float(task.offset) + user_bias + item_bias + float(user @ item)
        loss, error = _loss_and_error(task.link, float(examples.targets[j]), score)
        total += weight * loss
        _step(users, tables, weight * error, weight * error * item)
        _step(items, tables, weight * error, weight * error * user)
    return total


def ranking_pass_reference(
    task: Task, span: Span, examples: Examples, contrast: Contrast, tables: Tables
) -> tuple[float, int]:
    """Plain twin of `ranking_pass`."""
    total, learned = 0.0, 0
    for j in range(*span):
        drawn = negatives_reference(task, contrast, j)
        if not drawn:
            continue
        users, places, weight = _user_side(examples, j), _named(contrast.places, j), float(examples.weights[j])
        candidates = [_named(examples.items, j), *(_named(contrast.catalogue, item) for item in drawn)]
        (user, user_bias), (place, place_bias) = _sums(users, tables), _sums(places, tables)
        sums = [_sums(rows, tables) for rows in candidates]
        base = float(task.offset) + user_bias + place_bias
        loss, errors = _contrast(task.link, [base + bias + float(user @ (place + item)) for item, bias in sums])
        errors *= weight
        gradient = sum(error * (place + item) for error, (item, _) in zip(errors, sums, strict=True))
        _step(users, tables, errors.sum(), np.asarray(gradient))
        _step(places, tables, errors.sum(), errors.sum() * user)
        for rows, error in zip(candidates, errors, strict=True):
            _step(rows, tables, error, error * user)
        total, learned = total + weight * loss, learned + 1
    return total, learned


def batch_pass_reference(
    task: Task, chosen: Integers, examples: Examples, tables: Tables
) -> tuple[float, Floats, Floats]:
    """Plain twin of `batch_pass`: the loss, and gradients added up by row, ``(V, D)`` and ``(V,)``."""
    total, vectors, biases = 0.0, np.zeros(tables.vectors.shape), np.zeros(len(tables.biases))
    for j in chosen:
        users, items, weight = _named(examples.users, j), _named(examples.items, j), float(examples.weights[j])
        (user, user_bias), (item, item_bias) = _sums(users, tables), _sums(items, tables)
        score = float(task.offset) + user_bias + item_bias + float(user @ item)
        loss, error = _loss_and_error(task.link, float(examples.targets[j]), score)
        total += weight * loss
        for (rows, weights), other in ((users, item), (items, user)):
            for r, w in zip(rows, weights, strict=True):
                vector_rate, l2, bias_rate, bias_l2 = tables.pace[r].astype(np.float64)
                vectors[r] += (vector_rate > 0) * (l2 * w**2 * tables.vectors[r] - weight * error * w * other)
                biases[r] += (bias_rate > 0) * (bias_l2 * w**2 * tables.biases[r] - weight * error * w)
    return total, vectors / len(chosen), biases / len(chosen)


def negatives_reference(task: Task, contrast: Contrast, j: int) -> list[int]:
    """Give the numbers of the items that `ranking_pass` draws for example j: none if its user has them all."""
    user = contrast.users[j]
    own = contrast.seen[contrast.offsets[user] : contrast.offsets[user + 1]]
    unseen = np.setdiff1d(np.arange(len(contrast.catalogue.offsets) - 1), own).tolist()
    return [unseen[_draw(task.seed, j, m, len(unseen))] for m in range(1, 1 + task.negatives) if unseen]


def _draw(seed: int, j: int, m: int, choices: int) -> int:
    x = (seed + (j * 0x100000001B3 + m) * 0x9E3779B97F4A7C15) & _WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _WORD
    return ((x ^ (x >> 31)) >> 32) * choices >> 32


def _named(lists: Lists, j: int) -> _Rows:
    part = slice(lists.offsets[j], lists.offsets[j + 1])
    return lists.rows[part], lists.weights[part].astype(np.float64)


def _user_side(examples: Examples, j: int) -> _Rows:
    """Join an example's own rows and its user's history, whose biases no kernel reads."""
    rows, weights = _named(examples.users, j)
    past, past_weights = _named(examples.histories.lists, examples.histories.users[j])
    return np.concatenate([rows, past]), np.concatenate([weights, past_weights])


def _sums(named: _Rows, tables: Tables) -> tuple[Floats, float]:
    rows, weights = named
    return weights @ tables.vectors[rows], float(weights @ tables.biases[rows])


def _step(named: _Rows, tables: Tables, error: float, change: Floats) -> None:
    for r, w in zip(*named, strict=True):
        vector_rate, vector_l2, bias_rate, bias_l2 = tables.pace[r].astype(np.float64)
        tables.vectors[r] += vector_rate * (w * change - vector_l2 * w**2 * tables.vectors[r])
        tables.biases[r] += bias_rate * (w * error - bias_l2 * w**2 * tables.biases[r])


def _loss_and_error(link: int, target: float, score: float) -> tuple[float, float]:
    """Give the loss and minus its derivative."""
    if link == SQUARED:
        return (target - score) ** 2 / 2, target - score
    return float(np.logaddexp(0, score)) - target * score, target - float(np.exp(-np.logaddexp(0, -score)))


def _contrast(link: int, scores: list[float]) -> tuple[float, Floats]:
    """Give the loss of an item (first) against its negatives, and the error of each."""
    if link == PAIRWISE:
        pairs = [_loss_and_error(LOGISTIC, 1, scores[0] - score) for score in scores[1:]]
        errors = [error for _, error in pairs]
        return sum(loss for loss, _ in pairs), np.array([sum(errors), *(-error for error in errors)])
    singles = [_loss_and_error(LOGISTIC, float(m == 0), score) for m, score in enumerate(scores)]
    return sum(loss for loss, _ in singles), np.array([error for _, error in singles])
