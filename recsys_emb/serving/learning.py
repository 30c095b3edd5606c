"""From rows to a `Fitted`, and from a `Fitted` and more rows to the next one."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recsys_emb.encoding.batch import Batch
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import ColumnError
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema.schema import Schema
from recsys_emb.serving.choosing import choose_objective, choose_solver
from recsys_emb.serving.fitted import Fitted, LabelRange
from recsys_emb.serving.memory import Memory
from recsys_emb.training.fitting import Solver, train
from recsys_emb.training.history import FitHistory
from recsys_emb.training.objective import EarlyStopping, Objective


@dataclass(frozen=True)
class Plan:
    """How to learn, as the caller said it; None leaves the choice to the library. See `Recommender`."""

    objective: Objective | None = None
    solver: Solver | None = None
    epochs: int | None = None
    early_stopping: EarlyStopping | None = None
    seed: int = 0
    progress: bool | None = None

    def fit(self, schema: Schema, source: Any, validation: Any) -> Fitted:
        """Learn everything from a source."""
        encoder = FeatureEncoder(schema).fit(source)
        columns = (schema.label, schema.weight)
        batch = read_rows(encoder, source, where="Recommender.fit", needed=columns)
        where = "Recommender.fit: validation"
        held_out = None if validation is None else read_rows(encoder, validation, where=where, needed=columns[:1])
        label = LabelRange.of(batch.label)
        objective = self.objective or self._said(*choose_objective(schema.label, label))
        model = MatrixFactorization(encoder, seed=self.seed)
        history = self._train(model, batch, objective, held_out, fresh=True)
        return Fitted(encoder, model, Memory.from_batch(batch, encoder), objective, label, history)

    def extend(self, fitted: Fitted, source: Any) -> Fitted:
        """Go on from a fit with more rows; the earlier one stays as it is."""
        encoder = FeatureEncoder.from_state(fitted.encoder.to_state()).partial_fit(source)
        columns = (fitted.schema.label, fitted.schema.weight)
        batch = read_rows(encoder, source, where="Recommender.partial_fit", needed=columns)
        model = copy.deepcopy(fitted.model)
        model.grow(encoder)
        history = self._train(model, batch, fitted.objective, None, fresh=False) if len(batch) else fitted.history
        memory = fitted.memory.merged(Memory.from_batch(batch, encoder))
        label = fitted.label.merged(LabelRange.of(batch.label)) if len(batch) else fitted.label
        return Fitted(encoder, model, memory, fitted.objective, label, history)

    def _train(
        self, model: MatrixFactorization, batch: Batch, objective: Objective, held_out: Batch | None, *, fresh: bool
    ) -> FitHistory:
        solver = self.solver or self._said(*choose_solver(model, objective))
        history = train(
            model,
            batch,
            objective,
            solver,
            epochs=self.epochs,
            early_stopping=self.early_stopping,
            validation=held_out,
            fresh=fresh,
            seed=self.seed,
            progress=self.progress,
        )
        model.eval()
        return history

    def _said(self, chosen: Any, reason: str) -> Any:
        """Tell a choice and its reason, unless the caller wants silence."""
        if self.progress is not False:
            print(f"Recommender: {chosen}, as {reason}.", file=sys.stderr)
        return chosen


def read_rows(encoder: FeatureEncoder, source: Any, *, where: str, needed: Sequence[str | None]) -> Batch:
    """Encode rows with the label and the weight, of which ``needed`` must be there; None is no column.

    Raises
    ------
    ColumnError
        When a needed one is declared and not there.
    """
    batch = encoder.transform(source)
    schema = encoder.to_state().schema
    for name, values in ((schema.label, batch.label), (schema.weight, batch.weight)):
        if name is not None and name in needed and values is None:
            raise ColumnError(f"{where}: expected the column {name!r}, which the schema declares, got none. Add it.")
    return batch
