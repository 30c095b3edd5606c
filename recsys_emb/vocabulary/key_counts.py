"""How often each key occurs, counted as the column streams by."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

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


class Counted(NamedTuple):
    """Distinct keys of one kind, in canonical form and without nulls, and their counts int64 ``(N,)``."""

    kind: Kind
    keys: pa.Array
    counts: Indices


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
        self.met: dict[Kind, tuple[str, str]] = {}
        """Where each kind was first met, and examples, as messages name them."""

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
            if part.kind not in self.met:
                self.meet(part.kind, where, examples(part))
            self._counter(part.kind).add(part.kind.storage.column(part.keys), weights)

    def _counter(self, kind: Kind) -> Any:
        if kind not in self._counters:
            self._counters[kind] = kind.storage.counter()
        return self._counters[kind]

    def meet(self, kind: Kind, where: str, shown: str) -> None:
        """Take note of a kind of which the column ``where`` has keys, for instance those ``shown``.

        Raises
        ------
        KeyTypeError
            When it does not agree with the kinds met before.
        """
        if not agree((*self.met, kind)):
            own = spokesman(self.met)
            raise KeyTypeError(
                f"{where}: expected {own.name} keys as before, got {kind.name} ({shown}). "
                "Convert the column to one type before fitting."
            )
        self.met.setdefault(kind, (where, shown))

    def totals(self) -> list[Counted]:
        """Give the distinct keys of each kind, in no particular order, and their counts."""
        totals = ((kind, *counter.totals()) for kind, counter in self._counters.items())
        return [Counted(kind, kind.storage.array(column), counts) for kind, column, counts in totals]

    def add_counted(self, more: Counted) -> None:
        """Add up keys that were counted elsewhere, of a kind that was met."""
        self._counter(more.kind).add(more.kind.storage.column(more.keys), more.counts)

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
        return ranked(self.totals(), self.name, min_count=min_count, max_size=max_size)


def ranked(
    totals: Sequence[Counted],
    where: str,
    *,
    beside: Sequence[Part] = (),
    min_count: int = 1,
    max_size: int | None = None,
) -> tuple[pa.Array, Indices]:
    """Rank keys as `KeyCounts.ranked` does; ``beside`` are keys elsewhere, which take part in the type alone."""
    parts: list[Part] = []
    for one in totals:
        own = Part(one.kind, one.keys)
        parts = join(parts, [own]) if parts else [own]
    counts = np.concatenate([np.empty(0, np.int64), *(one.counts for one in totals)])
    order = np.argsort(-counts)[: np.count_nonzero(counts >= min_count)]
    counts = counts[order]
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(counts)) + 1, [len(counts)]])
    values = take_sorted(restore(join(parts, beside) if beside else parts, where), order, bounds)
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
