"""The files of a sealed folder, wherever it is, as they are before anybody has read them whole."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from recsys_emb.artifact.manifest import LARGEST_JSON, parse_json
from recsys_emb.sources.locations import Location


@dataclass(frozen=True)
class Listing:
    """Files that are there, and as long as their manifest says; whether they are unaltered is not known.

    Parameters
    ----------
    place
        The folder that they are in.
    manifest
        What its manifest says.
    sizes
        Bytes of each file, by name.
    saved
        When the manifest was written.
    """

    place: Location
    manifest: Mapping[str, object]
    sizes: Mapping[str, int]
    saved: datetime

    def open(self, name: str) -> pa.NativeFile:
        """Open a file for reading, here and there."""
        return self.place.filesystem.open_input_file(posixpath.join(self.place.path, name))

    def read(self, name: str) -> bytes:
        """Read a file whole; nothing where it is larger than any JSON that is written."""
        with self.open(name) as file:
            return bytes(file.read()) if file.size() <= LARGEST_JSON else b""

    def read_json(self, name: str) -> dict[str, object]:
        """Read a JSON object, or raise `ArtifactError`."""
        return parse_json(self.read(name), name)
