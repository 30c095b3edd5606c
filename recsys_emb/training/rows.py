"""Training rows made ready: checked, positives chosen, pooling weights worked out, unknown rows made to occur."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch, Column, Jagged
from recsys_emb.encoding.stacking import stack_rows
from recsys_emb.errors import DataError, EmptySourceError, counted
from recsys_emb.lookup.base import check_indices
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.lookup.history import HistoryEmbedding
from recsys_emb.lookup.numeric import NumericProjection
from recsys_emb.lookup.pooling import pooled_weights
from recsys_emb.schema.columns import Categorical, Keyed, MultiCategorical
from recsys_emb.schema.schema import Schema
from recsys_emb.training.objective import Objective
from recsys_emb.vocabulary.reserved import UNKNOWN_INDEX

# Lists that are pooled at a time, which takes ten times their memory.
_BLOCK = 2**16


def learnable(batch: Batch, schema: Schema, objective: Objective, *, where: str = "train") -> Batch:
    """Check rows before the first step; keep those that the objective learns, with weights of mean 1.

    A ranking objective learns the rows whose label is above 0, or all rows where there is no label. Only how weights
    compare says anything, so that their unit changes neither the steps nor what a learning rate means.

    Raises
    ------
    EmptySourceError
        When there are no rows, or no positives.
    DataError
        When a label, a weight or a number cannot be learned; the message names the column and counts the rows.
    """
    if not len(batch):
        remedy = "There is nothing to learn." if where == "train" else "Leave it out, or check its source."
        raise EmptySourceError(f"{where}: expected at least one row, got 0 rows. {remedy}")
    column = schema.label or "label"
    objective.check(batch.label, column)
    _check_numbers(batch, schema)
    if objective.contrast is None or batch.label is None:
        return _with_mean_weight(batch, schema)
    positives = (batch.label > 0).nonzero()[:, 0]
    if not len(positives):
        raise EmptySourceError(
            f"{column}: expected a label above 0, which marks what to rank first, got none in "
            f"{counted(len(batch), 'row')}. Learn the label with SquaredError() or Logistic()."
        )
    return _with_mean_weight(batch.select(positives), schema)


def _with_mean_weight(batch: Batch, schema: Schema) -> Batch:
    """Scale row weights to a mean of 1."""
    if batch.weight is None:
        return batch
    weight, name = batch.weight.double(), schema.weight or "weight"
    if not float(weight.sum()):
        raise EmptySourceError(
            f"{name}: expected a weight above 0, got none in {counted(len(batch), 'row')} to learn. "
            "Leave the weights out to count every row."
        )
    return replace(batch, weight=(weight / weight.mean()).to(batch.weight.dtype))


def _check_numbers(batch: Batch, schema: Schema) -> None:
    numbers = {name: column for name, column in batch.columns.items() if isinstance(column, Tensor)}
    for name, column in numbers.items():
        wrong = int((~column.isfinite()).flatten(1).any(1).sum()) if column.is_floating_point() else 0
        if wrong:
            raise DataError(
                f"{name}: expected finite numbers, got NaN or infinity in {counted(wrong, 'row')}. "
                "Encode the column as Numeric, which marks missing values."
            )
    if batch.weight is None:
        return
    name = schema.weight or "weight"
    wrong = int((~(batch.weight.isfinite() & (batch.weight >= 0))).sum())
    if wrong:
        raise DataError(
            f"{name}: expected finite weights of at least 0, got others in {counted(wrong, 'row')}. "
            "Drop or repair these rows."
        )


def check_ranges(batch: Batch, tables: FeatureEmbedding) -> None:
    """Refuse indices outside their tables, once for a whole run: kernels and pooled lookups do not look again."""
    for name in tables.names:
        column, size = batch[name], tables.lookup(name).num_embeddings
        indices = column.values if isinstance(column, Jagged) else column
        if not indices.is_floating_point() and batch.limits.get(name, size + 1) > size:
            check_indices(indices, size, name)


def with_pooling_weights(batch: Batch, schema: Schema) -> Batch:
    """Work out the pooling of lists once for a whole run: lists get their weights and at least one entry each."""
    lists = {
        feature.name: _pooled(batch.lists(feature.name), feature)
        for feature in schema.features
        if isinstance(feature, MultiCategorical) and feature.name in batch
    }
    return replace(batch, columns={**batch.columns, **lists})


def with_unknown(batch: Batch, schema: Schema, *, seed: int) -> Batch:
    """Apply ``unknown_dropout``: a share of each feature's occurrences, chosen once for a whole run, is unknown."""
    routed = {
        feature.name: _with_unknown(batch[feature.name], feature, np.random.default_rng([seed, place]))
        for place, feature in enumerate(schema.features)
        if isinstance(feature, (Categorical, MultiCategorical)) and feature.unknown_dropout
    }
    return replace(batch, columns={**batch.columns, **routed})


def forget_absent(tables: FeatureEmbedding, batch: Batch) -> None:
    """Set rows to zero that no training row names: what was never learned should add nothing.

    Rows that were given (pretrained vectors) stay, frozen tables too; so do lookups without a row per index.
    """
    present: dict[int, tuple[Tensor, Tensor]] = {}
    for name in tables.names:
        table = tables.lookup(name)
        if isinstance(table, NumericProjection) or not next(table.parameters()).requires_grad:
            continue
        storage = table.storage()
        if storage is None:
            continue
        column = table.lists() if isinstance(table, HistoryEmbedding) else batch[name]
        _, named = present.setdefault(id(table), (storage, storage.new_zeros(len(storage), dtype=torch.bool)))
        named[(column.values if isinstance(column, Jagged) else column).to(named.device)] = True
        named[table.given_rows.to(named.device)] = True
    for storage, named in present.values():
        storage[~named] = 0.0


def _pooled(lists: Jagged, feature: MultiCategorical) -> Jagged:
    blocks = [
        Batch({feature.name: pooled_weights(lists.slice(first, first + _BLOCK), feature.pooling)})
        for first in range(0, max(len(lists), 1), _BLOCK)
    ]
    return stack_rows(blocks).lists(feature.name)


def _with_unknown(column: Column, feature: Keyed, rng: np.random.Generator) -> Column:
    """Route a share of a feature's occurrences to its unknown rows; padding and missing stay."""
    indices = column.values if isinstance(column, Jagged) else column
    chosen = torch.from_numpy(rng.random(len(indices)) < feature.unknown_dropout).to(indices.device)
    real = indices >= UNKNOWN_INDEX + feature.unknown.rows
    routed = torch.where(chosen & real, UNKNOWN_INDEX + indices % feature.unknown.rows, indices)
    return Jagged(routed, column.offsets, column.weights) if isinstance(column, Jagged) else routed
