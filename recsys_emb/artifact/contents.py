"""Everything needed to serve, as files and back: schema, vocabularies, weights, what is known of users and items.

=====================  ==============================================================================================
``manifest.json``      format version, library version, size and SHA-256 of every file
``schema.json``        `Schema.to_json`
``recommender.json``   settings, numeric statistics, the file of each vocabulary, the encoder's fingerprint; the
                       tables' width, and the spread and seed by which rows are drawn that they grow later
``vocabularies/``      one Parquet file each: values in the order of their indices, counts
``weights.safetensors``  the model's tensors, histories of users among them, and the fingerprint of their encoder
``users.parquet``      encoded features of the known users, the stranger's last
``items.parquet``      the same of the items
``seen.parquet``       a list of item indices for each row of ``users.parquet``
=====================  ==============================================================================================

Nothing in it is executed when it is read: no pickle, no eval, no path that leads outside.
"""

from __future__ import annotations

import json
import math
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
from recsys_emb.lookup.history import HistoryEmbedding
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema.columns import History
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
        # How rows that grow later are drawn.
        "init_std": float(artifact.model.vectors.init_std),
        "seed": int(artifact.model.vectors.seed),
        "fingerprint": fingerprint,
    }
    (folder / SCHEMA).write_text(state.schema.to_json(), encoding="utf-8")
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2, allow_nan=False), encoding="utf-8")
    tensors = {name: tensor.cpu().contiguous() for name, tensor in artifact.model.state_dict().items()}
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
    # What users had travels with the weights.
    user_features = [one.name for one in schema.user_features if not isinstance(one, History)]
    users = _read_entities(folder / USERS, encoder, [schema.user.name, *user_features])
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
            name: Vocabulary.from_table(_vocabulary_table(folder, file), name=name, unknown=unknown[name], lazily=True)
            for name, file in files.items()
        }
        encoder = FeatureEncoder.from_state(EncoderState.from_parts(schema, vocabularies, settings["statistics"]))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, pa.ArrowException) as error:
        if isinstance(error, ArtifactError):
            raise
        got = str(error).rstrip(".")
        raise ArtifactError(
            f"{SETTINGS}: expected {SCHEMA}, vocabularies and statistics that fit each other, got {got}. {_REMEDY}"
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
    # Without memory of its own: no weights are drawn only to be replaced.
    with torch.device("meta"):
        model = MatrixFactorization(encoder, **_read_birth(encoder.schema, settings))
    weights = _read_weights(folder / WEIGHTS, encoder.fingerprint)
    _check_weights(_needed(model, weights), weights)
    try:
        model.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        got = str(error).splitlines()[-1].strip()
        raise ArtifactError(f"{WEIGHTS}: {got} {_REMEDY}") from error
    return model


def _read_birth(schema: Schema, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Read the width of the tables, and how their rows are drawn."""
    birth = {"embedding_dim": schema.embedding_dim, "init_std": 0.01, "seed": 0}
    width, std, seed = (settings.get(name, default) for name, default in birth.items())
    if not isinstance(width, int) or isinstance(width, bool) or not 1 <= width < 2**31:
        raise ArtifactError(f"{SETTINGS}: expected embedding_dim of at least 1, got {width!r}. {_REMEDY}")
    if not isinstance(std, (int, float)) or isinstance(std, bool) or not 0 <= std < math.inf:
        raise ArtifactError(f"{SETTINGS}: expected init_std of at least 0, got {std!r}. {_REMEDY}")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ArtifactError(f"{SETTINGS}: expected seed to be an integer, got {seed!r}. {_REMEDY}")
    return {"embedding_dim": width, "init_std": std, "seed": seed}


def _needed(model: MatrixFactorization, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that a model needs; a history is as long as training made it."""
    needed: dict[str, Tensor] = dict(model.state_dict())
    for place, module in model.named_modules():
        name = f"{place}.values"
        if isinstance(module, HistoryEmbedding) and name in weights:
            needed[name] = needed[name].new_empty(weights[name].numel())
    return needed


def _read_weights(path: Path, fingerprint: str) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as weights:
            if (weights.metadata() or {}).get("fingerprint") != fingerprint:
                raise ArtifactError(
                    f"{path.name}: expected weights trained with these vocabularies, got weights of other ones. "
                    "Keep the files of one artifact together."
                )
            names = weights.keys()
            # Copied out of the mapped file, which somebody may write to while the model serves.
            return {name: weights.get_tensor(name).clone() for name in names}
    except (SafetensorError, OSError) as error:
        raise ArtifactError(f"{path.name}: expected a safetensors file, got {error}. {_REMEDY}") from error


def _check_weights(expected: Mapping[str, Tensor], got: Mapping[str, Tensor]) -> None:
    for name in sorted({*expected, *got}):
        asked, found = _shown(expected.get(name)), _shown(got.get(name))
        if asked != found:
            raise ArtifactError(f"{WEIGHTS}: expected {name!r} to be {asked}, got {found}. {_REMEDY}")


def _shown(tensor: Tensor | None) -> str:
    return "absent" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"


def _read_entities(path: Path, encoder: FeatureEncoder, names: list[str]) -> EntityTable:
    limits = {name: encoder.num_embeddings(name) for name in names}
    features = table_to_batch(read_table(path), limits, where=path.name)
    indices = features.indices(names[0])[:-1]
    if not len(features) or not bool((indices.diff() > 0).all()):
        raise ArtifactError(f"{path.name}: expected ascending indices and a stranger's row, got others. {_REMEDY}")
    return EntityTable(names[0], indices, features)
