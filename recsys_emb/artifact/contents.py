"""Everything needed to serve, as files and back: schema, vocabularies, weights, what is known of users and items.

=====================  ==============================================================================================
``manifest.json``      format version, library version, size and SHA-256 of every file
``schema.json``        `Schema.to_json`
``recommender.json``   settings, numeric statistics, the file of each vocabulary, the encoder's fingerprint; the
                       tables' width, and the spread and seed by which rows are drawn that they grow later
``vocabularies/``      one Parquet file each: values in the order of their indices, counts
``weights.safetensors``  the model's tensors, histories of users among them, and the fingerprint of their encoder
``memory.safetensors``  encoded features of the known users and items, the stranger's last, and what each user has seen
=====================  ==============================================================================================

Nothing in it is executed when it is read: no pickle, no eval, no path that leads outside.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsys_emb.artifact.encoders import read_encoder, write_encoder
from recsys_emb.artifact.folder import read_folder, stays, write_folder
from recsys_emb.artifact.manifest import format_version, read_json
from recsys_emb.artifact.memory import MEMORY, Known, read_known, write_known
from recsys_emb.artifact.migrations import steps
from recsys_emb.artifact.weights import SETTINGS, WEIGHTS, read_model, write_model
from recsys_emb.encoding.batch import Jagged
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.entities import EntityTable
from recsys_emb.models.matrix_factorization import MatrixFactorization


@dataclass(frozen=True, eq=False)
class Artifact:
    """What a saved folder holds.

    Parameters
    ----------
    encoder
        Fitted; it holds the schema and the vocabularies.
    model
        Sized by ``encoder``.
    users, items
        What is known about each user and item.
    seen
        Items seen by each row of ``users``, the stranger's last.
    settings
        Whatever else the owner wants to keep, JSON-able.
    """

    encoder: FeatureEncoder
    model: MatrixFactorization
    users: EntityTable
    items: EntityTable
    seen: Jagged
    settings: Mapping[str, Any]


def save_artifact(path: str | os.PathLike[str], artifact: Artifact) -> None:
    """Write an artifact in one step, in place of an earlier one if there is one.

    Raises
    ------
    ArtifactError
        When something else stands at ``path``; it is left as it is.
    """
    write_folder(path, lambda folder: _write(folder, artifact))


def load_artifact(path: str | os.PathLike[str], *, mapped: bool = True) -> Artifact:
    """Read an artifact, whole and checked, or not at all.

    Parameters
    ----------
    path
        The folder, or its URI in an object store.
    mapped
        Map the weights into memory instead of reading them: they are read where they are touched, shared with other
        processes, and copied where they are changed. Replacing or removing the folder does no harm, as `save_artifact`
        does it; writing into its files does. False reads them all, and so does a URI of a store.

    Raises
    ------
    ArtifactError
        When the folder is not one, was written by a newer version, is damaged or added to, or when its parts do not
        belong together.
    """
    # Tensors are read as they lie there, whatever the numbers are; these are checked meanwhile.
    maps = mapped and stays(path)
    return read_folder(path, lambda folder: _read(folder, mapped=maps), late={WEIGHTS, MEMORY})


def _write(folder: Path, artifact: Artifact) -> None:
    settings = {
        "settings": dict(artifact.settings),
        **write_encoder(folder, artifact.encoder),
        "embedding_dim": artifact.model.vectors.embedding_dim,
        # How rows that grow later are drawn.
        "init_std": float(artifact.model.vectors.init_std),
        "seed": int(artifact.model.vectors.seed),
    }
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2, allow_nan=False), encoding="utf-8")
    write_model(folder, artifact.model, artifact.encoder.fingerprint)
    write_known(folder / MEMORY, Known(artifact.users, artifact.items, artifact.seen))


def _read(folder: Path, *, mapped: bool) -> Artifact:
    migrations, settings = steps(format_version(folder)), read_json(folder / SETTINGS)
    for step in migrations:
        settings = step.described(settings)
    encoder = read_encoder(folder, settings, SETTINGS)
    model = read_model(folder, encoder, settings, migrations=migrations, mapped=mapped)
    earlier = [known for step in migrations if (known := step.known(folder, encoder)) is not None]
    users, items, seen = earlier[0] if earlier else read_known(folder / MEMORY, encoder, mapped=mapped)
    said = settings.get("settings", {})
    kept: dict[str, Any] = said if isinstance(said, dict) else {}
    for step in migrations:
        kept = step.settled(kept, encoder)
    return Artifact(encoder, model, users, items, seen, kept)
