"""Encoded rows as Arrow tables and back, without loss.

An index is an integer, a list of indices a list of such (with weights, of pairs), a number its standardised value and
null where it is missing, a label or weight a float32. Columns keep their names.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch, Column, Jagged
from recsys_emb.encoding.crew import ALONE, Crew
from recsys_emb.encoding.filling import Array
from recsys_emb.encoding.row_encoder import Answers
from recsys_emb.errors import DataError
from recsys_emb.schema import History, MultiCategorical, Numeric, Schema
from recsys_emb.sources.lists import read_lists
from recsys_emb.sources.parts import Rows

_SMALL = 2**31


def to_table(batch: Batch, answers: Answers) -> pa.Table:
    """Lay encoded rows out as a table.

    Examples
    --------
    >>> batch = Batch({"user": torch.tensor([3, 4]), "age": torch.tensor([[0.5, 0], [0, 1]])}, limits={"user": 9})
    >>> to_table(batch, Answers()).to_pydict()
    {'user': [3, 4], 'age': [0.5, None]}
    """
    columns = {name: _array(column, batch.limits.get(name, 0)) for name, column in batch.columns.items()}
    for name, given in ((answers.label, batch.label), (answers.weight, batch.weight)):
        if name is not None and given is not None:
            columns[name] = pa.array(given.numpy())
    return pa.table(columns)


def _array(column: Column, limit: int) -> pa.Array:
    if isinstance(column, Jagged):
        values = _indices(column.values, limit)
        if column.weights is not None:
            pair = {"index": values, "weight": pa.array(column.weights.numpy())}
            values = pa.StructArray.from_arrays(list(pair.values()), names=list(pair))
        return pa.LargeListArray.from_arrays(pa.array(column.offsets.numpy()), values)
    if column.is_floating_point():
        numbers = column.numpy()
        return pa.array(numbers[:, 0].copy(), mask=numbers[:, 1] == 1)
    return _indices(column, limit)


def _indices(indices: Tensor, limit: int) -> pa.Array:
    return pa.array(indices.numpy().astype(np.int32 if 0 < limit <= _SMALL else np.int64))


class EncodedReader:
    """Reads what `to_table` laid out; stands where a `RowEncoder` does.

    Parameters
    ----------
    schema
        Of the rows.
    limits
        By feature, the rows of its table.
    """

    def __init__(self, schema: Schema, limits: Mapping[str, int]) -> None:
        self._features = {one.name: one for one in schema.features if not isinstance(one, History)}
        self._limits = dict(limits)
        self.columns = list(self._features)

    def encode(self, rows: Rows, answers: Answers, hands: Crew = ALONE) -> Batch:
        """Give the batch of rows that were read with ``columns`` and those of ``answers``.

        Raises
        ------
        DataError
            When an index is outside its table.
        """
        columns = dict(zip(self.columns, hands.map(lambda name: self._column(rows, name), self.columns), strict=True))
        label, weight = (
            None if name is None else torch.from_numpy(_numpy(rows.column(name), np.float32))
            for name in (answers.label, answers.weight)
        )
        return Batch(columns, label, weight, self._limits)

    def nothing(self, answers: Answers) -> Batch:
        """Give the batch of no rows."""
        names = [*self.columns, *answers.columns]
        arrays = [pa.array([], self._type(name)) for name in names]
        return self.encode(Rows("", 0, pa.RecordBatch.from_arrays(arrays, names=names)), answers)

    def _type(self, name: str) -> pa.DataType:
        feature = self._features.get(name)
        if isinstance(feature, MultiCategorical):
            pair = pa.struct({"index": pa.int32(), "weight": pa.float32()})
            return pa.large_list(pa.int32() if feature.weights is None else pair)
        return pa.float32() if feature is None or isinstance(feature, Numeric) else pa.int32()

    def _column(self, rows: Rows, name: str) -> Column:
        feature, array = self._features[name], rows.column(name)
        if isinstance(feature, Numeric):
            pairs = [_numpy(array.fill_null(0), np.float32), _numpy(array.is_null().cast(pa.uint8()), np.float32)]
            return torch.from_numpy(np.stack(pairs, axis=1))
        if not isinstance(feature, MultiCategorical):
            return self._checked(array, rows, name)
        lists = read_lists(array, rows.where(name))
        if feature.weights is None:
            return Jagged(self._checked(lists.values, rows, name), torch.from_numpy(lists.offsets))
        weights = _numpy(pc.struct_field(lists.values, "weight"), np.float32)
        values = self._checked(pc.struct_field(lists.values, "index"), rows, name)
        return Jagged(values, torch.from_numpy(lists.offsets), torch.from_numpy(weights))

    def _checked(self, array: pa.Array, rows: Rows, name: str) -> Tensor:
        indices, limit = _numpy(array, np.int64), self._limits[name]
        if len(indices) and not 0 <= indices.min() <= indices.max() < limit:
            raise DataError(
                f"{rows.where(name)}: expected indices in [0, {limit}), got {indices.min()} to {indices.max()}. "
                "Encode again with transform_to."
            )
        return torch.from_numpy(indices)


def _numpy(array: pa.Array, dtype: type) -> Array:
    """Copy numbers without nulls into an array that may be written."""
    return np.array(array.to_numpy(zero_copy_only=False), dtype)
