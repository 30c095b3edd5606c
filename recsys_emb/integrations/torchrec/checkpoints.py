"""Checkpoints that every process writes its part of: whole or not there, and read by any number of processes, or one.

===============  ====================================================================================================
``step-<n>/``    one checkpoint; ``<n>`` counts what its owner counts, and the largest is the last
``state.json``   what the tables are, where their rows stand, the encoder's fingerprint, and the owner's numbers
``.metadata``    of `torch.distributed.checkpoint`: which part of which tensor is in which file
``*.distcp``     the parts
===============  ====================================================================================================

A checkpoint is written under another name and renamed when everything is on the disk: what a kill leaves is no
checkpoint, and is removed by the next writer. `torch.distributed.checkpoint` reads its ``.metadata`` by pickle, so read
none but your own; what you hand on is an artifact, which is data.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from recsys_emb.artifact.manifest import read_json
from recsys_emb.artifact.swapping import flush
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import ArtifactError, LineageError, at_least
from recsys_emb.integrations.torchrec.factorization import ShardedFactorization, filled
from recsys_emb.integrations.torchrec.spread import Spread
from recsys_emb.integrations.torchrec.tables import as_indexed, row_key
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.sources.locations import local_path

_STATE = "state.json"
_NAME = re.compile(r"step-(\d{12})")


@dataclass(frozen=True)
class ShardedCheckpoints:
    """Where to keep checkpoints, and how often.

    Parameters
    ----------
    folder
        On a file system that all processes see; no URI.
    every
        Steps between two.
    keep
        How many of the last ones stay.
    """

    folder: str | os.PathLike[str]
    every: int = 1000
    keep: int = 2

    def __post_init__(self) -> None:
        local_path(self.folder, "ShardedCheckpoints")
        for name, value in (("every", self.every), ("keep", self.keep)):
            at_least("ShardedCheckpoints", name, value, 1, error=ArtifactError)


def last_checkpoint(folder: str | os.PathLike[str]) -> Path | None:
    """Give the last whole checkpoint in a folder; None where there is none."""
    return max(_whole(local_path(folder, "last_checkpoint")), default=None)


def save_checkpoint(
    model: ShardedFactorization, checkpoints: ShardedCheckpoints, step: int, numbers: Mapping[str, Any]
) -> None:
    """Write a checkpoint; every process calls this. Older ones beyond ``keep`` are removed.

    Parameters
    ----------
    model
        Its tables and the state of its rule are written.
    checkpoints
        Where to.
    step
        Larger than that of any earlier one.
    numbers
        What else the owner wants to keep, JSON-able.
    """
    folder, ranks = local_path(checkpoints.folder, "ShardedCheckpoints"), model.ranks
    beside = folder / f".step-{step:012}"
    if ranks.rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(".step-*"):
            shutil.rmtree(leftover)
        beside.mkdir()
    distributed.barrier(ranks.talk)
    save({**model.vectors.saved(), **model.biases.saved()}, checkpoint_id=beside, process_group=ranks.talk)
    if ranks.rank == 0:
        (beside / _STATE).write_text(json.dumps({**_described(model), "numbers": numbers}, allow_nan=False))
        flush(beside)
        beside.rename(folder / beside.name[1:])
        flush(folder)
        for old in sorted(_whole(folder))[: -checkpoints.keep]:
            # What is half removed when it is killed must not look whole.
            gone = old.rename(folder / f".{old.name}")
            shutil.rmtree(gone)
    distributed.barrier(ranks.talk)


def load_checkpoint(
    model: ShardedFactorization, folder: str | os.PathLike[str], accept: Callable[[dict[str, Any]], None] | None = None
) -> bool:
    """Take over the last checkpoint, whichever number of processes wrote it; every process calls this.

    Parameters
    ----------
    model
        Made as it was made; placement and number of processes may be others.
    folder
        Where to look.
    accept
        Is given the owner's numbers, and may raise before anything is taken over.

    Returns
    -------
    bool
        Whether there was one.

    Raises
    ------
    LineageError, ArtifactError
        When it is that of another encoder, or of other tables, or of another rule.
    """
    path = model.ranks.from_first(last_checkpoint(folder))
    if path is None:
        return False
    said = _read_state(path)
    _check(said, model.encoder, _described(model))
    if accept is not None:
        accept(said["numbers"])
    # Into the memory of the tables.
    load({**model.vectors.saved(), **model.biases.saved()}, checkpoint_id=path, process_group=model.ranks.talk)
    model.set_units(*said["units"])
    return True


def read_factorization(path: str | os.PathLike[str], encoder: FeatureEncoder) -> MatrixFactorization:
    """Read a checkpoint into an ordinary model, in one process, without TorchRec and without a process group.

    Parameters
    ----------
    path
        What `last_checkpoint` gave.
    encoder
        The encoder that the model was made with.

    Raises
    ------
    LineageError
        When it is the checkpoint of another encoder.
    ArtifactError
        When it is none.
    """
    said = _read_state(Path(path))
    _check(said, encoder, {})
    with torch.device("meta"):
        plain = MatrixFactorization(encoder, **said["birth"])
    weights = {}
    for name, table in said["tables"].items():
        spread = Spread(table["num_embeddings"], table["factor"])
        rows = torch.empty(spread.num_embeddings, table["padded"])
        with warnings.catch_warnings():
            # That there is no process group is what is asked for.
            warnings.simplefilter("ignore", UserWarning)
            load({row_key(name): rows}, checkpoint_id=path, no_dist=True)
        weights[table["weight"]] = as_indexed(rows, spread, table["width"])
    return filled(plain, weights, *said["units"])


def _whole(folder: Path) -> list[Path]:
    return [path for path in folder.glob("step-*") if _NAME.fullmatch(path.name)]


def _described(model: ShardedFactorization) -> dict[str, Any]:
    tables = {
        table.name: {
            "weight": table.weight,
            "num_embeddings": table.spread.num_embeddings,
            "factor": table.spread.factor,
            "width": part.width,
            "padded": part.padded,
        }
        for part in (model.vectors, model.biases)
        for table in part.tables
    }
    vectors = model.plain.vectors
    birth = {"embedding_dim": vectors.embedding_dim, "init_std": vectors.init_std, "seed": vectors.seed}
    return {
        "encoder": model.encoder.fingerprint,
        "rule": type(model.update).__name__,
        "birth": birth,
        "units": [float(model.offset), float(model.scale)],
        "tables": tables,
    }


def _read_state(path: Path) -> dict[str, Any]:
    if not (path / _STATE).is_file():
        raise ArtifactError(
            f"{path.name}: expected a checkpoint, got no {_STATE!r}. Give what last_checkpoint finds in its folder."
        )
    return read_json(path / _STATE)


def _check(said: Mapping[str, Any], encoder: FeatureEncoder, mine: Mapping[str, Any]) -> None:
    if said["encoder"] != encoder.fingerprint:
        raise LineageError(
            f"checkpoint: expected one of the encoder {encoder.fingerprint[:12]}, got that of {said['encoder'][:12]}. "
            "Its rows stand for other values; load it with the encoder that it was trained with."
        )
    for name in ("rule", "tables"):
        if name in mine and said[name] != mine[name]:
            wanted, got = (mine[name], said[name]) if name == "rule" else ("of this model", "others")
            raise ArtifactError(f"checkpoint: expected the {name} {wanted}, got {got}. Make the model as it was made.")
