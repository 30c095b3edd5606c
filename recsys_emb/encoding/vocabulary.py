"""`Vocabulary`: value ↔ index (first simple version; being replaced by the fast one, same interface)."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from recsys_emb.encoding.batch import MISSING_INDEX, UNKNOWN_INDEX
from recsys_emb.encoding.keys import to_arrow
from recsys_emb.errors import IndexRangeError, KeyTypeError, UnknownValueError, listed
from recsys_emb.schema import RefuseUnknown, Unknown, UnknownBuckets, UnknownRow


def _canonical(values: list[object]) -> list[object]:
    return [
        None if value is None or value != value else int(value) if isinstance(value, float) and value.is_integer() else value
        for value in values
    ]


def _hash(value: object, count: int) -> int:
    return int.from_bytes(hashlib.blake2b(repr(value).encode(), digest_size=8).digest(), "little") % count


class VocabularyBuilder:
    """Counts keys."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tally: Counter[Any] = Counter()

    def add(self, values: pa.Array | pa.ChunkedArray, *, where: str | None = None) -> None:
        """Count values."""
        del where
        self.tally.update(value for value in _canonical(values.to_pylist()) if value is not None)

    def build(self, *, min_count: int = 1, max_size: int | None = None, unknown: Unknown = UnknownRow()) -> Vocabulary:
        """Freeze."""
        ranked = sorted((i for i in self.tally.items() if i[1] >= min_count), key=lambda item: (-item[1], item[0]))
        ranked = ranked[:max_size]
        return Vocabulary(self.name, [v for v, _ in ranked], [c for _, c in ranked], unknown)


class Vocabulary:
    """Value ↔ index."""

    def __init__(self, name: str, values: list[Any], counts: list[int], unknown: Unknown) -> None:
        self.name, self.unknown = name, unknown
        self._values = values
        self.counts = np.array(counts, dtype=np.int64)
        self._index = {value: self.first_index + i for i, value in enumerate(values)}

    @classmethod
    def from_values(
        cls, values: Any, *, name: str = "values", min_count: int = 1, max_size: int | None = None, unknown: Unknown = UnknownRow()
    ) -> Vocabulary:
        """Fit."""
        builder = VocabularyBuilder(name)
        builder.add(to_arrow(values, name))
        return builder.build(min_count=min_count, max_size=max_size, unknown=unknown)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def first_index(self) -> int:
        """Index of the first value."""
        return UNKNOWN_INDEX + self.unknown.rows

    @property
    def num_embeddings(self) -> int:
        """Rows of a table."""
        return self.first_index + len(self)

    @property
    def values(self) -> pa.Array:
        """Values in index order."""
        return pa.array(self._values)

    def encode(self, values: Any, *, where: str | None = None) -> torch.Tensor:
        """Values to indices."""
        keys = _canonical(to_arrow(values, where or self.name).to_pylist())
        kinds = {type(key) for key in keys if key is not None}
        own = {type(value) for value in self._values}
        if own and any(k not in own and not {k, *own} <= {int, float} for k in kinds):
            raise KeyTypeError(f"{where or self.name}: expected {listed(own)} keys, got {listed(kinds)}. Convert the column.")
        unseen = [key for key in keys if key is not None and key not in self._index]
        if unseen and isinstance(self.unknown, RefuseUnknown):
            raise UnknownValueError(f"{where or self.name}: expected known values, got {listed(unseen)}. Fit them first.")
        return torch.tensor([self._one(key) for key in keys], dtype=torch.int64)

    def _one(self, key: Any) -> int:
        if key is None:
            return MISSING_INDEX
        if key in self._index:
            return self._index[key]
        return UNKNOWN_INDEX + (_hash(key, self.unknown.rows) if isinstance(self.unknown, UnknownBuckets) else 0)

    def decode(self, indices: Any) -> list[object]:
        """Indices to Python values."""
        return self.take(indices).to_pylist()

    def take(self, indices: Any) -> pa.Array:
        """Indices to an Arrow array."""
        rows = np.asarray(indices, dtype=np.int64).reshape(-1)
        if len(rows) and not (0 <= rows.min() and rows.max() < self.num_embeddings):
            bad = rows[(rows < 0) | (rows >= self.num_embeddings)][0]
            raise IndexRangeError(f"{self.name}: expected indices in [0, {self.num_embeddings}), got {bad}. Encode with this vocabulary.")
        return self.values.take(pa.array(rows - self.first_index, mask=rows < self.first_index))

    def __contains__(self, value: object) -> bool:
        return _canonical([value])[0] in self._index

    def to_frame(self) -> pd.DataFrame:
        """Table of value, index, count."""
        index = np.arange(len(self)) + self.first_index
        return pd.DataFrame({"value": self._values, "index": index, "count": self.counts})

    def extended(self, builder: VocabularyBuilder, *, min_count: int = 1, max_size: int | None = None) -> Vocabulary:
        """Append new values."""
        fresh = [i for i in builder.tally.items() if i[0] not in self._index and i[1] >= min_count]
        fresh = sorted(fresh, key=lambda item: (-item[1], item[0]))[: None if max_size is None else max(0, max_size - len(self))]
        counts = [int(c) + builder.tally[v] for v, c in zip(self._values, self.counts, strict=True)]
        return Vocabulary(self.name, self._values + [v for v, _ in fresh], counts + [c for _, c in fresh], self.unknown)

    @property
    def fingerprint(self) -> str:
        """Hash of the content."""
        return hashlib.sha256(repr((self._values, self.unknown)).encode()).hexdigest()

    def to_table(self) -> pa.Table:
        """Persist."""
        return pa.table({"value": self.values, "count": self.counts})

    @classmethod
    def from_table(cls, table: pa.Table, *, name: str, unknown: Unknown) -> Vocabulary:
        """Restore."""
        return cls(name, table["value"].to_pylist(), table["count"].to_pylist(), unknown)
