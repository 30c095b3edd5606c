"""What a batch's own items are scored against: nothing, unseen items, or items that the batch shares."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch
from recsys_emb.training.objective import Objective, SharedItems, UnseenItems
from recsys_emb.training.past import Past
from recsys_emb.training.sampling import Interactions
from recsys_emb.training.scoring import Scorer, Sides, Sum

# Between uniform (0) and by frequency (1), as word2vec draws its negatives (Mikolov et al., 2013).
_POWER = 0.75


class Contrasting(Protocol):
    """Scores a batch's own items and others."""

    rows: Tensor  # int64 (M,), the training rows that can be learned

    def scores(self, sides: Sides, chosen: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Score training rows ``chosen`` ``(B,)``: ``(B, 1 + n)``, own item first, and the others' L2 per row."""


def contrast_of(objective: Objective, rows: Batch, scorer: Scorer, past: Past | None = None) -> Contrasting:
    """Choose what an objective asks for, over training rows with pooling weights; ``past`` is what came before."""
    if objective.contrast is None:
        return Labels(torch.arange(len(rows), device=scorer.device))
    interactions = Interactions.from_batch(rows, scorer.schema, past)
    if isinstance(objective.contrast, UnseenItems):
        return Unseen(interactions, scorer, objective.contrast)
    return Shared(interactions, scorer, objective.contrast)


class Labels:
    """No others: a label says what a score should be."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def scores(self, sides: Sides, chosen: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Score own items alone."""
        scores = sides.own()
        return scores, scores.new_zeros(())


class Unseen:
    """Each row draws its own negatives from the items that its user does not have."""

    def __init__(self, interactions: Interactions, scorer: Scorer, contrast: UnseenItems) -> None:
        self.rows = interactions.contrasted()
        self._interactions, self._scorer, self._count = interactions, scorer, contrast.count

    def scores(self, sides: Sides, chosen: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Score own items and `count` unseen ones per row."""
        drawn = self._interactions.seen.draw(self._interactions.users[chosen], self._count, generator)
        others = self._scorer.items(self._interactions.catalogue.features.select(drawn.flatten()))
        vectors = others.vectors.view(*drawn.shape, others.vectors.shape[-1])
        scores = torch.cat([sides.own(), sides.against(vectors, others.biases.view(drawn.shape))], dim=1)
        return scores, others.penalty.sum() / len(chosen)


class Shared:
    """All rows of a batch are scored against the same items, with corrected scores.

    A negative drawn n times with probability q is expected n·q times; lowering its score by log(n·q) makes the sum of
    exponentials over the negatives an unbiased estimate of the sum over all items but the own.
    """

    def __init__(self, interactions: Interactions, scorer: Scorer, contrast: SharedItems) -> None:
        self.rows = torch.arange(len(interactions.items), device=interactions.items.device)
        self._items, self._scorer, self._count = interactions.items, scorer, contrast.count
        self._catalogue = interactions.catalogue
        counts = torch.bincount(interactions.items, minlength=len(interactions.catalogue) + 1).double()
        self._frequency = counts / counts.sum()
        weights = counts[:-1].pow(_POWER)
        self._chance = weights / weights.sum()

    def scores(self, sides: Sides, chosen: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Score own items and the shared ones; where a shared one is the own item, minus infinity."""
        own = self._items[chosen]
        numbers, others, expected = self._others(sides, own, generator)
        corrected = sides.against_all(others.vectors, others.biases) - expected.log().to(others.biases.dtype)
        corrected = corrected.masked_fill(own.unsqueeze(1) == numbers, -torch.inf)
        return torch.cat([sides.own(), corrected], dim=1), others.penalty.sum() / len(chosen)

    def _others(self, sides: Sides, own: Tensor, generator: torch.Generator) -> tuple[Tensor, Sum, Tensor]:
        """Give the shared items: numbers ``(n,)``, lookups, and how often each was expected, ``(n,)``."""
        if self._count is None:
            # Their L2 is already in the batch's own.
            others = sides.item._replace(penalty=torch.zeros_like(sides.item.penalty))
            return own, others, (len(own) - 1) * self._frequency[own]
        shares = torch.rand(self._count, dtype=torch.float64, device=own.device, generator=generator)
        numbers = torch.searchsorted(self._chance.cumsum(0), shares, right=True).clamp(max=len(self._chance) - 1)
        others = self._scorer.items(self._catalogue.features.select(numbers))
        return numbers, others, self._count * self._chance[numbers]
