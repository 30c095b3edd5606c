"""Plain twins of `row_gather` and `row_update`: one table, double precision, row after row."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from recsys_emb.kernels.row_gather import Floats, Integers
from recsys_emb.kernels.row_update import EPS, FIRST, L2, RATE, SECOND, SPREAD

Doubles: TypeAlias = npt.NDArray[np.float64]
State: TypeAlias = tuple[Doubles, ...]
Twin: TypeAlias = Callable[[Doubles, State, Integers, Floats, Doubles, int], None]


def gather_reference(table: Floats, indices: Integers, padding: int) -> Floats:
    """Do what `gather` does for one table: ``(N, D)``."""
    return np.where(indices[:, np.newaxis] == padding, np.float32(0), table[indices])


def _moving(table: Doubles, indices: Integers, gradients: Floats, setting: Doubles, padding: int) -> dict[int, Doubles]:
    """Give ``g = G + n·l2·w`` of every row but padding that was looked up."""
    rows: dict[int, Doubles] = {}
    for index, gradient in zip(indices.tolist(), gradients, strict=True):
        if index != padding:
            rows[index] = rows.get(index, np.zeros(table.shape[1])) + gradient + setting[L2] * table[index]
    return rows


def sgd_reference(
    table: Doubles, _state: State, indices: Integers, gradients: Floats, setting: Doubles, padding: int
) -> None:
    """Do what `sgd` does for one table."""
    for row, g in _moving(table, indices, gradients, setting, padding).items():
        table[row] -= setting[RATE] * g


def adagrad_reference(
    table: Doubles, state: State, indices: Integers, gradients: Floats, setting: Doubles, padding: int
) -> None:
    """Do what `adagrad` does for one table."""
    for row, g in _moving(table, indices, gradients, setting, padding).items():
        state[0][row] += g**2
        table[row] -= setting[RATE] * g / (np.sqrt(state[0][row]) + setting[EPS])


def row_wise_adagrad_reference(
    table: Doubles, state: State, indices: Integers, gradients: Floats, setting: Doubles, padding: int
) -> None:
    """Do what `row_wise_adagrad` does for one table."""
    for row, g in _moving(table, indices, gradients, setting, padding).items():
        state[0][row] += (g**2).mean()
        table[row] -= setting[RATE] * g / (np.sqrt(state[0][row]) + setting[EPS])


def lazy_adam_reference(
    table: Doubles, state: State, indices: Integers, gradients: Floats, setting: Doubles, padding: int
) -> None:
    """Do what `lazy_adam` does for one table."""
    means, squares = state
    for row, g in _moving(table, indices, gradients, setting, padding).items():
        if g.any():
            means[row] += setting[FIRST] * (g - means[row])
            squares[row] += setting[SECOND] * (g**2 - squares[row])
            table[row] -= setting[RATE] * means[row] / (setting[SPREAD] * np.sqrt(squares[row]) + setting[EPS])
