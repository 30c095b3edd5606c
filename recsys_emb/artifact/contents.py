"""Everything needed to serve, as files and back: schema, vocabularies, weights, what is known of users and items.

=====================  ==============================================================================================
``manifest.json``      format version, library version, size and SHA-256 of every file
``schema.json``        `Schema.to_json`
``recommender.json``   settings, numeric statistics, the file of each vocabulary, the encoder's fingerprint
``vocabularies/``      one Parquet file each: values in the order of their indices, counts
``weights.safetensors``  the model's tensors, and the fingerprint of the encoder that they belong to
``users.parquet``      encoded features of the known users, the stranger's last
``items.parquet``      the same of the items
``seen.parquet``       a list of item indices for each row of ``users.parquet``
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

import pyarrow as pa
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from recsys_emb.artifact.folder import read_folder, read_json, write_folder
from recsys_emb.artifact.tables import batch_to_table, read_table, table_to_batch, write_table
from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.entities import EntityTable
from recsys_emb.encoding.learning import EncoderState
from recsys_emb.encoding.vocabulary import Vocabulary
from recsys_emb.errors import ArtifactError, listed
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema.schema import Schema

SCHEMA = "schema.json"
SETTINGS = "recommender.json"
WEIGHTS = "weights.safetensors"
USERS, ITEMS, SEEN = "users.parquet", "items.parquet", "seen.parquet"
_REMEDY = "Save the artifact again."


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


def load_artifact(path: str | os.PathLike[str]) -> Artifact:
    """Read an artifact, whole and checked, or not at all.

    Raises
    ------
    ArtifactError
        When the folder is not one, was written by a newer version, is damaged or added to, or when its parts do not
        belong together.
    """
    return read_folder(path, _read)


def _write(folder: Path, artifact: Artifact) -> None:
    state = artifact.encoder.to_state()
    fingerprint = artifact.encoder.fingerprint
    files = {name: f"vocabularies/{number:03}.parquet" for number, name in enumerate(state.vocabularies)}
    (folder / "vocabularies").mkdir()
    for name, file in files.items():
        write_table(state.vocabularies[name].to_table(), folder / file)
    settings = {
        "settings": dict(artifact.settings),
        "statistics": state.statistics,
        "vocabularies": files,
        "embedding_dim": artifact.model.vectors.embedding_dim,
        "fingerprint": fingerprint,
    }
    (folder / SCHEMA).write_text(state.schema.to_json(), encoding="utf-8")
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2, allow_nan=False), encoding="utf-8")
    tensors = {name: tensor.cpu().contiguous() for name, tensor in _tensors(artifact.model).items()}
    save_file(tensors, folder / WEIGHTS, metadata={"fingerprint": fingerprint})
    write_table(batch_to_table(artifact.users.features), folder / USERS)
    write_table(batch_to_table(artifact.items.features), folder / ITEMS)
    write_table(batch_to_table(Batch({"items": artifact.seen})), folder / SEEN)


def _read(folder: Path) -> Artifact:
    settings = read_json(folder / SETTINGS)
    encoder = _read_encoder(folder, settings)
    model = _read_model(folder, encoder, settings)
    schema = encoder.schema
    if schema.user is None or schema.item is None:
        raise ArtifactError(
            f"{SCHEMA}: expected a user and an item, got {schema.user!r} and {schema.item!r}. {_REMEDY}"
        )
    users = _read_entities(folder / USERS, encoder, [schema.user.name, *(one.name for one in schema.user_features)])
    items = _read_entities(folder / ITEMS, encoder, [schema.item.name, *(one.name for one in schema.item_features)])
    limits = {"items": encoder.num_embeddings(schema.item.name)}
    seen = table_to_batch(read_table(folder / SEEN), limits, where=SEEN).lists("items")
    if len(seen) != len(users) + 1:
        raise ArtifactError(f"{SEEN}: expected {len(users) + 1} lists, as {USERS} has rows, got {len(seen)}. {_REMEDY}")
    kept = settings.get("settings", {})
    return Artifact(encoder, model, users, items, seen, kept if isinstance(kept, dict) else {})


def _read_encoder(folder: Path, settings: Mapping[str, Any]) -> FeatureEncoder:
    try:
        schema = Schema.from_json((folder / SCHEMA).read_text(encoding="utf-8"))
        files: Mapping[str, str] = settings["vocabularies"]
        unknown = {feature.name: feature.unknown for feature in schema.keyed}
        vocabularies = {
            name: Vocabulary.from_table(_vocabulary_table(folder, file), name=name, unknown=unknown[name])
            for name, file in files.items()
        }
        encoder = FeatureEncoder.from_state(EncoderState.from_parts(schema, vocabularies, settings["statistics"]))
    except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        if isinstance(error, ArtifactError):
            raise
        raise ArtifactError(
            f"{SETTINGS}: expected {SCHEMA}, vocabularies and statistics that fit each other, got {error}. {_REMEDY}"
        ) from error
    if encoder.fingerprint != settings.get("fingerprint"):
        raise ArtifactError(f"{SETTINGS}: expected the fingerprint of these vocabularies, got another one. {_REMEDY}")
    return encoder


def _vocabulary_table(folder: Path, file: str) -> pa.Table:
    names = [path.relative_to(folder).as_posix() for path in (folder / "vocabularies").glob("*.parquet")]
    if file not in names:
        raise ArtifactError(f"{SETTINGS}: expected one of {listed(sorted(names))}, got {file!r}. {_REMEDY}")
    return read_table(folder / file)


def _read_model(folder: Path, encoder: FeatureEncoder, settings: Mapping[str, Any]) -> MatrixFactorization:
    width = settings.get("embedding_dim", encoder.schema.embedding_dim)
    if not isinstance(width, int) or width < 1:
        raise ArtifactError(f"{SETTINGS}: expected embedding_dim of at least 1, got {width!r}. {_REMEDY}")
    model = MatrixFactorization(encoder, embedding_dim=width)
    try:
        with safe_open(folder / WEIGHTS, framework="pt") as weights:
            fingerprint = (weights.metadata() or {}).get("fingerprint")
            if fingerprint != encoder.fingerprint:
                raise ArtifactError(
                    f"{WEIGHTS}: expected weights trained with these vocabularies, got weights of other ones. "
                    "Keep the files of one artifact together."
                )
            names = weights.keys()
            loaded = {name: weights.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise ArtifactError(f"{WEIGHTS}: expected a safetensors file, got {error}. {_REMEDY}") from error
    _copy_weights(model, loaded)
    return model


def _copy_weights(model: MatrixFactorization, loaded: Mapping[str, Tensor]) -> None:
    own = _tensors(model)
    expected = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in own.items()}
    got = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in loaded.items()}
    wrong = sorted(name for name in {*expected, *got} if expected.get(name) != got.get(name))
    if wrong:
        name = wrong[0]
        raise ArtifactError(
            f"{WEIGHTS}: expected {name!r} of {_shown(expected.get(name))}, got {_shown(got.get(name))}. {_REMEDY}"
        )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(loaded[name])


def _shown(found: tuple[torch.dtype, tuple[int, ...]] | None) -> str:
    return "nothing" if found is None else f"{found[0]} {found[1]}"


def _tensors(model: MatrixFactorization) -> dict[str, Tensor]:
    """Tensors of a model by name; one that several features share appears once, under its first name."""
    distinct: dict[int, str] = {}
    state = {name: tensor.detach() for name, tensor in model.state_dict(keep_vars=True).items()}
    for name, tensor in model.state_dict(keep_vars=True).items():
        distinct.setdefault(id(tensor), name)
    return {name: state[name] for name in distinct.values()}


def _read_entities(path: Path, encoder: FeatureEncoder, names: list[str]) -> EntityTable:
    limits = {name: encoder.num_embeddings(name) for name in names}
    features = table_to_batch(read_table(path), limits, where=path.name)
    indices = features.indices(names[0])[:-1]
    if not len(features) or not bool((indices.diff() > 0).all()):
        raise ArtifactError(f"{path.name}: expected ascending indices and a stranger's row, got others. {_REMEDY}")
    return EntityTable(names[0], indices, features)
