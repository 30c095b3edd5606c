"""Files that have their name once they are whole."""

from __future__ import annotations

import contextlib
import posixpath
import secrets
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from recsys_emb.errors import DataError
from recsys_emb.sources.locations import Location, explained, is_uri, locate

UNFINISHED = ".unfinished"
_REMEDY = "Check the folder and the permissions."


def below(place: Location, name: str) -> Location:
    """Find what is called ``name`` in a folder.

    >>> below(locate("s3://bucket/rows?region=us-east-1"), "a").name
    's3://bucket/rows/a?region=us-east-1'
    """
    text, mark, query = place.name.partition("?") if is_uri(place.name) else (place.name, "", "")
    return locate(f"{text.rstrip('/')}/{name}{mark}{query}")


@contextlib.contextmanager
def written(place: Location, name: str) -> Iterator[str]:
    """Give a path to write a file to that will be called ``name``.

    On a disk it is written beside and renamed; a store shows no object before it is whole. So a process that is
    killed leaves no half of it, and of two that write the same file, one is kept.

    Raises
    ------
    DataError
        When the file system refuses.
    """
    with explained(f"{place.name}/{name}", "a file to write", _REMEDY, DataError):
        path = posixpath.join(place.path, name)
        if not place.is_local:
            yield path
            return
        beside = posixpath.join(place.path, f".{name}.{secrets.token_hex(8)}{UNFINISHED}")
        try:
            yield beside
            place.filesystem.move(beside, path)
        except BaseException:
            if place.filesystem.get_file_info(beside).is_file:
                place.filesystem.delete_file(beside)
            raise


def write_bytes(place: Location, name: str, content: bytes) -> None:
    """Write a file; raises as `written` does."""
    with written(place, name) as path, place.filesystem.open_output_stream(path) as file:
        file.write(content)


def write_table(place: Location, name: str, table: pa.Table) -> None:
    """Write a Parquet file; raises as `written` does."""
    with written(place, name) as path, place.filesystem.open_output_stream(path) as file:
        pq.write_table(table, file, compression="zstd", use_dictionary=False)


def read_table(place: Location, name: str) -> pa.Table:
    """Read a Parquet file.

    Raises
    ------
    DataError
        When it is missing or damaged.
    """
    with explained(f"{place.name}/{name}", "a whole Parquet file", "Write the folder again.", DataError):
        return pq.read_table(posixpath.join(place.path, name), filesystem=place.filesystem)
