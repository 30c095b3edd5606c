"""Files that have their name once they are whole."""

from __future__ import annotations

import contextlib
import posixpath
import secrets
from collections.abc import Iterator, Sequence

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
def written(place: Location, name: str) -> Iterator[pa.NativeFile]:
    """Give an open file to write to that will be called ``name``.

    On a disk it is written beside and renamed; a store shows no object before it is closed. So a process that is
    killed leaves no half of it, and of two that write the same file, one is kept. An error closes it: a store may then
    show a short one, which whoever writes a folder must not name in it.

    Raises
    ------
    DataError
        When the file system refuses to open, close or rename it; what fails within is raised as it is.
    """
    path = posixpath.join(place.path, name)
    beside = posixpath.join(place.path, f".{name}.{secrets.token_hex(8)}{UNFINISHED}") if place.is_local else path
    try:
        with refused(place, name):
            opened = place.filesystem.open_output_stream(beside)
        with opened as file:
            yield file
            with refused(place, name):
                file.close()
        if beside != path:
            with refused(place, name):
                place.filesystem.move(beside, path)
    except BaseException:
        if beside != path and place.filesystem.get_file_info(beside).is_file:
            place.filesystem.delete_file(beside)
        raise


def refused(place: Location, name: str) -> contextlib.AbstractContextManager[None]:
    """Explain why a file system does not let a file be written."""
    return explained(f"{place.name}/{name}", "a file to write", _REMEDY, DataError)


def write_bytes(place: Location, name: str, content: bytes) -> None:
    """Write a file; raises as `written` does."""
    with written(place, name) as file, refused(place, name):
        file.write(content)


def write_table(place: Location, name: str, table: pa.Table) -> None:
    """Write a Parquet file; raises as `written` does."""
    with written(place, name) as file, refused(place, name):
        pq.write_table(table, file, compression="zstd", use_dictionary=False)


def read_table(place: Location, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a Parquet file, or some columns of it.

    Raises
    ------
    DataError
        When it is missing or damaged.
    """
    with _whole(place, name):
        return pq.read_table(posixpath.join(place.path, name), columns=columns, filesystem=place.filesystem)


def read_types(place: Location, name: str) -> pa.Schema:
    """Read what a Parquet file says of its columns, and no row; raises as `read_table` does."""
    with _whole(place, name):
        return pq.read_schema(posixpath.join(place.path, name), filesystem=place.filesystem)


def _whole(place: Location, name: str) -> contextlib.AbstractContextManager[None]:
    return explained(f"{place.name}/{name}", "a whole Parquet file", "Write the folder again.", DataError)
