"""`FusedTable`: a feature's rows within a `RowStack`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from recsys_emb.errors import FitError
from recsys_emb.lookup.base import IndexLookup, draw_rows, normal_rows
from recsys_emb.lookup.category import CategoryEmbedding
from recsys_emb.lookup.fused_lookup import looked_up
from recsys_emb.lookup.growth import Optimizers
from recsys_emb.lookup.row_stack import RowStack, into_views
from recsys_emb.vocabulary.reserved import PADDING_INDEX


class FusedTable(IndexLookup):
    """What a `CategoryEmbedding` becomes in a `FusedEmbedding`: rows that learn when they are read.

    Parameters
    ----------
    table
        The table whose rows, given vectors and settings are taken over; its padding is `PADDING_INDEX`.
    stack
        Where the rows go.
    place
        Number of the table in the stack.

    Attributes
    ----------
    learns : bool
        Whether rows that are read in training move; set by ``requires_grad_``.
    """

    def __init__(self, table: CategoryEmbedding, stack: RowStack, place: int) -> None:
        super().__init__(
            table.num_embeddings,
            table.embedding_dim,
            padding_index=PADDING_INDEX,
            reserved=table.reserved,
            init_std=table.init_std,
            sparse=False,
            name=table.name,
        )
        self._stack = (stack,)  # not a module of this one: the stack is its owner's
        self.place = place
        self.learns = True
        self.weight.copy_(table.storage())

    @property
    def weight(self) -> Tensor:
        """The rows, ``(V, D)``: a view of the stack, which no gradient flows into."""
        return self._rows_of(self._stack[0].weights)

    def rows(self, indices: Tensor) -> Tensor:
        """Look up vectors of indices known to be in range: int ``(...)`` to ``(..., D)``."""
        flat = indices.reshape(-1).long()
        learn = self.learns and self.training
        return looked_up(self._stack[0], [self.place], [flat], learn=learn)[0].view(*indices.shape, self.embedding_dim)

    def table(self) -> Tensor:
        """Give all vectors, ``(V, D)``, for reading.

        Raises
        ------
        FitError
            When gradients are recorded: a product with all rows moves them all.
        """
        if self.learns and self.training and torch.is_grad_enabled():
            raise FitError(
                f"feature {self.name!r}: expected lookups of rows, got the whole table where gradients are recorded. "
                "Tie output weights to a FeatureEmbedding, or read the table under torch.no_grad()."
            )
        return self.weight

    def storage(self) -> Tensor:
        """View ``(V, D)`` of the rows, for writing in place."""
        return self.weight

    def requires_grad_(self, requires_grad: bool = True) -> FusedTable:
        """Let rows learn, or freeze them."""
        self.learns = requires_grad
        return self

    @torch.no_grad()
    def reset_parameters(self, *, init_std: float | None = None, generator: torch.Generator | None = None) -> None:
        """Draw all rows as at birth, and begin their state anew; ``init_std`` replaces the deviation for good."""
        self.init_std = self.init_std if init_std is None else init_std
        draw_rows(self.weight, self.init_std, generator)
        self.weight[: self.reserved] = 0.0
        self.weight[PADDING_INDEX] = 0.0
        self._write_given()
        stack = self._stack[0]
        stack.steps[self.place] = 0
        for state in stack.state.values():
            self._rows_of(state).fill_(stack.rule.start)

    @torch.no_grad()
    def grow(
        self,
        num_embeddings: int,
        *,
        generator: torch.Generator | None = None,
        optimizer: Optimizers = None,
    ) -> None:
        """Append rows, drawn as at birth; old rows and their state stay bit for bit. No optimizer has any."""
        shape, stack = (self._fresh_rows(num_embeddings), self.embedding_dim), self._stack[0]
        fresh, old = normal_rows(shape, self.init_std, self.weight, generator), self.num_embeddings
        sizes = list(stack.sizes)
        sizes[self.place] = num_embeddings
        stack.reserve(sizes)
        self.num_embeddings = num_embeddings
        self.weight[old:] = fresh

    def _rows_of(self, matrix: Tensor) -> Tensor:
        first = self._stack[0].firsts[self.place]
        return matrix[first : first + self.num_embeddings]

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        destination[f"{prefix}weight"] = self.weight

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        self._buffers["weight"] = self.weight
        try:
            super()._load_from_state_dict(state_dict, prefix, into_views(local_metadata), *rest)
        finally:
            del self._buffers["weight"]
