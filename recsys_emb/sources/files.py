"""Parquet files by path, folder, glob or URI, each with its own column types."""

from __future__ import annotations

import itertools
import operator
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from recsys_emb.errors import DataError
from recsys_emb.sources.arrow_types import is_list, is_text
from recsys_emb.sources.finding import find
from recsys_emb.sources.locations import Location, explained, locate
from recsys_emb.sources.marked import refuse_encoded
from recsys_emb.sources.parts import BATCH_ROWS, Blocks, Part, Version, refuse_changed

_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
# A text column that takes fewer bytes per value than this was stored as a small dictionary, and is read as one.
_DICTIONARY_BYTES = 4
# Footers that are read at the same time from a store.
_FOOTERS = 16


def file_parts(location: str, types: Mapping[str, pa.DataType]) -> list[Part]:
    """Open the Parquet files that a path, a folder, a glob or a URI means, in the order of their paths.

    Parameters
    ----------
    location
        A folder is searched at any depth for files that end in ``.parquet``, ``.parq`` or ``.pq``, leaving out
        names that begin with ``_`` or ``.``. In a glob, ``**`` stands for any number of folders; in a URI, only
        ``*`` is a pattern. A URI holds no credentials.
    types
        Of columns that come from ``key=value`` folder names; text where none is given.

    Raises
    ------
    DataError
        When there is no such file, one is not Parquet, one is a part of encoded rows, or the store does not answer.
    """
    place = locate(location)
    with explained(location, "a place that can be searched", "Check it, the network and the permissions.", DataError):
        folder, found = find(place.filesystem, place.path)
    refuse_encoded(place, found)
    if not found:
        hint = "" if set("/.*") & set(location) else "; values themselves go into a frame"
        raise DataError(f"{location}: expected Parquet files, got none. Check the path{hint}.")
    return _opened([_File(posixpath.relpath(one, folder or "/"), one, place, types) for one in sorted(found)])


def named_parts(place: Location, names: Sequence[str]) -> list[Part]:
    """Open the Parquet files of these names in a folder, in this order, whatever they hold.

    Raises
    ------
    DataError
        When one is not there, or is not Parquet.
    """
    return _opened([_File(name, posixpath.join(place.path, name), place, {}) for name in names])


def _opened(files: Sequence[_File]) -> list[Part]:
    if all(file.place.is_local for file in files):
        return [file.part() for file in files]
    # Over a network, most of the time of reading a footer is waiting.
    with ThreadPoolExecutor(_FOOTERS) as pool:
        return list(pool.map(_File.part, files))


@dataclass(frozen=True)
class _File:
    """One file: what messages call it, where it is, and the types of its folder columns."""

    name: str
    path: str
    place: Location
    types: Mapping[str, pa.DataType]
    opened: Version | None = None

    def part(self) -> Part:
        """Read the footer. A column inside the file precedes one in a folder name: it has a type of its own."""
        with self._named():
            opened = replace(self, opened=self.version())
            with self._open() as file:
                own, footer = file.schema_arrow.names, file.metadata
                sizes = _sizes(file)
        groups = tuple(footer.row_group(number).num_rows for number in range(footer.num_row_groups))
        return Part(
            self.name,
            (*own, *(key for key in self._folder_columns() if key not in own)),
            opened.read,
            footer.num_rows,
            is_file=True,
            by_column=True,
            sizes=sizes,
            blocks=Blocks(groups, opened.read_block),
            version=opened.version,
            opened=opened.opened,
        )

    def read(self, names: Sequence[str], groups: Sequence[int] | None = None) -> Iterator[pa.RecordBatch]:
        """Stream the columns called ``names``, of all row groups or some."""
        with self._named():
            if self.opened is not None:
                refuse_changed(self.name, self.opened, self.version())
            with self._open() as file:
                own = [name for name in names if name in file.schema_arrow.names]
                runs = _runs(file, own, range(file.num_row_groups) if groups is None else groups)
                footer = file.metadata
            for small, together in runs:
                with self._open(read_dictionary=small, metadata=footer) as file:
                    for some in together:
                        for record in file.iter_batches(BATCH_ROWS, some, own, use_threads=len(own) > 1):
                            yield self._complete(record, names)

    def read_block(self, names: Sequence[str], number: int) -> Iterator[pa.RecordBatch]:
        """Stream the columns called ``names`` of a row group."""
        return self.read(names, [number])

    def version(self) -> Version:
        """Where the file is, its bytes, and the time of its last change in nanoseconds."""
        info = self.place.filesystem.get_file_info(self.path)
        return f"{self.place.filesystem.type_name}:{self.path}", info.size or 0, info.mtime_ns or 0

    def _open(self, **options: Any) -> pq.ParquetFile:
        far = not self.place.is_local
        return pq.ParquetFile(self.path, filesystem=self.place.filesystem, pre_buffer=far, **options)

    def _named(self) -> AbstractContextManager[None]:
        """Say which file it was: Arrow does not."""
        remedy = "Write it again; read other formats with pandas and pass the frame."
        return explained(self.name, "a whole Parquet file", remedy, DataError)

    def _folder_columns(self) -> dict[str, str]:
        pairs = [name.split("=", 1) for name in self.path.split("/")[:-1] if "=" in name]
        return {key: unquote(text) for key, text in pairs}

    def _complete(self, record: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        own = record.schema.names
        arrays = [record.column(name) if name in own else self._constant(name, record.num_rows) for name in names]
        return pa.RecordBatch.from_arrays(arrays, names=list(names))

    def _constant(self, name: str, num_rows: int) -> pa.Array:
        text, kind = self._folder_columns()[name], self.types.get(name, pa.string())
        try:
            value = pa.scalar(None if text == _HIVE_NULL else text, pa.string()).cast(kind)
        except pa.ArrowInvalid:
            raise DataError(
                f"{self.name}: expected {name!r} to be {kind}, got {text!r}. Rename the folder, or change dtype=."
            ) from None
        return pa.repeat(value, num_rows)


# --- row groups --------------------------------------------------------------------------------------------------


def _runs(
    file: pq.ParquetFile, names: Sequence[str], numbers: Sequence[int]
) -> list[tuple[list[str], list[list[int]]]]:
    """Columns to read as dictionaries, and the row groups to read so, together or one by one.

    Text that is stored as a small dictionary is several times faster to read as one. Arrow cannot join the
    dictionaries of lists from several row groups, so groups that have such are read one by one.
    """
    kinds = {name: file.schema_arrow.field(name).type for name in names}
    lists = [name for name, kind in kinds.items() if is_list(kind)]
    texts = [name for name, kind in kinds.items() if is_text(kind.value_type if name in lists else kind)]
    apart = [name for name in lists if name in texts or pa.types.is_dictionary(kinds[name].value_type)]
    groups = [(_small_texts(file.metadata.row_group(number), texts), [number]) for number in numbers]
    runs = []
    for small, run in itertools.groupby(groups, key=operator.itemgetter(0)):
        alike = [group for _, group in run]
        runs.append((small, alike if apart else [list(itertools.chain(*alike))]))
    return runs


def _sizes(file: pq.ParquetFile) -> dict[str, int]:
    """Bytes of the columns, not compressed: what reading them costs, roughly."""
    sizes = dict.fromkeys(file.schema_arrow.names, 0)
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        for chunk in map(group.column, range(group.num_columns)):
            path = chunk.path_in_schema
            name = path if path in sizes else path.partition(".")[0]
            sizes[name] = sizes.get(name, 0) + chunk.total_uncompressed_size
    return sizes


def _small_texts(group: pq.RowGroupMetaData, names: Sequence[str]) -> list[str]:
    """Paths of those text columns in a row group that are stored as small dictionaries."""
    prefixes = tuple(f"{name}." for name in names)
    chunks = [group.column(place) for place in range(group.num_columns)]
    return [
        chunk.path_in_schema
        for chunk in chunks
        if (chunk.path_in_schema in names or chunk.path_in_schema.startswith(prefixes))
        and chunk.has_dictionary_page
        and chunk.total_uncompressed_size < _DICTIONARY_BYTES * chunk.num_values
    ]
