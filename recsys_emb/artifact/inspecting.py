"""What is inside a saved folder, told from manifests and headers: no weights, no vocabularies, no hashes are read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError, safe_open

from recsys_emb.artifact.contents import SCHEMA
from recsys_emb.artifact.folder import read_listing
from recsys_emb.artifact.manifest import MANIFEST, read_json
from recsys_emb.artifact.weights import SETTINGS, WEIGHTS
from recsys_emb.errors import ArtifactError, SchemaError
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
        return "\n".join(lines)


def inspect(folder: str | os.PathLike[str]) -> Contents:
    """Print, and give, what is inside a saved folder, without loading weights.

    That the files are there and of the right size is checked, that they are unaltered is not; loading checks it.

    Raises
    ------
    ArtifactError
        When it is not a saved recommender, was written by a newer version, or a file is missing, added, cut short or a
        link.
    """
    path = Path(folder)
    sizes, manifest = read_listing(path), read_json(path / MANIFEST)
    settings = read_json(path / SETTINGS)
    try:
        schema = Schema.from_json((path / SCHEMA).read_text(encoding="utf-8"))
        contents = Contents(
            format_version=int(str(manifest["format_version"])),
            library_version=str(manifest.get("library_version")),
            saved=datetime.fromtimestamp((path / MANIFEST).stat().st_mtime, timezone.utc),
            schema=schema,
            files=sizes,
            vocabularies=_vocabulary_sizes(path, settings.get("vocabularies")),
            tensors=_shapes(path / WEIGHTS),
            settings=_object(settings.get("settings")),
        )
    except (SchemaError, SafetensorError, pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        got = str(error).rstrip(".")
        raise ArtifactError(f"{path.name}: expected a saved recommender, got {got}. Save it again.") from error
    print(contents)
    return contents


def _vocabulary_sizes(path: Path, said: object) -> dict[str, int]:
    sizes = {}
    for name, one in _object(said).items():
        file = one["file"] if isinstance(one, dict) else one
        sizes[name] = pq.read_metadata(path / "vocabularies" / Path(str(file)).name).num_rows
    return sizes


def _shapes(path: Path) -> dict[str, str]:
    with safe_open(path, framework="numpy") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 — no mapping
        return {name: f"{one.get_dtype()} {tuple(one.get_shape())}" for name, one in slices.items()}


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _feature(feature: Any, vocabularies: Mapping[str, int]) -> str:
    kind = type(feature).__name__
    owner = str(getattr(feature, "vocabulary_name", ""))
    return f"{kind}, {vocabularies[owner]:,} values" if owner in vocabularies else kind


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
