"""The model's tensors as a safetensors file and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recsys_emb.artifact.migrations import Migration
from recsys_emb.artifact.tensors import read_tensors, write_tensors
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import ArtifactError, LineageError
from recsys_emb.lookup.history import HistoryEmbedding
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema.schema import Schema

SETTINGS = "recommender.json"
WEIGHTS = "weights.safetensors"
REMEDY = "Save the artifact again."


def write_model(folder: Path, model: MatrixFactorization, fingerprint: str) -> None:
    """Write the tensors of a model, and the fingerprint of the encoder that they belong to."""
    write_tensors(folder / WEIGHTS, model.state_dict(), {"fingerprint": fingerprint})


def read_model(
    folder: Path, encoder: FeatureEncoder, settings: Mapping[str, Any], *, migrations: Sequence[Migration], mapped: bool
) -> MatrixFactorization:
    """Make the model that a folder holds.

    Parameters
    ----------
    folder, settings
        The folder, and what its ``recommender.json`` says.
    encoder
        The encoder that it holds.
    migrations
        Steps to this version's format.
    mapped
        Let the weights be the file itself, read where they are touched, and copied where they are changed.

    Raises
    ------
    ArtifactError
        When weights are missing, or of another type or shape, or belong to other vocabularies.
    """
    # Without memory of its own: no weights are drawn only to be replaced.
    with torch.device("meta"):
        model = MatrixFactorization(encoder, **_read_birth(encoder.schema, settings))
    weights = _read_weights(folder / WEIGHTS, encoder.fingerprint, mapped=mapped)
    for step in migrations:
        weights = step.weights(weights, model)
    _check_weights(_needed(model, weights), weights)
    try:
        model.load_state_dict(weights, assign=True)
    except (RuntimeError, LineageError) as error:
        got = str(error).splitlines()[-1].strip()
        raise ArtifactError(f"{WEIGHTS}: {got} {REMEDY}") from error
    return model


def _read_birth(schema: Schema, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Read the width of the tables, and how their rows are drawn."""
    birth = {"embedding_dim": schema.embedding_dim, "init_std": 0.01, "seed": 0}
    width, std, seed = (settings.get(name, default) for name, default in birth.items())
    if not isinstance(width, int) or isinstance(width, bool) or not 1 <= width < 2**31:
        raise ArtifactError(f"{SETTINGS}: expected embedding_dim of at least 1, got {width!r}. {REMEDY}")
    if not isinstance(std, (int, float)) or isinstance(std, bool) or not 0 <= std < math.inf:
        raise ArtifactError(f"{SETTINGS}: expected init_std of at least 0, got {std!r}. {REMEDY}")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ArtifactError(f"{SETTINGS}: expected seed to be an integer, got {seed!r}. {REMEDY}")
    return {"embedding_dim": width, "init_std": std, "seed": seed}


def _needed(model: MatrixFactorization, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that a model needs; a history is as long as training made it."""
    needed: dict[str, Tensor] = dict(model.state_dict())
    for place, module in model.named_modules():
        name = f"{place}.values"
        if isinstance(module, HistoryEmbedding) and name in weights:
            needed[name] = needed[name].new_empty(weights[name].numel())
    return needed


def _read_weights(path: Path, fingerprint: str, *, mapped: bool) -> dict[str, Tensor]:
    tensors, metadata = read_tensors(path, mapped=mapped)
    if metadata.get("fingerprint") != fingerprint:
        raise ArtifactError(
            f"{path.name}: expected weights trained with these vocabularies, got weights of other ones. "
            "Keep the files of one artifact together."
        )
    return tensors


def _check_weights(expected: Mapping[str, Tensor], got: Mapping[str, Tensor]) -> None:
    for name in sorted({*expected, *got}):
        asked, found = _shown(expected.get(name)), _shown(got.get(name))
        if asked != found:
            raise ArtifactError(f"{WEIGHTS}: expected {name!r} to be {asked}, got {found}. {REMEDY}")


def _shown(tensor: Tensor | None) -> str:
    return "absent" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"
