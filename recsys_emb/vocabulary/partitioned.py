"""`PartitionedVocabulary`: a vocabulary whose values stay in files, for more of them than memory should hold."""

from __future__ import annotations

import bisect
import itertools
import json
import operator
import os
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from recsys_emb.errors import DataError, warn_outside
from recsys_emb.schema.tables import RefuseUnknown, Unknown, UnknownBuckets, UnknownRow
from recsys_emb.sources.locations import Location, explained, locate, path_text
from recsys_emb.sources.writing import read_table, read_types
from recsys_emb.vocabulary.key_counts import Counted
from recsys_emb.vocabulary.key_index import KeyIndex
from recsys_emb.vocabulary.kinds import Kind, kind_named
from recsys_emb.vocabulary.parted_tables import JoinedTable, PartedTable, Shards, Tables, joined_tables
from recsys_emb.vocabulary.reserved import UNKNOWN_INDEX
from recsys_emb.vocabulary.storage import Indices
from recsys_emb.vocabulary.vocabulary import Vocabulary, whole

DESCRIPTION = "vocabulary.json"
HELD = 4  # shards


class Found(NamedTuple):
    """Distinct keys of one kind, in canonical form, and the index of each, int64 ``(N,)``."""

    kind: Kind
    keys: pa.Array
    indices: Indices


class PartitionedVocabulary(Vocabulary):
    """A `Vocabulary` in a folder of Parquet files, which are opened when they are needed.

    Two sets of files hold the same values: by index (``ranked-00000.parquet``, columns ``value``, ``count``,
    ``index``), to decode, and by a hash of the value (``hashed-00000.parquet``, columns ``value``, ``index``), to
    encode. A key is looked for in the one file that its hash names; the tables of the latest few of these files stay
    in memory. ``values``, ``counts`` and what needs them all (`to_table`, `to_frame`, `extended`, `rows_of`) read
    everything. A pickle holds the place of the folder alone.

    Where there are more files than stay in memory, `FeatureEncoder.transform`, or a `BatchLoader` of raw rows, reads
    most of them again for every batch, and a warning says so once. `FeatureEncoder.transform_to` reads each file once
    for all rows: encode many rows with it.

    Parameters
    ----------
    folder
        That a fit with ``spill=`` wrote.

    Raises
    ------
    DataError
        When there is no vocabulary; and when a file is missing or damaged, as soon as it is needed.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.place = locate(path_text(folder, "PartitionedVocabulary"))
        self._said = said = _description(self.place)
        try:
            self.name: str = said["name"]
            self.unknown = _unknown(said["unknown"])
            self._sizes = [operator.index(size) for size in said["ranges"]]
            self._ends = list(itertools.accumulate(self._sizes))
            self.kinds: tuple[Kind, ...] = tuple(kind_named(kind) for kind in said["kinds"])
            self.num_shards = operator.index(said["shards"])
            self._fingerprints = {len(self): said["fingerprint"]}
        except (LookupError, TypeError, ValueError) as error:
            got = f"a {type(error).__name__}: {error}"
            raise _not_whole(self.place, got) from error
        self._refuses = isinstance(self.unknown, RefuseUnknown)
        shards = Shards(self.shard, self.num_shards, HELD, self._warn)
        tables = {kind: PartedTable(kind, shards) for kind in self.kinds}
        self._index = KeyIndex.of_tables(tables, unknown_rows=self.unknown.rows)

    def __len__(self) -> int:
        """Count the real values."""
        return self._ends[-1] if self._ends else 0

    def __repr__(self) -> str:
        return f"PartitionedVocabulary({self.name!r}, {len(self)} values in {self.place.name})"

    def shard(self, number: int) -> Tables:
        """Read the tables of a shard."""
        table = self._read(f"hashed-{number:05}.parquet")
        return joined_tables(whole(table["value"]), whole(table["index"]).to_numpy())

    def _read(self, file: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a file, and see to it that it belongs to what was opened: its indices are those of weights."""
        table = read_table(self.place, file, columns)
        # Whoever writes there anew has to empty the folder first, and describes it last.
        _check_same(self.place, _description(self.place), self._said)
        return table

    def _warn(self) -> None:
        warn_outside(
            f"{self.name}: of {self.num_shards} files of values, {HELD} stay in memory at a time, and others are read "
            "again for every batch. Encode many rows with FeatureEncoder.transform_to, which reads each file once."
        )

    def joined(self, found: Iterable[Found]) -> PartitionedVocabulary:
        """Give the same vocabulary for rows of which all keys were looked for already."""
        keys: dict[Kind, list[pa.Array]] = {kind: [pa.array([], kind.storage.arrow_type)] for kind in self.kinds}
        indices: dict[Kind, list[Indices]] = {kind: [np.empty(0, np.int64)] for kind in self.kinds}
        for one in found:
            keys[one.kind].append(one.keys)
            indices[one.kind].append(one.indices)
        tables = {
            kind: JoinedTable(kind.storage, pa.concat_arrays(own), np.concatenate(indices[kind]))
            for kind, own in keys.items()
        }
        # `copy.copy` would open the folder anew, as a pickle does.
        copied = object.__new__(PartitionedVocabulary)
        copied.__dict__ |= self.__dict__
        copied._index = KeyIndex.of_tables(tables, unknown_rows=self.unknown.rows)
        return copied

    def find_in_shard(self, number: int, keys: Sequence[Sequence[Counted]]) -> list[list[Found]]:
        """Look for keys of a shard, several lists of them while its tables are in memory."""
        tables = self.shard(number)
        return [[_found(one, tables[one.kind]) for one in own if one.kind in tables] for own in keys]

    def _picked(self, rows: Indices) -> pa.Array:
        real = np.unique(rows[rows >= 0])
        ranges = [bisect.bisect_right(self._ends, row) for row in real.tolist()]
        pieces = [pa.table({"value": pa.array([], self._type)})]
        for number, group in itertools.groupby(zip(ranges, real.tolist(), strict=True), key=lambda pair: pair[0]):
            start = self._ends[number] - self._sizes[number]
            pieces.append(self._range(number, ["value"]).take([row - start for _, row in group]))
        values = whole(pa.concat_tables(pieces)["value"])
        return values.take(pa.array(np.searchsorted(real, rows), mask=rows < 0))

    def _range(self, number: int, columns: Sequence[str]) -> pa.Table:
        return self._read(ranked_file(number), columns)

    @cached_property
    def _type(self) -> pa.DataType:
        """Type of the values, which all files have; of none, the type of nulls."""
        return read_types(self.place, ranked_file(0)).field("value").type if self._sizes else pa.null()

    @cached_property
    def _all(self) -> tuple[pa.Array, Indices]:
        tables = [self._range(number, ["value", "count"]) for number in range(len(self._sizes))]
        nothing = pa.table({"value": pa.nulls(0), "count": pa.array([], pa.int64())})
        table = pa.concat_tables(tables) if tables else nothing
        return whole(table["value"]), whole(table["count"]).to_numpy()

    @property
    def _values(self) -> pa.Array:
        return self._all[0]

    @property
    def _counts(self) -> Indices:
        return self._all[1]

    def __reduce__(self) -> tuple[Any, ...]:
        """Open the folder anew."""
        return _opened, (self.place, self._said)


def _opened(place: Location, said: dict[str, Any]) -> PartitionedVocabulary:
    vocabulary = PartitionedVocabulary(place.name)
    _check_same(place, vocabulary._said, said)
    return vocabulary


def _check_same(place: Location, found: Mapping[str, Any], said: Mapping[str, Any]) -> None:
    if found != said:
        raise DataError(
            f"{place.name}: expected the vocabulary that was opened, got another. The folder has changed. "
            "Fit again with spill= to a folder of its own."
        )


def _found(keys: Counted, table: JoinedTable) -> Found:
    indices = np.empty(len(keys.keys), np.int64)
    table.find(keys.kind.storage.column(keys.keys), indices)
    rows = np.flatnonzero(indices != UNKNOWN_INDEX)
    return Found(keys.kind, keys.keys.take(pa.array(rows)), indices[rows])


def ranked_file(number: int) -> str:
    """Name the file of a range of values."""
    return f"ranked-{number:05}.parquet"


def described(name: str, unknown: Unknown, ranges: Sequence[int], shards: int) -> dict[str, Any]:
    """Describe a vocabulary as its folder does, but for what is known from its values."""
    rule = {"kind": unknown.kind, "rows": unknown.rows}
    return {"format_version": 1, "name": name, "unknown": rule, "ranges": list(ranges), "shards": shards}


def _description(place: Location) -> dict[str, Any]:
    with (
        explained(f"{place.name}/{DESCRIPTION}", "a vocabulary", "Fit again with spill=.", DataError),
        place.filesystem.open_input_stream(posixpath.join(place.path, DESCRIPTION)) as file,
    ):
        said: Any = json.loads(file.read())
    if not isinstance(said, dict):
        raise _not_whole(place, f"a {type(said).__name__}")
    if said.get("format_version") != 1:
        got = said.get("format_version")
        raise DataError(f"{place.name}: expected format version 1, got {got!r}. Upgrade recsys_emb.")
    return said


def _not_whole(place: Location, got: str) -> DataError:
    return DataError(f"{place.name}/{DESCRIPTION}: expected a whole description, got {got}. Fit again with spill=.")


def _unknown(said: Mapping[str, Any]) -> Unknown:
    rules: tuple[Unknown, ...] = (UnknownRow(), RefuseUnknown(), UnknownBuckets(said["rows"]))
    return {rule.kind: rule for rule in rules}[said["kind"]]
