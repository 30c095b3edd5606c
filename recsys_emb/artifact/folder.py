"""A sealed folder: files under a manifest, written whole or not at all, and read only if whole.

The manifest names every file with its size and SHA-256. `write_folder` writes beside the target and swaps the two
in one step, so that a reader finds the old folder or the new one, never a mixture. The hashes find damage; they do
not prove who wrote the folder. What keeps loading safe is that nothing in it is ever executed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeVar

from recsys_emb.artifact import stored
from recsys_emb.artifact.listing import Listing
from recsys_emb.artifact.manifest import MANIFEST, current_save, file_names, read_json, read_manifest
from recsys_emb.artifact.sealing import listed_files, read_sealed, seal
from recsys_emb.artifact.swapping import folder_beside, install
from recsys_emb.errors import ArtifactError, DataError, listed
from recsys_emb.sources.locations import Location, locate

_ATTEMPTS = 5

T = TypeVar("T")


def write_folder(path: str | os.PathLike[str], write: Callable[[Path], None], *, kind: str = "model") -> None:
    """Write a folder in one step.

    Parameters
    ----------
    path
        Where the folder shall stand: a path, or the URI of a folder in an object store. Nothing, an empty folder, or
        an earlier artifact that holds nothing else may be there; parents are made.
    write
        Receives an empty folder and writes the files into it.
    kind
        What it holds; a folder of another kind is not replaced.

    Raises
    ------
    ArtifactError
        When something else stands at ``path``. It is left as it is.

    Notes
    -----
    Linux and macOS swap two folders in one step where the file system can; elsewhere an earlier artifact is moved
    aside just before the new one takes its name, and a reader may find neither for that instant. Everything is on
    the disk before the name is. What a killed writer leaves beside the target is removed by the next one. How a
    folder is written into a store is said in `recsys_emb.artifact.stored`.
    """
    target = _place_of(path)
    if isinstance(target, Location):
        return stored.write_stored(target, write, kind)
    _refuse_foreign(target, kind)
    with folder_beside(target) as beside:
        write(beside)
        seal(beside, kind)
        install(beside, target)
    return None


def read_folder(
    path: str | os.PathLike[str], read: Callable[[Path], T], *, kind: str = "model", late: Collection[str] = ()
) -> T:
    """Read a folder that `write_folder` wrote.

    Parameters
    ----------
    path
        The folder, or its URI. What is in a store is copied to the temporary folder of this machine meanwhile.
    read
        Receives the folder once it is known to be whole, but for the files named in ``late``. It is called again
        when a writer swapped the folder meanwhile.
    kind
        What it must hold.
    late
        Names of files that are safe to open before their content is known to be whole: they are checked while
        ``read`` works, and before its result is given out.

    Raises
    ------
    ArtifactError
        When it is not an artifact, was written by a newer version, or a file is missing, added, altered, a link,
        or outside.
    """
    folder = _place_of(path)
    if isinstance(folder, Location):
        return stored.read_stored(folder, read, kind, late)
    for _ in range(_ATTEMPTS):
        identity = _identity(folder)
        try:
            result = read_sealed(_current(folder), read, kind, late)
        except (ArtifactError, OSError):
            if _identity(folder) == identity:
                raise
            continue
        if _identity(folder) == identity:
            return result
    raise ArtifactError(
        f"{folder.name}: expected a folder at rest, got one replaced {_ATTEMPTS} times while reading. Load it again."
    )


def list_folder(path: str | os.PathLike[str], *, kind: str = "model") -> Listing:
    """List the files of a folder, and their sizes, without reading their content.

    Raises
    ------
    ArtifactError
        When it is not an artifact of this kind, was written by a newer version, or a file is missing, added, of
        another size, a link, or outside.
    """
    place = _place_of(path)
    if isinstance(place, Location):
        return stored.list_stored(place, kind)
    folder = _current(place)
    files = listed_files(folder, kind)
    sizes = {name: (folder / name).stat().st_size for name in files}
    saved = datetime.fromtimestamp((folder / MANIFEST).stat().st_mtime, timezone.utc)
    return Listing(locate(str(folder)), read_json(folder / MANIFEST), sizes, saved)


def stays(path: str | os.PathLike[str]) -> bool:
    """Whether the files that `read_folder` gives may be used afterwards: those of a store are a copy that goes."""
    return isinstance(_place_of(path), Path)


def is_vacant(path: str | os.PathLike[str], *, kind: str) -> bool:
    """Whether nothing stands there."""
    place = _place_of(path)
    if isinstance(place, Location):
        return stored.is_vacant(place, kind)
    return not place.exists() or (place.is_dir() and not any(place.iterdir()))


def name_of(path: str | os.PathLike[str]) -> str:
    """Give what messages call a folder: its own name, or the whole URI."""
    place = _place_of(path)
    return place.name


def _place_of(path: str | os.PathLike[str]) -> Path | Location:
    try:
        place = locate(os.fspath(path))
        return Path(place.path).resolve() if place.is_local else place
    except DataError as error:
        raise ArtifactError(str(error)) from error
    except (TypeError, ValueError, OSError, RuntimeError) as error:
        raise ArtifactError(f"artifact: expected the path of a folder, got {path!r}. Give a name or a Path.") from error


def _current(folder: Path) -> Path:
    """Give the folder itself, or the save that it stands for, where it was copied from a store."""
    manifest = folder / MANIFEST
    save = folder / current_save(read_json(manifest), folder.name) if manifest.is_file() else folder
    if save != folder and save.is_symlink():
        got = f"a link at {save.name!r}"
        raise ArtifactError(f"{folder.name}: expected plain folders, got {got}. Copy the folder in its place.")
    return save


def _refuse_foreign(target: Path, kind: str) -> None:
    """Raise unless nothing would be lost by replacing what stands at the target."""
    for _ in range(_ATTEMPTS):
        identity = _identity(target)
        try:
            _refuse_what_stands(target, kind)
        except (ArtifactError, OSError):
            # Another writer may have put its folder there meanwhile, and taken the one that was looked at away.
            if _identity(target) == identity:
                raise
        else:
            return


def _refuse_what_stands(target: Path, kind: str) -> None:
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    try:
        # Before the folder is walked, which may be a whole disk.
        known = {MANIFEST, *read_manifest(target, kind)}
        strange = set(file_names(target)) - known
    except ArtifactError as error:
        got = "something else"
        raise ArtifactError(
            f"{target.name or target}: expected an artifact or an empty place, got {got}. Save elsewhere."
        ) from error
    if strange:
        got = listed(sorted(strange))
        raise ArtifactError(
            f"{target.name}: expected only the artifact's own files, got {got} too. Move them away first."
        )


def _identity(folder: Path) -> tuple[int, int, int] | None:
    try:
        state = folder.stat()
    except FileNotFoundError:
        return None
    return state.st_dev, state.st_ino, state.st_mtime_ns
