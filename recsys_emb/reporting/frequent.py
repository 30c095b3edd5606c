"""`FrequentValues`: which values of a stream occur most, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_emb.schema.tables import UnknownRow
from recsys_emb.vocabulary.vocabulary import Vocabulary, VocabularyBuilder

if TYPE_CHECKING:
    from recsys_emb.sources.keys import ArrowColumn

CAPACITY = 2**16


class FrequentValues:
    """Counts the values of a stream; of more than ``capacity`` distinct ones it keeps the frequent.

    Up to ``capacity`` distinct values all counts are exact. Beyond, the count of the first value that has no room is
    taken off every count, and what falls to 0 is dropped: counts are then too low by at most `error`, and every value
    that occurs more often than `error` is still there.

    Parameters
    ----------
    name
        What messages call the column.
    capacity
        Distinct values to remember; at times as many again, and those of one piece, are held beside them.

    References
    ----------
    Misra, J. and Gries, D. "Finding repeated elements." Science of Computer Programming 2, 1982.
    Agarwal, P. K. et al. "Mergeable summaries." PODS 2012 (counting in pieces).

    Examples
    --------
    >>> values = FrequentValues("colour", capacity=2)
    >>> for piece in (["red", "red", "blue"], ["red", "green", "blue"]):
    ...     values.add(pa.array(piece))
    >>> values.top(1), values.error, values.distinct
    ((('red', 2),), 1, 3)
    """

    def __init__(self, name: str, *, capacity: int = CAPACITY) -> None:
        self.name = name
        self._capacity = capacity
        self._error = self._distinct = 0
        self._kept = Vocabulary(name, pa.nulls(0), np.empty(0, np.int64), UnknownRow())
        self._recent = VocabularyBuilder(name)

    def add(self, values: ArrowColumn) -> None:
        """Count the values of a flat array; missing ones are left out."""
        self._recent.add(values)
        if len(self._recent) > self._capacity:
            self._settle()

    def top(self, count: int) -> tuple[tuple[object, int], ...]:
        """Give the ``count`` most frequent values with their counts, by count descending, then value ascending."""
        self._settle()
        values, counts = self._kept.values, self._kept.counts
        stored = values.storage if isinstance(values, pa.ExtensionArray) else values
        keys = [("count", "descending"), ("value", "ascending")]
        order = pc.sort_indices(pa.table({"value": stored, "count": counts}), sort_keys=keys)[:count]
        return tuple(zip(values.take(order).to_pylist(), counts[order.to_numpy()].tolist(), strict=True))

    @property
    def error(self) -> int:
        """By how much a count may be too low."""
        self._settle()
        return self._error

    @property
    def distinct(self) -> int:
        """How many distinct values there were; at least so many where `error` is above 0."""
        self._settle()
        return self._distinct

    def _settle(self) -> None:
        """Merge what came last into what is kept, and prune."""
        merged = self._kept.extended(self._recent)
        self._recent = VocabularyBuilder(self.name)
        counts = merged.counts
        self._distinct = max(self._distinct, len(counts))
        if len(counts) > self._capacity:
            surplus = int(np.partition(counts, -self._capacity - 1)[-self._capacity - 1])
            self._error += surplus
            counts -= surplus
        rows = np.flatnonzero(counts > 0)
        self._kept = Vocabulary(self.name, merged.values.take(pa.array(rows)), counts[rows], UnknownRow())
