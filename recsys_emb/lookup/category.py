"""`CategoryEmbedding`: an integer picks a row of a table."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recsys_emb.errors import DataError
from recsys_emb.lookup.base import IndexLookup, draw_rows, masked, normal_rows
from recsys_emb.lookup.growth import Optimizers, grow_parameter


class CategoryEmbedding(IndexLookup):
    """One learned row per index: ``E[i, :]``.

    The projection layer of a neural language model (Bengio et al., 2003), for any categorical value. An integer
    names a row and carries no order.

    Parameters
    ----------
    num_categories
        Rows of the table, V, reserved rows included.
    embedding_dim
        Width of a row, D.
    padding_index
        A row that reads as zero whatever the weight holds there, and gets no gradient.
    reserved
        The first rows, which start at zero (padding, missing, unknown).
    init_std
        The other rows start as N(0, init_std). The default 0.01, that of He et al. (2017), keeps the first dot
        products near zero, so that a factorization starts from its biases.
    sparse
        Gradients as sparse tensors of the touched rows.
    max_norm
        Longer rows are scaled to this Euclidean length as they are read. The weight is never rewritten, unlike
        `torch.nn.Embedding`'s, so predicting changes nothing.
    generator
        Source of the first rows; None takes torch's own, as `torch.nn.Embedding` does.
    name
        The feature, for messages.

    Attributes
    ----------
    weight : torch.nn.Parameter
        ``(V, D)``.

    References
    ----------
    Bengio, Y. et al. "A neural probabilistic language model." JMLR 3, 2003.
    He, X. et al. "Neural collaborative filtering." WWW 2017.

    Examples
    --------
    >>> embedding = CategoryEmbedding(num_categories=1000, embedding_dim=64)
    >>> embedding(torch.tensor([5, 12, 8])).shape
    torch.Size([3, 64])
    >>> embedding(torch.tensor([[5, 12], [8, 8]])).shape
    torch.Size([2, 2, 64])
    >>> embedding(torch.tensor([1000]))
    Traceback (most recent call last):
    ...
    recsys_emb.errors.IndexRangeError: feature 'category': expected indices in [0, 1000), got 1000 (first at \
position 0). Encode the values with the encoder that the table was sized by; num_embeddings counts the reserved rows.
    """

    weight: nn.Parameter

    def __init__(
        self,
        num_categories: int,
        embedding_dim: int,
        *,
        padding_index: int | None = None,
        reserved: int = 0,
        init_std: float = 0.01,
        sparse: bool = False,
        max_norm: float | None = None,
        generator: torch.Generator | None = None,
        name: str = "category",
    ) -> None:
        if max_norm is not None and not max_norm > 0:
            raise DataError(
                f"CategoryEmbedding({name!r}): expected max_norm above 0 or None, got {max_norm!r}. "
                "None bounds nothing."
            )
        super().__init__(
            num_categories,
            embedding_dim,
            padding_index=padding_index,
            reserved=reserved,
            init_std=init_std,
            sparse=sparse,
            name=name,
        )
        self.max_norm = max_norm
        self.weight = nn.Parameter(torch.empty(num_categories, embedding_dim))
        self.reset_parameters(generator=generator)

    @classmethod
    def from_pretrained(
        cls,
        weight: Tensor,
        *,
        freeze: bool = True,
        padding_index: int | None = None,
        sparse: bool = False,
        name: str = "category",
    ) -> CategoryEmbedding:
        """Start from a given table ``(V, D)``, copied; its padding row becomes zero.

        >>> CategoryEmbedding.from_pretrained(torch.eye(2))(torch.tensor([1]))
        tensor([[0., 1.]])
        """
        if weight.ndim != 2 or not weight.is_floating_point():
            raise DataError(
                f"CategoryEmbedding({name!r}): expected a floating-point table (V, D), "
                f"got {tuple(weight.shape)} of {weight.dtype}. One row per index."
            )
        num_categories, embedding_dim = weight.shape
        with torch.device("meta"):
            made = cls(num_categories, embedding_dim, padding_index=padding_index, sparse=sparse, name=name)
        made.weight = nn.Parameter(torch.zeros_like(weight), requires_grad=not freeze)
        made.give(torch.arange(num_categories), weight.detach())
        return made

    def rows(self, indices: Tensor) -> Tensor:
        """Look up vectors of indices known to be in range: int ``(...)`` to ``(..., D)``."""
        wide = indices if indices.dtype in (torch.int64, torch.int32) else indices.long()
        vectors = F.embedding(wide, self.weight, self.padding_index, sparse=self.sparse)
        return masked(self._bounded(vectors), wide, self.padding_index)

    def table(self) -> Tensor:
        """Give all vectors, ``(V, D)``: ``table()[i]`` is ``forward(i)``, gradient included (tied output weights)."""
        vectors = self._bounded(self.weight)
        if self.padding_index is None:
            return vectors
        rows = torch.arange(self.num_embeddings, device=self.weight.device)
        return masked(vectors, rows, self.padding_index)

    def storage(self) -> Tensor:
        """View ``(V, D)`` of the weight, for writing in place."""
        return self.weight.detach()

    @torch.no_grad()
    def reset_parameters(self, *, init_std: float | None = None, generator: torch.Generator | None = None) -> None:
        """Draw all rows as at birth; ``init_std`` replaces the standard deviation for good."""
        self.init_std = self.init_std if init_std is None else init_std
        draw_rows(self.weight, self.init_std, generator)
        self.weight[: self.reserved] = 0.0
        if self.padding_index is not None:
            self.weight[self.padding_index] = 0.0
        self._write_given()

    @torch.no_grad()
    def grow(
        self, num_embeddings: int, *, generator: torch.Generator | None = None, optimizer: Optimizers = None
    ) -> None:
        """Append rows in place, drawn as at birth; old rows and their optimizer state stay bit for bit."""
        shape = (self._fresh_rows(num_embeddings), self.embedding_dim)
        fresh = normal_rows(shape, self.init_std, self.weight, generator)
        grow_parameter(self.weight, fresh, optimizers=optimizer)
        self.num_embeddings = num_embeddings

    def _bounded(self, vectors: Tensor) -> Tensor:
        if self.max_norm is None:
            return vectors
        norms = vectors.norm(dim=-1, keepdim=True)
        return torch.where(norms > self.max_norm, vectors * (self.max_norm / norms.clamp_min(self.max_norm)), vectors)
