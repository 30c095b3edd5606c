"""Peak memory of fitting, loading, training and recommending, and what ten times the rows add to it.

Run:    python benchmarks/memory.py [--full | --tiny]
Needs:  nothing more

Every figure is the peak of a new process above what it had after its imports. The longer log has ten times the rows of
the same users, items and tags, so what grows with rows shows by itself.

- **fit**: file → vocabularies.
- **load, in order** and **load, windows**: file → batches of 8,192 by a vocabulary that was made before; windows of
  100,000 rows are shuffled.
- **load, shuffled**: the same in an even order, for which the encoded rows are kept: 4 bytes per column and row.
- **train**: file → recommender, one pass; the encoded rows are kept here too.
- **recommend**: ten items for each of 1,000 users, by a saved recommender. It knows what every user has seen, so that
  grows with the distinct pairs.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import harness
import logs
from harness import Bench
from load import BATCH, SCHEMA

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.loading.loader import BatchLoader
from recsys_emb.recommender import Recommender

FOLDER = harness.OUT / "data"
WINDOW = 100_000
# Memory that does not grow with rows, within what allocators hold back; and memory that does.
FLAT, GROWS = 1.2, 10.0


def fit(log: Path) -> None:
    FeatureEncoder(SCHEMA).fit(log)


def load(log: Path, encoder: Path, **options: Any) -> None:
    for _ in BatchLoader(pickle.loads(encoder.read_bytes()), log, batch_size=BATCH, **options):
        pass


def load_windows(log: Path, encoder: Path) -> None:
    load(log, encoder, shuffle=True, window=WINDOW)


def load_shuffled(log: Path, encoder: Path) -> None:
    load(log, encoder, shuffle=True)


def train(log: Path) -> None:
    Recommender(SCHEMA, epochs=1, progress=False).fit(log)


def recommend(saved: Path) -> None:
    recommender = Recommender.load(saved)
    recommender.recommend(recommender.encoder.vocabularies["user_id"].values[:1000].to_pylist(), 10)


def saved(log: Path) -> Path:
    folder = FOLDER / f"{log.stem}.recommender"
    if not folder.exists():
        Recommender(SCHEMA, epochs=1, progress=False).fit(log).save(folder)
    return folder


def main(bench: Bench) -> None:
    rows = bench.size(20_000, 500_000, 5_000_000)
    users, items = rows // 20, rows // 50
    before, longer = (logs.log(count, users=users, items=items) for count in (rows, 10 * rows))
    encoder = FOLDER / f"{before.stem}.encoder"
    encoder.write_bytes(pickle.dumps(FeatureEncoder(SCHEMA).fit(before)))
    about = f"{rows:,} rows, {users:,} users, {items:,} items"

    def grow(case: str, job: Callable[..., None], small: Sequence[Path], large: Sequence[Path], goal: float) -> None:
        bench.memory(case, about, change="rows × 10", job=job, small=small, large=large, goal=goal)

    grow("fit", fit, (before,), (longer,), FLAT)
    grow("load, in order", load, (before, encoder), (longer, encoder), FLAT)
    grow("load, windows", load_windows, (before, encoder), (longer, encoder), FLAT)
    grow("load, shuffled", load_shuffled, (before, encoder), (longer, encoder), GROWS)
    grow("train", train, (before,), (longer,), GROWS)
    grow("recommend", recommend, (saved(before),), (saved(longer),), GROWS)


if __name__ == "__main__":
    main(Bench("memory", __doc__))
