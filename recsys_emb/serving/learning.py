"""From rows to a `Fitted`, and from a `Fitted` and more rows to the next one."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from recsys_emb.encoding.batch import Batch
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.row_encoder import folder_types
from recsys_emb.errors import ColumnError, DataError
from recsys_emb.lookup.new_rows import ByFeature
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema.schema import Schema
from recsys_emb.serving.beginning import ByName, begin_with
from recsys_emb.serving.choosing import choose_objective, choose_solver, settled
from recsys_emb.serving.declared import check_declared, read_numbers, warn_of_labels
from recsys_emb.serving.fitted import Fitted, LabelRange, Strength
from recsys_emb.serving.lineage import Step
from recsys_emb.serving.memory import Memory
from recsys_emb.serving.occurrences import added, occurrences_of
from recsys_emb.serving.prior import Prior
from recsys_emb.serving.resuming import CheckpointFolder, describe_run
from recsys_emb.sources.sources import Source, open_source
from recsys_emb.training.checkpoints import Checkpoints
from recsys_emb.training.fitting import Solver, train
from recsys_emb.training.history import FitHistory
from recsys_emb.training.losses import SquaredError
from recsys_emb.training.objective import EarlyStopping, Objective
from recsys_emb.training.past import Past


@dataclass(frozen=True)
class Plan:
    """How to learn, as the caller said it; None leaves the choice to the library. See `Recommender`."""

    objective: Objective | None = None
    solver: Solver | None = None
    epochs: int | None = None
    early_stopping: EarlyStopping | None = None
    seed: int = 0
    progress: bool | None = None
    pretrained: ByName = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_declared(self.objective, self.solver, self.early_stopping)
        epochs, seed = read_numbers(self.epochs, self.seed)
        object.__setattr__(self, "epochs", epochs)
        object.__setattr__(self, "seed", seed)

    def fit(
        self,
        schema: Schema,
        source: Any,
        validation: Any,
        checkpoint: str | os.PathLike[str] | None = None,
        every: int | timedelta = 1,
    ) -> Fitted:
        """Learn everything from a source, or go on from the checkpoint of the same run."""
        source = open_again(source, schema, where="Recommender.fit")
        encoder = FeatureEncoder(schema).fit(source)
        columns = (schema.label, schema.weight)
        batch = read_rows(encoder, source, where="Recommender.fit", needed=columns)
        where = "Recommender.fit: validation"
        held_out = None if validation is None else read_rows(encoder, validation, where=where, needed=columns[:1])
        label = LabelRange.of(batch.label)
        objective = self._objective_for(schema.label, label)
        model = MatrixFactorization(encoder, seed=self.seed)
        for name, coverage in begin_with(self.pretrained, model, encoder).items():
            self._tell(f"{name!r} begins with pretrained vectors: {coverage}")
        solver = self._solver_for(model, objective)
        checkpoints = None
        if checkpoint is not None:
            hashes = {name: vectors.fingerprint for name, vectors in self.pretrained.items()}
            settings = {"objective": objective, "solver": solver, "pretrained": str(hashes), **self._pace}
            checkpoints = Checkpoints(
                CheckpointFolder(checkpoint, describe_run(encoder, batch, held_out, settings)), every
            )
        history = self._train(model, batch, objective, solver, validation=held_out, checkpoints=checkpoints)
        return concluded(encoder, model, batch, objective, history, strength=Strength.of(solver, objective))

    def extend(self, fitted: Fitted, source: Any, new_rows: ByFeature) -> Fitted:
        """Go on from a fit with more rows; the earlier one stays as it is."""
        source = open_again(source, fitted.schema, where="Recommender.partial_fit")
        encoder = FeatureEncoder.from_state(fitted.encoder.to_state()).partial_fit(source)
        columns = (fitted.schema.label, fitted.schema.weight)
        batch = read_rows(encoder, source, where="Recommender.partial_fit", needed=columns)
        if isinstance(fitted.objective, SquaredError):
            warn_of_labels(batch.label, fitted.label.low, fitted.label.high, name=fitted.schema.label or "label")
        model = copy.deepcopy(fitted.model)
        model.grow(encoder, new_rows=new_rows)
        if not len(batch):
            return fitted
        solver = self._solver_for(model, fitted.objective)
        history = self._train(model, batch, fitted.objective, solver, past=fitted.past)
        memory = fitted.memory.merged(Memory.from_batch(batch, encoder))
        label, lineage = (
            fitted.label.merged(LabelRange.of(batch.label)),
            (*fitted.lineage, Step.of(encoder, len(batch))),
        )
        strength = Strength.of(solver, fitted.objective)
        prior = Prior.of(model, memory.users.key, memory.users.indices, fitted.objective, history)
        seen = added(fitted.occurrences, occurrences_of(batch, encoder)) if fitted.occurrences else {}
        return Fitted(encoder, model, memory, fitted.objective, label, history, lineage, strength, prior, seen)

    def _train(
        self,
        model: MatrixFactorization,
        batch: Batch,
        objective: Objective,
        solver: Solver,
        *,
        validation: Batch | None = None,
        past: Past | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> FitHistory:
        history = train(
            model,
            batch,
            objective,
            solver,
            epochs=self._epochs(objective, goes_on=past is not None),
            early_stopping=self.early_stopping,
            validation=validation,
            fresh=past is None,
            past=past,
            checkpoints=checkpoints,
            seed=self.seed,
            progress=self.progress,
        )
        model.eval()
        return history

    @property
    def _pace(self) -> dict[str, object]:
        """What says, beside objective and solver, how a fit goes."""
        return {"epochs": self.epochs, "early_stopping": self.early_stopping, "seed": self.seed}

    def _epochs(self, objective: Objective, *, goes_on: bool) -> int | None:
        """Say how long to train, where the caller left it open.

        The few rows of a growth hold too few to search the best number of epochs by, and what has learned before is
        there already: as many epochs as a search would run at least, which is what new rows need to leave their start.
        """
        stopping = objective.defaults.early_stopping
        if self.epochs is not None or self.early_stopping is not None or stopping is None or not goes_on:
            return self.epochs
        return min(stopping.min_epochs, objective.defaults.epochs)

    def _objective_for(self, name: str | None, label: LabelRange) -> Objective:
        """Give the caller's objective, or choose one and tell why."""
        if self.objective is not None:
            return self.objective
        objective, reason = choose_objective(name, label)
        self._tell(f"{objective}, as {reason}.")
        return objective

    def _solver_for(self, model: MatrixFactorization, objective: Objective) -> Solver:
        """Give the caller's solver, or choose one and tell why."""
        if self.solver is not None:
            return self.solver
        solver, reason = choose_solver(model, objective)
        self._tell(f"{settled(solver, objective)}, as {reason}.")
        return solver

    def _tell(self, line: str) -> None:
        if self.progress is not False:
            print(f"Recommender: {line}", file=sys.stderr)


def concluded(
    encoder: FeatureEncoder,
    model: MatrixFactorization,
    batch: Batch,
    objective: Objective,
    history: FitHistory,
    *,
    strength: Strength,
) -> Fitted:
    """Sum up a first fit of a model to training rows: what serving asks for beside it."""
    memory, lineage = Memory.from_batch(batch, encoder), (Step.of(encoder, len(batch)),)
    prior = Prior.of(model, memory.users.key, memory.users.indices, objective, history)
    label, seen = LabelRange.of(batch.label), occurrences_of(batch, encoder)
    return Fitted(encoder, model, memory, objective, label, history, lineage, strength, prior, seen)


def open_again(source: Any, schema: Schema, *, where: str) -> Source:
    """Open rows that are read more than once: to learn their values, then to encode them.

    Raises
    ------
    DataError
        When they can be read but once.
    """
    opened = open_source(source, folder_types(schema))
    if not opened.repeatable:
        got = f"a {type(source).__name__}, which gives them once"
        raise DataError(f"{where}: expected rows that can be read twice, got {got}. Pass a table: read_all().")
    return opened


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
