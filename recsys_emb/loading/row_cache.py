"""Rows that were encoded once, in files that are mapped into memory: any number of processes share them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from recsys_emb.encoding.batch import Batch
from recsys_emb.errors import DataError
from recsys_emb.loading.row_store import RowStore, write_rows
from recsys_emb.sources.locations import explained
from recsys_emb.sources.parts import Part

FORMAT = 2
_CONTENT = "content.json"


@dataclass(frozen=True, eq=False)
class MappedStore(RowStore):
    """A `RowStore` in files; what travels to another process is only where they are."""

    folder: Path

    def __reduce__(self) -> tuple[Any, ...]:
        """Map the files anew."""
        return _opened_again, (self.folder, self.template)


@dataclass(frozen=True)
class RowCache:
    """A place for the encoded rows of some files.

    Parameters
    ----------
    folder
        Where to keep them; made if it is not there. Several sets of files may share it.
    parts
        The files.
    meaning
        What else the rows depend on, as JSON-able data: first what tells one set of rows from another, then what
        makes a set out of date.

    Raises
    ------
    DataError
        When a part is not a file: rows in memory cannot be recognised. When the place is no folder.
    """

    folder: Path
    parts: Sequence[Part]
    meaning: tuple[Any, Any]

    def __post_init__(self) -> None:
        for part in self.parts:
            if part.version is None:
                raise DataError(
                    f"BatchLoader: expected files for cache=, got {part.name}. "
                    "Write it to Parquet, or leave cache= out: shuffle=True encodes rows in memory once anyway."
                )
        if self.folder.exists() and not self.folder.is_dir():
            raise DataError(f"BatchLoader: expected a folder for cache=, got a file: {self.folder}. Give another name.")

    def rows(self, batches: Iterable[Batch], template: Batch) -> RowStore:
        """Map the rows, after writing them if they are not there or out of date.

        They are written beside their place and renamed, so that nobody sees half of them; of two processes that
        write at the same time, both are right and one is kept. What is out of date is removed. Rows that are there
        are read once, to be compared with their checksums; what is damaged is written anew.

        Parameters
        ----------
        batches
            The encoded rows, read only if they must be written.
        template
            The encoded rows without any row.
        """
        versions = self._versions()
        subject = _digest([FORMAT, sys.byteorder, self.meaning[0], [version[0] for version in versions]])
        place = self.folder / f"{subject}-{_digest([self.meaning[1], versions])}"
        if place.is_dir():
            try:
                return _open(place, template, verify=True)
            except (FileNotFoundError, ValueError):  # damaged
                shutil.rmtree(place, ignore_errors=True)
        with explained(str(self.folder), "a folder for cache=", "Check it and the permissions.", DataError):
            self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=self.folder) as unfinished:
            written = Path(unfinished) / "rows"
            _write(written, batches)
            if self._versions() != versions:
                raise DataError("BatchLoader: expected files that stay as they are, got changes. Make the loader anew.")
            for old in self.folder.glob(f"{subject}-*"):
                if old != place:
                    shutil.rmtree(old, ignore_errors=True)
            try:
                written.rename(place)
            except OSError:
                if not place.is_dir():  # otherwise another process was first
                    raise
        try:
            return _open(place, template, verify=False)
        except FileNotFoundError:
            raise DataError(
                f"BatchLoader: expected the rows to stay in {self.folder}, got them removed by a loader with another "
                "encoder. Give every encoder a folder of its own."
            ) from None

    def _versions(self) -> list[tuple[str, int, int]]:
        return [part.version() for part in self.parts if part.version is not None]


class _File:
    """A sink that writes to a file."""

    def __init__(self, file: IO[bytes], dtype: npt.DTypeLike) -> None:
        self._file, self._dtype = file, np.dtype(dtype)
        self.size = self.checksum = 0

    def append(self, piece: npt.NDArray[Any], *, rows: int) -> None:
        """Write the next piece."""
        del rows
        content = np.ascontiguousarray(piece, self._dtype).data
        self._file.write(content)
        self.checksum = zlib.crc32(content, self.checksum)
        self.size += len(piece)

    @property
    def described(self) -> tuple[str, int, int]:
        """Its type, size and checksum."""
        return self._dtype.str, self.size, self.checksum

    def settle(self) -> None:
        """See to it that it is on the disk: else its name might be there after a crash, and it not."""
        self._file.flush()
        os.fsync(self._file.fileno())


def _write(folder: Path, batches: Iterable[Batch]) -> None:
    folder.mkdir()
    files: dict[str, _File] = {}
    with ExitStack() as open_files:

        def open_sink(name: str, dtype: npt.DTypeLike) -> _File:
            return files.setdefault(name, _File(open_files.enter_context((folder / name).open("wb")), dtype))

        _, num_rows = write_rows(batches, open_sink)
        for file in files.values():
            file.settle()
    content = {"num_rows": num_rows, "arrays": {name: file.described for name, file in files.items()}}
    with (folder / _CONTENT).open("w") as text:
        json.dump(content, text)
        text.flush()
        os.fsync(text.fileno())


def _open(folder: Path, template: Batch, *, verify: bool) -> MappedStore:
    """Map the rows; a `ValueError` says that they are damaged."""
    try:
        content = json.loads((folder / _CONTENT).read_text())
        arrays = {name: _map(folder / name, *said, verify=verify) for name, said in content["arrays"].items()}
        store = RowStore.from_arrays(template, content["num_rows"], arrays)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{folder / _CONTENT}: expected what a loader wrote, got an error: {error}.") from error
    return MappedStore(store.template, store.cells, store.lists, folder)


def _opened_again(folder: Path, template: Batch) -> MappedStore:
    """Map rows that were whole when they were opened first."""
    try:
        return _open(folder, template, verify=False)
    except (FileNotFoundError, ValueError) as error:
        raise DataError(
            f"BatchLoader: expected the rows of its cache in {folder}, got none that are whole. Make the loader anew."
        ) from error


def _map(path: Path, dtype: str, size: int, checksum: int, *, verify: bool) -> npt.NDArray[Any]:
    """Map a file, which must be as long as it was written, and hold the same bytes."""
    expected = size * np.dtype(dtype).itemsize
    if path.stat().st_size != expected:
        raise ValueError(f"{path}: expected {expected} bytes, got {path.stat().st_size}. Remove it.")
    mapped = np.memmap(path, dtype, "r").view(np.ndarray) if size else np.empty(0, dtype)
    if verify and zlib.crc32(mapped.data) != checksum:
        raise ValueError(f"{path}: expected the bytes that were written, got others. Remove it.")
    return mapped


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
