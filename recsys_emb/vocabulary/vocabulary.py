"""`Vocabulary`: value ↔ index, born fitted and append-only; and `VocabularyBuilder`, which counts its values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from recsys_emb.errors import DataError, IndexRangeError, KeyTypeError, UnknownValueError, counted, listed
from recsys_emb.schema.tables import RefuseUnknown, Unknown, UnknownRow
from recsys_emb.sources.keys import ArrowColumn, Integers, Values, to_arrow, to_keys
from recsys_emb.vocabulary.fingerprints import fingerprint_of
from recsys_emb.vocabulary.identity import plain, split
from recsys_emb.vocabulary.key_counts import KeyCounts
from recsys_emb.vocabulary.key_index import KeyIndex
from recsys_emb.vocabulary.kinds import join, restore
from recsys_emb.vocabulary.reserved import UNKNOWN_INDEX

if TYPE_CHECKING:
    from recsys_emb.vocabulary.storage import Indices


class VocabularyBuilder(KeyCounts):
    """Counts the values of a column that streams by, then freezes them into a `Vocabulary`.

    The result is a function of the multiset of values alone: not of their order, of how they are cut into arrays,
    or of the types of these arrays. For one writer; memory grows with the distinct values.

    Examples
    --------
    >>> builder = VocabularyBuilder("item_id")
    >>> builder.add(pa.array([30, 10, 30]))
    >>> builder.add(pa.array([20.0, None, 10.0]))
    >>> builder.build().values.to_pylist()
    [10, 30, 20]
    """

    def build(self, *, min_count: int = 1, max_size: int | None = None, unknown: Unknown = UnknownRow()) -> Vocabulary:
        """Freeze the values seen at least ``min_count`` times, of these the first ``max_size`` in order."""
        return Vocabulary(self.name, *self.ranked(min_count=min_count, max_size=max_size), unknown)


class Vocabulary:
    """Value ↔ index of one column, or of several that share it.

    Indices 0, 1 and from 2 on are reserved for padding, missing and unknown values; then come the values, by count
    descending, then value ascending (text by its UTF-8 bytes). An index is for life: `extended` appends, and with
    `UnknownBuckets` an unknown value always takes row ``2 + stable_hash(value) % count`` (see
    `recsys_emb.kernels.stable_hash`).

    A value is the same key in every container: 5, 5.0 and the dictionary entry 5 are one, the text ``"5"`` is
    another, and None, NaN, NaT and nulls are missing. Text is compared byte by byte, nothing is trimmed or
    normalised. Read it from any number of threads; pickle it to other processes.

    Examples
    --------
    >>> vocabulary = Vocabulary.from_values(["red", "blue", "red", None], name="colour")
    >>> vocabulary.encode(["blue", "red", "green", None])
    tensor([4, 3, 2, 1])
    >>> vocabulary.decode([3, 4, 1])
    ['red', 'blue', None]
    >>> vocabulary.to_frame()
      value  index  count
    0   red      3      2
    1  blue      4      1
    >>> vocabulary.encode([7])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    recsys_emb.errors.KeyTypeError: colour: expected text keys, got integer (7). Convert the column to text before ...
    """

    def __init__(
        self,
        name: str,
        values: pa.Array,
        counts: Indices,
        unknown: Unknown,
        *,
        lazily: bool = False,
        index: KeyIndex | None = None,
    ) -> None:
        self.name = name
        self.unknown = unknown
        self._ranked: tuple[pa.Array, Indices] = values, counts
        self._refuses = isinstance(unknown, RefuseUnknown)
        self._index = index or KeyIndex(values, unknown_rows=unknown.rows, lazily=lazily)
        self._fingerprints: dict[int, str] = {}

    @classmethod
    def from_values(
        cls,
        values: Values,
        *,
        name: str = "values",
        min_count: int = 1,
        max_size: int | None = None,
        unknown: Unknown = UnknownRow(),
    ) -> Vocabulary:
        """Fit on a one-dimensional array-like: pandas, numpy, Arrow, Polars, torch, or a list.

        Parameters
        ----------
        values
            The column; missing values are left out.
        name
            What messages call it.
        min_count, max_size, unknown
            As in `recsys_emb.Categorical`.

        Raises
        ------
        KeyTypeError
            When the values cannot be keys or are of several kinds.
        """
        builder = VocabularyBuilder(name)
        builder.add(to_arrow(values, name))
        return builder.build(min_count=min_count, max_size=max_size, unknown=unknown)

    def __repr__(self) -> str:
        return f"Vocabulary({self.name!r}, {counted(len(self), f'{self.values.type} value')}, {self.unknown!r})"

    def __len__(self) -> int:
        """Count the real values."""
        return len(self._values)

    @property
    def first_index(self) -> int:
        """Index of the first value; smaller ones are reserved."""
        return UNKNOWN_INDEX + self.unknown.rows

    @property
    def num_embeddings(self) -> int:
        """Rows of a table over this vocabulary, reserved ones included."""
        return self.first_index + len(self)

    @property
    def values(self) -> pa.Array:
        """Values in index order, in their own type."""
        return self._values

    @property
    def _values(self) -> pa.Array:
        return self._ranked[0]

    @property
    def _counts(self) -> Indices:
        return self._ranked[1]

    @property
    def index(self) -> KeyIndex:
        """What finds the indices of values."""
        return self._index

    @property
    def counts(self) -> Indices:
        """int64 ``(len,)``, how often each value was seen, in index order; a copy."""
        return self._counts.copy()

    def encode(self, values: Values, *, where: str | None = None) -> torch.Tensor:
        """Turn values into indices.

        Parameters
        ----------
        values
            One-dimensional array-like as in `from_values`, of N values.
        where
            What messages call the column; the vocabulary's name by default.

        Returns
        -------
        torch.Tensor
            int64 ``(N,)``, each in ``[1, num_embeddings)``.

        Raises
        ------
        KeyTypeError
            When the values are of another kind than the vocabulary's, or not one-dimensional.
        UnknownValueError
            When a value is unknown and the vocabulary says `RefuseUnknown`.
        """
        where = where or self.name
        column = to_keys(values, where)
        indices = np.empty(len(column), np.int64)
        self.encode_into(column, indices, where=where)
        return torch.from_numpy(indices)

    def encode_into(self, column: ArrowColumn | Integers, out: Indices, *, where: str) -> None:
        """As `encode`, for what `to_keys` gives of N values, into ``out`` int64 ``(N,)``."""
        self._index.find(column, out, where)
        if self._refuses:
            self._refuse_unknown(column, out, where)

    def encode_one(self, value: object) -> int | None:
        """Index of one Python value where that is plain to see: an integer, a text, or None.

        Returns
        -------
        int or None
            The index that `encode` gives; None where only `encode` can tell: for another type, for the text of an
            integer vocabulary, for an unknown value that has a bucket or is refused.

        Examples
        --------
        >>> vocabulary = Vocabulary.from_values([7, 5, 7])
        >>> vocabulary.encode_one(5), vocabulary.encode_one(5.0), vocabulary.encode_one(6), vocabulary.encode_one("5")
        (4, 4, 2, None)
        """
        index = self._index.find_one(value)
        return None if index == UNKNOWN_INDEX and self._refuses else index

    def rows_of(self, other: Vocabulary) -> torch.Tensor:
        """Find the values of another vocabulary, in its order: their indices here, int64 ``(len(other),)``.

        Raises
        ------
        KeyTypeError
            When the other one's keys are of another kind.
        """
        return torch.from_numpy(self._index.find_all(other.values, other.name))

    def _refuse_unknown(self, values: ArrowColumn | Integers, indices: Indices, where: str) -> None:
        column, rows = to_arrow(values, where), np.flatnonzero(indices == UNKNOWN_INDEX)
        if len(rows):
            strangers = dict.fromkeys(column[row].as_py() for row in rows.tolist())
            raise UnknownValueError(
                f"{where}: expected values of the vocabulary, got {listed(strangers)}. "
                "Fit on them, or declare unknown=UnknownRow()."
            )

    def unknown_indices(self, rows: Indices) -> torch.Tensor:
        """Give the index that each of some values, by number from 0, has where it is unknown: int64 ``(N,)``.

        What a value read before it was known, and reads again where it is forgotten.
        """
        return torch.from_numpy(self._index.unknown(self._picked(rows)))

    def decode(self, indices: Values) -> list[object]:
        """Turn indices (tensor, array or list of integers, flattened) into Python values; reserved ones into None.

        Raises
        ------
        IndexRangeError
            When an index is negative or not below `num_embeddings`.

        Notes
        -----
        Python's times end at microseconds; `take` is exact for nanoseconds too.
        """
        decoded: list[object] = self.take(indices).to_pylist()
        return decoded

    def take(self, indices: Values) -> pa.Array:
        """Turn indices into an Arrow array of the type of `values`, null where they are reserved.

        Raises
        ------
        IndexRangeError
            When an index is negative or not below `num_embeddings`.
        """
        array = indices.detach().cpu().numpy() if isinstance(indices, torch.Tensor) else np.asarray(indices)
        if array.size and array.dtype.kind not in "iu":
            raise KeyTypeError(f"{self.name}: expected integer indices, got {array.dtype}. Pass what encode() returns.")
        rows = array.reshape(-1).astype(np.int64)
        outside = (rows < 0) | (rows >= self.num_embeddings)
        if outside.any():
            strangers = listed(dict.fromkeys(rows[outside].tolist()))
            raise IndexRangeError(
                f"{self.name}: expected indices in [0, {self.num_embeddings}), got {strangers}. "
                "Decode with the vocabulary that encoded."
            )
        return self._picked(rows - self.first_index)

    def _picked(self, rows: Indices) -> pa.Array:
        """Values by number from 0; null where it is negative."""
        return self._values.take(pa.array(rows, mask=rows < 0))

    def __contains__(self, value: object) -> bool:
        """Whether ``value`` is a real value of the vocabulary; False for missing ones and for other kinds."""
        try:
            index = self._index.find_all(to_arrow([value], self.name), self.name)
        except KeyTypeError:
            return False
        return bool(index[0] >= self.first_index)

    def to_frame(self) -> pd.DataFrame:
        """Table of ``value``, ``index``, ``count``, real values only."""
        indices = np.arange(self.first_index, self.num_embeddings)
        return pd.DataFrame({"value": self._values.to_pandas(), "index": indices, "count": self._counts})

    def extended(self, builder: VocabularyBuilder, *, min_count: int = 1, max_size: int | None = None) -> Vocabulary:
        """Append what ``builder`` counted; this vocabulary stays as it is.

        Old values keep their indices and add up their counts. New ones follow, by count descending, then value
        ascending, if they were counted ``min_count`` times by this builder, until there are ``max_size`` values in
        all.

        Raises
        ------
        KeyTypeError
            When the builder counted keys of another kind.
        """
        values, counts = builder.ranked()
        indices = self._index.find_all(values, builder.name)
        known = indices >= self.first_index
        grown = self._counts.copy()
        grown[indices[known] - self.first_index] += counts[known]
        rows = np.flatnonzero(~known & (counts >= min_count))
        rows = rows if max_size is None else rows[: max(0, max_size - len(self))]
        parts = join(split(self._values, self.name), split(values.take(pa.array(rows)), self.name))
        return Vocabulary(self.name, restore(parts, self.name), np.concatenate([grown, counts[rows]]), self.unknown)

    @property
    def fingerprint(self) -> str:
        """Hash of the values in order, their kind and the rule for unknown ones; not of the counts."""
        return self.fingerprint_of(len(self))

    def fingerprint_of(self, size: int) -> str:
        """Give the fingerprint of the vocabulary of the first ``size`` values, of which this one may have grown."""
        if size not in self._fingerprints:
            values = self._values[:size]
            self._fingerprints[size] = fingerprint_of(lambda: [values], self.unknown, self.name)
        return self._fingerprints[size]

    def to_table(self) -> pa.Table:
        """Table of ``value`` and ``count`` in index order; Parquet holds it without loss, and `from_table` reads it."""
        return pa.table({"value": self._values, "count": self._counts})

    @classmethod
    def from_table(
        cls, table: pa.Table, *, name: str, unknown: Unknown, lazily: bool = False, fingerprint: str | None = None
    ) -> Vocabulary:
        """Read what `to_table` wrote.

        ``lazily`` builds the table of many values only when enough is asked for, and looks for repeats then; who
        knows the ``fingerprint`` spares taking it again.

        Raises
        ------
        DataError
            When a column is absent, or a value missing or there twice.
        """
        if not {"value", "count"} <= set(table.column_names):
            raise DataError(
                f"{name}: expected columns 'value', 'count', got {listed(table.column_names)}. Use to_table()."
            )
        values, counts = whole(table["value"]), whole(table["count"]).cast(pa.int64())
        parts = split(plain(values), name)
        gaps = len(values) - sum(len(part.keys) - part.keys.null_count for part in parts) + counts.null_count
        vocabulary = None if gaps else cls(name, restore(parts, name), counts.to_numpy(), unknown, lazily=lazily)
        if vocabulary is None or (not lazily and vocabulary._index.repeated):
            raise DataError(f"{name}: expected distinct values and their counts, got gaps or repeats. Use to_table().")
        if fingerprint is not None:
            vocabulary._fingerprints[len(vocabulary)] = fingerprint
        return vocabulary

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the data; the tables are built anew."""
        return Vocabulary, (self.name, self._values, self._counts, self.unknown)


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Give a column in one piece, without a copy where it is in one."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
