"""The door to TorchRec, which is loaded when it is needed, and which no extra of this library can declare."""

from __future__ import annotations

import importlib
from typing import Any

from recsys_emb.errors import MissingDependencyError

INSTALL = (
    "pip install tensordict pyre-extensions torchmetrics==1.0.3 tqdm iopath && "
    "pip install --no-deps fbgemm-gpu-cpu==1.8.0 torchrec==1.8.0"
)
"""For torch 2.13 on the CPU. The package's own requirements name the CUDA build of FBGEMM, which would replace this."""


def torchrec(room: str = "") -> Any:
    """Give TorchRec, or one of its modules.

    Raises
    ------
    MissingDependencyError
        When it is not installed; the message says how to install it.
    """
    try:
        package = importlib.import_module("torchrec")
        return importlib.import_module(f"torchrec.{room}") if room else package
    except ImportError as error:
        raise MissingDependencyError(
            f"recsys_emb.integrations.torchrec: expected TorchRec to be installed, got none. Run: {INSTALL}"
        ) from error
