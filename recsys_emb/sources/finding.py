"""Which files a path, a folder or a glob means."""

from __future__ import annotations

import fnmatch
import os
import posixpath
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyarrow import fs

from recsys_emb.sources.locations import Location

_ENDINGS = (".parquet", ".parq", ".pq")


def find(filesystem: fs.FileSystem, path: str) -> tuple[str, list[str]]:
    """Give the files that a path means, and the folder that messages name them from."""
    info = filesystem.get_file_info(path)
    if info.type == fs.FileType.File:
        return posixpath.dirname(path), [path]
    if info.type == fs.FileType.Directory:
        return path, [one for one in _walk(filesystem, path) if _is_data(one, path)]
    folder = _folder_above_pattern(path)
    walked = [] if folder is None else _walk(filesystem, folder)
    return folder or "/", [one for one in walked if _matches(one.split("/"), path.split("/"))]


def would_find(place: Location, folder: Location) -> bool:
    """Whether a Parquet file that is written to a folder would be among those that `find` gives for a place."""
    if place.filesystem.type_name != folder.filesystem.type_name:
        return False
    info = place.filesystem.get_file_info(place.path)
    above, below = (os.path.realpath(one.path) if one.is_local else one.path for one in (place, folder))
    if info.type == fs.FileType.Directory:
        return f"{below}/".startswith(f"{above.rstrip('/')}/") and _is_data(f"{below}/0.parquet", above)
    file = posixpath.join(folder.path, "00000-0-00000.parquet")
    return info.type == fs.FileType.NotFound and _matches(file.split("/"), place.path.split("/"))


def _walk(filesystem: fs.FileSystem, folder: str) -> list[str]:
    if isinstance(filesystem, fs.LocalFileSystem):
        return list(_walk_local(folder, set()))
    selector = fs.FileSelector(folder, recursive=True, allow_not_found=True)
    return [info.path for info in filesystem.get_file_info(selector) if info.type == fs.FileType.File]


def _walk_local(folder: str, above: set[str]) -> Iterator[str]:
    """Follow links, but never back into a folder that is being walked."""
    real = os.path.realpath(folder)
    if real in above or not Path(folder).is_dir():
        return
    for entry in os.scandir(folder):
        path = posixpath.join(folder, entry.name)
        if entry.is_dir():
            yield from _walk_local(path, above | {real})
        else:
            yield path


def _is_data(path: str, folder: str) -> bool:
    """Whether a file in a folder holds rows: Spark and others leave markers beside them."""
    below = path[len(folder) :].strip("/").split("/")
    is_marker = any(name.startswith(("_", ".")) and "=" not in name for name in below)
    return path.lower().endswith(_ENDINGS) and not is_marker


def _folder_above_pattern(path: str) -> str | None:
    """Give the folder below which a glob can match, or None when the path is no glob."""
    names = path.split("/")
    plain = next((place for place, name in enumerate(names) if any(sign in name for sign in "*?[")), None)
    return None if plain is None else "/".join(names[:plain]) or "/"


def _matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path fits a glob, folder by folder."""
    if not pattern:
        return not names
    if pattern[0] == "**" and _matches(names, pattern[1:]):
        return True
    if not names:
        return False
    fits = pattern[0] == "**" or fnmatch.fnmatchcase(names[0], pattern[0])
    return fits and _matches(names[1:], pattern if pattern[0] == "**" else pattern[1:])
