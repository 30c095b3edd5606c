"""Fold-in: the vector and bias of a stranger from a handful of interactions, with all else as it is.

Training minimises, over the rows, loss + ½ l2 · |vector|² + ½ bias_l2 · bias² per occurrence, in standard units. With
every table but the stranger's own row fixed, that is convex in this row θ = (p, b), and is solved as it stands:

    min over θ   Σ weight_n · loss(c + f_n + ⟨p, v_n⟩ + b, target_n)  +  ½ N (l2 · |p|² + bias_l2 · b²)
                 +  ½ noise · Σ (θ_d − start_d)² / spread_d

v_n is the item side of the stranger's n-th row of N, f_n all biases and ⟨known user side, v_n⟩, c the objective's
constant. The last term is what a handful of rows needs beside them: a stranger is one more user, so it is expected to
differ from an unknown one (start is the row that its value reads now) as much as the known users differ among each
other (`Prior`). Without it, up to ten ratings would predict worse than none. Without rows, an unknown user remains.

For ratings this is regularised least squares, solved exactly; the others by Newton's method. Where training draws
negatives, the loss is its mean over all draws: for `Logistic` and `BPR` over the known items that are not in the rows,
for `SampledSoftmax` the softmax over all known items; the rows then stand at the position of serving.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch
from recsys_emb.lookup.history import HistoryEmbedding
from recsys_emb.serving.convex import Pairwise, Problem, Regression, Scores, Softmax, minimise
from recsys_emb.serving.fitted import Fitted
from recsys_emb.serving.scoring import at_rest, sides
from recsys_emb.serving.strangers import Strangers
from recsys_emb.training.losses import BPR, Logistic, SampledSoftmax
from recsys_emb.training.objective import Units, UnseenItems
from recsys_emb.vocabulary.reserved import UNKNOWN_INDEX


class Side(NamedTuple):
    """Sums of lookups, float64."""

    vectors: Tensor  # (B, D)
    biases: Tensor  # (B,)


def fold_in(fitted: Fitted, strangers: Strangers) -> Side:
    """Find the user side of every stranger, as it serves: ``(S, D)`` and ``(S,)``, in standard units.

    It holds what was solved for, the user features that the rows state last, and, where the schema has a `History`,
    the items of the rows.
    """
    rows = strangers.rows if fitted.objective.contrast is None else _at_serving(fitted, strangers.rows)
    learned = torch.ones(len(rows), dtype=torch.bool)
    if fitted.objective.contrast is not None and rows.label is not None:
        learned = rows.label > 0
    around = _Around(fitted, rows, _histories(fitted, strangers))
    serving = _serving_side(fitted, strangers)
    vectors, biases = [], []
    by_owner = strangers.owners.argsort(stable=True)
    counts = strangers.owners.bincount(minlength=len(strangers))
    for number, seen in enumerate(torch.split(by_owner, counts.tolist())):
        solved = around.solve(seen[learned[seen]], seen, Side(*(one[number] for one in serving)))
        vectors.append(serving.vectors[number] + solved[:-1])
        biases.append(serving.biases[number] + solved[-1])
    nobody = serving.biases.new_zeros(0)
    return Side(torch.stack(vectors) if vectors else serving.vectors, torch.stack(biases) if biases else nobody)


class _Around:
    """What surrounds the strangers: their rows, scored without them, and the known items."""

    def __init__(self, fitted: Fitted, rows: Batch, histories: Tensor) -> None:
        self._fitted, self._rows = fitted, rows
        model, objective = fitted.model, fitted.objective
        self._constant = objective.constant(Units(float(model.offset), float(model.scale)))
        self._items = _side(fitted, rows, model.item_names)
        self._users = _side(fitted, rows, _known_names(fitted))
        self._users = Side(self._users.vectors + histories, self._users.biases)
        known = fitted.memory.items
        self._known = known.rows_of(rows.indices(fitted.item.name))
        self._catalogue = Side(torch.empty(0, histories.shape[1]).double(), torch.empty(0).double())
        if objective.contrast is not None:
            self._catalogue = _side(fitted, fitted.memory.item_rows(known.indices, fitted.encoder), model.item_names)

    def solve(self, mine: Tensor, seen: Tensor, serving: Side) -> Tensor:
        """Find θ ``(D + 1,)`` of a stranger with rows ``mine`` to learn, all rows ``seen``, and a user side so far."""
        pull, precision = self._l2(len(mine)), self._fitted.prior.precision
        ridge = pull + precision
        # Two parabolas, around 0 and around the start, are one around a point between.
        centre = torch.where(ridge > 0, precision * self._start(seen) / ridge, 0.0)
        solved: Tensor = centre + minimise(self._problem(mine, seen, serving, ridge, centre))
        return solved

    def _problem(self, mine: Tensor, seen: Tensor, serving: Side, ridge: Tensor, centre: Tensor) -> Problem:
        """Pose it in the distance from a centre."""
        fitted, objective = self._fitted, self._fitted.objective
        items, users = (Side(side.vectors[mine], side.biases[mine]) for side in (self._items, self._users))
        own = self._scores(items, users, centre)
        ones = torch.ones(len(mine), dtype=torch.float64)
        weights = ones if self._rows.weight is None else self._rows.weight[mine].double()
        if objective.contrast is None:
            label = self._rows.label
            units = Units(float(fitted.model.offset), float(fitted.model.scale))
            targets = ones if label is None else objective.targets(label[mine], units).double()
            return Regression(own, targets, weights, ridge, isinstance(objective, Logistic))
        others = self._scores(self._catalogue, serving, centre)
        if isinstance(objective, SampledSoftmax):
            places = self._known[mine]
            return Softmax(own, weights, torch.where(places < len(others.offsets), places, -1), others, ridge)
        unseen = torch.ones(len(others.offsets) + 1, dtype=torch.bool)
        unseen[self._known[seen]] = False
        others = others.select(unseen[:-1])
        if isinstance(objective, BPR):
            return Pairwise(own, weights, others, ridge)
        contrast = objective.contrast
        count = contrast.count if isinstance(contrast, UnseenItems) else 0
        spread = weights.sum() * count / max(1, len(others.offsets))
        both = Scores(torch.cat([own.rows, others.rows]), torch.cat([own.offsets, others.offsets]))
        no = torch.zeros(len(others.offsets), dtype=torch.float64)
        return Regression(both, torch.cat([ones, no]), torch.cat([weights, no + spread]), ridge, logistic=True)

    def _scores(self, items: Side, users: Side, centre: Tensor) -> Scores:
        """Score items with the centre for the stranger's own row, which is what multiplies ``(vector, 1)``."""
        rows = torch.cat([items.vectors, items.biases.new_ones(len(items.biases), 1)], 1)
        product = (items.vectors * users.vectors).sum(-1)
        return Scores(rows, self._constant + items.biases + users.biases + product + rows @ centre)

    def _l2(self, count: int) -> Tensor:
        scale, strength = self._fitted.user.l2_scale, self._fitted.strength
        pull = torch.full((self._items.vectors.shape[1] + 1,), strength.l2, dtype=torch.float64)
        pull[-1] = strength.bias_l2
        return count * scale * pull

    def _start(self, seen: Tensor) -> Tensor:
        """Give the row that the stranger's value reads now: the unknown one, or its own where training knew it."""
        name, model = self._fitted.user.name, self._fitted.model
        index = self._rows.indices(name)[seen][-1:].clamp(min=UNKNOWN_INDEX).to(model.offset.device)
        with at_rest(model):
            parts = [tables.lookup(name)(index)[0].cpu().double() for tables in (model.vectors, model.biases)]
        return torch.cat(parts)


def _known_names(fitted: Fitted) -> list[str]:
    """Features of the user side that are known of a stranger."""
    own = {fitted.user.name, *fitted.model.vectors.histories}
    return [name for name in fitted.model.user_names if name not in own]


def _side(fitted: Fitted, rows: Batch, names: Sequence[str]) -> Side:
    if not names:
        nothing = torch.zeros(len(rows), fitted.model.vectors.embedding_dim, dtype=torch.float64)
        return Side(nothing, nothing[:, 0])
    vectors, biases = sides(fitted.model, rows, tuple(names))
    return Side(vectors.double(), biases)


def _at_serving(fitted: Fitted, rows: Batch) -> Batch:
    """Move rows to the position of serving, without a context."""
    schema, encoder = fitted.schema, fitted.encoder
    names = [one.name for one in schema.context_features]
    placed = fitted.memory.user_rows(rows.indices(fitted.user.name), encoder).keeping(names).columns
    if schema.position is not None:
        name = schema.position.name
        placed = {**placed, name: fitted.memory.item_rows(rows.indices(fitted.item.name), encoder)[name]}
    return rows.replacing(placed)


def _serving_side(fitted: Fitted, strangers: Strangers) -> Side:
    """Give what is known of each stranger when it is served, ``(S, D)`` and ``(S,)``: the last row's word counts."""
    last = torch.zeros(len(strangers), dtype=torch.int64)
    last.scatter_reduce_(0, strangers.owners, torch.arange(len(strangers.owners)), "amax")
    known = _side(fitted, _at_serving(fitted, strangers.rows.select(last)), _known_names(fitted))
    first_rows = _histories(fitted, strangers)[last]
    return Side(known.vectors + first_rows, known.biases)


def _histories(fitted: Fitted, strangers: Strangers) -> Tensor:
    """Pool what each row's stranger had, as a `History` does: float64 ``(N, D)``, zeros without one."""
    total = torch.zeros(len(strangers.owners), fitted.model.vectors.embedding_dim, dtype=torch.float64)
    items = strangers.rows.indices(fitted.item.name)
    for table in fitted.model.vectors.histories.values():
        with torch.device("meta"):
            guest = HistoryEmbedding(
                table.num_embeddings,
                table.embedding_dim,
                num_users=len(strangers),
                max_length=table.max_length,
                reserved=table.items.reserved,
            )
        guest.items = table.items
        guest.offsets = torch.zeros(len(strangers) + 1, dtype=torch.int64)
        guest.values = torch.empty(0, dtype=torch.int64)
        guest = guest.to(fitted.model.offset.device)
        with at_rest(fitted.model):
            guest.remember(strangers.owners, items)
            total += guest(strangers.owners.to(guest.offsets.device)).cpu().double()
    return total
