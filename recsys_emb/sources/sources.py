"""Anything tabular as a stream of Arrow record batches, with columns taken by name.

`open_source` turns a frame, a table, a reader or a place with files into a `Source`: parts that are read one after
another, each with its own column types. Columns that nobody asks for are not read, and the index of a pandas frame
is no column.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pandas.api.types import is_scalar

from recsys_emb.errors import DataError
from recsys_emb.sources.files import file_parts
from recsys_emb.sources.finding import would_find
from recsys_emb.sources.frames import memory_part
from recsys_emb.sources.locations import Location, locate
from recsys_emb.sources.parts import BATCH_ROWS, Part, Rows

_ASKED = 16  # files at the same time


@dataclass(frozen=True)
class Block:
    """A piece of a part that can be read by itself."""

    part: Part
    number: int
    num_rows: int

    def rows(self, names: Sequence[str]) -> Iterator[Rows]:
        """Stream the columns called ``names``."""
        return self.part.block(names, self.number)


@dataclass(frozen=True)
class Source:
    """Parts, one after another.

    Examples
    --------
    >>> source = open_source([{"user_id": [5, 7]}, {"user_id": [9], "age": [33]}])
    >>> [rows.column("user_id").to_pylist() for rows in source.rows(["user_id"])]
    [[5, 7], [9]]
    """

    parts: tuple[Part, ...]

    @property
    def num_rows(self) -> int | None:
        """Rows in all, if that is known without reading them."""
        counts = [part.num_rows for part in self.parts]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def repeatable(self) -> bool:
        """Whether the rows can be read more than once."""
        return all(part.repeatable for part in self.parts)

    @property
    def by_column(self) -> bool:
        """Whether to read columns one after another, each in the cache by itself: if that costs no more."""
        rows = self.num_rows
        # Small files would be opened again and again.
        return rows is not None and rows >= BATCH_ROWS * len(self.parts) and all(part.by_column for part in self.parts)

    def size(self, names: Sequence[str]) -> int:
        """Bytes of the columns called ``names``, as far as they are known."""
        return sum(part.sizes.get(name, 0) for part in self.parts for name in names)

    def has(self, name: str) -> bool:
        """Whether any part has a column called ``name``; reading it then asks it of all parts."""
        return any(name in part.columns for part in self.parts)

    def count(self, name: str) -> int:
        """Count the rows; where that takes reading, only the column called ``name`` is read."""
        known = self.num_rows
        return sum(len(rows) for rows in self.rows([name])) if known is None else known

    def check(self, names: Sequence[str]) -> None:
        """Refuse columns that a part lacks or has twice.

        Raises
        ------
        ColumnError
            Naming the first of them.
        """
        for part in self.parts:
            part.check(names)

    def check_unchanged(self) -> None:
        """Refuse files that were written since they were opened.

        Raises
        ------
        DataError
            Naming the first of them.
        """
        # In a store, most of the time is waiting.
        with ThreadPoolExecutor(_ASKED) as pool:
            list(pool.map(Part.check_unchanged, self.parts))

    def blocks(self, name: str) -> list[Block]:
        """Pieces that can be read in any order; where counting takes reading, only the column ``name`` is read."""
        blocks = []
        for part in self.parts:
            if part.blocks is not None:
                blocks += [Block(part, number, num_rows) for number, num_rows in enumerate(part.blocks.num_rows)]
            else:
                known = part.num_rows
                blocks.append(Block(part, 0, sum(map(len, part.rows([name]))) if known is None else known))
        return blocks

    def rows(self, names: Sequence[str], *, start: int = 0, blocks: Sequence[Block] | None = None) -> Iterator[Rows]:
        """Stream the columns called ``names`` from row ``start`` on, of all parts or of some blocks in their order.

        All parts are checked before any is read.

        Raises
        ------
        ColumnError
            When a part lacks one of the columns or has it twice.
        """
        self.check(names)
        for piece in self.parts if blocks is None else blocks:
            if piece.num_rows is not None and piece.num_rows <= start:
                start -= piece.num_rows
                continue
            for rows in piece.rows(names):
                if start < len(rows):
                    yield rows.slice(start, len(rows))
                start = max(start - len(rows), 0)


def open_source(source: Any, types: Mapping[str, pa.DataType] | None = None) -> Source:
    """Open anything tabular.

    Parameters
    ----------
    source
        A pandas or Polars frame, a Polars LazyFrame; an Arrow table, record batch, reader or dataset; an object
        with ``__arrow_c_stream__``; a mapping of column names to arrays; the path, glob, folder or URI of Parquet
        files; or a list of these. A folder is searched for ``*.parquet`` at any depth, in the order of the paths,
        and ``key=value`` folder names become columns.
    types
        Types of columns that come from folder names; text where none is given.

    Returns
    -------
    Source
        Which can be read again and again, unless it is a reader: that one only once.

    Raises
    ------
    DataError
        When there is nothing to read, or nothing that can be read.

    Examples
    --------
    >>> import pandas as pd
    >>> source = open_source(pd.DataFrame({"user_id": [5, 7]}, index=[3, 3]))
    >>> source.num_rows, next(source.rows(["user_id"])).column("user_id").to_pylist()
    (2, [5, 7])
    >>> next(source.rows(["user"]))
    Traceback (most recent call last):
    ...
    recsys_emb.errors.ColumnError: frame: expected a column 'user', got 'user_id'. Did you mean 'user_id'?
    """
    if isinstance(source, Source):
        return source
    if isinstance(source, (list, tuple)):
        if not source:
            raise DataError("source: expected at least one file or table, got an empty list. Check how it is made.")
        if any(isinstance(one, Mapping) and any(map(is_scalar, one.values())) for one in source):
            raise DataError("source: expected tables, got rows as mappings. Pass pd.DataFrame(rows).")
        return Source(tuple(part for one in source for part in open_source(one, types).parts))
    if isinstance(source, (str, os.PathLike)):
        if not os.fspath(source):
            raise DataError("source: expected a path, got an empty text. Write '.' for the current folder.")
        return Source(tuple(file_parts(os.fspath(source), types or {})))
    return Source((memory_part(source),))


def refuse_output_in(source: Any, folder: Location) -> None:
    """Refuse to write rows to a folder from which the next reading of ``source`` would take them.

    Raises
    ------
    DataError
        Naming both.
    """
    if isinstance(source, (list, tuple)):
        for one in source:
            refuse_output_in(one, folder)
    elif isinstance(source, (str, os.PathLike)) and would_find(locate(os.fspath(source)), folder):
        raise DataError(
            f"{folder.name}: expected a folder that {os.fspath(source)!r} does not read, got one within. "
            "Write beside the source."
        )
