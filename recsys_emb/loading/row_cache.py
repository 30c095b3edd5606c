"""Rows that were encoded once, in files that are mapped into memory: any number of processes share them."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
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
from recsys_emb.sources.parts import Part

FORMAT = 1
_CONTENT = "content.json"


@dataclass(frozen=True, eq=False)
class MappedStore(RowStore):
    """A `RowStore` in files; what travels to another process is only where they are."""

    folder: Path

    def __reduce__(self) -> tuple[Any, ...]:
        """Map the files anew."""
        return _open, (self.folder, self.template)


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
        When a part is not a file: rows in memory cannot be recognised.
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

    def rows(self, batches: Iterable[Batch], template: Batch) -> RowStore:
        """Map the rows, after writing them if they are not there or out of date.

        They are written beside their place and renamed, so that nobody sees half of them; of two processes that
        write at the same time, both are right and one is kept. What is out of date is removed.

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
                return _open(place, template)
            except (FileNotFoundError, ValueError, KeyError):  # damaged
                shutil.rmtree(place, ignore_errors=True)
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
            return _open(place, template)
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
        self.size = 0

    def append(self, piece: npt.NDArray[Any], *, rows: int) -> None:
        """Write the next piece."""
        del rows
        self._file.write(np.ascontiguousarray(piece, self._dtype).data)
        self.size += len(piece)

    @property
    def described(self) -> tuple[str, int]:
        """Its type and size."""
        return self._dtype.str, self.size


def _write(folder: Path, batches: Iterable[Batch]) -> None:
    folder.mkdir()
    files: dict[str, _File] = {}
    with ExitStack() as open_files:

        def open_sink(name: str, dtype: npt.DTypeLike) -> _File:
            return files.setdefault(name, _File(open_files.enter_context((folder / name).open("wb")), dtype))

        _, num_rows = write_rows(batches, open_sink)
    content = {"num_rows": num_rows, "arrays": {name: file.described for name, file in files.items()}}
    (folder / _CONTENT).write_text(json.dumps(content))


def _open(folder: Path, template: Batch) -> MappedStore:
    content = json.loads((folder / _CONTENT).read_text())
    arrays = {name: _map(folder / name, *described) for name, described in content["arrays"].items()}
    store = RowStore.from_arrays(template, content["num_rows"], arrays)
    return MappedStore(store.template, store.cells, store.lists, folder)


def _map(path: Path, dtype: str, size: int) -> npt.NDArray[Any]:
    """Map a file, which must be as long as it was written."""
    expected = size * np.dtype(dtype).itemsize
    if path.stat().st_size != expected:
        raise ValueError(f"{path}: expected {expected} bytes, got {path.stat().st_size}. Remove it.")
    return np.memmap(path, dtype, "r").view(np.ndarray) if size else np.empty(0, dtype)


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
