"""Measure the rates that `Schema.plan` reckons with, and compare its plans with what runs take; write docs/scale.md.

Run it as ``python benchmarks/plan.py [rows]``, on one thread, with nothing else running where that is possible; times
are those that the process had a core. With ``rows`` the page is left alone.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import timing
import torch

from recsys_emb import FeatureEncoder, MatrixFactorization, Recommender
from recsys_emb.reporting.machines import MEASURED, ColumnRates, LookupRates, Machine
from recsys_emb.reporting.text import in_bytes
from recsys_emb.schema import Categorical, MultiCategorical, Numeric, Schema
from recsys_emb.training.fitting import train
from recsys_emb.training.losses import SquaredError
from recsys_emb.training.minibatch import Minibatch
from recsys_emb.training.sequential import SequentialSGD

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
BEGIN, END = "<!-- figures: begin (written by benchmarks/plan.py) -->", "<!-- figures: end -->"
ROWS = 2_000_000
FAR = 2654435761  # between keys: as ids that were hashed
Columns = dict[str, pa.Array]


def pair(dim: int = 32) -> Schema:
    return Schema(user=Categorical("user"), item=Categorical("item"), label="stars", embedding_dim=dim)


def described(dim: int = 32) -> Schema:
    features = [Categorical("title"), MultiCategorical("tags"), Numeric("age")]
    return Schema(
        user=Categorical("user"), item=Categorical("item"), item_features=features, label="stars", embedding_dim=dim
    )


def columns(rows: int, users: int, items: int) -> Columns:
    draw = np.random.default_rng(0)
    titles = draw.integers(0, items, rows)
    offsets = pa.array(np.arange(0, 3 * rows + 1, 3, dtype=np.int32))
    return {
        "user": pa.array(draw.integers(0, users, rows) * FAR),
        "item": pa.array(draw.integers(0, items, rows) * FAR),
        "title": pa.array([f"{title:020d}" for title in titles.tolist()]),
        "tags": pa.ListArray.from_arrays(offsets, pa.array(draw.integers(0, 1000, 3 * rows) * FAR)),
        "age": pa.array(draw.normal(size=rows)),
        "stars": pa.array(draw.integers(1, 6, rows).astype(np.float32)),
    }


def seconds(work: Callable[[], Any], times: int = 3) -> float:
    """Least time that the process had a core."""
    taken = []
    for _ in range(times):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken)


# --- rates ---------------------------------------------------------------------------------------------------------


def column_rates(folder: Path, values: Callable[[int], pa.Array], rows: int) -> ColumnRates:
    """Rates of a column of keys, from one of few and one of many distinct values."""
    schema, taken, encode = Schema(user=Categorical("x")), {}, 0.0
    for distinct in (rows // 8, rows // 2):
        path = folder / f"{distinct}.parquet"
        pq.write_table(pa.table({"x": values(distinct)}), path)
        encoder = FeatureEncoder(schema).fit(path)
        taken[len(encoder.vocabularies["x"])] = seconds(lambda path=path: FeatureEncoder(schema).fit(path))
        encode = seconds(lambda path=path, encoder=encoder: encoder.transform(path))
    (few, least), (many, most) = taken.items()
    each = (most - least) / (many - few)
    return ColumnRates(1e9 * (least - each * few) / rows, 1e9 * encode / rows, 1e9 * each)


def number_rates(folder: Path, rows: int) -> ColumnRates:
    """Measure what a column of numbers adds to one of keys."""
    table = pa.table({"x": np.arange(rows) % 1000 * FAR, "age": np.random.default_rng(0).normal(size=rows)})
    pq.write_table(table, folder / "numbers.parquet")
    taken = []
    for features in ([], [Numeric("age")]):
        schema = Schema(user=Categorical("x"), user_features=features)
        encoder = FeatureEncoder(schema).fit(folder / "numbers.parquet")
        fit = seconds(lambda schema=schema: FeatureEncoder(schema).fit(folder / "numbers.parquet"))
        taken.append((fit, seconds(lambda encoder=encoder: encoder.transform(folder / "numbers.parquet"))))
    (fit, encode), (more, longer) = taken
    return ColumnRates(1e9 * (more - fit) / rows, 1e9 * (longer - encode) / rows)


def epoch(encoder: FeatureEncoder, batch: Any, solver: Any, dim: int) -> float:
    """Seconds of an epoch, without what comes before the first."""

    def run(epochs: int) -> None:
        model = MatrixFactorization(encoder, embedding_dim=dim)
        train(model, batch, SquaredError(), solver, epochs=epochs, progress=False)

    return (seconds(lambda: run(6), 2) - seconds(lambda: run(1), 2)) / 5


def lookup_rates(path: Path, solver: Any, rows: int) -> LookupRates:
    """Nanoseconds of a lookup, from the epochs of two widths."""
    encoder = FeatureEncoder(described()).fit(path)
    batch = encoder.transform(path).select(torch.arange(rows))
    lookups, taken = rows * 7, {dim: epoch(encoder, batch, solver, dim) for dim in (16, 128)}
    width = max(taken[128] - taken[16], 0.0) / 112 / lookups
    return LookupRates(1e9 * max(taken[16] / lookups - 16 * width, 0.0), 1e9 * width)


def measured(folder: Path, rows: int) -> Machine:
    """Measure this machine."""
    draw = np.random.default_rng(0)
    integers = column_rates(folder, lambda n: pa.array(draw.integers(0, n, rows) * FAR), rows)
    texts = column_rates(folder, lambda n: pa.array([f"{v:020d}" for v in draw.integers(0, n, rows).tolist()]), rows)
    pq.write_table(pa.table(columns(rows // 2, rows // 8, rows // 40)), folder / "train.parquet")
    return Machine(
        name=machine.describe()["cpu"],
        integers=integers,
        texts=texts,
        numbers=number_rates(folder, rows),
        sequential=lookup_rates(folder / "train.parquet", SequentialSGD(), rows // 2),
        minibatch=lookup_rates(folder / "train.parquet", Minibatch(), rows // 20),
    )


# --- plans against runs --------------------------------------------------------------------------------------------


def added(work: str, path: Path) -> int:
    """Bytes that a work adds to a fresh process at the highest."""
    command = [sys.executable, __file__, "--inside", work, str(path)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def inside(work: str, path: str) -> None:
    """Do one work in this process, after the same on a few rows, which loads what it needs."""
    timing.use_threads(1)
    schema = described() if work.endswith("features") else pair()
    few = pa.table(columns(1000, 100, 10))
    works = {
        "fit": lambda source: FeatureEncoder(schema).fit(source),
        "recommend": lambda source: Recommender(schema, epochs=2, progress=False).fit(source),
    }
    run = works[work.partition("-")[0]]
    run(few)
    before = timing._peak()
    run(path)
    print(round((timing._peak() - before) * 2**20))


def compared(path: Path, size: tuple[int, int, int], schema: Schema, name: str, rates: Machine) -> list[list[str]]:
    """One row for each figure: planned, measured."""
    rows, users, items = size
    counts = {"user": users, "item": items, "title": items, "tags": 1000}
    owned = [one.name for one in schema.keyed]
    plan = schema.plan(
        rows=rows,
        distinct={feature: counts[feature] for feature in owned},
        lengths={"tags": 3} if "tags" in owned else {},
        text={"title": 20} if "title" in owned else {},
        machine=rates,
    )
    encoder = FeatureEncoder(schema).fit(path)
    batch = encoder.transform(path)
    part = batch.select(torch.arange(min(rows, 200_000)))
    times = {
        "`FeatureEncoder.fit`": (plan.fit_seconds, seconds(lambda: FeatureEncoder(schema).fit(path), 2)),
        "`transform`": (plan.encode_seconds, seconds(lambda: encoder.transform(path), 2)),
        "epoch, `SequentialSGD`": (
            plan.sequential_seconds,
            epoch(encoder, batch, SequentialSGD(), schema.embedding_dim),
        ),
        "epoch, `Minibatch`": (
            plan.minibatch_seconds,
            epoch(encoder, part, Minibatch(), schema.embedding_dim) * rows / len(part),
        ),
    }
    memory = {
        "`FeatureEncoder.fit`, planned beside reading": (plan.fit_peak, added(f"fit-{name}", path)),
        "`Recommender.fit`, about": (plan.recommender_peak, added(f"recommend-{name}", path)),
    }
    shown = f"{rows:,} rows, {users:,} users, {items:,} items, {name}"
    return [
        *([shown, key, in_bytes(planned), in_bytes(found)] for key, (planned, found) in memory.items()),
        *([shown, key, f"{planned:.2f} s", f"{found:.2f} s"] for key, (planned, found) in times.items()),
    ]


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---|---|---:|---:|", *lines[1:]])


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--inside"]:
        inside(*arguments[1:])
        return
    timing.use_threads(1)
    rows = int(arguments[0]) if arguments else ROWS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(measured(folder, rows), flush=True)
        lines = []
        for size in ((rows // 4, rows // 40, rows // 400), (rows, rows // 10, rows // 40)):
            path = folder / f"{size[0]}.parquet"
            pq.write_table(pa.table(columns(*size)), path)
            for schema, called in ((pair(), "pair"), (described(), "features")):
                lines += compared(path, size, schema, called, MEASURED)
                print(*lines[-6:], sep="\n", flush=True)
    text = table(["", "", "planned", "measured"], lines)
    if not arguments:
        said = machine.in_words(machine.describe() | {"clock": "CPU time"})
        head, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n\n{said}\n\n{text}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main(sys.argv[1:])
