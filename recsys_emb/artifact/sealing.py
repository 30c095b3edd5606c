"""A folder on this disk that is whole: it holds the files of its manifest and no others, unaltered."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from recsys_emb.artifact.manifest import MANIFEST, describe_file, described, file_names, read_manifest
from recsys_emb.errors import ArtifactError, listed

T = TypeVar("T")


def seal(folder: Path, kind: str) -> None:
    """Write the manifest of the files in a folder."""
    files = {name: describe_file(folder / name) for name in sorted(file_names(folder))}
    (folder / MANIFEST).write_text(described(files, kind), encoding="utf-8")


def read_sealed(folder: Path, read: Callable[[Path], T], kind: str, late: Collection[str] = ()) -> T:
    """Let ``read`` read a folder that is whole; see `recsys_emb.artifact.folder.read_folder`."""
    files = listed_files(folder, kind)
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


def listed_files(folder: Path, kind: str) -> Mapping[str, object]:
    """Read the manifest; the files that it names are those that are there, and as long as it says."""
    files = read_manifest(folder, kind)
    found = {name: (folder / name).stat().st_size for name in file_names(folder) if name != MANIFEST}
    check_listed(files, found, folder.name)
    return files


def check_listed(files: Mapping[str, object], found: Mapping[str, int], where: str) -> None:
    """Refuse files that are missing, added or of another size than a manifest says.

    Parameters
    ----------
    files
        What the manifest says of each file, by name.
    found
        Size of each file that is there, but for the manifest.
    where
        Name of the folder, for messages.
    """
    if set(found) != set(files):
        missing, extra = sorted(set(files) - set(found)), sorted(set(found) - set(files))
        differences = [f"{listed(names)} {word}" for names, word in ((missing, "missing"), (extra, "added")) if names]
        got = " and ".join(differences)
        raise ArtifactError(f"{where}: expected exactly the files of its manifest, got {got}. Save it again.")
    said = {name: one.get("bytes") if isinstance(one, dict) else None for name, one in files.items()}
    _refuse_named([name for name, size in said.items() if found[name] != size], where)


def _refuse_altered(folder: Path, answers: Mapping[str, Future[bool]]) -> None:
    _refuse_named([name for name, answer in answers.items() if not answer.result()], folder.name)


def _refuse_named(altered: list[str], where: str) -> None:
    if altered:
        got = f"{listed(altered)} altered or cut short"
        raise ArtifactError(f"{where}: expected files as they were written, got {got}. Save it again.")


def _is_as_described(path: Path, said: object) -> bool:
    return describe_file(path) == said
