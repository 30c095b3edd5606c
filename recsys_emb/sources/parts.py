"""Pieces of a source: rows with a name for messages, and the parts that they are read from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from recsys_emb.errors import ColumnError, DataError, did_you_mean, listed

Read: TypeAlias = Callable[[Sequence[str]], Iterable[pa.RecordBatch]]
"""Given the names of columns, yields record batches of just these, in that order."""

Version: TypeAlias = tuple[str, int, int]
"""Where rows are stored, how many bytes, and the time of their last change in nanoseconds."""

BATCH_ROWS = 2**17
"""Rows that are held at a time."""


@dataclass(frozen=True)
class Rows:
    """Consecutive rows of one part, with the columns that were asked for.

    Parameters
    ----------
    part
        Name of the part, or nothing where a column's own name says enough.
    start
        Number of the first row within the part.
    record
        The columns.
    """

    part: str
    start: int
    record: pa.RecordBatch

    def __len__(self) -> int:
        """Count the rows."""
        return int(self.record.num_rows)

    def slice(self, first: int, last: int) -> Rows:
        """Rows ``first`` to ``last - 1`` of these."""
        return Rows(self.part, self.start + first, self.record.slice(first, last - first))

    def column(self, name: str) -> pa.Array:
        """Column called ``name``."""
        return self.record.column(name)

    def where(self, name: str) -> str:
        """Say which column is meant, for an error message."""
        return f"{self.part}: {name}" if self.part else name


@dataclass(frozen=True)
class Blocks:
    """Pieces of a part: how many rows each has, and how to read some of the columns of one, by its number."""

    num_rows: tuple[int, ...]
    read: Callable[[Sequence[str], int], Iterable[pa.RecordBatch]]

    @classmethod
    def of_slices(cls, num_rows: int, read: Callable[[Sequence[str], int, int], Iterable[pa.RecordBatch]]) -> Blocks:
        """Cut rows that are in memory into slices; ``read`` takes the first row of one, and the row after its last."""
        starts = range(0, num_rows, BATCH_ROWS)
        sizes = tuple(min(BATCH_ROWS, num_rows - start) for start in starts)
        return cls(sizes, partial(_read_slice, read))


def _read_slice(
    read: Callable[[Sequence[str], int, int], Iterable[pa.RecordBatch]], names: Sequence[str], number: int
) -> Iterable[pa.RecordBatch]:
    return read(names, number * BATCH_ROWS, (number + 1) * BATCH_ROWS)


@dataclass(frozen=True)
class Part:
    """A piece of a source that is read on its own: one file, or one table in memory.

    Parameters
    ----------
    name
        What error messages call it: ``"ratings.parquet"``, ``"frame"``.
    columns
        Names of its columns, as often as they occur.
    read
        How to read some of them.
    num_rows
        How many rows there are, if that is known without reading them.
    is_file
        Whether messages about a column need the name of the part.
    repeatable
        Whether it can be read more than once.
    by_column
        Whether reading its columns one after another costs no more than reading them together.
    sizes
        Bytes of its columns, where they are known.
    blocks
        Pieces that it can also be read by, in any order; None where it is read as a whole only.
    version
        Tells what changes when the rows do: where they are stored, how many bytes, since when. None where nothing
        does.
    opened
        What ``version`` told when the part was opened.
    index
        Names of what labels the rows of a pandas frame; they are no columns.
    """

    name: str
    columns: tuple[str, ...]
    read: Read
    num_rows: int | None = None
    is_file: bool = False
    repeatable: bool = True
    by_column: bool = False
    sizes: Mapping[str, int] = field(default_factory=dict)
    blocks: Blocks | None = None
    version: Callable[[], Version] | None = None
    opened: Version | None = None
    index: tuple[object, ...] = ()

    def check(self, names: Sequence[str]) -> None:
        """Refuse a missing or a repeated column.

        Raises
        ------
        ColumnError
            Naming the part, the column, and what is there instead.
        """
        for name in names:
            times = self.columns.count(name)
            if times > 1:
                raise ColumnError(
                    f"{self.name}: expected one column {name!r}, got {times} of that name. Rename or drop the others."
                )
            if not times:
                found, hint = listed(self.columns) or "no columns", did_you_mean(name, self.columns)
                hint = " It is the index: call reset_index()." if name in self.index else hint
                raise ColumnError(f"{self.name}: expected a column {name!r}, got {found}.{hint}")

    def check_unchanged(self) -> None:
        """Refuse rows that may be others than those that were opened.

        Raises
        ------
        DataError
            Naming the part.
        """
        if self.version is not None and self.opened is not None:
            refuse_changed(self.name, self.opened, self.version())

    def rows(self, names: Sequence[str]) -> Iterator[Rows]:
        """Stream the columns called ``names``, in the order of the rows."""
        self.check(names)
        yield from self._numbered(self.read(names), 0)

    def block(self, names: Sequence[str], number: int) -> Iterator[Rows]:
        """Stream the columns called ``names`` of a block."""
        if self.blocks is None:
            return self.rows(names)
        return self._numbered(self.blocks.read(names, number), sum(self.blocks.num_rows[:number]))

    def _numbered(self, records: Iterable[pa.RecordBatch], start: int) -> Iterator[Rows]:
        for record in records:
            if record.num_rows:
                if self.is_file:
                    check_content(record, self.name)
                yield Rows(self.name if self.is_file else "", start, record)
                start += record.num_rows


def refuse_changed(name: str, opened: Version, now: Version) -> None:
    """Refuse a file that is another than the one that was opened."""
    if now != opened:
        raise DataError(
            f"{name}: expected the file that was opened, got one of another size or time of change. "
            "The source has changed. Open it anew."
        )


def check_content(record: pa.RecordBatch, where: str) -> None:
    """Refuse what a file calls text and is not UTF-8, and offsets and codes that lead outside."""
    try:
        record.validate(full=True)
    except pa.ArrowInvalid as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise DataError(
            f"{where}: expected columns as they are declared, got an error: {reason}. Write the file again."
        ) from error
