"""Folders that say that they hold encoded rows: numbers too, which must not be taken for raw ones."""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyarrow import fs

from recsys_emb.errors import DataError
from recsys_emb.sources.locations import Location, explained, is_uri

MANIFEST = "manifest.json"
FORMAT, KIND = "recsys_emb", "encoded rows"
# What a folder may have from an earlier run, and nobody else calls a file.
PART = re.compile(r"\d{5,}-.*-\d{5,}\.parquet", re.DOTALL)


def read_mark(filesystem: fs.FileSystem, folder: str) -> dict[str, Any] | None:
    """Read the manifest of a folder of encoded rows; None where there is none.

    Raises
    ------
    DataError
        When there is one that cannot be read.
    """
    path = posixpath.join(folder, MANIFEST)
    with explained(path, "a file that can be read", "Check it and the permissions.", DataError):
        try:
            with filesystem.open_input_stream(path) as file:
                content = file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
    try:
        said = json.loads(content)
    except ValueError:
        return None
    is_such = isinstance(said, dict) and said.get("format") == FORMAT and said.get("kind") == KIND
    return said if is_such else None


def refuse_encoded(place: Location, files: Iterable[str]) -> None:
    """Refuse files that were found by a place where some are parts of encoded rows, or it is a folder of none.

    Raises
    ------
    DataError
        Naming the folder of the first such part.
    """
    found = list(files)
    folders = sorted({posixpath.dirname(file) for file in found if PART.fullmatch(posixpath.basename(file))})
    for folder in folders if found else [place.path]:
        if read_mark(place.filesystem, folder) is not None:
            name = _name(place, folder)
            raise DataError(
                f"{name}: expected raw rows, got rows that transform_to encoded. "
                f"Pass EncodedRows({name!r}) to BatchLoader, and the raw rows elsewhere."
            )


def _name(place: Location, folder: str) -> str:
    """Name a folder as the place was named."""
    if not is_uri(place.name):
        return folder if Path(place.name).expanduser().is_absolute() else os.path.relpath(folder)
    text, mark, query = place.name.partition("?")
    return f"{text.rstrip('/').removesuffix(place.path)}{folder}{mark}{query}"
