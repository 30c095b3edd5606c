"""The steps that a folder in an object store is written and read by."""

from __future__ import annotations

import contextlib
import posixpath
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyarrow import fs

from recsys_emb.artifact.manifest import LARGEST_JSON, MANIFEST, is_litter
from recsys_emb.errors import ArtifactError
from recsys_emb.sources.locations import Location, explained

BESIDE = ".new"
_OBJECT_STORES = ("s3", "gcs", "abfs")
_COPIES = 8  # files that travel at the same time
_PIECE = 2**24  # bytes that are asked of a store at once, which answers in some milliseconds, however few they are


@dataclass(frozen=True)
class Store:
    """A folder in an object store.

    Parameters
    ----------
    place
        The folder.

    Raises
    ------
    ArtifactError
        By every method, when the store does not answer or refuses; it names the URI.
    """

    place: Location

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.place.name

    @property
    def is_file(self) -> bool:
        """Whether an object stands where the folder should."""
        return bool(self._info("").is_file)

    @property
    def changed(self) -> datetime:
        """When the manifest was written, by the clock of the store."""
        changed: datetime = self._info(MANIFEST).mtime
        return changed

    @property
    def manifest(self) -> bytes | None:
        """Bytes of the manifest; None where there is none."""
        if not self._info(MANIFEST).is_file:
            return None
        with self._answering(), self.place.filesystem.open_input_stream(self._path(MANIFEST)) as file:
            return bytes(file.read(LARGEST_JSON))

    @property
    def entries(self) -> list[str]:
        """Names of what is right below, without going deeper."""
        return [info.base_name for info in self._infos(recursive=False)]

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of every file below but litter, by its name as it is spelled there."""
        start = len(self.place.path) + 1
        files = {info.path[start:]: info.size for info in self._infos(recursive=True) if info.is_file}
        return {name: size for name, size in files.items() if not is_litter(name)}

    @property
    def touched(self) -> datetime | None:
        """When a file below was last written; None where there is none."""
        return max((info.mtime for info in self._infos(recursive=True) if info.is_file), default=None)

    def below(self, name: str) -> Store:
        """Give the folder called ``name`` in it; ``""`` is itself."""
        return Store(Location(self.name, self.place.filesystem, self._path(name)))

    def make(self) -> None:
        """See to it that there is a bucket, and a folder where a store has such."""
        with self._answering():
            self.place.filesystem.create_dir(self.place.path, recursive=True)

    def put(self, name: str, content: bytes) -> None:
        """Write a file, in place of one that is there, in one step."""
        filesystem, target = self.place.filesystem, self._path(name)
        # Object stores replace an object as a whole, and rename by copying; elsewhere it is the name that is replaced.
        beside = target if filesystem.type_name in _OBJECT_STORES else f"{target}{BESIDE}"
        with self._answering():
            with filesystem.open_output_stream(beside) as file:
                file.write(content)
            if beside != target:
                filesystem.move(beside, target)

    def upload(self, folder: Path) -> None:
        """Copy a folder of this disk up."""
        self.make()
        with self._answering():
            fs.copy_files(str(folder), self.place.path, fs.LocalFileSystem(), self.place.filesystem, chunk_size=_PIECE)

    def download(self, names: Iterable[str], folder: Path) -> None:
        """Copy the files called ``names`` into a folder on this disk, and no others."""

        def copy(name: str) -> None:
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            source, here = self.place.filesystem, fs.LocalFileSystem()
            fs.copy_files(self._path(name), str(target), source, here, chunk_size=_PIECE)

        with self._answering(), ThreadPoolExecutor(_COPIES) as pool:
            list(pool.map(copy, names))

    def remove(self, name: str) -> None:
        """Remove the file or folder called ``name``, if it is there; ``""`` is itself."""
        info = self._info(name)
        # Another writer may do the same.
        with self._answering(), contextlib.suppress(FileNotFoundError):
            if info.type == fs.FileType.Directory:
                self.place.filesystem.delete_dir(info.path)
            elif info.is_file:
                self.place.filesystem.delete_file(info.path)

    @contextlib.contextmanager
    def staged(self) -> Iterator[Path]:
        """Make a folder of the same name on this disk, and remove it in the end."""
        with tempfile.TemporaryDirectory(prefix="recsys_emb-", ignore_cleanup_errors=True) as outer:
            folder = Path(outer) / (posixpath.basename(self.place.path) or "store")
            folder.mkdir()
            yield folder

    def _path(self, name: str) -> str:
        return posixpath.join(self.place.path, name) if name else self.place.path

    def _info(self, name: str) -> fs.FileInfo:
        with self._answering():
            return self.place.filesystem.get_file_info(self._path(name))

    def _infos(self, *, recursive: bool) -> list[fs.FileInfo]:
        selector = fs.FileSelector(self.place.path, allow_not_found=True, recursive=recursive)
        with self._answering():
            infos: list[fs.FileInfo] = self.place.filesystem.get_file_info(selector)
        return infos

    def _answering(self) -> contextlib.AbstractContextManager[None]:
        remedy = "Check the URI, the network and the permissions."
        return explained(self.name, "a store that does what it is asked", remedy, ArtifactError)
