"""Where the rows of a table stand when it is spread over processes: frequent values not all on the first."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Spread:
    """A permutation of a table's rows: index i stands in row ``i · factor mod num_embeddings``.

    Vocabularies are sorted by count, and processes hold consecutive rows, so that the first would hold every frequent
    value. Multiples of the golden ratio, modulo 1, fall evenly whatever number of them one takes (Weyl's sequence), so
    every process gets its share of the frequent values, for any number of processes.

    Parameters
    ----------
    num_embeddings
        Rows of the table, V.
    factor
        Has no divisor in common with V.

    Examples
    --------
    >>> import torch
    >>> spread = Spread.of(10)
    >>> rows = spread.rows(torch.arange(10))
    >>> rows.tolist(), torch.equal(spread.indices(rows), torch.arange(10))
    ([0, 7, 4, 1, 8, 5, 2, 9, 6, 3], True)
    """

    num_embeddings: int
    factor: int

    @classmethod
    def of(cls, num_embeddings: int) -> Spread:
        """Choose the factor for a table: near the golden ratio of its rows."""
        factor = max(1, round(num_embeddings * _GOLDEN))
        while math.gcd(factor, num_embeddings) != 1:
            factor += 1
        return cls(num_embeddings, factor)

    def rows(self, indices: Tensor) -> Tensor:
        """Say in which rows indices stand, int64 of any shape."""
        return indices * self.factor % self.num_embeddings

    def indices(self, rows: Tensor) -> Tensor:
        """Say which indices stand in rows, int64 of any shape."""
        return rows * pow(self.factor, -1, self.num_embeddings) % self.num_embeddings
