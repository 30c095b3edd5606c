"""A sealed folder: files under a manifest, written whole or not at all, and read only if whole.

The manifest names every file with its size and SHA-256. `write_folder` writes beside the target and swaps the two
in one step, so that a reader finds the old folder or the new one, never a mixture. The hashes find damage; they do
not prove who wrote the folder. What keeps loading safe is that nothing in it is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import TypeVar

from recsys_emb._version import __version__
from recsys_emb.artifact.swapping import folder_beside, install
from recsys_emb.errors import ArtifactError, listed

MANIFEST = "manifest.json"
FORMAT = "recsys_emb"
FORMAT_VERSION = 1
_ATTEMPTS = 5
_LARGEST_JSON = 2**26  # far above any that is written
_REMEDY = "Give a folder that save() wrote."

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
        files = {name: _describe(beside / name) for name in sorted(_file_names(beside))}
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


def _read_checked(folder: Path, read: Callable[[Path], T], kind: str, late: Collection[str]) -> T:
    files = _listed_files(folder, kind)
    # Hashing leaves the interpreter free, so threads share it out.
    with ThreadPoolExecutor() as pool:
        answers = {name: pool.submit(_is_as_described, folder / name, said) for name, said in files.items()}
        _refuse_altered(folder, {name: answer for name, answer in answers.items() if name not in late})
        try:
            result = read(folder)
        except Exception:
            # Damage explains whatever else went wrong.
            _refuse_altered(folder, answers)
            raise
        _refuse_altered(folder, answers)
        return result


def _listed_files(folder: Path, kind: str) -> Mapping[str, object]:
    """Read the manifest; the files that it names are those that are there."""
    files = _read_manifest(folder, kind)
    found = set(_file_names(folder)) - {MANIFEST}
    if found != set(files):
        missing, extra = sorted(set(files) - found), sorted(found - set(files))
        differences = [f"{listed(names)} {word}" for names, word in ((missing, "missing"), (extra, "added")) if names]
        got = " and ".join(differences)
        raise ArtifactError(f"{folder.name}: expected exactly the files of its manifest, got {got}. Save it again.")
    return files


def _refuse_altered(folder: Path, answers: Mapping[str, Future[bool]]) -> None:
    altered = [name for name, answer in answers.items() if not answer.result()]
    if altered:
        got = f"{listed(altered)} altered or cut short"
        raise ArtifactError(f"{folder.name}: expected files as they were written, got {got}. Save it again.")


def _is_as_described(path: Path, said: object) -> bool:
    # A file of another length need not be read.
    size = said.get("bytes") if isinstance(said, dict) else None
    return path.stat().st_size == size and _describe(path) == said


def read_json(path: Path) -> dict[str, object]:
    """Read a JSON object, or raise `ArtifactError`."""
    try:
        content = json.loads(path.read_bytes()) if path.stat().st_size <= _LARGEST_JSON else None
    except (ValueError, RecursionError, OSError):
        content = None
    if not isinstance(content, dict):
        raise ArtifactError(f"{path.name}: expected a JSON object, got something else. Save the artifact again.")
    return content


def _read_manifest(folder: Path, kind: str) -> Mapping[str, object]:
    manifest = folder / MANIFEST
    if not manifest.is_file() or manifest.is_symlink():
        got = "a folder without it" if folder.is_dir() else "a file" if folder.exists() else "nothing there"
        raise ArtifactError(f"{folder.name}: expected a folder with a {MANIFEST!r}, got {got}. {_REMEDY}")
    content = read_json(manifest)
    version, files = content.get("format_version"), content.get("files")
    if content.get("format") != FORMAT:
        got = repr(content.get("format"))
        raise ArtifactError(f"{folder.name}: expected a {MANIFEST!r} of format {FORMAT!r}, got {got}. {_REMEDY}")
    if not isinstance(version, int) or isinstance(version, bool):
        raise ArtifactError(f"{folder.name}: expected an integer format_version, got {version!r}. {_REMEDY}")
    if version > FORMAT_VERSION:
        got = f"{version}, written by a newer version of recsys_emb: {content.get('library_version')}"
        raise ArtifactError(
            f"{folder.name}: expected format version {FORMAT_VERSION} or older, got {got}. "
            f"This is {__version__}; upgrade it."
        )
    found = content.get("kind", "model")
    if found != kind:
        raise ArtifactError(f"{folder.name}: expected a saved {kind}, got a {found}. Give the folder of a {kind}.")
    if not isinstance(files, dict) or not all(_is_inside(name) for name in files):
        got = listed(files) if isinstance(files, dict) else repr(files)
        raise ArtifactError(
            f"{folder.name}: expected a {MANIFEST!r} naming files inside the folder, got {got}. {_REMEDY}"
        )
    return files


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    plain = name == str(path) and "\\" not in name and ":" not in name and "\0" not in name
    return plain and not path.is_absolute() and ".." not in path.parts and name not in (".", MANIFEST)


def _file_names(folder: Path) -> Iterator[str]:
    """Names of all files below, relative and with slashes; refuses links and devices."""
    for entry in sorted(folder.rglob("*")):
        name = entry.relative_to(folder).as_posix()
        if entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
            raise ArtifactError(
                f"{folder.name}: expected plain files, got a link or device at {name!r}. Copy the file in its place."
            )
        if entry.is_file():
            yield name


def _describe(path: Path) -> dict[str, object]:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(2**20):
            digest.update(block)
    return {"sha256": digest.hexdigest(), "bytes": path.stat().st_size}


def _resolved(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path).resolve()
    except (TypeError, ValueError, OSError, RuntimeError) as error:
        raise ArtifactError(f"artifact: expected the path of a folder, got {path!r}. Give a name or a Path.") from error


def _refuse_foreign(target: Path, kind: str) -> None:
    """Raise unless nothing would be lost by replacing what stands at the target."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    try:
        # Before the folder is walked, which may be a whole disk.
        known = {MANIFEST, *_read_manifest(target, kind)}
        strange = set(_file_names(target)) - known
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
