"""Where something stands, as a vector: learned and sinusoidal positions."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recsys_emb.errors import IndexRangeError, at_least
from recsys_emb.lookup.base import check_indices, draw_rows


class _PositionTable(nn.Module, ABC):
    """What both kinds share: places 0 … max_position, and their sum with tokens."""

    def __init__(self, max_position: int, embedding_dim: int, name: str) -> None:
        super().__init__()
        where = f"{type(self).__name__}({name!r})"
        self.max_position = at_least(where, "max_position", max_position, 0)
        self.embedding_dim = at_least(where, "embedding_dim", embedding_dim, 1)
        self.name = name

    @abstractmethod
    def table(self) -> Tensor:
        """Give all vectors: ``(max_position + 1, D)``."""

    def forward(self, positions: Tensor) -> Tensor:
        """Look up positions from 0 to ``max_position``: int ``(...)`` to ``(..., D)``.

        Raises
        ------
        IndexRangeError
            When a position is negative or beyond the table.
        """
        check_indices(positions, self.max_position + 1, self.name)
        return F.embedding(positions.long(), self.table())

    def add_to(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Add to each token the vector of its place: ``(..., L, D)`` to ``(..., L, D)``.

        Parameters
        ----------
        tokens
            Vectors in order.
        mask
            bool ``(..., L)``, True for a real token. Places are counted over real tokens alone, from the first, so
            they do not depend on how wide the padding is or on which side; nothing is added to padding.

        Raises
        ------
        IndexRangeError
            When a sequence is longer than the table.
        """
        if mask is None:
            length = tokens.shape[-2]
            if length > self.max_position + 1:
                raise IndexRangeError(
                    f"{type(self).__name__}({self.name!r}): expected at most {self.max_position + 1} places, "
                    f"got {length}. Cut the sequence, or raise max_position."
                )
            return tokens + self.table()[:length]
        places = (mask.long().cumsum(-1) - 1).clamp(min=0)
        vectors: Tensor = self(places)
        return tokens + vectors.masked_fill(~mask.unsqueeze(-1), 0.0)

    def extra_repr(self) -> str:
        """Describe the table in ``print(module)``."""
        return f"{self.name!r}, max_position={self.max_position}, {self.embedding_dim}"


class LearnedPosition(_PositionTable):
    """A learned row per position (as in BERT; Devlin et al., 2019).

    Parameters
    ----------
    max_position
        The largest position with a row; positions count from 0.
    embedding_dim
        D.
    init_std
        Rows start as N(0, init_std).
    generator
        Source of the first rows; None takes torch's own.
    name
        The feature, for messages.

    Attributes
    ----------
    weight : torch.nn.Parameter
        ``(max_position + 1, D)``.

    Examples
    --------
    >>> position = LearnedPosition(3, 8)
    >>> position(torch.tensor([[0, 3]])).shape, position.add_to(torch.zeros(2, 4, 8)).shape
    (torch.Size([1, 2, 8]), torch.Size([2, 4, 8]))
    >>> position.add_to(torch.zeros(2, 5, 8))
    Traceback (most recent call last):
    ...
    recsys_emb.errors.IndexRangeError: LearnedPosition('position'): expected at most 4 places, got 5. Cut the \
sequence, or raise max_position.
    """

    def __init__(
        self,
        max_position: int,
        embedding_dim: int,
        *,
        init_std: float = 0.01,
        generator: torch.Generator | None = None,
        name: str = "position",
    ) -> None:
        super().__init__(max_position, embedding_dim, name)
        self.init_std = init_std
        self.weight = nn.Parameter(torch.empty(max_position + 1, embedding_dim))
        self.reset_parameters(generator=generator)

    def table(self) -> Tensor:
        """Give all vectors: ``(max_position + 1, D)``."""
        return self.weight

    @torch.no_grad()
    def reset_parameters(self, *, init_std: float | None = None, generator: torch.Generator | None = None) -> None:
        """Draw all rows as at birth; ``init_std`` replaces the standard deviation for good."""
        self.init_std = self.init_std if init_std is None else init_std
        draw_rows(self.weight, self.init_std, generator)


class SinusoidalPosition(_PositionTable):
    """Fixed waves: PE[p, 2j] = sin(p / 10000^(2j/D)), PE[p, 2j+1] = cos of the same (Vaswani et al., 2017).

    For an odd D the last column is a sine without its cosine. Nothing is learned; the table is a buffer that is not
    saved.

    Parameters
    ----------
    embedding_dim
        D.
    max_position
        The largest position in the table; positions count from 0.
    name
        The feature, for messages.

    Examples
    --------
    >>> from math import cos, sin
    >>> PE = SinusoidalPosition(5, max_position=9)(torch.tensor([0, 3]))
    >>> PE[0]
    tensor([0., 1., 0., 1., 0.])
    >>> rate = [1 / 10000 ** (2 * j / 5) for j in (0, 1, 2)]
    >>> waves = [sin(3), cos(3), sin(3 * rate[1]), cos(3 * rate[1]), sin(3 * rate[2])]
    >>> torch.allclose(PE[1], torch.tensor(waves))
    True
    """

    waves: Tensor

    def __init__(self, embedding_dim: int, *, max_position: int = 511, name: str = "position") -> None:
        super().__init__(max_position, embedding_dim, name)
        columns = torch.arange(embedding_dim)
        rates = 10000.0 ** (-(columns - columns % 2).double() / embedding_dim)
        angles = torch.arange(max_position + 1).double().unsqueeze(1) * rates
        waves = torch.where(columns % 2 == 0, angles.sin(), angles.cos())
        self.register_buffer("waves", waves.to(torch.get_default_dtype()), persistent=False)

    def table(self) -> Tensor:
        """Give all vectors: ``(max_position + 1, D)``."""
        return self.waves
