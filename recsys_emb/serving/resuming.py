"""Which training run a checkpoint belongs to, so that no other goes on from it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from recsys_emb._version import __version__
from recsys_emb.artifact.checkpoint import read_checkpoint, write_checkpoint
from recsys_emb.artifact.folder import name_of
from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import ArtifactError, listed
from recsys_emb.training.checkpoints import Snapshot


class CheckpointFolder:
    """Keeps the last snapshot of one run in a folder, and gives it back to the same run alone.

    Parameters
    ----------
    path
        The folder, or its URI.
    run
        What makes the run what it is, by name, as hashes or texts.
    """

    def __init__(self, path: str | os.PathLike[str], run: dict[str, str]) -> None:
        self._path, self._run = path, run

    def load(self) -> Snapshot | None:
        """Read the last snapshot, if there is one.

        Raises
        ------
        ArtifactError
            When it is damaged, or one of another run.
        """
        found = read_checkpoint(self._path)
        if found is None:
            return None
        numbers, tensors = found
        theirs = numbers.get("run")
        others = [name for name, mine in self._run.items() if not isinstance(theirs, dict) or theirs.get(name) != mine]
        if others:
            raise ArtifactError(
                f"{name_of(self._path)}: expected a checkpoint of this run, got one of another in "
                f"{listed(others)}. Fit as before to go on, or give an empty folder to start anew."
            )
        return Snapshot(numbers["state"], tensors)

    def save(self, snapshot: Snapshot) -> None:
        """Write a snapshot in place of the last, in one step."""
        write_checkpoint(self._path, {"run": self._run, "state": dict(snapshot.numbers)}, snapshot.tensors)


def describe_run(
    encoder: FeatureEncoder, rows: Batch, validation: Batch | None, settings: dict[str, object]
) -> dict[str, str]:
    """Say what makes a run what it is: equal descriptions end with equal bits.

    Parameters
    ----------
    encoder
        It stands for the schema and the vocabularies.
    rows, validation
        What is learned and judged.
    settings
        Objective, solver and the like, by name.
    """
    return {
        "schema": encoder.to_state().schema.to_json(),
        "rows": _digest([encoder.fingerprint.encode(), *_pieces(rows)]),
        "validation rows": "" if validation is None else _digest(_pieces(validation)),
        "settings": json.dumps({name: _said(value) for name, value in settings.items()}),
        "version": f"recsys_emb {__version__}, torch {torch.__version__}",
    }


def _digest(pieces: Any) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _pieces(batch: Batch) -> Iterator[bytes | memoryview]:
    """All that a batch holds, piece by piece, each under its name and shape."""
    columns = {**batch.columns, "label\0": batch.label, "weight\0": batch.weight}
    for name, column in columns.items():
        parts = (column.values, column.offsets, column.weights) if isinstance(column, Jagged) else (column,)
        for number, part in enumerate(parts):
            if isinstance(part, Tensor):
                yield f"{name} {number} {part.dtype} {tuple(part.shape)}".encode()
                yield part.cpu().contiguous().numpy().data.cast("B") if part.numel() else b""


def _said(value: object) -> object:
    """Name a declaration so that it reads the same in every process."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {one.name: _said(getattr(value, one.name)) for one in dataclasses.fields(value) if one.init}
        return {"kind": type(value).__qualname__, **fields}
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)
