"""Rows that several threads move at the same time: each moves a copy of its own, and the copies become one row again.

Moves are averaged, not added up: what B threads learned from as many examples would otherwise be B steps taken from
one place, which diverges.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recsys_emb.kernels.jit import kernel
from recsys_emb.kernels.row_steps import Tables

Floats: TypeAlias = npt.NDArray[np.floating]
Integers: TypeAlias = npt.NDArray[np.integer]


class Copies(NamedTuple):
    """Copies of S rows, one per worker: worker a's copy of the n-th is row ``first + a·S + n``."""

    originals: Integers  # (S,), the rows
    first: int
    workers: int


@kernel
def merge(copies: Copies, touched: Integers, shares: Floats, tables: Tables) -> None:
    """Move rows, and all their copies, to where the copies went on average.

    Of the copied rows only ``touched``, ``(R,)``, moved. Worker a's copies count as ``shares[:, a]``, ``(R, workers)``,
    which add up to 1; sums are in the order of the workers. A row whose copies stayed keeps its bits.
    """
    vectors, biases, count = tables.vectors, tables.biases, len(copies.originals)
    moves = np.empty(vectors.shape[1], np.float32)
    for t in range(len(touched)):
        n = touched[t]
        r, move = np.uintp(copies.originals[n]), np.float32(0)
        moves[:] = 0
        for a in range(copies.workers):
            c, share = np.uintp(copies.first + a * count + n), shares[t, a]
            move += share * (biases[c] - biases[r])
            for k in range(len(moves)):
                moves[k] += share * (vectors[c, k] - vectors[r, k])
        biases[r] += move
        for k in range(len(moves)):
            vectors[r, k] += moves[k]
        for a in range(copies.workers):
            c = np.uintp(copies.first + a * count + n)
            biases[c] = biases[r]
            for k in range(len(moves)):
                vectors[c, k] = vectors[r, k]


def merge_reference(copies: Copies, touched: Integers, shares: Floats, tables: Tables) -> None:
    """Plain twin of `merge`."""
    rows = copies.originals[touched]
    places = copies.first + np.arange(copies.workers) * len(copies.originals) + touched[:, np.newaxis]
    for array in (tables.vectors, tables.biases):
        moves = np.einsum("ra,ra...->r...", shares, array[places] - array[rows][:, np.newaxis])
        array[rows] += moves
        array[places] = array[rows][:, np.newaxis]
