"""The best items of every user, exactly, in memory bounded by one tile of scores.

A score is the inner product of a user's and an item's vector plus the item's bias, in float64. Equal scores are
ordered by a scramble of the item's row (`tie_order`). So an answer depends on its user alone, not on the batch,
the tile, the device or k: the best k are the first k of the best k + 1.

How: of float32 scores by matrix product, the best k and a few more are kept and scored exactly. Where the bound on
float32 rounding does not prove that no other item belongs among the best k, every item within that bound is scored
exactly too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from recsys_emb.encoding.batch import Jagged
from recsys_emb.errors import DataError, counted
from recsys_emb.evaluation.catalogue import NO_COLUMN, Catalogue, Users, check_rows
from recsys_emb.evaluation.scan import Best, columns_of, scan_for, settle

NO_ITEM = -1
# Users ranked together.
BLOCK = 1024
# Items kept beyond k: enough that rounding rarely leaves a doubt, few enough to cost nothing.
MARGIN = 8


@dataclass(frozen=True, eq=False)
class Ranking:
    """The best items of U users, best first; fewer than K where fewer are left.

    Parameters
    ----------
    items
        int64 ``(U, K)``, rows of the item table; -1 from ``lengths`` on.
    scores
        float64 ``(U, K)``, non-increasing; NaN from ``lengths`` on.
    lengths
        int64 ``(U,)``, how many items each user got.
    """

    items: Tensor
    scores: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        """Count the users, U."""
        return len(self.items)

    @property
    def mask(self) -> Tensor:
        """Bool ``(U, K)``, where there is an item."""
        return self.items != NO_ITEM

    def to_lists(self) -> list[list[int]]:
        """Give the items of each user as a Python list, best first."""
        return [row[:length] for row, length in zip(self.items.tolist(), self.lengths.tolist(), strict=True)]


class Finder(Protocol):
    """Finds items that are likely among the best, so that not all need be scored."""

    def find(self, catalogue: Catalogue, users: Tensor, wanted: Tensor) -> Tensor:
        """Propose for each user about ``wanted`` columns.

        Parameters
        ----------
        catalogue
            The same object for as long as the items stay as they are.
        users
            ``(B, D)``, on the catalogue's device.
        wanted
            int64 ``(B,)``.

        Returns
        -------
        Tensor
            int64 ``(B, N)``, in any order; -1 for none. The answer to a user must not depend on the others.
        """


def top_k(
    user_vectors: Tensor,
    item_vectors: Tensor,
    item_biases: Tensor | None,
    k: int,
    *,
    excluded: Jagged | None = None,
    candidates: Tensor | None = None,
) -> Ranking:
    """Find the best k items of every user.

    Parameters
    ----------
    user_vectors, item_vectors
        ``(U, D)`` and ``(I, D)``; D may be 0, which ranks by bias alone. No item row is special: leave the
        reserved ones out of ``candidates``.
    item_biases
        ``(I,)``, or None for none.
    k
        At least 1; users with fewer items left get fewer.
    excluded
        Lists of item rows, one per user, in any order, that the user must not get.
    candidates
        int64 ``(C,)``, the item rows that may be given, in any order, repeats allowed; None for all.

    Returns
    -------
    Ranking
        With K the smaller of ``k`` and the number of candidates, on the item vectors' device (on the CPU for a
        device without float64).

    Raises
    ------
    DataError
        When shapes do not fit, k is below 1, or a value is NaN, infinite or too large for float32.
    IndexRangeError
        When ``excluded`` or ``candidates`` hold something that is not an item row.

    Examples
    --------
    >>> users, items = torch.tensor([[1.0], [-1.0]]), torch.tensor([[1.0], [3.0], [2.0]])
    >>> ranking = top_k(users, items, None, 3, excluded=Jagged.from_lists([[1], []]))
    >>> ranking.to_lists()
    [[2, 0], [0, 2, 1]]
    >>> ranking.scores[0]
    tensor([2., 1., nan], dtype=torch.float64)
    """
    return rank(Catalogue(item_vectors, item_biases, candidates=candidates), user_vectors, k, excluded=excluded)


def rank(
    catalogue: Catalogue,
    user_vectors: Tensor,
    k: int,
    *,
    excluded: Jagged | None = None,
    finder: Finder | None = None,
) -> Ranking:
    """Find the best k items of every user, in a catalogue that is laid out once for many calls; see `top_k`.

    With a ``finder``, the best of what it finds, by exact scores, and as many as ever: a user for whom too few are
    found gets the answer of the full scan.

    Examples
    --------
    >>> catalogue = Catalogue(torch.tensor([[1.0], [3.0], [2.0]]), None)
    >>> rank(catalogue, torch.tensor([[2.0]]), 1).to_lists()
    [[1]]
    """
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise DataError(f"top_k: expected k to be an integer of at least 1, got {k!r}. Ask for at least one item.")
    users = catalogue.checked_users(user_vectors)
    lists = _checked_lists(excluded, len(users), catalogue)
    width = min(int(k), len(catalogue))
    items = torch.full((len(users), width), NO_ITEM, device=catalogue.device)
    scores = torch.full((len(users), width), torch.nan, dtype=torch.float64, device=catalogue.device)
    for start in range(0, len(users) if width else 0, BLOCK):
        block = slice(start, start + BLOCK)
        chosen = users.select(block)
        barred = _barred(catalogue, lists, start, len(chosen))
        if finder is None:
            best = _best(catalogue, chosen, width, barred)
        else:
            best = _best_found(finder, catalogue, chosen, width, barred)
        found = best.columns != NO_COLUMN
        items[block] = catalogue.items[best.columns].where(found, NO_ITEM)
        scores[block] = best.scores.where(found, torch.nan)
    return Ranking(items, scores, (items != NO_ITEM).sum(dim=1))


def _checked_lists(excluded: Jagged | None, num_users: int, catalogue: Catalogue) -> Jagged:
    if excluded is None:
        none = torch.zeros(num_users + 1, dtype=torch.int64)
        return Jagged(none[:0], none).to(catalogue.device)
    if len(excluded) != num_users:
        got = f"{counted(len(excluded), 'list')} for {counted(num_users, 'user')}"
        raise DataError(f"top_k: expected one list of excluded items per user, got {got}. Give an empty list for none.")
    check_rows("excluded", excluded.values, catalogue.num_items)
    return excluded.to(catalogue.device)


def _barred(catalogue: Catalogue, excluded: Jagged, start: int, count: int) -> Jagged:
    """Excluded columns of users ``start`` to ``start + count - 1``, ascending within each list."""
    offsets = excluded.offsets[start : start + count + 1]
    values = excluded.values[int(offsets[0]) : int(offsets[-1])]
    return columns_of(Jagged(values, offsets - offsets[0]), catalogue.columns)


def _best(catalogue: Catalogue, users: Users, k: int, barred: Jagged) -> Best:
    """Best k columns of every user, in order, with exact scores."""
    rough = _scanned(catalogue, users.vectors, min(k + MARGIN, len(catalogue)), barred)
    best = settle(catalogue, users.vectors, rough.columns, k)
    slack = catalogue.slack(users)
    # Whatever was not kept has a rough score of at most the worst kept, hence an exact one of at most slack more.
    # Without slack the rough scores and their order are exact.
    beyond = rough.scores.amin(dim=1).double() + slack
    doubt = (best.scores[:, -1] <= beyond) & (slack > 0) & (beyond > -torch.inf)
    if rough.columns.shape[1] < len(catalogue) and doubt.any():
        doubtful = doubt.nonzero()[:, 0]
        floor = best.scores[doubtful, -1] - slack[doubtful]
        settled = _settled(catalogue, users.vectors[doubtful], k, barred.select(doubtful), floor)
        best.scores[doubtful], best.columns[doubtful] = settled.scores, settled.columns
    return best


def _best_found(finder: Finder, catalogue: Catalogue, users: Users, k: int, barred: Jagged) -> Best:
    """Best k columns of those that a finder finds, in order, with exact scores."""
    found = finder.find(catalogue, users.vectors, k + MARGIN + barred.lengths)
    if found.shape[1] < k:
        return _best(catalogue, users, k, barred)
    span = len(catalogue) + 1
    owners = torch.arange(len(users), device=found.device)[:, None]
    seen = torch.isin(owners * span + found, barred.owners * span + barred.values)
    best = settle(catalogue, users.vectors, found.masked_fill(seen, NO_COLUMN), k)
    short = ((best.columns != NO_COLUMN).sum(dim=1) < k).nonzero()[:, 0]
    if len(short):
        scanned = _best(catalogue, users.select(short), k, barred.select(short))
        best.scores[short], best.columns[short] = scanned.scores, scanned.columns
    return best


def _scanned(catalogue: Catalogue, users: Tensor, capacity: int, barred: Jagged) -> Best:
    """Best columns by rough score."""
    best = Best.none_yet((len(users), capacity), dtype=torch.float32, device=users.device)
    scan = scan_for(users.device)
    for first, tile in catalogue.tiles(users):
        scan(best, tile, first, barred)
    return best


def _settled(catalogue: Catalogue, users: Tensor, k: int, barred: Jagged, floor: Tensor) -> Best:
    """Best k columns by exact score, in order; ``floor`` float64 ``(B,)`` is below the rough scores of them all."""
    best = Best.none_yet((len(users), k), dtype=torch.float64, device=users.device)
    scan = scan_for(users.device)
    for first, tile in catalogue.tiles(users):
        rows, places = (tile >= floor[:, None]).nonzero(as_tuple=True)
        scores = torch.full(tile.shape, -torch.inf, dtype=torch.float64, device=users.device)
        scores[rows, places] = catalogue.exact(users, rows, first + places)
        scan(best, scores, first, barred)
    return best.in_order()
