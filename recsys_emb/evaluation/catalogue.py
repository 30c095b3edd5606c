"""Items laid out to be scored: fast rough scores by the tile, exact scores by the pair, and how far they differ."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from recsys_emb.errors import DataError, IndexRangeError, counted

NO_COLUMN = -1
# Rough scores held at once: on a CPU 2 MiB, about a second-level cache.
CPU_TILE, DEVICE_TILE = 2**19, 2**24
# Pairs scored exactly at once.
PAIRS = 2**13
# Relative error of a product whose factors PyTorch may round first, by `torch.get_float32_matmul_precision()`.
FACTOR_ROUNDING = {"highest": 0.0, "high": 2.0**-10, "medium": 2.0**-7}
FLOAT32 = torch.finfo(torch.float32)


class Users(NamedTuple):
    """Users to rank for: vectors ``(B, D)`` on the catalogue's device, and upper bounds of their lengths ``(B,)``."""

    vectors: Tensor
    norms: Tensor

    def __len__(self) -> int:
        """Count the users, B."""
        return len(self.vectors)

    def select(self, rows: Tensor | slice) -> Users:
        """Pick users."""
        return Users(self.vectors[rows], self.norms[rows])


class Catalogue:
    """The candidates of a ranking, laid out once and ranked against as often as needed.

    Holds a copy of the candidates' vectors. Column c is the c-th candidate in `tie_order`, so that "the lower
    column first" is all that the rest must know about ties.

    Parameters
    ----------
    item_vectors
        ``(I, D)``; D may be 0, which ranks by bias alone. No row is special: leave the reserved ones out of
        ``candidates``.
    item_biases
        ``(I,)``, or None for none.
    candidates
        int64 ``(C,)``, item rows in any order, repeats allowed; None for all that have a vector.
    numbers
        int64, the distinct item rows, of ``num_items``, that have a vector here; None for all of them, in order.

    Raises
    ------
    DataError
        When shapes do not fit, or a value is NaN, infinite or too large for float32.
    IndexRangeError
        When a candidate is not an item row.

    Examples
    --------
    >>> catalogue = Catalogue(torch.tensor([[1.0], [3.0], [2.0]]), None, candidates=torch.tensor([2, 0, 2]))
    >>> len(catalogue), catalogue.num_items, sorted(catalogue.items.tolist())
    (2, 3, [0, 2])
    """

    items: Tensor
    """int64 ``(C,)``, the item row of each column."""

    columns: Tensor
    """int64 ``(I,)``, the column of each item row; -1 for rows that are not candidates."""

    def __init__(
        self,
        item_vectors: Tensor,
        item_biases: Tensor | None,
        *,
        candidates: Tensor | None = None,
        numbers: Tensor | None = None,
        num_items: int | None = None,
    ) -> None:
        vectors, norms = _usable("item vectors", item_vectors)
        biases = vectors.new_zeros(len(vectors)) if item_biases is None else _plain(item_biases).to(vectors.device)
        if biases.shape != vectors.shape[:1]:
            got = f"shape {tuple(biases.shape)} for {counted(len(vectors), 'item')}"
            raise DataError(f"top_k: expected one bias per item, got {got}. Take both from one model.")
        _check_finite("item biases", biases)
        numbers = torch.arange(len(vectors)) if numbers is None else numbers
        count = len(vectors) if num_items is None else num_items
        self.items = tie_order(numbers if candidates is None else _distinct(candidates, count)).to(vectors.device)
        places = self.items.new_zeros(count)
        places[numbers] = torch.arange(len(vectors), device=vectors.device)
        self.columns = torch.full_like(places, NO_COLUMN)
        self.columns[self.items] = torch.arange(len(self.items), device=vectors.device)
        chosen = places[self.items]
        self._vectors, self._biases = vectors.index_select(0, chosen), biases.index_select(0, chosen)
        self._norm, self._bias = _largest(norms.index_select(0, chosen)), _largest(self._biases.abs())
        self._rough_biases = self._biases.float()
        self._bias_rounding = _largest((self._rough_biases.double() - self._biases.double()).abs())

    def __len__(self) -> int:
        """Count the candidates, C."""
        return len(self.items)

    @property
    def num_items(self) -> int:
        """Rows of the item table, I."""
        return len(self.columns)

    @property
    def device(self) -> torch.device:
        """Where the vectors are."""
        return self._vectors.device

    @property
    def vectors(self) -> Tensor:
        """``(C, D)``, column by column."""
        return self._vectors

    @property
    def biases(self) -> Tensor:
        """``(C,)``, column by column."""
        return self._biases

    def checked_users(self, user_vectors: Tensor) -> Users:
        """Check ``(U, D)`` vectors against the items' and bring them to the same device."""
        users, norms = (one.to(self.device) for one in _usable("user vectors", user_vectors))
        if users.shape[1] != self._vectors.shape[1]:
            got = f"{users.shape[1]} and {self._vectors.shape[1]}"
            raise DataError(f"top_k: expected user and item vectors of one width, got {got}. Take both from one model.")
        reach = _largest(norms) * self._norm + self._bias
        if reach > FLOAT32.max:
            raise DataError(f"top_k: expected scores within float32, got up to {reach:.0e}. Scale the vectors down.")
        return Users(users, norms)

    def vectors_of(self, items: Tensor) -> Tensor:
        """Vectors of some candidates, given by item row: ``(N, D)``."""
        return self._vectors.index_select(0, self.columns[items])

    def holds(self, items: Tensor, vectors: Tensor, biases: Tensor) -> bool:
        """Tell whether some candidates, by item row, have these very vectors and biases."""
        columns = self.columns[items]
        same = torch.equal(self._vectors.index_select(0, columns), vectors)
        return same and torch.equal(self._biases.index_select(0, columns), biases)

    def tiles(self, users: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Score every column for ``(B, D)`` users, in float32.

        Yields the first column and the ``(B, W)`` scores of each tile, in a buffer that the next tile overwrites.
        """
        width = max(1, (CPU_TILE if users.device.type == "cpu" else DEVICE_TILE) // max(1, len(users)))
        buffer = users.new_empty(len(users) * min(width, len(self)), dtype=torch.float32)
        rough = users.float()
        for first in range(0, len(self), width):
            vectors = self._vectors[first : first + width].float()
            tile = buffer[: len(users) * len(vectors)].view(len(users), len(vectors))
            torch.addmm(self._rough_biases[first : first + width], rough, vectors.T, out=tile)
            yield first, tile

    def exact(self, users: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Score pairs: user ``rows[n]`` of ``(B, D)`` with column ``columns[n]``; float64 ``(N,)``.

        The same number for a pair in any company and on any device: products are not fused, and additions have
        one order.
        """
        return torch.cat(
            [
                _folded(_rows(users, row) * _rows(self._vectors, column), _rows(self._biases, column))
                for row, column in zip(torch.split(rows, PAIRS), torch.split(columns, PAIRS), strict=True)
            ]
        )

    def slack(self, users: Users) -> Tensor:
        """Bound the distance between a user's rough and exact scores; float64 ``(B,)``.

        It is 0 where rough scores are exact: a zero vector with biases that are float32. Otherwise the bound is
        twice that of Higham (2002, section 3.1) for inner products, which holds for any order of additions.
        """
        reach = users.norms * self._norm
        terms = 2 * (self._vectors.shape[1] + 3)
        rounding = FACTOR_ROUNDING[torch.get_float32_matmul_precision()] + terms * FLOAT32.eps / 2
        inexact = rounding * (reach + self._bias) + terms * FLOAT32.tiny
        return self._bias_rounding + torch.where(reach > 0, inexact, 0.0)


def tie_order(items: Tensor) -> Tensor:
    """Order distinct items for ties, by a scramble of each that never changes.

    The scramble is the bijection of SplitMix64 (Steele, Lea & Flood, 2014), so that a model which cannot tell
    items apart scores chance, and not popularity, which the index follows.

    >>> tie_order(torch.tensor([3, 4, 5]))
    tensor([3, 5, 4])
    """
    rows = items.cpu().numpy()
    mixed = rows.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return torch.from_numpy(rows[np.argsort(mixed ^ (mixed >> np.uint64(31)))])


def check_rows(name: str, rows: Tensor, num_items: int) -> None:
    """Check that ``rows`` are rows of the item table."""
    if rows.is_floating_point() or rows.dtype == torch.bool:
        raise DataError(f"top_k: expected {name} as integer item rows, got {rows.dtype}. Convert them to row numbers.")
    wrong = rows[(rows < 0) | (rows >= num_items)]
    if len(wrong):
        raise IndexRangeError(f"top_k: expected {name} in [0, {num_items}), got {wrong[0].item()}. Give item rows.")


def _distinct(candidates: Tensor, num_items: int) -> Tensor:
    check_rows("candidates", candidates, num_items)
    distinct: Tensor = torch.unique(candidates.long())
    return distinct


def _plain(values: Tensor) -> Tensor:
    """Detach floating-point values, on a device that has float64."""
    plain = values.detach().cpu() if values.device.type == "mps" else values.detach()
    return plain if plain.is_floating_point() else plain.double()


def _usable(name: str, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Check vectors, and measure them."""
    plain = _plain(vectors)
    if plain.dim() != 2:
        got = tuple(plain.shape)
        raise DataError(f"top_k: expected {name} of shape (rows, width), got {got}. Reshape them.")
    norms = _norms(plain)
    _check_finite(name, norms)
    return plain, norms


def _check_finite(name: str, rows: Tensor) -> None:
    finite = rows.isfinite()
    if not finite.all():
        broken = int((~finite).sum())
        got = f"{counted(broken, 'row')} with NaN, infinite or huge values"
        raise DataError(f"top_k: expected finite {name}, got {got}. Train again with a smaller learning rate.")


def _norms(vectors: Tensor) -> Tensor:
    """Upper bound of each row's Euclidean length, float64; 0 for zero rows alone, though small squares vanish."""
    dtype = torch.promote_types(vectors.dtype, torch.float32)
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=1, dtype=dtype)
    vanished = math.sqrt(vectors.shape[1] * FLOAT32.tiny)
    is_zero = lengths == 0
    if is_zero.any():
        is_zero[is_zero.clone()] = ~vectors[is_zero].any(dim=1)
    return (lengths.double() + vanished).masked_fill(is_zero, 0.0)


def _largest(values: Tensor) -> float:
    return float(values.max()) if len(values) else 0.0


def _rows(table: Tensor, rows: Tensor) -> Tensor:
    return table.index_select(0, rows).double()


def _folded(products: Tensor, biases: Tensor) -> Tensor:
    """Sum ``(N, D)`` products and ``(N,)`` biases by folding the row in half again and again."""
    terms = torch.cat([products, biases[:, None]], dim=1)
    while terms.shape[1] > 1:
        half = terms.shape[1] // 2
        terms = torch.cat([terms[:, :half] + terms[:, half : 2 * half], terms[:, 2 * half :]], dim=1)
    return terms[:, 0]
