"""Named tensors as a safetensors file and back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from recsys_emb.errors import ArtifactError


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write tensors, wherever they are.

    Raises
    ------
    OSError
        When there is no room, or no permission.
    """
    copies = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(copies, path, metadata=metadata)
    except SafetensorError as error:
        raise OSError(
            f"{path.name}: expected to write {len(copies)} tensors, got {error}. Make room, or save elsewhere."
        ) from error


def read_tensors(path: Path, *, mapped: bool) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors and metadata; ``mapped`` lets the tensors be the file itself, copied where they are changed.

    Raises
    ------
    ArtifactError
        When it is no safetensors file.
    """
    try:
        with safe_open(path, framework="pt") as file:
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 — no mapping
            metadata: dict[str, str] = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise ArtifactError(
            f"{path.name}: expected a safetensors file, got {error}. Save the artifact again."
        ) from error
    return tensors if mapped else {name: tensor.clone() for name, tensor in tensors.items()}, metadata
