"""The data folder, for the examples: load one of its scripts as a module.

Needs:  nothing.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "data"


def load_script(path: str) -> ModuleType:
    """Load ``data/<path>`` as a module; its folder need not be on Python's path."""
    name = Path(path).with_suffix("").as_posix().replace("/", "_")
    spec = importlib.util.spec_from_file_location(name, DATA / path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"data/{path}: expected a Python script. Look into data/.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
