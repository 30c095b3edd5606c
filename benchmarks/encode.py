"""Values → tensors: learning vocabularies from Parquet, encoding with them, and how both grow.

Run:    python benchmarks/encode.py [--full | --tiny]
Needs:  nothing more; the peers of requirements-peers.txt take part where they are installed

A log of six columns: sparse 63-bit user ids, text items, categories, a dictionary of countries, positions, and lists
of tags, most with missing values.

- **fit**: file → vocabularies. DuckDB, Polars and Arrow count and order the values as this library does, and must give
  the same values with the same counts in the same order. pandas, scikit-learn, category_encoders and PyTorch Frame
  learn the distinct values without counts (in their favour); PyTorch Frame cannot do so without encoding.
- **transform**: file → int64 tensors. All must give the same codes, up to renaming.
- **decode alone** reads the same columns and does nothing with them: what everybody pays.
- **batch**: a batch that is in memory → codes, by a vocabulary that was made before.

One thread. The slowest peers get a smaller log of the same kind, and their time is scaled up: in their favour too,
since it has fewer distinct values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import encode_peers as peers
import harness
import logs
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from harness import Bench, Entry

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.schema import Categorical, MultiCategorical, Schema
from recsys_emb.vocabulary.vocabulary import Vocabulary

SCHEMA = Schema(
    user=Categorical("user_id"),
    item=Categorical("item_id"),
    item_features=[Categorical("category"), MultiCategorical("tags")],
    context_features=[Categorical("country"), Categorical("position")],
)
SLOW = 0.1


class Contender(NamedTuple):
    """A peer, its distribution, its goals, the part of the log that it gets, and where its codes are other ones."""

    name: str
    make: Callable[[], peers.Peer]
    package: str
    fit_goal: float | None = None
    transform_goal: float | None = None
    share: float = 1.0
    differs: str = ""
    note: str = ""

    @property
    def fit_agrees(self) -> harness.Agrees | None:
        """Check of a fit, for those who count and order."""
        counts = self.make in (peers.DuckDB, peers.Polars, peers.PolarsStreaming, peers.Arrow)
        return same_counts if counts else None

    def start_fit(self, path: Path) -> harness.Work:
        """Prepare `fit`."""
        return partial(self.make().fit, path)

    def start_transform(self, path: Path) -> harness.Work:
        """Prepare `transform`, by a fit."""
        peer = self.make()
        return partial(peer.transform, path, peer.fit(path))


FIELD = [
    Contender("DuckDB", peers.DuckDB, "duckdb", 1.25, 2.2),
    Contender("Polars, streaming", peers.PolarsStreaming, "polars", 1.5),
    Contender("Polars", peers.Polars, "polars", 1.5, 2.2),
    Contender("Arrow compute", peers.Arrow, "pyarrow", 2, 2.2),
    Contender("pandas factorize, Index", peers.Pandas, "pandas", 5, 9),
    Contender("scikit-learn OrdinalEncoder", peers.ScikitLearn, "scikit-learn", 8, 20),
    Contender(
        "category_encoders OrdinalEncoder",
        peers.CategoryEncoders,
        "category_encoders",
        share=SLOW,
        differs="user_id",
        note="turns ids into floats: users of 2^53 and more are all unknown",
    ),
    Contender(
        "PyTorch Frame materialize",
        peers.TorchFrame,
        "pytorch-frame",
        20,
        share=SLOW,
        differs="tags",
        note="a fit encodes too; lists are taken as sets",
    ),
]


def learn(path: Path) -> FeatureEncoder:
    return FeatureEncoder(SCHEMA).fit(path)


def read_all(path: Path) -> None:
    """Decode the columns and let them go: what every reader of the file pays."""
    small_texts = ["category", "country", "tags.list.element"]
    file = pq.ParquetFile(path, read_dictionary=small_texts)
    for group in range(file.num_row_groups):
        file.read_row_group(group, columns=list(logs.COLUMNS), use_threads=False)


# --- equal answers -----------------------------------------------------------------------------------------------


def same_counts(ours: FeatureEncoder, theirs: peers.Counted) -> None:
    for name, vocabulary in ours.vocabularies.items():
        values = theirs[name]["value"].cast(vocabulary.values.type).combine_chunks()
        assert values.equals(vocabulary.values), f"{name}: other values, or another order"
        assert np.array_equal(theirs[name]["count"].to_numpy(), vocabulary.counts), f"{name}: other counts"


def codes_of(batch: Batch) -> peers.Codes:
    columns = [batch[name] for name in logs.COLUMNS]
    return [column.values if isinstance(column, Jagged) else column for column in columns]


def same_codes(ours: Batch, theirs: peers.Codes, differs: str) -> None:
    """Check that one renaming turns all of our codes into theirs and back, but for the column ``differs``."""
    for name, mine, other in zip(logs.COLUMNS, codes_of(ours), theirs, strict=True):
        if name == differs:
            continue
        pairs = pd.DataFrame({"mine": mine.numpy(), "other": other.numpy()}).drop_duplicates()
        assert len(mine) == len(other), f"{name}: another number of values"
        assert pairs["mine"].is_unique, f"{name}: one value has several codes"
        assert pairs["other"].is_unique, f"{name}: several values share a code"


# --- the file ----------------------------------------------------------------------------------------------------


def on_files(bench: Bench) -> None:
    rows = bench.size(30_000, 1_000_000, 20_000_000)
    log, small_log = (_log(count) for count in (rows, round(rows * SLOW)))
    encoders = {path: learn(path) for path in (log, small_log)}
    fits, transforms = ([Entry("decode alone", lambda: partial(read_all, log))] for _ in range(2))
    for one in FIELD:
        path, shared = log if one.share == 1 else small_log, {"package": one.package, "share": one.share}
        start, agrees = partial(one.start_fit, path), one.fit_agrees
        fits.append(Entry(one.name, start, goal=one.fit_goal, agrees=agrees, note=one.note, **shared))
        if one.make is not peers.PolarsStreaming:
            start, agrees = partial(one.start_transform, path), _same_codes_as(encoders[path], path, one.differs)
            goal = one.transform_goal
            transforms.append(Entry(one.name, start, goal=goal, agrees=agrees, note=one.note, **shared))
    about = f"{rows:,} rows × 6 columns of Parquet"
    bench.race("fit", f"{about} → vocabularies", Entry("recsys_emb", lambda: partial(learn, log)), *fits)
    ours = Entry("recsys_emb", lambda: partial(encoders[log].transform, log))
    bench.race("transform", f"{about} → tensors", ours, *transforms)


def _log(rows: int) -> Path:
    return logs.log(rows, users=rows // 10, items=rows // 40)


def _same_codes_as(encoder: FeatureEncoder, path: Path, differs: str) -> harness.Agrees:
    return lambda _, codes: same_codes(encoder.transform(path), codes, differs)


# --- batches in memory -------------------------------------------------------------------------------------------


def on_batches(bench: Bench) -> None:
    distinct, rng = bench.size(5_000, 200_000, 1_000_000), np.random.default_rng(0)
    texts = np.array([f"B0{one:08X}" for one in rng.permutation(distinct)])
    numbers = rng.integers(2**53, 2**63, distinct)
    for kind, values, goal in (("text", pa.array(texts), 12), ("integers", pa.array(numbers), 4)):
        batches = [values.take(pa.array(logs.zipf(distinct, 0.7, rng, 8192))) for _ in range(16)]
        _race_batches(bench, kind, values, batches, goal)
    large = [pa.array(texts).take(pa.array(logs.zipf(distinct, 0.7, rng, 65_536))) for _ in range(8)]
    vocabulary = Vocabulary.from_values(pa.array(texts), name="item_id")
    bench.race(
        "large text batch",
        f"8 batches of 65,536 Arrow texts, {distinct:,} distinct → codes",
        Entry("recsys_emb", lambda: lambda: [vocabulary.encode(batch) for batch in large]),
        Entry(
            "Arrow index_in",
            lambda: lambda: [pc.index_in(batch, value_set=vocabulary.values) for batch in large],
            "pyarrow",
            goal=10,
            note="hashes the values in every call",
            agrees=lambda ours, theirs: _same_lists(ours, [codes.fill_null(-1).to_numpy() for codes in theirs], 3),
        ),
    )


def _race_batches(bench: Bench, kind: str, values: pa.Array, batches: list[pa.Array], goal: float) -> None:
    vocabulary = Vocabulary.from_values(values, name="item_id")
    index = pd.Index(vocabulary.values.to_pandas())
    columns = [batch.to_pandas() for batch in batches]
    bench.race(
        f"batch of {kind}",
        f"16 batches of 8,192 as pandas columns, {len(values):,} distinct → codes",
        Entry("recsys_emb", lambda: lambda: [vocabulary.encode(column) for column in columns]),
        Entry(
            "pandas Index, made before",
            lambda: lambda: [index.get_indexer(column) for column in columns],
            "pandas",
            goal=goal,
            agrees=lambda ours, theirs: _same_lists(ours, theirs, 3),
        ),
    )


def _same_lists(ours: list[Any], theirs: list[Any], shift: int) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        assert np.array_equal(mine.numpy() - shift, other), "other codes"


# --- growth ------------------------------------------------------------------------------------------------------


def on_growth(bench: Bench) -> None:
    rows = bench.size(20_000, 500_000, 5_000_000)
    users, items = rows // 20, rows // 50
    before = logs.log(rows, users=users, items=items)
    longer = logs.log(10 * rows, users=users, items=items)
    richer = logs.log(rows, users=min(10 * users, rows), items=min(10 * items, rows))
    about = f"{rows:,} rows, {users:,} users, {items:,} items"
    works = {"fit": learn, "transform": learn(longer).transform}
    for case, work in works.items():
        small, large = partial(work, before), partial(work, longer)
        bench.growth(case, about, change="rows × 10", small=small, large=large, goal=11)
        bench.second_thread(case, f"10 times {about}", large, goal=0.6)
    small, large = partial(learn, before), partial(learn, richer)
    bench.growth("fit", about, change="distinct × 10", small=small, large=large, goal=3)
    bench.memory("fit", about, change="rows × 10", job=learn, small=(before,), large=(longer,), goal=1.2)
    mostly_distinct(bench, rows)


def mostly_distinct(bench: Bench, rows: int) -> None:
    log = logs.log(rows, users=rows * 7 // 10, items=rows // 50)
    peer = Entry("DuckDB", partial(FIELD[0].start_fit, log), "duckdb", goal=1, agrees=same_counts)
    ours = Entry("recsys_emb", lambda: partial(learn, log))
    bench.race("fit, mostly distinct", f"{rows:,} rows, 70 % distinct users → vocabularies", ours, peer)


if __name__ == "__main__":
    bench = Bench("encode", __doc__)
    on_files(bench)
    on_batches(bench)
    on_growth(bench)
