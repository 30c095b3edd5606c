"""A snapshot of a training run as a folder: numbers in JSON, tensors in safetensors, whole or not there."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from recsys_emb.artifact.folder import is_vacant, read_folder, write_folder
from recsys_emb.artifact.manifest import read_json
from recsys_emb.artifact.tensors import read_tensors, write_tensors

KIND = "checkpoint"
NUMBERS, TENSORS = "state.json", "tensors.safetensors"


def write_checkpoint(path: str | os.PathLike[str], numbers: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a checkpoint in one step, in place of an earlier one if there is one.

    Raises
    ------
    ArtifactError
        When something else stands at ``path``; it is left as it is.
    """

    def write(folder: Path) -> None:
        (folder / NUMBERS).write_text(json.dumps(numbers, allow_nan=False), encoding="utf-8")
        write_tensors(folder / TENSORS, tensors)

    write_folder(path, write, kind=KIND)


def read_checkpoint(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """Read a checkpoint; None where there is none yet.

    Raises
    ------
    ArtifactError
        When it is damaged, or something else stands there.
    """
    return None if is_vacant(path, kind=KIND) else read_folder(path, _read, kind=KIND)


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    return read_json(folder / NUMBERS), read_tensors(folder / TENSORS, mapped=False)[0]
