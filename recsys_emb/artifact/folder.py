"""A sealed folder: files under a manifest, written whole or not at all, and read only if whole.

The manifest names every file with its size and SHA-256. `write_folder` writes beside the target and swaps the two
in one step, so that a reader finds the old folder or the new one, never a mixture. The hashes find damage; they do
not prove who wrote the folder. What keeps loading safe is that nothing in it is ever executed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from recsys_emb._version import __version__
from recsys_emb.artifact.manifest import (
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    describe_file,
    file_names,
    read_manifest,
)
from recsys_emb.artifact.swapping import folder_beside, install
from recsys_emb.errors import ArtifactError, listed

_ATTEMPTS = 5

T = TypeVar("T")


def write_folder(path: str | os.PathLike[str], write: Callable[[Path], None], *, kind: str = "model") -> None:
    """Write a folder in one step.

    Parameters
    ----------
    path
        Where the folder shall stand. Nothing, an empty folder, or an earlier artifact that holds nothing else may
        be there; parents are made.
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
    the disk before the name is. What a killed writer leaves beside the target is removed by the next one.
    """
    target = _resolved(path)
    _refuse_foreign(target, kind)
    with folder_beside(target) as beside:
        write(beside)
        files = {name: describe_file(beside / name) for name in sorted(file_names(beside))}
        versions = {"format_version": FORMAT_VERSION, "library_version": __version__}
        manifest = {"format": FORMAT, "kind": kind, **versions, "files": files}
        (beside / MANIFEST).write_text(json.dumps(manifest, indent=2), encoding="utf-8")
        install(beside, target)


def read_folder(
    path: str | os.PathLike[str], read: Callable[[Path], T], *, kind: str = "model", late: Collection[str] = ()
) -> T:
    """Read a folder that `write_folder` wrote.

    Parameters
    ----------
    path
        The folder.
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
    folder = _resolved(path)
    for _ in range(_ATTEMPTS):
        identity = _identity(folder)
        try:
            result = _read_checked(folder, read, kind, late)
        except (ArtifactError, OSError):
            if _identity(folder) == identity:
                raise
            continue
        if _identity(folder) == identity:
            return result
    raise ArtifactError(
        f"{folder.name}: expected a folder at rest, got one replaced {_ATTEMPTS} times while reading. Load it again."
    )


def check_folder(folder: Path, *, kind: str = "model") -> None:
    """Raise `ArtifactError` unless the folder is of a kind and holds exactly the files of its manifest, unaltered."""
    _read_checked(folder, lambda _: None, kind, ())


def read_listing(path: str | os.PathLike[str], *, kind: str = "model") -> dict[str, int]:
    """Give the files of a folder and their sizes, without reading their content.

    Raises
    ------
    ArtifactError
        When it is not an artifact of this kind, was written by a newer version, or a file is missing, added, of
        another size, a link, or outside.
    """
    folder = _resolved(path)
    files = _listed_files(folder, kind)
    return {name: (folder / name).stat().st_size for name in files}


def _read_checked(folder: Path, read: Callable[[Path], T], kind: str, late: Collection[str]) -> T:
    files = _listed_files(folder, kind)
    # Hashing leaves the interpreter free, so threads share it out.
    with ThreadPoolExecutor() as pool:
        answers = {name: pool.submit(_is_as_described, folder / name, said) for name, said in files.items()}
        if not all(answer.result() for name, answer in answers.items() if name not in late):
            _refuse_altered(folder, answers)
        try:
            result = read(folder)
        except Exception:
            # Damage explains whatever else went wrong.
            _refuse_altered(folder, answers)
            raise
        _refuse_altered(folder, answers)
        return result


def _listed_files(folder: Path, kind: str) -> Mapping[str, object]:
    """Read the manifest; the files that it names are those that are there, and as long as it says."""
    files = read_manifest(folder, kind)
    found = set(file_names(folder)) - {MANIFEST}
    if found != set(files):
        missing, extra = sorted(set(files) - found), sorted(found - set(files))
        differences = [f"{listed(names)} {word}" for names, word in ((missing, "missing"), (extra, "added")) if names]
        got = " and ".join(differences)
        raise ArtifactError(f"{folder.name}: expected exactly the files of its manifest, got {got}. Save it again.")
    said = {name: one.get("bytes") if isinstance(one, dict) else None for name, one in files.items()}
    _refuse_named(folder, [name for name, size in said.items() if (folder / name).stat().st_size != size])
    return files


def _refuse_altered(folder: Path, answers: Mapping[str, Future[bool]]) -> None:
    _refuse_named(folder, [name for name, answer in answers.items() if not answer.result()])


def _refuse_named(folder: Path, altered: list[str]) -> None:
    if altered:
        got = f"{listed(altered)} altered or cut short"
        raise ArtifactError(f"{folder.name}: expected files as they were written, got {got}. Save it again.")


def _is_as_described(path: Path, said: object) -> bool:
    return describe_file(path) == said


def _resolved(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path).resolve()
    except (TypeError, ValueError, OSError, RuntimeError) as error:
        raise ArtifactError(f"artifact: expected the path of a folder, got {path!r}. Give a name or a Path.") from error


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
