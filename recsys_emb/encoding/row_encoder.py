"""Rows of a source, read with a fitted schema: Arrow columns go in, a `Batch` comes out."""

from __future__ import annotations

import copy
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from recsys_emb.encoding.batch import Batch, Column
from recsys_emb.encoding.columns import (
    CategoricalCodec,
    ColumnCodec,
    MultiCategoricalCodec,
    NumericCodec,
    PositionCodec,
)
from recsys_emb.encoding.crew import ALONE, Crew, crew
from recsys_emb.encoding.filling import Array, PerRow
from recsys_emb.encoding.learning import EncoderState
from recsys_emb.encoding.numbers import read_numbers, refuse_rows
from recsys_emb.encoding.stacking import stack_rows
from recsys_emb.encoding.values import declared_type
from recsys_emb.schema import Categorical, History, MultiCategorical, Numeric, Position, Schema
from recsys_emb.sources.frames import memory_part
from recsys_emb.sources.parts import Rows
from recsys_emb.sources.sources import Source


@dataclass(frozen=True)
class Answers:
    """Columns to read as label and weight, if any."""

    label: str | None = None
    weight: str | None = None

    @classmethod
    def of(cls, schema: Schema, source: Source) -> Answers:
        """Those that ``schema`` declares and ``source`` has."""
        found = [name if name is not None and source.has(name) else None for name in (schema.label, schema.weight)]
        return cls(*found)

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return [name for name in (self.label, self.weight) if name is not None]

    @property
    def codecs(self) -> tuple[AnswerCodec | None, AnswerCodec | None]:
        """How to read the label, and the weight."""
        label = None if self.label is None else AnswerCodec(self.label)
        return label, None if self.weight is None else AnswerCodec(self.weight, is_weight=True)


class RowEncoder:
    """Encodes rows with what a fit learned.

    Parameters
    ----------
    state
        What it learned.
    """

    def __init__(self, state: EncoderState) -> None:
        # No column is read for a History.
        features = [feature for feature in state.schema.features if not isinstance(feature, History)]
        self.codecs = {feature.name: _codec(feature, state) for feature in features}
        self.columns = list(state.schema.input_columns)
        self.types = folder_types(state.schema)
        self._limits = {name: codec.num_embeddings for name, codec in self.codecs.items()}

    def keeping(self, names: Sequence[str]) -> RowEncoder:
        """Copy that encodes the features called ``names`` alone; no other column need be there."""
        kept = copy.copy(self)
        kept.codecs = {name: self.codecs[name] for name in names}
        kept.columns = [column for codec in kept.codecs.values() for column in codec.columns]
        kept._limits = {name: self._limits[name] for name in names}
        return kept

    def encode(self, rows: Rows, answers: Answers, hands: Crew = ALONE) -> Batch:
        """Encode rows that were read with ``columns`` and those of ``answers``."""
        encoded = hands.map(operator.methodcaller("encode", rows), self.codecs.values())
        label, weight = (None if one is None else one.encode(rows) for one in answers.codecs)
        return Batch(dict(zip(self.codecs, encoded, strict=True)), label, weight, self._limits)

    def encode_all(self, source: Source, answers: Answers) -> Batch:
        """Encode all rows of a source: column by column, or else batch by batch."""
        names, num_rows = [*self.columns, *answers.columns], source.num_rows
        if not source.by_column or num_rows is None:
            batches = [self.encode(rows, answers) for rows in source.rows(names)]
            return stack_rows(batches) if batches else self.nothing(answers)
        source.check(names)

        def encoded(codec: ColumnCodec | AnswerCodec | None) -> Any:
            return None if codec is None else codec.encode_all(source.rows(codec.columns), num_rows)

        def cost(codec: ColumnCodec | AnswerCodec | None) -> int:
            return 0 if codec is None else source.size(codec.columns)

        with crew(num_rows) as hands:
            *columns, label, weight = hands.map(encoded, [*self.codecs.values(), *answers.codecs], cost=cost)
        return Batch(dict(zip(self.codecs, columns, strict=True)), label, weight, self._limits)

    def encode_row(self, row: Mapping[str, Any]) -> Batch:
        """Encode one row of Python values, several times faster than a table of one row, to the same batch."""
        try:
            found = {name: codec.encode_one(row) for name, codec in self.codecs.items()}
        except KeyError:
            memory_part(row).check(self.columns)
            raise
        indices = np.array([[one] for one in found.values() if isinstance(one, int)], np.int64)
        single = iter(torch.from_numpy(indices).unbind())  # far quicker than a tensor from each
        columns: dict[str, Column] = {}
        for name, one in found.items():
            if isinstance(one, int):
                columns[name] = next(single)
            else:
                columns[name] = _encode_value(self.codecs[name], row) if one is None else one
        return Batch(columns, limits=self._limits)

    def nothing(self, answers: Answers) -> Batch:
        """Encode no rows."""
        names = [*self.columns, *answers.columns]
        record = pa.RecordBatch.from_arrays([pa.nulls(0) for _ in names], names=names)
        return self.encode(Rows("", 0, record), answers)


def _codec(feature: Categorical | MultiCategorical | Position | Numeric, state: EncoderState) -> ColumnCodec:
    if isinstance(feature, Categorical):
        return CategoricalCodec(feature, state.vocabularies[feature.vocabulary_name])
    if isinstance(feature, MultiCategorical):
        return MultiCategoricalCodec(feature, state.vocabularies[feature.vocabulary_name])
    if isinstance(feature, Position):
        return PositionCodec(feature, np.array(state.positions[feature.name], np.int64))
    return NumericCodec(feature, state.numeric[feature.name])


def _encode_value(codec: ColumnCodec, row: Mapping[str, Any]) -> Column:
    """Encode one value the long way."""
    (rows,) = memory_part({name: [row[name]] for name in codec.columns}).rows(codec.columns)
    return codec.encode(rows)


def folder_types(schema: Schema) -> dict[str, pa.DataType]:
    """Types that columns from folder names are read as: what was declared, and numbers where numbers are meant."""
    numeric = [feature.name for feature in schema.features if isinstance(feature, (Numeric, Position))]
    numbers = [name for name in (*numeric, schema.label, schema.weight) if name is not None]
    declared = {feature.name: declared_type(feature) for feature in schema.keyed}
    return {**dict.fromkeys(numbers, pa.float64()), **{name: kind for name, kind in declared.items() if kind}}


class AnswerCodec(PerRow):
    """A label, or a weight, per row → float32 ``(B,)``."""

    dtype = np.float32

    def __init__(self, name: str, *, is_weight: bool = False) -> None:
        self.columns = [name]
        self._is_weight = is_weight

    def write(self, rows: Rows, out: Array) -> None:
        """Read the numbers, all of them finite; weights are at least 0."""
        (name,) = self.columns
        where = rows.where(name)
        with np.errstate(over="ignore"):
            out[:] = read_numbers(rows.column(name), where)
        refuse_rows(~np.isfinite(out), where, "finite float32 numbers", "missing, infinite or larger ones", rows.start)
        if self._is_weight:
            refuse_rows(out < 0, where, "weights of at least 0", "negative ones", rows.start)
