"""The manifest of a sealed folder: which files there are, in which format, and what their content hashes to."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from recsys_emb._version import __version__
from recsys_emb.errors import ArtifactError, listed

MANIFEST = "manifest.json"
FORMAT = "recsys_emb"
FORMAT_VERSION = 2
LARGEST_JSON = 2**26  # far above any that is written
SAVE = re.compile(r"save-[0-9a-f]{16}")
# What file managers of macOS, Windows and Linux write beside files; AppleDouble files begin with "._".
_LITTER = {".DS_Store", ".localized", "Thumbs.db", "ehthumbs.db", "desktop.ini", ".directory"}
_REMEDY = "Give a folder that save() wrote."


def file_hash(path: Path) -> str:
    """Hash the content of a file: SHA-256 in hex."""
    with path.open("rb", buffering=0) as file:
        digest, block = hashlib.sha256(), bytearray(2**18)
        while count := file.readinto(block):
            digest.update(memoryview(block)[:count])
    return digest.hexdigest()


def listed_hash(folder: Path, name: str) -> object:
    """Give the hash that the manifest of a checked folder states for a file."""
    files = read_json(folder / MANIFEST).get("files")
    said = files.get(name) if isinstance(files, dict) else None
    return said.get("sha256") if isinstance(said, dict) else None


def format_version(folder: Path) -> int:
    """Give the format version that a checked folder was written in."""
    version = read_json(folder / MANIFEST).get("format_version")
    return version if isinstance(version, int) else FORMAT_VERSION


def read_json(path: Path) -> dict[str, object]:
    """Read a JSON object, or raise `ArtifactError`."""
    try:
        data = path.read_bytes() if path.stat().st_size <= LARGEST_JSON else b""
    except OSError:
        data = b""
    return parse_json(data, path.name)


def parse_json(data: bytes, name: str) -> dict[str, object]:
    """Parse the JSON object that a file called ``name`` holds, or raise `ArtifactError`."""
    try:
        content = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ArtifactError(f"{name}: expected a JSON object, got something else. Save the artifact again.")
    return content


def _refuse_constant(name: str) -> None:
    """Refuse NaN and infinities, which JSON does not have and no save writes."""
    raise ValueError(name)


def read_manifest(folder: Path, kind: str) -> Mapping[str, object]:
    """Read what a manifest says of each file, by name.

    Raises
    ------
    ArtifactError
        When there is none, or one of another format, kind or a newer version, or it names something outside.
    """
    manifest = folder / MANIFEST
    if not manifest.is_file() or manifest.is_symlink():
        got = "a folder without it" if folder.is_dir() else "a file" if folder.exists() else "nothing there"
        raise ArtifactError(f"{folder.name}: expected a folder with a {MANIFEST!r}, got {got}. {_REMEDY}")
    return check_manifest(read_json(manifest), kind, folder.name)


def check_manifest(content: Mapping[str, object], kind: str, where: str) -> Mapping[str, object]:
    """Give what a manifest says of each file, by name, as `read_manifest` does; ``where`` it stands."""
    version, files = content.get("format_version"), content.get("files")
    if content.get("format") != FORMAT:
        got = repr(content.get("format"))
        raise ArtifactError(f"{where}: expected a {MANIFEST!r} of format {FORMAT!r}, got {got}. {_REMEDY}")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ArtifactError(f"{where}: expected an integer format_version, got {version!r}. {_REMEDY}")
    if version > FORMAT_VERSION:
        got = f"{version}, written by a newer version of recsys_emb: {content.get('library_version')}"
        raise ArtifactError(
            f"{where}: expected format version {FORMAT_VERSION} or older, got {got}. This is {__version__}; upgrade it."
        )
    found = content.get("kind", "model")
    if found != kind:
        raise ArtifactError(f"{where}: expected a saved {kind}, got {_a(found)}. Give the folder of {_a(kind)}.")
    if not isinstance(files, dict) or not all(_is_inside(name) for name in files):
        got = listed(name for name in files if not _is_inside(name)) if isinstance(files, dict) else repr(files)
        raise ArtifactError(f"{where}: expected a {MANIFEST!r} naming files inside the folder, got {got}. {_REMEDY}")
    return files


def current_save(content: Mapping[str, object], where: str) -> str:
    """Give the folder, below the manifest's, of the save that it stands for; its own folder is nothing: ``""``."""
    name = content.get("current", "")
    if name != "" and not (isinstance(name, str) and SAVE.fullmatch(name)):
        raise ArtifactError(f"{where}: expected a {MANIFEST!r} naming a save below it, got {name!r}. {_REMEDY}")
    return str(name)


def _a(kind: object) -> str:
    noun = str(kind)
    return noun if noun.endswith("s") else f"an {noun}" if noun.startswith(tuple("aeiou")) else f"a {noun}"


def described(files: Mapping[str, object], kind: str, **more: object) -> str:
    """Write a manifest."""
    versions = {"format_version": FORMAT_VERSION, "library_version": __version__}
    return json.dumps({"format": FORMAT, "kind": kind, **versions, "files": files, **more}, indent=2)


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    plain = name == str(path) and "\\" not in name and ":" not in name and "\0" not in name
    return plain and not path.is_absolute() and ".." not in path.parts and name not in (".", MANIFEST)


def is_litter(name: str) -> bool:
    """Whether a file is one that an operating system leaves in any folder that it shows.

    >>> is_litter("vocabularies/.DS_Store"), is_litter("._weights"), is_litter(".hidden")
    (True, True, False)
    """
    last = PurePosixPath(name).name
    return last in _LITTER or last.startswith("._")


def file_names(folder: Path) -> Iterator[str]:
    """Names of all files below but litter, relative and with slashes; refuses links and devices."""
    for entry in sorted(folder.rglob("*")):
        name = entry.relative_to(folder).as_posix()
        if entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
            raise ArtifactError(
                f"{folder.name}: expected plain files, got a link or device at {name!r}. Copy the file in its place."
            )
        if entry.is_file() and not is_litter(name):
            yield name


def describe_file(path: Path) -> dict[str, object]:
    """Describe a file as a manifest does."""
    return {"sha256": file_hash(path), "bytes": path.stat().st_size}
