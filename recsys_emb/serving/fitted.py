"""`Fitted`: everything that a fit leaves behind, and what the verbs ask of it, in indices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.evaluation.catalogue import Catalogue
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema.columns import Categorical
from recsys_emb.schema.schema import Schema
from recsys_emb.serving.lineage import Step, experience
from recsys_emb.serving.memory import Memory, pair_of
from recsys_emb.serving.prior import Prior
from recsys_emb.serving.scoring import score, sides
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
        return self.objective.answer(score(self.model, batch), self.label.low, self.label.high)

    def pairs(self, users: Tensor, items: Tensor) -> Batch:
        """Rows of users with items, both int64 ``(B,)``, with what is known of them, at the position of serving."""
        side = self.memory.item_rows(items, self.encoder)
        return self.memory.user_rows(users, self.encoder).replacing(side.columns)

    def user_vectors(self, users: Tensor) -> Tensor:
        """Sum the user side of ``users``, int64 ``(B,)``: ``(B, D)``."""
        return sides(self.model, self.memory.user_rows(users, self.encoder), self.model.user_names)[0]

    def catalogue(self, strangers: Tensor, rows: Tensor | None) -> Catalogue:
        """Lay out the known items, then ``strangers`` (indices of unknown items), for ranking; ``rows`` chooses."""
        items = self.memory.item_rows(torch.cat([self.memory.items.indices, strangers]), self.encoder)
        vectors, biases = sides(self.model, items, self.model.item_names)
        return Catalogue(vectors, biases, candidates=rows)

    def seen_rows(self, users: Tensor) -> Jagged:
        """Rows of the catalogue that each of ``users`` has seen."""
        seen = self.memory.seen_by(users)
        return Jagged(self.memory.items.rows_of(seen.values), seen.offsets)
