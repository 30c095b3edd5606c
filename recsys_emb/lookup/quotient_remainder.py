"""`QuotientRemainderEmbedding`: V different vectors out of about 2√V rows."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recsys_emb.errors import at_least
from recsys_emb.lookup.base import IndexLookup, draw_rows, masked, normal_rows
from recsys_emb.lookup.growth import Optimizers, grow_parameter


class QuotientRemainderEmbedding(IndexLookup):
    """The elementwise product of a quotient row and a remainder row: every index keeps a vector of its own.

    Parameters
    ----------
    num_categories
        Indices that exist, V.
    embedding_dim
        D.
    buckets
        Divisor m: index i reads rows ``i // m`` and ``i % m``. The tables together have V/m + m rows; m = √V is
        smallest.
    reserved
        The first indices keep a row each of their own, which starts at zero; the others are divided counting from
        there.
    init_std
        A vector starts as N(0, init_std): its quotient row is N(0, init_std), its remainder row random signs, so
        that vectors differ from the first step and a start at zero can still learn.
    padding_index, sparse, generator, name
        As in `CategoryEmbedding`.

    Attributes
    ----------
    quotients, remainders : torch.nn.Parameter
        ``(reserved + ceil((V - reserved) / m), D)`` and ``(m, D)``.

    References
    ----------
    Shi, H.-J. M. et al. "Compositional embeddings using complementary partitions for memory-efficient recommendation
    systems." KDD 2020.

    Examples
    --------
    >>> embedding = QuotientRemainderEmbedding(1_000_000, 8, buckets=1000)
    >>> embedding(torch.tensor([5, 999_999])).shape
    torch.Size([2, 8])
    >>> sum(parameter.shape[0] for parameter in embedding.parameters())
    2000
    """

    def __init__(
        self,
        num_categories: int,
        embedding_dim: int,
        *,
        buckets: int,
        padding_index: int | None = None,
        reserved: int = 0,
        init_std: float = 0.01,
        sparse: bool = False,
        generator: torch.Generator | None = None,
        name: str = "category",
    ) -> None:
        super().__init__(
            num_categories,
            embedding_dim,
            padding_index=padding_index,
            reserved=reserved,
            init_std=init_std,
            sparse=sparse,
            name=name,
        )
        self.buckets = at_least(f"QuotientRemainderEmbedding({name!r})", "buckets", buckets, 1)
        self.quotients = nn.Parameter(torch.empty(self._num_quotients(num_categories), embedding_dim))
        self.remainders = nn.Parameter(torch.empty(buckets, embedding_dim))
        self.reset_parameters(generator=generator)

    def rows(self, indices: Tensor) -> Tensor:
        """Multiply the two rows of indices known to be in range: int ``(...)`` to ``(..., D)``."""
        own = indices < self.reserved
        shifted = (indices.long() - self.reserved).clamp(min=0)
        places = torch.where(own, indices.long(), self.reserved + shifted // self.buckets)
        quotients = F.embedding(places, self.quotients, sparse=self.sparse)
        remainders = F.embedding(shifted % self.buckets, self.remainders, sparse=self.sparse)
        vectors = torch.where(own.unsqueeze(-1), quotients, quotients * remainders)
        return masked(vectors, indices, self.padding_index)

    @torch.no_grad()
    def reset_parameters(self, *, init_std: float | None = None, generator: torch.Generator | None = None) -> None:
        """Draw all rows as at birth; ``init_std`` replaces the standard deviation for good."""
        self.init_std = self.init_std if init_std is None else init_std
        draw_rows(self.quotients, self.init_std, generator)
        self.quotients[: self.reserved] = 0.0
        signs = normal_rows((self.buckets, self.embedding_dim), 1.0, self.remainders, generator) < 0
        self.remainders.fill_(1.0).masked_fill_(signs, -1.0)

    @torch.no_grad()
    def grow(
        self, num_embeddings: int, *, generator: torch.Generator | None = None, optimizer: Optimizers = None
    ) -> None:
        """Append quotient rows in place, drawn as at birth; old vectors and optimizer state stay bit for bit."""
        self._fresh_rows(num_embeddings)
        shape = (self._num_quotients(num_embeddings) - len(self.quotients), self.embedding_dim)
        fresh = normal_rows(shape, self.init_std, self.quotients, generator)
        grow_parameter(self.quotients, fresh, optimizers=optimizer)
        self.num_embeddings = num_embeddings

    def _num_quotients(self, num_embeddings: int) -> int:
        return self.reserved + -(-(num_embeddings - self.reserved) // self.buckets)
