"""`NumericProjection`: a number and its missing indicator as a vector."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recsys_emb.errors import at_least
from recsys_emb.lookup.base import normal_rows


class NumericProjection(nn.Module):
    """A number times a learned direction, or a learned vector of its own where it is missing.

    Parameters
    ----------
    embedding_dim
        D.
    init_std
        The number's direction starts as N(0, init_std); the missing vector starts at zero.
    generator
        Source of the first numbers; None takes torch's own.
    name
        The feature, for messages.

    Attributes
    ----------
    weight : torch.nn.Parameter
        ``(2, D)``: direction, missing vector. A table of two rows, which every number weighs.

    Examples
    --------
    >>> projection = NumericProjection(3)
    >>> projection(torch.tensor([[0.5, 0.0], [0.0, 1.0]])).shape
    torch.Size([2, 3])
    """

    num_embeddings = 2

    def __init__(
        self,
        embedding_dim: int,
        *,
        init_std: float = 0.01,
        generator: torch.Generator | None = None,
        name: str = "numeric",
    ) -> None:
        super().__init__()
        self.embedding_dim = at_least(f"NumericProjection({name!r})", "embedding_dim", embedding_dim, 1)
        self.init_std = init_std
        self.name = name
        self.weight = nn.Parameter(torch.empty(2, embedding_dim))
        self.reset_parameters(generator=generator)

    def forward(self, numbers: Tensor) -> Tensor:
        """Turn ``(B, 2)`` of standardised value and missing indicator into ``(B, D)``.

        Two products and a sum per row, not a matrix product, whose rounding would depend on B.
        """
        numbers = numbers.to(self.weight.dtype)
        return numbers[:, :1] * self.weight[0] + numbers[:, 1:] * self.weight[1]

    def storage(self) -> Tensor:
        """View ``(2, D)`` of the weight, for writing in place."""
        return self.weight.detach()

    @torch.no_grad()
    def reset_parameters(self, *, init_std: float | None = None, generator: torch.Generator | None = None) -> None:
        """Draw the direction as at birth; ``init_std`` replaces the standard deviation for good."""
        self.init_std = self.init_std if init_std is None else init_std
        self.weight[:1] = normal_rows((1, self.embedding_dim), self.init_std, self.weight, generator)
        self.weight[1:] = 0.0

    def extra_repr(self) -> str:
        """Describe the projection in ``print(module)``."""
        return f"{self.name!r}, {self.embedding_dim}"
