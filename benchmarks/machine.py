"""What the machine is, and what runs on it: a time means nothing without."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

LIBRARIES = ("recsys-emb", "torch", "numpy", "pandas", "pyarrow", "scikit-learn", "numba")


def describe() -> dict[str, Any]:
    """Machine, versions, date and load as JSON-able data."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(_memory() / 2**30),
        "load": round(os.getloadavg()[0], 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in LIBRARIES},
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M"),
    }


def in_words(machine: dict[str, Any]) -> str:
    """Say it in one line, with the clock that was read."""
    libraries = ", ".join(f"{name} {number}" for name, number in machine["libraries"].items())
    return (
        f"{machine['date']} UTC, {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, load "
        f"{machine['load']} before; {machine['clock']}, 1 thread unless said; Python {machine['python']}, {libraries}"
    )


def version(package: str | None) -> str:
    """Installed version of a distribution; nothing where there is none."""
    try:
        return metadata.version(package) if package else ""
    except metadata.PackageNotFoundError:
        return ""


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    named = {key.strip(): value.strip() for key, value in fields.items()}
    name = named.get("model name") or platform.machine()
    numbers = f" (family {named['cpu family']}, model {named['model']})" if "cpu family" in named else ""
    wide = ", AVX-512" if "avx512f" in named.get("flags", "") else ""
    return f"{name}{numbers}{wide}"


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
