"""The best columns of every user, kept from tile to tile: kernels on CPUs, plain torch elsewhere, one answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from recsys_emb import kernels
from recsys_emb.encoding.batch import Jagged
from recsys_emb.evaluation.catalogue import NO_COLUMN, Catalogue

_WITH_KERNEL = {torch.float32, torch.float64}


@dataclass(frozen=True, eq=False)
class Best:
    """The best C columns of B users so far, in no promised order; unfilled places hold -inf and `NO_COLUMN`.

    Parameters
    ----------
    scores
        Floating-point ``(B, C)``.
    columns
        int64 ``(B, C)``.
    """

    scores: Tensor
    columns: Tensor

    @classmethod
    def none_yet(cls, shape: tuple[int, int], *, dtype: torch.dtype, device: torch.device) -> Best:
        """Start with every place unfilled."""
        scores = torch.full(shape, -torch.inf, dtype=dtype, device=device)
        return cls(scores, torch.full(shape, NO_COLUMN, device=device))

    def in_order(self) -> Best:
        """Sort by score descending, then column ascending."""
        columns, by_column = self.columns.sort(dim=1)
        scores, by_score = self.scores.gather(1, by_column).sort(dim=1, descending=True, stable=True)
        return Best(scores, columns.gather(1, by_score))


Scan: TypeAlias = Callable[[Best, Tensor, int, Jagged], None]
"""Takes ``(best, tile, first, barred)`` and updates ``best`` in place: ``tile`` ``(B, W)`` holds finite scores, or
-inf for none, of the columns from ``first`` on; tiles come in ascending order; ``barred`` lists ascending columns
that a user must not get. Of equal scores the lower columns are kept."""


def scan_for(device: torch.device) -> Scan:
    """Choose the fastest scan for a device."""
    return scan_with_kernel if device.type == "cpu" else scan_with_torch


def scan_with_kernel(best: Best, tile: Tensor, first: int, barred: Jagged) -> None:
    """Scan by threshold; most scores cost one comparison. CPU only."""
    excluded, offsets = barred.values.numpy(), barred.offsets.numpy()
    kernels.topk.scan(tile.numpy(), first, excluded, offsets, best.scores.numpy(), best.columns.numpy())


def scan_with_torch(best: Best, tile: Tensor, first: int, barred: Jagged) -> None:
    """Scan by `torch.topk`, which leaves the choice among equals open; they are taken in column order here."""
    rows, capacity = best.scores.shape
    scores = torch.cat([best.scores, tile], dim=1)
    places = barred.values - first
    inside = (places >= 0) & (places < tile.shape[1])
    scores[barred.owners[inside], capacity + places[inside]] = -torch.inf
    threshold = scores.topk(capacity, dim=1).values[:, -1:]
    above, equal = scores > threshold, scores == threshold
    room = capacity - above.sum(dim=1, keepdim=True)
    kept = (above | (equal & (equal.cumsum(dim=1) <= room))).nonzero()[:, 1].view(rows, capacity)
    new = scores.gather(1, kept)
    columns = torch.where(
        kept < capacity, best.columns.gather(1, kept.clamp(max=capacity - 1)), kept - capacity + first
    )
    best.columns.copy_(columns.where(new > -torch.inf, NO_COLUMN))
    best.scores.copy_(new)


def columns_of(items: Jagged, columns: Tensor) -> Jagged:
    """Turn lists of items into ascending lists of their columns, int64 ``(I,)``; -1 for none comes first."""
    if not len(items.values):
        return items
    if items.values.device.type == "cpu":
        found = torch.empty_like(items.values)
        arrays = (one.numpy() for one in (items.values, items.offsets, columns, found))
        kernels.topk.lists_of_columns(*arrays)
        return Jagged(found, items.offsets)
    # One sort for all lists.
    span = len(columns) + 1
    keys = items.owners * span + columns[items.values] + 1
    return Jagged(keys.sort().values % span - 1, items.offsets)


def settle(catalogue: Catalogue, users: Tensor, columns: Tensor, k: int) -> Best:
    """Score ``(B, N)`` columns of users ``(B, D)`` exactly, and keep the best k in order."""
    kernel = users.device.type == "cpu" and {catalogue.vectors.dtype, catalogue.biases.dtype} <= _WITH_KERNEL
    return (settle_with_kernel if kernel else settle_with_torch)(catalogue, users, columns, k)


def settle_with_kernel(catalogue: Catalogue, users: Tensor, columns: Tensor, k: int) -> Best:
    """Settle pair by pair. CPU only, float32 or float64."""
    best = Best(torch.empty(len(columns), k, dtype=torch.float64), torch.empty(len(columns), k, dtype=torch.int64))
    tensors = (users.double(), catalogue.vectors, catalogue.biases, columns, best.scores, best.columns)
    kernels.topk.settle(*(one.numpy() for one in tensors))
    return best


def settle_with_torch(catalogue: Catalogue, users: Tensor, columns: Tensor, k: int) -> Best:
    """Settle by gathering all pairs."""
    rows, places = (columns != NO_COLUMN).nonzero(as_tuple=True)
    scores = torch.full(columns.shape, -torch.inf, dtype=torch.float64, device=users.device)
    scores[rows, places] = catalogue.exact(users, rows, columns[rows, places])
    best = Best(scores, columns).in_order()
    return Best(best.scores[:, :k].clone(), best.columns[:, :k].clone())
