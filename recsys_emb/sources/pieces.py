"""Pieces of a source that can be read elsewhere: what travels is where they are, or else the rows themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from recsys_emb.sources.parts import Part, Rows, check_content
from recsys_emb.sources.sources import Source


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of a part, to be read together: a row group of a file, or some rows in memory.

    Parameters
    ----------
    part
        Name of the part: ``"ratings.parquet"``, ``"frame"``.
    place
        Number of the part in its source.
    number
        Number of the piece in its part.
    start
        Number of its first row within the part.
    is_file
        Whether messages need the name of the part.
    read
        How to read some of its columns.
    """

    part: str
    place: int
    number: int
    start: int
    is_file: bool
    read: Callable[[Sequence[str]], Iterable[pa.RecordBatch]]

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.part}, row group {self.number}" if self.is_file else self.part

    def rows(self, names: Sequence[str]) -> Iterator[Rows]:
        """Stream the columns called ``names``."""
        start = self.start
        for record in self.read(names):
            if record.num_rows:
                if self.is_file:
                    check_content(record, self.name)
                yield Rows(self.name if self.is_file else "", start, record)
                start += record.num_rows


def pieces(source: Source, names: Sequence[str]) -> Iterator[Piece]:
    """Cut a source into pieces from which the columns called ``names`` can be read.

    A piece of a file is read where it is used. Rows that are in memory, or can be read only once, travel with their
    piece; they are read here, one piece after another.

    Examples
    --------
    >>> from recsys_emb.sources.sources import open_source
    >>> (piece,) = pieces(open_source({"user_id": [5, 7], "age": [33, 20]}), ["user_id"])
    >>> [rows.record.to_pydict() for rows in piece.rows(["user_id"])]
    [{'user_id': [5, 7]}]
    """
    source.check(names)
    for place, part in enumerate(source.parts):
        yield from _file_pieces(part, place) if part.is_file and part.blocks else _held_pieces(part, place, names)


def _file_pieces(part: Part, place: int) -> Iterator[Piece]:
    start = 0
    if part.blocks is not None:
        for number, num_rows in enumerate(part.blocks.num_rows):
            read = partial(_read_block, part.blocks.read, number)
            yield Piece(part.name, place, number, start, part.is_file, read)
            start += num_rows


def _read_block(
    read: Callable[[Sequence[str], int], Iterable[pa.RecordBatch]], number: int, names: Sequence[str]
) -> Iterable[pa.RecordBatch]:
    return read(names, number)


def _held_pieces(part: Part, place: int, names: Sequence[str]) -> Iterator[Piece]:
    for number, rows in enumerate(part.rows(list(dict.fromkeys(names)))):
        yield Piece(part.name, place, number, rows.start, part.is_file, _Held(rows.record))


class _Held:
    """Rows in memory; a pickle holds these rows alone, not all that they are a slice of."""

    def __init__(self, record: pa.RecordBatch) -> None:
        self._record = record

    def __call__(self, names: Sequence[str]) -> Iterable[pa.RecordBatch]:
        yield self._record.select(list(names))

    def __reduce__(self) -> tuple[Any, ...]:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._record.schema) as writer:
            writer.write_batch(self._record)
        return _received, (sink.getvalue(),)


def _received(content: pa.Buffer) -> _Held:
    return _Held(pa.ipc.open_stream(content).read_next_batch())
