"""`Judge`: one number for how well a model does on rows that it does not learn."""

from __future__ import annotations

import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch
from recsys_emb.encoding.stacking import stack_rows
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.training.objective import Objective, UnseenItems
from recsys_emb.training.past import Past
from recsys_emb.training.rows import with_pooling_weights
from recsys_emb.training.sampling import Interactions
from recsys_emb.training.scoring import Scorer

# Bounds memory; figures do not depend on it.
_ROWS_AT_ONCE = 2**16
# For objectives that would compare with a whole batch.
_NEGATIVES = 100


class Judge:
    """Scores validation rows and asks the objective how good that is; calls change nothing.

    Ranking objectives see the rows against items that are unseen in training and validation, drawn once.

    Parameters
    ----------
    model
        What is judged, on its device.
    objective
        Says what is good.
    train, validation
        Rows; the first only tell the range of the label and what users have.
    seed
        Of the negatives.
    past
        What came before the training rows, in a run that goes on.
    """

    def __init__(
        self,
        model: MatrixFactorization,
        objective: Objective,
        train: Batch,
        validation: Batch,
        *,
        seed: int,
        past: Past | None = None,
    ) -> None:
        self._model, self._objective = model, objective
        device = model.scale.device
        label = torch.zeros(1) if train.label is None or not len(train) else train.label
        self._low, self._high = float(label.min()), float(label.max())
        rows = with_pooling_weights(validation.to(device), model.schema)
        self._drawn: Tensor | None = None
        if objective.contrast is not None:
            everything = stack_rows([_features(train.to(device)), _features(validation.to(device))])
            everything = with_pooling_weights(everything, model.schema)
            interactions = Interactions.from_batch(everything, model.schema, None if past is None else past.to(device))
            kept = interactions.contrasted()
            kept = kept[kept >= len(train)]
            rows = rows.select(kept - len(train))
            count = objective.contrast.count if isinstance(objective.contrast, UnseenItems) else _NEGATIVES
            generator = torch.Generator(device).manual_seed(seed)
            self._drawn = interactions.seen.draw(interactions.users[kept], count, generator)
            self._items = interactions.catalogue.features
        self._rows = rows
        self._scorer = Scorer(model, objective.defaults)

    @torch.no_grad()
    def __call__(self) -> float:
        """Judge the model as it is now: a number that falls as it improves."""
        parts = torch.split(torch.arange(len(self._rows), device=self._model.scale.device), self._chunk())
        raw = torch.cat([self._raw(chosen) for chosen in parts])
        label = torch.ones(len(raw), device=raw.device) if self._rows.label is None else self._rows.label
        return self._objective.validate(self._model.offset + self._model.scale * raw, label, self._low, self._high)

    def _raw(self, chosen: Tensor) -> Tensor:
        sides = self._scorer.sides(self._rows.select(chosen))
        if self._drawn is None:
            return sides.own()
        drawn = self._drawn[chosen]
        others = self._scorer.items(self._items.select(drawn.flatten()))
        vectors = others.vectors.view(*drawn.shape, others.vectors.shape[-1])
        return torch.cat([sides.own(), sides.against(vectors, others.biases.view(drawn.shape))], dim=1)

    def _chunk(self) -> int:
        return max(1, _ROWS_AT_ONCE // (1 if self._drawn is None else 1 + self._drawn.shape[1]))


def _features(batch: Batch) -> Batch:
    return Batch(batch.columns, limits=batch.limits)
