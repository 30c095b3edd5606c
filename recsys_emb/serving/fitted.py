"""`Fitted`: everything that a fit leaves behind, and what the verbs ask of it, in indices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import FitError, counted
from recsys_emb.evaluation.catalogue import Catalogue
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema.columns import Categorical
from recsys_emb.schema.schema import Schema
from recsys_emb.serving.lineage import Step, experience
from recsys_emb.serving.memory import Memory, pair_of
from recsys_emb.serving.occurrences import Occurrences
from recsys_emb.serving.prior import Prior
from recsys_emb.serving.scoring import score, sides
from recsys_emb.serving.weights import Kept
from recsys_emb.training.history import FitHistory
from recsys_emb.training.objective import Objective
from recsys_emb.training.past import Past


@dataclass(frozen=True)
class LabelRange:
    """What training saw of the label: its range, and whether it held nothing but 0 and 1."""

    low: float = -torch.inf
    high: float = torch.inf
    binary: bool = False

    @classmethod
    def of(cls, label: Tensor | None) -> LabelRange:
        """Range of a label ``(B,)``; unbounded without one."""
        if label is None or not len(label):
            return cls()
        binary = bool(((label == 0) | (label == 1)).all())
        return cls(float(label.min()), float(label.max()), binary)

    def merged(self, later: LabelRange) -> LabelRange:
        """Range of both."""
        return LabelRange(min(self.low, later.low), max(self.high, later.high), self.binary and later.binary)


class Strength(NamedTuple):
    """L2 per occurrence, of vectors and of biases."""

    l2: float
    bias_l2: float

    @classmethod
    def of(cls, solver: object, objective: Objective) -> Strength:
        """Give the strength that a solver trains with: its own, or the objective's default."""
        l2, bias_l2 = getattr(solver, "l2", None), getattr(solver, "bias_l2", None)
        defaults = objective.defaults
        return cls(defaults.l2 if l2 is None else l2, defaults.bias_l2 if bias_l2 is None else bias_l2)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted encoder and model, and what serving needs beside them.

    Parameters
    ----------
    encoder, model
        Fitted.
    memory
        What is known of users and items.
    objective
        What the model was trained for; it says what a score means.
    label
        What training saw of the label.
    history
        How the fit went.
    lineage
        Its fit, and every growth since.
    strength
        Of L2 in its training.
    prior
        How the users that it knows differ.
    occurrences
        How often training rows looked up reserved rows, positions and numbers; nothing where that was not kept.

    Notes
    -----
    The item side of the known items is laid out at the first request that ranks them all and kept, as one float32 copy
    of I × D numbers with the biases in float64; what `similar` compares is another, in float64. They are laid out anew
    when the weights change, by whatever hand (see `Stamp`).
    """

    encoder: FeatureEncoder
    model: MatrixFactorization
    memory: Memory
    objective: Objective
    label: LabelRange
    history: FitHistory
    lineage: tuple[Step, ...]
    strength: Strength
    prior: Prior
    occurrences: Occurrences = field(default_factory=dict)
    _catalogue: Kept[Catalogue] = field(default_factory=Kept, init=False, repr=False)
    _directions: Kept[Catalogue] = field(default_factory=Kept, init=False, repr=False)

    @property
    def schema(self) -> Schema:
        """Declarations that were fitted."""
        return self.encoder.to_state().schema

    @property
    def user(self) -> Categorical:
        """The user's declaration."""
        return pair_of(self.schema)[0]

    @property
    def item(self) -> Categorical:
        """The item's declaration."""
        return pair_of(self.schema)[1]

    @property
    def past(self) -> Past:
        """All rows so far, in short, for training that goes on."""
        rows = sum(step.rows for step in self.lineage)
        return Past(*self.memory.pairs, self.memory.items, experience(self.encoder, rows))

    def answer(self, batch: Batch) -> Tensor:
        """Predict the rows: float64 ``(B,)``, a rating, a probability or a score, as the objective means it."""
        return self.meant(score(self.model, batch))

    def meant(self, scores: Tensor) -> Tensor:
        """Say what scores in units of the label mean: as `answer`.

        Raises
        ------
        FitError
            When a score is not finite: somebody has written into weights that were saved finite.
        """
        if not scores.isfinite().all():
            got = counted(int((~scores.isfinite()).sum()), "score")
            raise FitError(f"Recommender: expected finite scores, got {got} not finite. Load it anew, or fit again.")
        return self.objective.answer(scores, self.label.low, self.label.high)

    def pairs(self, users: Tensor, items: Tensor) -> Batch:
        """Rows of users with items, both int64 ``(B,)``, with what is known of them, at the position of serving."""
        side = self.memory.item_rows(items, self.encoder)
        return self.memory.user_rows(users, self.encoder).replacing(side.columns)

    def user_vectors(self, users: Tensor) -> Tensor:
        """Sum the user side of ``users``, int64 ``(B,)``: ``(B, D)``."""
        return sides(self.model, self.memory.user_rows(users, self.encoder), self.model.user_names)[0]

    @property
    def catalogue(self) -> Catalogue:
        """The known items, laid out for ranking at the position of serving."""
        return self._catalogue.of(self.model, self._lay_out)

    @property
    def directions(self) -> Catalogue:
        """The known items as unit vectors without the position, whose products are cosines."""
        return self._directions.of(self.model, self._lay_out_directions)

    def forget(self) -> None:
        """Lay the items out anew at the next request."""
        self._catalogue.forget()
        self._directions.forget()

    def seen_rows(self, users: Tensor) -> Jagged:
        """Rows of the catalogue that each of ``users`` has seen."""
        seen = self.memory.seen_by(users)
        return Jagged(self.memory.items.rows_of(seen.values), seen.offsets)

    def _lay_out(self) -> Catalogue:
        items = self.memory.item_rows(self.memory.items.indices, self.encoder)
        return Catalogue(*sides(self.model, items, self.model.item_names))

    def _lay_out_directions(self) -> Catalogue:
        known, position = self.memory.items, self.schema.position
        names = tuple(one for one in self.model.item_names if position is None or one != position.name)
        vectors = sides(self.model, known.lookup(known.indices), names)[0].double()
        # A vector of zeros points nowhere: its cosine with anything is taken as 0.
        return Catalogue(vectors / vectors.norm(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny), None)
