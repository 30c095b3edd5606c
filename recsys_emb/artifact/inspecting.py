"""What is inside a saved folder, told from manifests and headers: no weights, no vocabularies, no hashes are read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from recsys_emb.artifact.encoders import SCHEMA
from recsys_emb.artifact.folder import list_folder
from recsys_emb.artifact.listing import Listing
from recsys_emb.artifact.manifest import LARGEST_JSON, parse_json
from recsys_emb.artifact.weights import SETTINGS, WEIGHTS
from recsys_emb.errors import ArtifactError
from recsys_emb.schema.schema import Schema


@dataclass(frozen=True)
class Contents:
    """What a saved folder says of itself.

    Parameters
    ----------
    format_version, library_version
        In which format, and by which version of this library, it was written.
    saved
        When.
    schema
        The declarations.
    files
        Size in bytes of each file.
    vocabularies
        How many values each has, by the name of the feature that owns it.
    tensors
        Type and shape of each of the model's tensors.
    settings
        What the owner kept beside: the objective, how training went, where the model comes from.
    """

    format_version: int
    library_version: str
    saved: datetime
    schema: Schema
    files: Mapping[str, int]
    vocabularies: Mapping[str, int]
    tensors: Mapping[str, str]
    settings: Mapping[str, Any]

    @property
    def num_parameters(self) -> int:
        """Numbers in the model's tables."""
        shapes = [said.partition(" ")[2] for name, said in self.tensors.items() if ".tables." in name]
        return sum(_product(shape) for shape in shapes)

    def __repr__(self) -> str:
        """Say in a line what it is, as `inspect` has printed the rest."""
        size = _size(sum(self.files.values()))
        return f"Contents(format {self.format_version}, {len(self.files)} files, {size})"

    def __str__(self) -> str:
        """Describe it in a few lines."""
        objective = self.settings.get("objective", {})
        lineage = self.settings.get("lineage", [])
        total = sum(self.files.values())
        lines = [
            f"format {self.format_version} of recsys_emb {self.library_version}, {self.saved:%Y-%m-%d %H:%M} UTC",
            f"{len(self.files)} files, {_size(total)}; {self.num_parameters:,} parameters",
            *(f"  {feature.name}: {_feature(feature, self.vocabularies)}" for feature in self.schema.features),
            f"label {self.schema.label!r}, width {self.schema.embedding_dim}, {objective.get('kind', 'no objective')}",
            *(f"  step {n}: {one.get('rows', 0):,} rows, {one['fingerprint'][:12]}" for n, one in enumerate(lineage)),
        ]
        # Names are free text, which a terminal is not to act on.
        return "\n".join(line if line.isprintable() else ascii(line)[1:-1] for line in lines)


def inspect(folder: str | os.PathLike[str]) -> Contents:
    """Print, and give, what is inside a saved folder, here or in an object store, without loading weights.

    That the files are there and of the right size is checked, that they are unaltered is not; loading checks it.

    Raises
    ------
    ArtifactError
        When it is not a saved recommender, was written by a newer version, or a file is missing, added, cut short or a
        link.
    """
    listing = list_folder(folder)
    try:
        settings = listing.read_json(SETTINGS)
        contents = Contents(
            format_version=int(str(listing.manifest["format_version"])),
            library_version=str(listing.manifest.get("library_version")),
            saved=listing.saved,
            schema=Schema.from_json(listing.read(SCHEMA).decode()),
            files=listing.sizes,
            vocabularies=_vocabulary_sizes(listing, settings.get("vocabularies")),
            tensors=_shapes(listing),
            settings=_object(settings.get("settings")),
        )
        text = str(contents)
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, ArtifactError):
            raise
        got = str(error).rstrip(".")
        where = Path(listing.place.path).name
        raise ArtifactError(f"{where}: expected a saved recommender, got {got}. Save it again.") from error
    print(text)
    return contents


def _vocabulary_sizes(listing: Listing, said: object) -> dict[str, int]:
    sizes = {}
    for name, one in _object(said).items():
        path = one["file"] if isinstance(one, dict) else one
        with listing.open(f"vocabularies/{PurePosixPath(str(path)).name}") as file:
            sizes[name] = pq.read_metadata(file).num_rows
    return sizes


def _shapes(listing: Listing) -> dict[str, str]:
    """Read the header of the weights: eight bytes that say how long the JSON after them is."""
    with listing.open(WEIGHTS) as file:
        length = int.from_bytes(file.read(8), "little")
        header = parse_json(file.read(length) if length <= LARGEST_JSON else b"", WEIGHTS)
    tensors = {name: one for name, one in header.items() if name != "__metadata__"}
    return {name: f"{one['dtype']} {tuple(one['shape'])}" for name, one in tensors.items() if isinstance(one, dict)}


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _feature(feature: Any, vocabularies: Mapping[str, int]) -> str:
    kind = type(feature).__name__
    owner = str(getattr(feature, "vocabulary_name", ""))
    return (
        f"{kind}, {vocabularies[owner]:,} {'value' if vocabularies[owner] == 1 else 'values'}"
        if owner in vocabularies
        else kind
    )


def _product(shape: str) -> int:
    total = 1
    for part in shape.strip("()").split(","):
        total *= int(part) if part.strip() else 1
    return total


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return ""
