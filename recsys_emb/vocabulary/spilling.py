"""Write vocabularies from an engine into the files of `PartitionedVocabulary`, a task a file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow import fs

from recsys_emb.engines.engine import Engine, Handle
from recsys_emb.errors import DataError, at_least, listed
from recsys_emb.schema.tables import Unknown
from recsys_emb.sources.locations import Location, explained, locate, path_text
from recsys_emb.sources.writing import below, read_table, write_bytes, write_table
from recsys_emb.vocabulary.fingerprints import fingerprint_of, kinds_in
from recsys_emb.vocabulary.identity import split
from recsys_emb.vocabulary.kinds import Part
from recsys_emb.vocabulary.partitioned import DESCRIPTION, PartitionedVocabulary, described, ranked_file
from recsys_emb.vocabulary.ranking import Limits, Ranked
from recsys_emb.vocabulary.reserved import UNKNOWN_INDEX
from recsys_emb.vocabulary.storage import Indices
from recsys_emb.vocabulary.vocabulary import whole


@dataclass(frozen=True)
class Spill:
    """Where vocabularies go that are too large for memory.

    Parameters
    ----------
    folder
        Path or URI of an empty folder; made if it is not there. It must stay as long as the encoder does, and all
        workers must see it under this name.
    above
        Vocabularies of more values than this are written there; the others are held in memory.

    Raises
    ------
    DataError
        When ``folder`` is no path, ``above`` no integer of at least 0; later, when there is something in the folder.
    """

    folder: str | os.PathLike[str]
    above: int = 2**24

    def __post_init__(self) -> None:
        at_least("Spill", "above", self.above, 0)
        path_text(self.folder, "Spill: folder")

    @contextmanager
    def claimed(self) -> Iterator[Location]:
        """Make the folder, see to it that it is empty, and empty it again on any error within."""
        place = locate(os.fspath(self.folder))
        with explained(place.name, "a folder to write to", "Check it and the permissions.", DataError):
            place.filesystem.create_dir(place.path, recursive=True)
            found = [info.base_name for info in place.filesystem.get_file_info(fs.FileSelector(place.path))]
        if found:
            raise DataError(f"{place.name}: expected an empty folder, got {listed(sorted(found))}. Give another one.")
        try:
            yield place
        except BaseException:
            place.filesystem.delete_dir_contents(place.path, missing_dir_ok=True)
            raise


@dataclass(frozen=True)
class _Files:
    """The files of one vocabulary: where, the index of each range's first value, and how many values each keeps."""

    place: Location
    starts: tuple[int, ...]
    keeps: tuple[int, ...]


def spill_on(
    engine: Engine,
    ranges: Sequence[Handle],
    sizes: Sequence[Mapping[str, int]],
    rules: Mapping[str, tuple[Limits, Unknown]],
    place: Location,
) -> dict[str, PartitionedVocabulary]:
    """Write the vocabularies that ``rules`` name.

    Parameters
    ----------
    engine
        Does it.
    ranges, sizes
        What `rank_on` gives.
    rules
        By vocabulary, its limits and its rule for unknown values.
    place
        An empty folder.
    """
    number = len(ranges)
    files = {
        name: _files(place, order, [one[name] for one in sizes], *rule)
        for order, (name, rule) in enumerate(rules.items())
    }
    for own in files.values():
        own.place.filesystem.create_dir(own.place.path, recursive=True)
    written = [
        engine.submit(_write_range, order, one, files, number, returns=number) for order, one in enumerate(ranges)
    ]
    shards = [engine.submit(_write_shard, shard, files, *(own[shard] for own in written))[0] for shard in range(number)]
    list(engine.gather(shards))
    return {name: _finished(name, own, rules[name][1], number) for name, own in files.items()}


def _files(place: Location, order: int, sizes: Sequence[int], limits: Limits, unknown: Unknown) -> _Files:
    most = sum(sizes) if limits.max_size is None else limits.max_size
    before = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
    keeps = np.clip(most - before[:-1], 0, sizes)
    first = UNKNOWN_INDEX + unknown.rows
    return _Files(below(place, f"{order:03}"), tuple((first + before[:-1]).tolist()), tuple(keeps.tolist()))


def _finished(name: str, files: _Files, unknown: Unknown, number: int) -> PartitionedVocabulary:
    """Describe what was written; the values pass by a few times more, a file at a time, to be hashed."""

    def read() -> Iterator[pa.Array]:
        for place in range(number):
            yield whole(read_table(files.place, ranked_file(place), ["value"])["value"])

    said = {
        **described(name, unknown, files.keeps, number),
        "kinds": [kind.name for kind in kinds_in(read(), name)],
        "fingerprint": fingerprint_of(read, unknown, name),
    }
    write_bytes(files.place, DESCRIPTION, json.dumps(said, indent=2).encode())
    return PartitionedVocabulary(files.place.name)


# --- tasks -------------------------------------------------------------------------------------------------------


def _write_range(
    number: int, ranks: Mapping[str, Ranked], files: Mapping[str, _Files], shards: int
) -> list[dict[str, tuple[pa.Array, Indices]]]:
    """Write a range of each vocabulary, and split it into shards of values and indices."""
    pieces: list[dict[str, tuple[pa.Array, Indices]]] = [{} for _ in range(shards)]
    for name, own in files.items():
        values, counts = ranks[name].slice(0, own.keeps[number])
        indices = own.starts[number] + np.arange(len(values))
        write_table(own.place, ranked_file(number), pa.table({"value": values, "count": counts, "index": indices}))
        places = np.zeros(len(values), np.int64)
        for part in split(values, name):
            rows = np.flatnonzero(_valid(part))
            hashes = part.kind.storage.stable_hash(part.keys.take(pa.array(rows)))
            places[rows] = (hashes % np.uint64(shards)).astype(np.int64)
        for shard, piece in enumerate(pieces):
            rows = np.flatnonzero(places == shard)
            piece[name] = values.take(pa.array(rows)), indices[rows]
    return pieces


def _write_shard(number: int, files: Mapping[str, _Files], *pieces: Mapping[str, tuple[pa.Array, Indices]]) -> None:
    for name, own in files.items():
        values = pa.concat_arrays([piece[name][0] for piece in pieces])
        indices = np.concatenate([piece[name][1] for piece in pieces])
        write_table(own.place, f"hashed-{number:05}.parquet", pa.table({"value": values, "index": indices}))


def _valid(part: Part) -> Indices:
    return np.asarray(part.keys.is_valid().to_numpy(zero_copy_only=False))
