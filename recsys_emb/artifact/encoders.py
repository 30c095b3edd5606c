"""A fitted encoder as files and back: beside a model, or in a folder of its own.

A folder of its own holds ``manifest.json``, ``schema.json``, ``encoder.json`` (numeric statistics, the file of each
vocabulary, the fingerprint) and ``vocabularies/``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from recsys_emb.artifact.folder import read_folder, write_folder
from recsys_emb.artifact.manifest import file_hash, listed_hash, read_json
from recsys_emb.artifact.tables import read_table, write_table
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.learning import EncoderState
from recsys_emb.errors import ArtifactError, listed
from recsys_emb.schema.schema import Schema
from recsys_emb.schema.tables import Unknown
from recsys_emb.vocabulary.vocabulary import Vocabulary

KIND = "encoder"
SCHEMA, LEARNED = "schema.json", "encoder.json"
_REMEDY = "Save the artifact again."


def save_encoder(path: str | os.PathLike[str], encoder: FeatureEncoder) -> None:
    """Write an encoder into a folder of its own; see `FeatureEncoder.save`."""
    encoder.to_state()  # before anything is written

    def write(folder: Path) -> None:
        learned = json.dumps(write_encoder(folder, encoder), indent=2, allow_nan=False)
        (folder / LEARNED).write_text(learned, encoding="utf-8")

    write_folder(path, write, kind=KIND)


def load_encoder(path: str | os.PathLike[str]) -> FeatureEncoder:
    """Read what `save_encoder` wrote; see `FeatureEncoder.load`."""
    return read_folder(path, lambda folder: read_encoder(folder, read_json(folder / LEARNED), LEARNED), kind=KIND)


def write_encoder(folder: Path, encoder: FeatureEncoder) -> dict[str, Any]:
    """Write the schema and the vocabularies, and give what is to be said of them beside."""
    state = encoder.to_state()
    (folder / SCHEMA).write_text(state.schema.to_json(), encoding="utf-8")
    (folder / "vocabularies").mkdir()
    vocabularies = {
        name: _write_vocabulary(folder, f"vocabularies/{number:03}.parquet", vocabulary)
        for number, (name, vocabulary) in enumerate(state.vocabularies.items())
    }
    return {"statistics": state.statistics, "vocabularies": vocabularies, "fingerprint": encoder.fingerprint}


def _write_vocabulary(folder: Path, file: str, vocabulary: Vocabulary) -> dict[str, str]:
    write_table(vocabulary.to_table(), folder / file)
    return {"file": file, "sha256": file_hash(folder / file), "fingerprint": vocabulary.fingerprint}


def read_encoder(folder: Path, learned: Mapping[str, Any], where: str) -> FeatureEncoder:
    """Read what `write_encoder` wrote; ``where`` it was said what ``learned`` holds.

    Raises
    ------
    ArtifactError
        When the parts do not belong together.
    """
    try:
        schema = Schema.from_json((folder / SCHEMA).read_text(encoding="utf-8"))
        unknown = {feature.name: feature.unknown for feature in schema.keyed}
        vocabularies = {
            name: _read_vocabulary(folder, said, name, unknown[name], where)
            for name, said in learned["vocabularies"].items()
        }
        encoder = FeatureEncoder.from_state(EncoderState.from_parts(schema, vocabularies, learned["statistics"]))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError, pa.ArrowException) as error:
        if isinstance(error, ArtifactError):
            raise
        got = str(error).rstrip(".")
        raise ArtifactError(
            f"{where}: expected {SCHEMA}, vocabularies and statistics that fit each other, got {got}. {_REMEDY}"
        ) from error
    if encoder.fingerprint != learned.get("fingerprint"):
        raise ArtifactError(f"{where}: expected the fingerprint of these vocabularies, got another one. {_REMEDY}")
    return encoder


def _read_vocabulary(folder: Path, said: Mapping[str, str], name: str, unknown: Unknown, where: str) -> Vocabulary:
    file, names = said["file"], [path.relative_to(folder).as_posix() for path in folder.glob("vocabularies/*.parquet")]
    if file not in names:
        raise ArtifactError(f"{where}: expected one of {listed(sorted(names))}, got {file!r}. {_REMEDY}")
    # The manifest's hash was checked; a file that was there when the fingerprint was taken need not be hashed again.
    if "sha256" in said and listed_hash(folder, file) != said["sha256"]:
        raise ArtifactError(f"{where}: expected {file!r} as it was saved with it, got another one. {_REMEDY}")
    table, fingerprint = read_table(folder / file), said.get("fingerprint") if "sha256" in said else None
    return Vocabulary.from_table(table, name=name, unknown=unknown, lazily=True, fingerprint=fingerprint)
