"""A source seen through a fitted encoder: rows go in as Arrow, come out as batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch
from recsys_emb.encoding.columns import (
    CategoricalCodec,
    ColumnCodec,
    MultiCategoricalCodec,
    NumericCodec,
    PositionCodec,
)
from recsys_emb.encoding.learning import EncoderState
from recsys_emb.encoding.numbers import read_numbers, refuse_rows
from recsys_emb.encoding.parts import Rows
from recsys_emb.schema import Categorical, History, MultiCategorical, Numeric, Position, Schema


@dataclass(frozen=True)
class RowEncoder:
    """Encodes rows that were read with ``columns``.

    Parameters
    ----------
    codecs
        By feature name.
    label, weight
        Columns to read as such, if any.
    """

    schema: Schema
    codecs: Mapping[str, ColumnCodec]
    label: str | None = None
    weight: str | None = None

    @property
    def columns(self) -> list[str]:
        """Columns to read."""
        return [*self.schema.input_columns, *(name for name in (self.label, self.weight) if name is not None)]

    def encode(self, rows: Rows) -> Batch:
        """Encode one piece of a source."""
        columns = {name: codec.encode(rows) for name, codec in self.codecs.items()}
        label = None if self.label is None else _read_label(rows, self.label)
        weight = None if self.weight is None else _read_weight(rows, self.weight)
        return Batch(columns, label, weight, {name: codec.num_embeddings for name, codec in self.codecs.items()})

    def nothing(self) -> Batch:
        """Encode no rows."""
        arrays = [pa.nulls(0) for _ in self.columns]
        return self.encode(Rows("", 0, pa.RecordBatch.from_arrays(arrays, names=self.columns)))


def codecs_of(state: EncoderState) -> dict[str, ColumnCodec]:
    """Codecs of all features but `History`, for which no column is read."""
    features = [feature for feature in state.schema.features if not isinstance(feature, History)]
    return {feature.name: _codec(feature, state) for feature in features}


def _codec(feature: Categorical | MultiCategorical | Position | Numeric, state: EncoderState) -> ColumnCodec:
    if isinstance(feature, Categorical):
        return CategoricalCodec(feature, state.vocabularies[feature.vocabulary_name])
    if isinstance(feature, MultiCategorical):
        return MultiCategoricalCodec(feature, state.vocabularies[feature.vocabulary_name])
    if isinstance(feature, Position):
        return PositionCodec(feature, np.array(state.positions[feature.name], np.int64))
    return NumericCodec(feature, state.numeric[feature.name])


def folder_types(schema: Schema) -> dict[str, pa.DataType]:
    """Types that columns from folder names are read as: what was declared, and numbers where numbers are meant."""
    numeric = [feature.name for feature in schema.features if isinstance(feature, (Numeric, Position))]
    numbers = [name for name in (*numeric, schema.label, schema.weight) if name is not None]
    declared = {one.name: pa.type_for_alias(one.dtype) for one in schema.keyed if one.dtype is not None}
    return {**dict.fromkeys(numbers, pa.float64()), **declared}


def _read_label(rows: Rows, name: str) -> Tensor:
    with np.errstate(over="ignore"):
        numbers = read_numbers(rows.column(name), rows.where(name)).astype(np.float32)
    bad = ~np.isfinite(numbers)
    refuse_rows(bad, rows.where(name), "finite float32 numbers", "missing, infinite or larger ones", rows.start)
    return torch.from_numpy(numbers)


def _read_weight(rows: Rows, name: str) -> Tensor:
    weights = _read_label(rows, name)
    refuse_rows((weights < 0).numpy(), rows.where(name), "weights of at least 0", "negative ones", rows.start)
    return weights
