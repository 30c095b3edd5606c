"""How often each key occurs, counted as the column streams by."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_emb import kernels
from recsys_emb.errors import KeyTypeError
from recsys_emb.vocabulary.identity import plain, split
from recsys_emb.vocabulary.key_index import examples
from recsys_emb.vocabulary.kinds import Kind, Part, agree, join, restore, spokesman
from recsys_emb.vocabulary.storage import BYTE_STRINGS, Indices, integer_column

if TYPE_CHECKING:
    from recsys_emb.sources.keys import ArrowColumn

_NUMBERS = (pa.int64(), pa.uint64(), pa.float64())
_BYTE_STRINGS = (pa.large_string(), pa.large_binary())
_ONCE = np.empty(0, np.int64)  # no weights


class KeyCounts:
    """Distinct keys of a column, called ``name`` in messages, and their counts.

    For one writer; memory grows with the distinct keys only.

    Examples
    --------
    >>> counts = KeyCounts("item_id")
    >>> counts.add(pa.array([7, 5, 7, None]))
    >>> counts.add(pa.array([5.0, 7.0]))
    >>> values, numbers = counts.ranked()
    >>> values.to_pylist(), numbers.tolist()
    ([7, 5], [3, 2])
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._counters: dict[Kind, Any] = {}

    def __len__(self) -> int:
        """Count the distinct keys."""
        return sum(len(counter) for counter in self._counters.values())

    def add(self, values: ArrowColumn, *, where: str | None = None) -> None:
        """Count the keys of a flat array of any type; missing ones are left out.

        Messages call the column ``where``, or `name`.

        Raises
        ------
        KeyTypeError
            When the array is of a type that cannot be a key, or of another kind than those before.
        """
        where = where or self.name
        for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else (values,):
            self._add_chunk(plain(chunk), where)

    def _add_chunk(self, chunk: pa.Array, where: str) -> None:
        if not isinstance(chunk, pa.DictionaryArray):
            self._add(chunk, _ONCE, where)
        elif len(chunk.dictionary) > len(chunk):
            self._add(chunk.dictionary_decode(), _ONCE, where)
        else:
            counts = np.zeros(len(chunk.dictionary), np.int64)
            kernels.dictionary_codes.tally(integer_column(chunk.indices), counts)
            used = counts > 0
            self._add(chunk.dictionary.filter(pa.array(used)), counts[used], where)

    def _add(self, array: pa.Array, weights: Indices, where: str) -> None:
        for part in split(array, where):
            self._check(part, where)
            counter = self._counters.setdefault(part.kind, part.kind.storage.counter())
            counter.add(part.kind.storage.column(part.keys), weights)

    def _check(self, part: Part, where: str) -> None:
        if not agree((*self._counters, part.kind)):
            own = spokesman(self._counters)
            raise KeyTypeError(
                f"{where}: expected {own.name} keys as before, got {part.kind.name} ({examples(part)}). "
                "Convert the column to one type before fitting."
            )

    def ranked(self, *, min_count: int = 1, max_size: int | None = None) -> tuple[pa.Array, Indices]:
        """Give the distinct values, typed, and their counts int64, by count descending, then value ascending.

        Text is ordered by its UTF-8 bytes. Values counted less than ``min_count`` times are left out, then all
        beyond the first ``max_size``.

        Raises
        ------
        KeyTypeError
            When no type holds all the values exactly: negative integers beside such of 2^63 and more, or integers
            of 2^53 and more beside fractional floats.
        """
        if not self._counters:
            return pa.nulls(0), np.empty(0, np.int64)
        parts: list[Part] = []
        numbers: list[Indices] = []
        for kind, counter in self._counters.items():
            column, own_counts = counter.totals()
            own = Part(kind, kind.storage.array(column))
            parts = join(parts, [own]) if parts else [own]
            numbers.append(own_counts)
        counts = np.concatenate(numbers)
        order = np.argsort(-counts)[: np.count_nonzero(counts >= min_count)]
        counts = counts[order]
        bounds = np.concatenate([[0], np.flatnonzero(np.diff(counts)) + 1, [len(counts)]])
        values = take_sorted(restore(parts, self.name), order, bounds)
        if max_size is None or max_size >= len(values):
            return values, counts
        return values.take(pa.array(np.arange(max_size))), counts[:max_size].copy()  # not views of what is cut off


def take_sorted(values: pa.Array, rows: Indices, bounds: Indices) -> pa.Array:
    """Take rows, sorted by value within each group ``[bounds[g], bounds[g + 1])``.

    >>> take_sorted(pa.array([9, 8, 7, 6]), np.array([3, 0, 2, 1]), np.array([0, 2, 4])).to_pylist()
    [6, 9, 7, 8]
    """
    if values.type in _NUMBERS:
        keys = integer_column(values).keys[rows]
        for start, end in itertools.pairwise(bounds):
            keys[start:end].sort()
        return pa.array(keys)
    if values.type in _BYTE_STRINGS:
        kernels.bytes_order.sort_groups(BYTE_STRINGS.column(values), rows, bounds)
        return values.take(pa.array(rows))
    stored = values.storage if isinstance(values, pa.ExtensionArray) else values
    places = np.argsort(pc.sort_indices(stored).to_numpy())
    groups = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    return values.take(pa.array(rows[np.lexsort((places[rows], groups))]))
