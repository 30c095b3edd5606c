"""One-hot encoding, and the lookup the slow way: one-hot × matrix."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recsys_emb.errors import at_least
from recsys_emb.lookup.base import IndexLookup, check_indices, masked, normal_rows
from recsys_emb.lookup.category import CategoryEmbedding
from recsys_emb.lookup.growth import Optimizers, grow_parameter


def one_hot(
    indices: Tensor,
    num_classes: int,
    *,
    sparse: bool = False,
    dtype: torch.dtype = torch.float32,
    name: str = "one_hot",
) -> Tensor:
    """Encode integers as one-hot vectors: int ``(...)`` to ``(..., V)``.

    Parameters
    ----------
    indices
        Integers of any shape, each in [0, V).
    num_classes
        V, always stated: a width that depended on the rows at hand would change meaning from batch to batch.
    sparse
        Give a sparse COO tensor, which stores one entry per index instead of V.
    dtype
        Of the result; a matrix to multiply with wants its own.
    name
        The feature, for messages.

    Raises
    ------
    IndexRangeError
        When an index is negative or at least V.

    Examples
    --------
    >>> one_hot(torch.tensor([2, 0]), 3)
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    >>> one_hot(torch.tensor([2, 0]), 3, sparse=True).to_dense().shape
    torch.Size([2, 3])
    """
    at_least(name, "num_classes", num_classes, 1)
    check_indices(indices, num_classes, name)
    return _sparse(indices, num_classes, dtype) if sparse else _dense(indices, num_classes, dtype)


def _dense(indices: Tensor, num_classes: int, dtype: torch.dtype) -> Tensor:
    zeros = torch.zeros(*indices.shape, num_classes, dtype=dtype, device=indices.device)
    return zeros.scatter_(-1, indices.long().unsqueeze(-1), 1.0)


def _sparse(indices: Tensor, num_classes: int, dtype: torch.dtype) -> Tensor:
    places = torch.cat([torch.ones_like(indices, dtype=torch.bool).nonzero(), indices.reshape(-1, 1).long()], 1)
    ones = torch.ones(len(places), dtype=dtype, device=indices.device)
    size = (*indices.shape, num_classes)
    return torch.sparse_coo_tensor(places.T, ones, size, is_coalesced=True, check_invariants=False)


class OneHotProjection(IndexLookup):
    """A bias-free linear layer on one-hot input: the same numbers as `CategoryEmbedding`, the slow way.

    ``one_hot(i) @ weight.T`` is column i of the weight, so the transposed weight *is* the table. A dense product
    costs O(V·D) per index where a lookup costs O(D).

    Parameters
    ----------
    num_categories
        Width of the one-hot input, V.
    embedding_dim
        Width of the output, D.
    dense_limit
        Bytes that the one-hot matrix of one call may take; above, the product is computed as a gather.
    padding_index
        An index whose vector is zero and which learns nothing, as if encoded as all zeros.
    reserved, init_std, generator, name
        As in `CategoryEmbedding`; equal generators give equal tables.

    Attributes
    ----------
    weight : torch.nn.Parameter
        ``(D, V)``, laid out as in `torch.nn.Linear`.

    Examples
    --------
    >>> embedding = CategoryEmbedding(10, 4)
    >>> projection = OneHotProjection.from_embedding(embedding)
    >>> indices = torch.tensor([[3, 3], [0, 9]])
    >>> torch.equal(projection(indices), embedding(indices))
    True
    """

    def __init__(
        self,
        num_categories: int,
        embedding_dim: int,
        *,
        dense_limit: int = 64 * 2**20,
        padding_index: int | None = None,
        reserved: int = 0,
        init_std: float = 0.01,
        generator: torch.Generator | None = None,
        name: str = "category",
    ) -> None:
        super().__init__(
            num_categories,
            embedding_dim,
            padding_index=padding_index,
            reserved=reserved,
            init_std=init_std,
            sparse=False,
            name=name,
        )
        self.dense_limit = dense_limit
        self.weight = nn.Parameter(torch.empty(embedding_dim, num_categories))
        self.reset_parameters(generator=generator)

    @classmethod
    def from_embedding(cls, embedding: CategoryEmbedding, *, dense_limit: int = 64 * 2**20) -> OneHotProjection:
        """Give the same map as a projection; the weight is a transposed copy."""
        with torch.device("meta"):
            made = cls(
                embedding.num_embeddings,
                embedding.embedding_dim,
                dense_limit=dense_limit,
                padding_index=embedding.padding_index,
                reserved=embedding.reserved,
                init_std=embedding.init_std,
                name=embedding.name,
            )
        weight = embedding.table().detach().T.clone(memory_format=torch.contiguous_format)
        made.weight = nn.Parameter(weight, requires_grad=embedding.weight.requires_grad)
        made._given = embedding._given
        return made

    def to_embedding(self, *, sparse: bool = False) -> CategoryEmbedding:
        """Give the same map as a `CategoryEmbedding`; the weight is a transposed copy."""
        made = CategoryEmbedding.from_pretrained(
            self.table().detach(),
            freeze=not self.weight.requires_grad,
            padding_index=self.padding_index,
            sparse=sparse,
            name=self.name,
        )
        made.reserved, made.init_std, made._given = self.reserved, self.init_std, self._given
        return made

    def rows(self, indices: Tensor) -> Tensor:
        """Project one-hot vectors of indices known to be in range: int ``(...)`` to ``(..., D)``."""
        bytes_needed = indices.numel() * self.num_embeddings * self.weight.element_size()
        if bytes_needed > self.dense_limit:
            return masked(F.embedding(indices.long(), self.weight.T), indices, self.padding_index)
        encoded = _dense(indices, self.num_embeddings, self.weight.dtype)
        return masked(F.linear(encoded, self.weight), indices, self.padding_index)

    def table(self) -> Tensor:
        """Give all vectors, ``(V, D)``: ``table()[i]`` is ``forward(i)``, gradient included."""
        rows = torch.arange(self.num_embeddings, device=self.weight.device)
        return masked(self.weight.T, rows, self.padding_index)

    def storage(self) -> Tensor:
        """View ``(V, D)`` of the weight, transposed, for writing in place."""
        return self.weight.detach().T

    @torch.no_grad()
    def reset_parameters(self, *, init_std: float | None = None, generator: torch.Generator | None = None) -> None:
        """Draw all columns as at birth; ``init_std`` replaces the standard deviation for good."""
        self.init_std = self.init_std if init_std is None else init_std
        shape = (self.num_embeddings, self.embedding_dim)
        self.weight.copy_(normal_rows(shape, self.init_std, self.weight, generator).T)
        self.weight[:, : self.reserved] = 0.0
        if self.padding_index is not None:
            self.weight[:, self.padding_index] = 0.0
        self._write_given()

    @torch.no_grad()
    def grow(
        self, num_embeddings: int, *, generator: torch.Generator | None = None, optimizer: Optimizers = None
    ) -> None:
        """Append columns in place, drawn as at birth; old ones and their optimizer state stay bit for bit."""
        shape = (self._fresh_rows(num_embeddings), self.embedding_dim)
        fresh = normal_rows(shape, self.init_std, self.weight, generator)
        grow_parameter(self.weight, fresh.T, dim=1, optimizers=optimizer)
        self.num_embeddings = num_embeddings
