"""Work on an engine: what threads and Ray cost on one machine, beside the same work without an engine.

Run:    tests/loopback.sh python benchmarks/scale.py [--full | --tiny]
Needs:  nothing more; Ray takes part where it is installed and no network is but the loopback, for it listens on all

A log of six columns, as `encode.py` has it, in row groups of 250,000 rows.

- **fit**: file → vocabularies. On an engine, row groups are counted apart, merged by hash, and ranked in ranges.
- **transform**: file → Parquet parts of indices. Without an engine, the rows are encoded in memory and not written.
- **vocabularies in files**: the same parts, by vocabularies that stay in files: keys are hashed, looked up file by
  file, and joined with their rows.

All give the same bits, which is checked. Engines have two workers. Start-up is not timed: Ray takes seconds for it.
This says what an engine costs where one machine would do; it says nothing about clusters.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import logs
from encode import SCHEMA
from harness import OUT, Bench, Entry, MissingPeerError, Work, needs

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.engines.engine import Engine
from recsys_emb.engines.local import Local
from recsys_emb.integrations.ray import Ray
from recsys_emb.vocabulary.spilling import Spill

WORKERS = 2


class Engines:
    """Engines by name, started when they are first asked for and closed in the end."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._ray: Ray | None = None

    def threads(self, workers: int) -> Engine:
        """Threads of this process."""
        return self._stack.enter_context(Local(workers))

    def ray(self) -> Engine:
        """Ray on this machine."""
        needs("ray")
        if {name for _, name in socket.if_nameindex()} != {"lo"}:
            raise MissingPeerError("Ray listens on every network; run under tests/loopback.sh")
        if self._ray is None:
            os.environ.setdefault("RAY_AUTH_MODE", "disabled")
            self._ray = self._stack.enter_context(Ray(workers=WORKERS, object_store_memory=2**30))
        return self._ray


def same(mine: Any, other: Any) -> None:
    assert mine == other, "an engine gave other bits"


def on_engines(engines: Engines, work: Callable[[Engine], Any]) -> list[Entry]:
    def started(engine: Callable[[], Engine]) -> Callable[[], Work]:
        def start() -> Work:
            running = engine()
            return lambda: work(running)

        return start

    return [
        Entry("Local(1)", started(lambda: engines.threads(1)), agrees=same),
        Entry(f"Local({WORKERS})", started(lambda: engines.threads(WORKERS)), agrees=same),
        Entry(f"Ray, {WORKERS} workers", started(engines.ray), "ray", agrees=same),
    ]


def on_fit(bench: Bench, engines: Engines, path: Path, about: str) -> None:
    bench.race(
        "fit",
        f"{about} → vocabularies",
        Entry("recsys_emb, no engine", lambda: lambda: FeatureEncoder(SCHEMA).fit(path).fingerprint),
        *on_engines(engines, lambda engine: FeatureEncoder(SCHEMA).fit(path, engine=engine).fingerprint),
    )


def on_transform(bench: Bench, engines: Engines, path: Path, about: str, folder: Path) -> None:
    encoder = FeatureEncoder(SCHEMA).fit(path)

    def written(engine: Engine) -> int:
        return len(encoder.transform_to(path, folder / "parts", engine=engine))

    bench.race(
        "transform",
        f"{about} → indices",
        Entry("recsys_emb, in memory", lambda: lambda: len(encoder.transform(path))),
        *on_engines(engines, written),
    )
    with Local(WORKERS) as engine:
        spill = Spill(str(folder / "vocabularies"), above=1000)
        spilled = FeatureEncoder(SCHEMA).fit(path, engine=engine, spill=spill)

    def joined(engine: Engine) -> int:
        return len(spilled.transform_to(path, folder / "joined", engine=engine))

    alone = engines.threads(1)
    bench.race(
        "vocabularies in files",
        f"{about} → Parquet parts of indices",
        Entry("vocabularies in memory, Local(1)", lambda: lambda: written(alone)),
        *on_engines(engines, joined),
    )
    for name in ("parts", "joined"):
        assert (folder / name).is_dir(), "nothing was written"
    same(*(sorted(one.read_bytes() for one in (folder / name).glob("*.parquet")) for name in ("parts", "joined")))


def main() -> None:
    bench = Bench("scale", __doc__)
    rows = bench.size(20_000, 2_000_000, 20_000_000)
    path = logs.log(rows, users=rows // 10, items=rows // 40)
    about = f"{rows:,} rows of six columns"
    folder = Path(tempfile.mkdtemp(prefix="scale", dir=OUT))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        engines = Engines(stack)
        on_fit(bench, engines, path, about)
        on_transform(bench, engines, path, about, folder)


if __name__ == "__main__":
    main()
