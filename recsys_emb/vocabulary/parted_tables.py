"""Tables of keys that lie in files, a shard each: a key is looked for in the one shard that its hash names."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from recsys_emb.vocabulary.identity import plain, split
from recsys_emb.vocabulary.kinds import Kind
from recsys_emb.vocabulary.reserved import MISSING_INDEX, UNKNOWN_INDEX
from recsys_emb.vocabulary.storage import Indices, Storage


class JoinedTable:
    """Distinct keys and an index of any number for each; null keys are left out.

    Examples
    --------
    >>> from recsys_emb.vocabulary.storage import INTEGERS, integer_column
    >>> table, found = JoinedTable(INTEGERS, pa.array([50, 70]), np.array([900, 33])), np.empty(3, np.int64)
    >>> table.find(integer_column(pa.array([70, None, 60])), found)
    >>> found.tolist(), table.find_one(50)
    ([33, 1, 2], 900)
    """

    repeated = 0

    def __init__(self, storage: Storage, keys: pa.Array, indices: Indices) -> None:
        self._table: Any = storage.index(keys, first=1, unknown=0, missing=len(indices) + 1)
        self._answers = np.concatenate([[UNKNOWN_INDEX], indices, [MISSING_INDEX]])

    def find(self, column: Any, out: Indices) -> None:
        """Write the index of each key into ``out`` int64 (N,)."""
        self._table.find(column, out)
        out[:] = self._answers[out]

    def find_one(self, key: int | bytes) -> int:
        """Index of one key."""
        return int(self._answers[self._table.find_one(key)])


Tables: TypeAlias = Mapping[Kind, JoinedTable]


def joined_tables(values: pa.Array, indices: Indices) -> Tables:
    """Make the tables of some values, one for each kind of key among them."""
    parts = split(plain(values), "values")
    return {part.kind: JoinedTable(part.kind.storage, part.keys, indices) for part in parts}


class Shards:
    """The tables of all shards, of which the latest few are in memory; any number of threads may ask.

    A shard is read by the first thread that asks for it; others wait only where they ask for the same one.

    Parameters
    ----------
    read
        Makes the tables of a shard, by its number.
    number
        How many shards there are.
    held
        How many stay in memory.
    again
        Called once, when a shard is read that was in memory before.
    """

    def __init__(self, read: Callable[[int], Tables], number: int, held: int, again: Callable[[], None]) -> None:
        self.number = number
        self._read, self._most = read, held
        self._again: Callable[[], None] | None = again
        self._held: OrderedDict[int, Future[Tables]] = OrderedDict()
        self._seen: set[int] = set()
        self._lock = threading.Lock()

    def table(self, shard: int, kind: Kind) -> JoinedTable:
        """Table of the keys of a kind."""
        again, mine = None, None
        with self._lock:
            if shard not in self._held:
                while len(self._held) >= self._most:
                    self._held.popitem(last=False)
                mine = self._held[shard] = Future()
                if shard in self._seen:
                    again, self._again = self._again, None
                self._seen.add(shard)
            self._held.move_to_end(shard)
            held = self._held[shard]
        if mine is not None:
            self._fill(shard, mine)
        if again is not None:
            again()
        tables = held.result()
        return tables[kind] if kind in tables else JoinedTable(kind.storage, _nothing(kind), np.empty(0, np.int64))

    def _fill(self, shard: int, future: Future[Tables]) -> None:
        """Read a shard for all who wait for it; after an error the next one tries again."""
        try:
            future.set_result(self._read(shard))
        except BaseException as error:
            with self._lock:
                if self._held.get(shard) is future:
                    del self._held[shard]
                self._seen.discard(shard)
            future.set_exception(error)


class PartedTable:
    """Table of all keys of a kind; stands where the index of a storage does."""

    repeated = 0

    def __init__(self, kind: Kind, shards: Shards) -> None:
        self._kind, self._shards = kind, shards

    def find(self, column: Any, out: Indices) -> None:
        """Write the index of each key into ``out`` int64 (N,), shard by shard."""
        storage = self._kind.storage
        out[:] = MISSING_INDEX
        rows = np.flatnonzero(storage.present(column))
        places = (storage.hashes(column)[rows] % np.uint64(self._shards.number)).astype(np.int64)
        order = np.argsort(places, kind="stable")
        bounds = np.searchsorted(places[order], np.arange(self._shards.number + 1))
        for shard in np.flatnonzero(np.diff(bounds)).tolist():
            own = rows[order[bounds[shard] : bounds[shard + 1]]]
            found = np.empty(len(own), np.int64)
            self._shards.table(shard, self._kind).find(storage.pick(column, own), found)
            out[own] = found

    def find_one(self, key: int | bytes) -> int:
        """Index of one key."""
        storage = self._kind.storage
        hashed = storage.stable_hash(pa.array([key], storage.arrow_type))[0]
        return self._shards.table(int(hashed % np.uint64(self._shards.number)), self._kind).find_one(key)


def _nothing(kind: Kind) -> pa.Array:
    return pa.array([], kind.storage.arrow_type)
