"""`ProjectedEmbedding`: vectors of one width, such as pretrained ones, read at another."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recsys_emb.lookup.base import IndexLookup, draw_rows
from recsys_emb.lookup.category import CategoryEmbedding
from recsys_emb.lookup.growth import Optimizers


class ProjectedEmbedding(IndexLookup):
    """A table ``(V, P)`` and a learned matrix ``(P, D)`` behind it: int ``(...)`` to ``(..., D)``.

    The matrix has no bias, so a zero row (padding) stays zero.

    Parameters
    ----------
    inner
        The table; frozen or not.
    embedding_dim
        D.
    generator
        Source of the matrix, N(0, 1/√P), which keeps the length of vectors; None takes torch's own.

    Attributes
    ----------
    projection : torch.nn.Parameter
        ``(P, D)``.

    Examples
    --------
    >>> projected = ProjectedEmbedding(CategoryEmbedding(10, 300), 16)
    >>> projected(torch.tensor([3, 4])).shape
    torch.Size([2, 16])
    """

    def __init__(
        self, inner: CategoryEmbedding, embedding_dim: int, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(
            inner.num_embeddings,
            embedding_dim,
            padding_index=inner.padding_index,
            reserved=inner.reserved,
            init_std=inner.init_std,
            sparse=inner.sparse,
            name=inner.name,
        )
        self.inner = inner
        self.projection = nn.Parameter(torch.empty(inner.embedding_dim, embedding_dim))
        self._draw_projection(generator)

    def rows(self, indices: Tensor) -> Tensor:
        """Project the rows of indices known to be in range: int ``(...)`` to ``(..., D)``."""
        return self.inner.rows(indices) @ self.projection

    def table(self) -> Tensor:
        """Give all vectors, ``(V, D)``: ``table()[i]`` is ``forward(i)``, gradient included."""
        return self.inner.table() @ self.projection

    def reset_parameters(self, *, init_std: float | None = None, generator: torch.Generator | None = None) -> None:
        """Draw the table and the matrix as at birth; given vectors stay."""
        self.inner.reset_parameters(init_std=init_std, generator=generator)
        self.init_std = self.inner.init_std
        self._draw_projection(generator)

    def grow(
        self, num_embeddings: int, *, generator: torch.Generator | None = None, optimizer: Optimizers = None
    ) -> None:
        """Append rows to the table in place, drawn as at birth; the matrix stays."""
        self.inner.grow(num_embeddings, generator=generator, optimizer=optimizer)
        self.num_embeddings = num_embeddings

    @torch.no_grad()
    def _draw_projection(self, generator: torch.Generator | None) -> None:
        draw_rows(self.projection, len(self.projection) ** -0.5, generator)
