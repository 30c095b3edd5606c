"""`HashedEmbedding`: any number of indices in a table of fixed size."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recsys_emb.errors import at_least
from recsys_emb.lookup.base import IndexLookup, draw_rows, masked
from recsys_emb.lookup.growth import Optimizers


class HashedEmbedding(IndexLookup):
    """The sum of a few hashed rows of a small table (Bloom embeddings).

    Two indices may share one row; they share all ``num_hashes`` rows far less often, so their vectors differ.

    Parameters
    ----------
    num_categories
        Indices that exist, V; it bounds the range check and costs nothing.
    embedding_dim
        D.
    num_embeddings
        Rows of the table that values are hashed into.
    num_hashes
        Rows summed per value.
    reserved
        The first indices keep a row each of their own, outside the hashed ones, and start at zero.
    init_std
        A vector starts as N(0, init_std): its rows as N(0, init_std / √num_hashes).
    padding_index, sparse, generator, name
        As in `CategoryEmbedding`.

    Attributes
    ----------
    weight : torch.nn.Parameter
        ``(reserved + num_embeddings, D)``.

    References
    ----------
    Serrà, J. and Karatzoglou, A. "Getting deep recommenders fit: Bloom embeddings for sparse binary input/output
    networks." RecSys 2017.

    Examples
    --------
    >>> embedding = HashedEmbedding(1_000_000, 8, num_embeddings=1000)
    >>> embedding(torch.tensor([5, 999_999])).shape, embedding.weight.shape
    (torch.Size([2, 8]), torch.Size([1000, 8]))
    """

    def __init__(
        self,
        num_categories: int,
        embedding_dim: int,
        *,
        num_embeddings: int,
        num_hashes: int = 2,
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
        where = f"HashedEmbedding({name!r})"
        self.num_hashes = at_least(where, "num_hashes", num_hashes, 1)
        own_rows = at_least(where, "num_embeddings", num_embeddings, 1)
        self.weight = nn.Parameter(torch.empty(reserved + own_rows, embedding_dim))
        self.reset_parameters(generator=generator)

    def rows(self, indices: Tensor) -> Tensor:
        """Sum the hashed rows of indices known to be in range: int ``(...)`` to ``(..., D)``."""
        places, weights = self._places(indices.long())
        vectors = F.embedding(places, self.weight, sparse=self.sparse)  # (..., num_hashes, D)
        summed = (vectors * weights.to(vectors.dtype).unsqueeze(-1)).sum(-2)
        return masked(summed, indices, self.padding_index)

    def _places(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Row numbers ``(..., num_hashes)`` and whether each counts; a reserved index has only its own row."""
        hashes = torch.arange(1, self.num_hashes + 1, device=indices.device)
        mixed = _mixed(indices.unsqueeze(-1) + hashes * _GOLDEN)
        hashed = self.reserved + mixed % (len(self.weight) - self.reserved)
        own = (indices < self.reserved).unsqueeze(-1)
        places = torch.where(own, indices.unsqueeze(-1), hashed)
        return places, ~own | (hashes == 1)

    @torch.no_grad()
    def reset_parameters(self, *, init_std: float | None = None, generator: torch.Generator | None = None) -> None:
        """Draw all rows as at birth; ``init_std`` replaces the standard deviation for good."""
        self.init_std = self.init_std if init_std is None else init_std
        draw_rows(self.weight, self.init_std / self.num_hashes**0.5, generator)
        self.weight[: self.reserved] = 0.0

    def grow(
        self,
        num_embeddings: int,
        *,
        generator: torch.Generator | None = None,
        optimizer: Optimizers = None,
    ) -> None:
        """Take more indices; the table stays as it is, and new indices share its rows."""
        del generator, optimizer  # nothing is drawn, and no state grows
        self._fresh_rows(num_embeddings)
        self.num_embeddings = num_embeddings


_GOLDEN = -7046029254386353131  # 2^64 / golden ratio, odd: the stream constant of SplitMix64


def _mixed(state: Tensor) -> Tensor:
    """Scramble int64 into [0, 2^63): the finalizer of SplitMix64 (Steele et al., 2014), equal on every device."""
    state = (state ^ _shifted(state, 30)) * -4658895280553007687
    state = (state ^ _shifted(state, 27)) * -7723592293110705685
    return (state ^ _shifted(state, 31)) & ((1 << 63) - 1)


def _shifted(state: Tensor, places: int) -> Tensor:
    """Shift right without the sign, which torch would draw in."""
    return (state >> places) & ((1 << (64 - places)) - 1)
