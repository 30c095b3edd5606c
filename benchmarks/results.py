"""Read back what the benchmarks wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine

# The order in which a value takes its way through the library; others follow.
ORDER = ("encode", "load", "one_hot", "step", "factorize", "rank", "serve_row", "importing", "memory", "scale")
Record = dict[str, Any]


@dataclass(frozen=True)
class Results:
    """What one script wrote: the machine it ran on, races by case, growths, and who was left out."""

    benchmark: str
    machine: Record
    races: dict[str, list[Record]]
    growths: list[Record]
    skipped: list[Record]

    @property
    def described(self) -> str:
        """When and where."""
        size = "full sizes; " if self.machine["full"] else ""
        return size + machine.in_words(self.machine)


def read(folder: Path) -> list[Results]:
    """Results of every script that has run, in the order of `ORDER`."""
    files = sorted(folder.glob("*.json"), key=lambda file: (_place(file.stem), file.stem))
    return [_read(file) for file in files]


def _place(name: str) -> int:
    return ORDER.index(name) if name in ORDER else len(ORDER)


def _read(file: Path) -> Results:
    records = [json.loads(line) for line in file.read_text().splitlines()]
    kinds = {kind: [one for one in records if one["kind"] == kind] for kind in ("machine", "race", "growth", "skipped")}
    races: dict[str, list[Record]] = {}
    for record in kinds["race"]:
        races.setdefault(record["case"], []).append(record)
    return Results(file.stem, kinds["machine"][0], races, kinds["growth"], kinds["skipped"])
