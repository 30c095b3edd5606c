"""Files of vectors: word2vec text and binary, GloVe text, Parquet. Each reader gives keys and a float32 matrix."""

from __future__ import annotations

import itertools
import mmap
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.types import is_decimal, is_floating, is_integer

from recsys_emb.errors import ColumnError, DataError, counted, did_you_mean, listed
from recsys_emb.vocabulary.vocabulary import whole

_NEWLINES = b"\r\n"
_SIZES = 2  # a header is two integers: number of vectors, width
_DIGITS = 18  # of a count in a header
_WIDEST = 2**20
_SHOWN = 40


@dataclass(frozen=True)
class VectorFile:
    """What a file held.

    Parameters
    ----------
    keys
        ``(N,)``, in file order, repeats included.
    vectors
        float32 ``(N, D)``.
    skipped
        Lines left out because they could not be read.
    """

    keys: pa.Array
    vectors: npt.NDArray[np.float32]
    skipped: int = 0


def read_text(path: Path, *, embedding_dim: int | None, header: bool, skip_bad_lines: bool) -> VectorFile:
    """Read lines of a key and D numbers, separated by single ASCII spaces.

    The key is everything before the last D numbers, so it may hold spaces or be a number. Only a newline ends a
    line: other separators that Unicode knows may stand inside a key. Blank lines are passed over.

    Parameters
    ----------
    path
        UTF-8 text.
    embedding_dim
        D; None takes it from the header, or from the first line, whose key must then be free of spaces.
    header
        Whether the first line must be ``"N D"``; without, such a line is recognised and passed over.
    skip_bad_lines
        Count lines that cannot be read instead of raising.

    Raises
    ------
    DataError
        Naming the line: too few numbers, not a finite number, not UTF-8; or fewer lines than the header promised.
    """
    if embedding_dim is not None and not 1 <= embedding_dim <= _WIDEST:
        raise DataError(
            f"{path.name}: expected embedding_dim in [1, {_WIDEST}], got {embedding_dim}. Count the numbers."
        )
    with path.open("rb") as file:
        lines = _numbered(file)
        number, first = next(lines, (0, b""))
        # Of width 1, two integers are a key and its number.
        sizes = _sizes(first) if header or embedding_dim != 1 else None
        if header and sizes is None:
            raise DataError(
                f"{path.name}: expected a header 'N D' in line 1, got {_shown(first)}. Read it as GloVe text."
            )
        width = embedding_dim or (sizes[1] if sizes else len(first.split(b" ")) - 1)
        if sizes and sizes[1] != width:
            raise DataError(f"{path.name}: expected vectors of width {width}, got {sizes[1]} by the header. Give that.")
        promised = sizes[0] if sizes else None
        body = lines if sizes or not first else itertools.chain([(number, first)], lines)
        if first and not 1 <= width <= _WIDEST:
            raise DataError(
                f"{path.name}, line {number}: expected a key and its numbers, got {_shown(first)}. Repair the line."
            )
        return _read_lines(path.name, body, width, promised=promised, skip=skip_bad_lines)


def read_binary(path: Path) -> VectorFile:
    """Read word2vec's binary format: a header line ``"N D"``, then N times a key, a space and D float32.

    Raises
    ------
    DataError
        When the file ends early, which names the vector, or late.
    """
    with path.open("rb") as file:
        sizes = _sizes(file.readline())
        if sizes is None:
            raise DataError(f"{path.name}: expected a header 'N D', got none. Is it word2vec's binary format?")
        count, width = sizes
        keys: list[str] = []
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            place = file.tell()
            # No more rows than the file has room for, whatever its header says.
            vectors = np.empty((min(count, len(data) // (4 * width + 1)), width), dtype=np.float32)
            for row in range(count):
                space = data.find(b" ", place)
                end = space + 1 + 4 * width
                if space < 0 or end > len(data):
                    raise DataError(
                        f"{path.name}: expected {count} vectors, got {row}. The file is cut; fetch it again."
                    )
                keys.append(_decoded(data[place:space].lstrip(b"\n"), f"{path.name}, vector {row + 1}"))
                vectors[row] = np.frombuffer(data[space + 1 : end], dtype="<f4")
                place = end
            if data[place:].strip(_NEWLINES):
                raise DataError(f"{path.name}: expected {counted(count, 'vector')}, got more. Repair the header.")
    return VectorFile(pa.array(keys, pa.large_string()), vectors)


def read_parquet(path: Any, *, key: str, vector: str) -> VectorFile:
    """Read a column of keys and a column of lists of numbers, all of one length.

    Raises
    ------
    ColumnError
        When a column is missing.
    DataError
        When a vector is missing, or lists differ in length; the message names the row.
    """
    where = Path(path).name
    names: list[str] = _read(path, lambda file: file.schema_arrow.names)
    for column in (key, vector):
        if names.count(column) != 1:
            hint = did_you_mean(column, names)
            raise ColumnError(f"{where}: expected a column {column!r}, got {listed(names)}.{hint}")
    table: pa.Table = _read(path, lambda file: _whole_table(file, [key, vector]))
    keys, vectors = (whole(table.column(column)) for column in (key, vector))
    return VectorFile(keys, stacked_lists(vectors, where))


def _read(path: Any, take: Callable[[pq.ParquetFile], Any]) -> Any:
    """Take something out of a Parquet file; a path that leads to nothing raises as `open` does."""
    try:
        with pq.ParquetFile(path) as file:
            return take(file)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataError(f"{Path(path).name}: expected a Parquet file, got {error}. Fetch it again.") from error


def _whole_table(file: pq.ParquetFile, names: list[str]) -> pa.Table:
    table = file.read(columns=names)
    table.validate(full=True)  # or what is called text need not be UTF-8
    return table


def stacked_lists(lists: pa.Array, where: str) -> npt.NDArray[np.float32]:
    """Stack an Arrow array of equally long lists of numbers into ``(N, D)``.

    >>> stacked_lists(pa.array([[1.0, 2.0], [3.0, 4.0]]), "here").shape
    (2, 2)
    """
    kind, numbers = getattr(lists.type, "value_type", None), (is_integer, is_floating, is_decimal)
    if not hasattr(lists.type, "value_field") or not any(holds(kind) for holds in numbers):
        raise DataError(f"{where}: expected lists of numbers as vectors, got {lists.type}. Name the column of vectors.")
    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), -1))
    width = int(lengths[0]) if len(lengths) else getattr(lists.type, "list_size", 0)
    wrong = np.flatnonzero((lengths != width) | (lengths < 0))
    if len(wrong):
        row = int(wrong[0])
        got = f"{counted(int(lengths[row]), 'number')}" if lengths[row] >= 0 else "no vector"
        raise DataError(f"{where}, row {row}: expected {counted(width, 'number')}, got {got}. Repair or drop the row.")
    flat = pc.cast(pc.list_flatten(lists), pa.float32(), safe=False)
    return np.asarray(pc.fill_null(flat, np.nan), dtype=np.float32).reshape(len(lists), width)


def _read_lines(
    name: str, lines: Iterable[tuple[int, bytes]], width: int, *, promised: int | None, skip: bool
) -> VectorFile:
    keys: list[str] = []
    vectors: list[npt.NDArray[np.float32]] = []
    skipped = 0
    for number, line in lines:
        try:
            key, vector = _parsed(line, width, f"{name}, line {number}")
        except DataError:
            if not skip:
                raise
            skipped += 1
            continue
        keys.append(key)
        vectors.append(vector)
    if promised is not None and len(keys) + skipped < promised:
        raise DataError(
            f"{name}: expected {promised} vectors, got {len(keys) + skipped}. The file is cut; fetch it again."
        )
    stacked = np.stack(vectors) if vectors else np.empty((0, width), dtype=np.float32)
    return VectorFile(pa.array(keys, pa.large_string()), stacked, skipped)


def _parsed(line: bytes, width: int, where: str) -> tuple[str, npt.NDArray[np.float32]]:
    key, *numbers = line.rsplit(b" ", width)
    if len(numbers) < width:
        raise DataError(
            f"{where}: expected a key and {counted(width, 'number')}, got {_shown(line)}. "
            "Repair the line, or pass skip_bad_lines=True."
        )
    try:
        with np.errstate(over="ignore"):
            vector = np.array(numbers, dtype=np.float32)
    except ValueError:
        vector = np.full(width, np.nan, dtype=np.float32)
    # Python would read 1_0 as ten.
    if not np.isfinite(vector).all() or b"_" in line[len(key) :]:
        raise DataError(
            f"{where}: expected {counted(width, 'finite number')} after the key, got {_shown(line)}. "
            "Repair the line, or pass skip_bad_lines=True."
        )
    return _decoded(key, where), vector


def _numbered(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, counted from 1, without line ends, spaces at the end, and a mark at the beginning."""
    if file.read(len(BOM_UTF8)) != BOM_UTF8:
        file.seek(0)
    for number, line in enumerate(file, start=1):
        text = line.rstrip(_NEWLINES).rstrip(b" ")
        if text:
            yield number, text


def _sizes(line: bytes) -> tuple[int, int] | None:
    """Read a header, count and width; None when the line is none."""
    fields = line.split()
    if len(fields) != _SIZES or not all(field.isdigit() and len(field) <= _DIGITS for field in fields):
        return None
    count, width = int(fields[0]), int(fields[1])
    return (count, width) if 1 <= width <= _WIDEST else None


def _decoded(key: bytes, where: str) -> str:
    try:
        return key.decode("utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{where}: expected a UTF-8 key, got {key!r}. Convert the file to UTF-8.") from None


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
