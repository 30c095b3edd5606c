"""What the columns of a source hold: types, cardinalities, and which column decides which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from recsys_emb.errors import ColumnError, RecsysEmbError
from recsys_emb.sources.arrow_types import is_list, is_number, is_text, type_name
from recsys_emb.sources.frames import memory_part
from recsys_emb.sources.lists import read_lists
from recsys_emb.sources.parts import Rows
from recsys_emb.sources.sources import Source, open_source
from recsys_emb.vocabulary.vocabulary import Vocabulary, VocabularyBuilder

# So many pairs of equals are expected of numbers that are drawn: with none, the chance is e^-8.
_MEETINGS = 8
_DATE = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?$"


@dataclass(frozen=True)
class ColumnFacts:
    """What is known about one column.

    Parameters
    ----------
    name
        Of the column.
    type
        Arrow type of its rows; of the values in a dictionary column.
    codes
        int64 ``(N,)``: equal rows have equal codes, 0 is missing; None where the column holds no keys. An empty list
        is not missing.
    values
        Distinct values, or the distinct elements of lists.
    """

    name: str
    type: pa.DataType
    num_rows: int
    missing: int
    codes: npt.NDArray[np.int64] | None = None
    values: pa.Array | None = None

    @property
    def type_name(self) -> str:
        """Type as messages name it."""
        return type_name(self.type)

    @property
    def is_number(self) -> bool:
        """Whether there is a number per row."""
        return is_number(self.type)

    @property
    def is_list(self) -> bool:
        """Whether there is a list per row."""
        return is_list(self.type)

    @property
    def distinct(self) -> int:
        """How many distinct values there are, or elements of lists; missing ones aside."""
        return 0 if self.values is None else len(self.values)

    @cached_property
    def is_constant(self) -> bool:
        """Whether all rows but the missing ones are the same."""
        return self.codes is not None and len(np.unique(self.codes[self.codes > 0])) == 1

    @property
    def is_serial(self) -> bool:
        """Whether no integer is there twice, as with the numbers of orders."""
        return pa.types.is_integer(self.type) and self.distinct == self.num_rows - self.missing

    @property
    def is_dense(self) -> bool:
        """Whether integers drawn from as wide a range would hardly all be distinct."""
        least, most = pc.min_max(self.values).as_py().values()
        pairs = self.distinct * (self.distinct - 1) / 2
        return bool(pairs > _MEETINGS * (most - least + 1))

    @property
    def holds_dates(self) -> bool:
        """Whether all values are times, of a type of their own or as text."""
        if self.values is None or not is_text(self.type):
            return bool(pa.types.is_temporal(self.type))
        return bool(pc.all(pc.match_substring_regex(self.values, _DATE), min_count=1).as_py())

    def decides(self, other: ColumnFacts) -> bool:
        """Whether rows that agree here agree in ``other`` too."""
        if self.codes is None or other.codes is None:
            return False
        pairs = self.codes * (other.codes.max(initial=0) + 1) + other.codes
        return len(np.unique(pairs)) == len(np.unique(self.codes))

    def holds_only_values_of(self, other: ColumnFacts) -> bool:
        """Whether every value here is one of the values there."""
        if self.values is None or other.values is None or self.values.type != other.values.type:
            return False
        return bool(pc.all(pc.is_in(self.values, value_set=other.values)).as_py())


def survey(source: Any, max_rows: int) -> list[ColumnFacts]:
    """Look at every column in the first ``max_rows`` rows of a source; columns that are there twice are left out.

    Raises
    ------
    ColumnError
        When columns differ in length.
    """
    opened = open_source(source)
    names = list(dict.fromkeys(name for part in opened.parts for name in part.columns))
    once = [name for name in names if all(part.columns.count(name) == 1 for part in opened.parts)]
    if not opened.repeatable:
        opened = _held(opened, once, max_rows)
    found = [_facts(opened, name, max_rows) for name in once]
    sizes = {facts.name: facts.num_rows for facts in found if facts.num_rows}
    if len(set(sizes.values())) > 1:
        raise ColumnError(f"Schema.infer: expected columns of equal length, got {sizes!r}. Give every row a value.")
    return found


def _held(source: Source, names: list[str], max_rows: int) -> Source:
    return Source(tuple(memory_part(rows.record) for rows in _first(source.rows(names), max_rows)))


def _first(stream: Iterator[Rows], max_rows: int) -> Iterator[Rows]:
    for rows in stream:
        yield rows.slice(0, min(len(rows), max_rows))
        max_rows -= len(rows)
        if max_rows <= 0:
            return


def _facts(source: Source, name: str, max_rows: int) -> ColumnFacts:
    try:
        chunks = [rows.column(name) for rows in _first(source.rows([name]), max_rows)]
    except RecsysEmbError:
        return ColumnFacts(name, pa.null(), 0, 0)
    kind = next((chunk.type for chunk in chunks if not pa.types.is_null(chunk.type)), pa.null())
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    num_rows = sum(len(chunk) for chunk in chunks)
    try:
        codes, values = _list_codes(chunks, name) if is_list(kind) else _key_codes(chunks, name)
    except (RecsysEmbError, pa.ArrowException):
        return ColumnFacts(name, kind, num_rows, sum(chunk.null_count for chunk in chunks))
    return ColumnFacts(name, kind, num_rows, int((codes == 0).sum()), codes, values)


def _key_codes(chunks: list[pa.Array], name: str) -> tuple[npt.NDArray[np.int64], pa.Array]:
    vocabulary = _vocabulary(chunks, name)
    encoded = [vocabulary.encode(chunk).numpy() for chunk in chunks]
    return np.concatenate([np.zeros(0, np.int64), *encoded]).clip(1) - 1, vocabulary.values


def _list_codes(chunks: list[pa.Array], name: str) -> tuple[npt.NDArray[np.int64], pa.Array]:
    lists = [read_lists(chunk, name) for chunk in chunks]
    vocabulary = _vocabulary([one.values for one in lists], name)
    rows: list[tuple[int, ...]] = []
    for one in lists:
        indices = vocabulary.encode(one.values).tolist()
        rows += [tuple(indices[one.offsets[row] : one.offsets[row + 1]]) for row in range(len(one.lengths))]
    missing = np.concatenate(
        [np.zeros(0, bool), *(chunk.is_null(nan_is_null=True).to_numpy(zero_copy_only=False) for chunk in chunks)]
    )
    codes = pd.factorize(pd.Series(rows, dtype=object))[0].astype(np.int64) + 1
    return np.where(missing, 0, codes), vocabulary.values


def _vocabulary(chunks: list[pa.Array], name: str) -> Vocabulary:
    builder = VocabularyBuilder(name)
    for chunk in chunks:
        builder.add(chunk)
    return builder.build()
