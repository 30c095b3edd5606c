"""Interaction logs drawn from a seed: few users and items with many rows, many with few, as real logs have them.

Every user and every item of a log occurs, so that rows and distinct values can be chosen apart. Files are made once
and kept in ``out/bench/data``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import harness
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = ("user_id", "item_id", "category", "country", "position", "tags")
CHUNK = 1_000_000
ROW_GROUP = 250_000
CATEGORIES, COUNTRIES, POSITIONS, TAGS = 300, 50, 50, 2000

SCHEMA = pa.schema(
    [
        ("user_id", pa.int64()),
        ("item_id", pa.string()),
        ("category", pa.string()),
        ("country", pa.dictionary(pa.int32(), pa.string())),
        ("position", pa.int32()),
        ("tags", pa.list_(pa.string())),
        ("label", pa.int8()),
    ]
)


def log(rows: int, *, users: int, items: int, seed: int = 0) -> Path:
    """Path of a Parquet log; sparse 63-bit user ids, text items, and missing values in most columns."""
    path = harness.OUT / "data" / f"log_{rows}_{users}_{items}_{seed}.parquet"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        with pq.ParquetWriter(unfinished, SCHEMA, compression="zstd") as writer:
            for table in _tables(rows, users, items, seed):
                writer.write_table(table, row_group_size=ROW_GROUP)
        unfinished.rename(path)
    return path


def zipf(count: int, exponent: float, rng: np.random.Generator, size: int) -> npt.NDArray[np.int64]:
    """Draw from ``range(count)``, number k with a probability proportional to 1 / (k + 1) ** exponent."""
    steps = np.cumsum(1 / np.arange(1, count + 1) ** exponent)
    return np.searchsorted(steps / steps[-1], rng.random(size)).astype(np.int64)


def ratings(
    rows: int, *, users: int, items: int, seed: int = 0
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Users, items (distinct pairs, in random order) and ratings of mean 0 and deviation 1, from five hidden tastes."""
    rng = np.random.default_rng(seed)
    scattered = rng.permutation(items)
    pairs = np.empty(0, np.int64)
    while len(pairs) < rows:
        drawn = rng.integers(0, users, rows) * items + scattered[zipf(items, 0.9, rng, rows)]
        pairs = np.unique(np.concatenate([pairs, drawn]))
    pairs = rng.permutation(pairs)[:rows]
    user, item = pairs // items, pairs % items
    liking, quality = rng.normal(size=(users, 5)), rng.normal(size=(items, 5))
    rating = 0.3 * np.einsum("nk,nk->n", liking[user], quality[item]) + rng.normal(size=rows)
    return user, item, ((rating - rating.mean()) / rating.std()).astype(np.float32)


def _tables(rows: int, users: int, items: int, seed: int) -> Iterator[pa.Table]:
    rng = np.random.default_rng([seed, rows, users, items])
    user_ids = _distinct(2**53, 2**63 - 1, users, rng)
    item_ids = pa.array([f"B0{code:08X}" for code in _distinct(0, 2**32, items, rng).tolist()])
    categories = pa.array([f"Department > Category {one:03d} / sub {one % 17}" for one in range(CATEGORIES)])
    countries = pa.array([f"C{one:02d}" for one in range(COUNTRIES)])
    tags = pa.array([f"tag_{one * 7919 % 100003:06d}" for one in range(TAGS)])
    category_of = rng.integers(0, CATEGORIES, items)
    for first in range(0, rows, CHUNK):
        size = min(CHUNK, rows - first)
        user, item = (_all_of(first, count, s, rng, size) for count, s in ((users, 0.7), (items, 1.0)))
        country = _masked(zipf(COUNTRIES, 1.2, rng, size), 0.005, rng)
        columns = [
            pa.array(user_ids[user]),
            item_ids.take(_masked(item, 0.01, rng, spared=items - first)),
            categories.take(_masked(category_of[item], 0.02, rng)),
            pa.DictionaryArray.from_arrays(country.cast(pa.int32()), countries),
            _masked(rng.integers(0, POSITIONS, size), 0.01, rng).cast(pa.int32()),
            _lists(tags, size, rng),
            pa.array((rng.random(size) < 0.1).astype(np.int8)),
        ]
        yield pa.table(columns, schema=SCHEMA).take(pa.array(rng.permutation(size)))


def _distinct(low: int, high: int, count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    drawn = np.unique(rng.integers(low, high, count + count // 50 + 10))
    return rng.permutation(drawn)[:count]


def _all_of(first: int, count: int, exponent: float, rng: np.random.Generator, size: int) -> npt.NDArray[np.int64]:
    """Draw rows ``first`` to ``first + size - 1`` of a column in which row k < count is k itself."""
    drawn = zipf(count, exponent, rng, size)
    own = max(0, min(count - first, size))
    drawn[:own] = np.arange(first, first + own)
    return drawn


def _masked(values: npt.NDArray[np.int64], share: float, rng: np.random.Generator, *, spared: int = 0) -> pa.Array:
    """Hide a share of the values, but none of the first ``spared``: those may occur nowhere else."""
    missing = rng.random(len(values)) < share
    missing[: max(spared, 0)] = False
    return pa.array(values, mask=missing)


def _lists(values: pa.Array, size: int, rng: np.random.Generator) -> pa.Array:
    missing = rng.random(size) < 0.01
    lengths = np.where(missing, 0, rng.integers(0, 6, size))
    offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int32)
    picked = values.take(pa.array(zipf(len(values), 1.0, rng, int(offsets[-1]))))
    return pa.ListArray.from_arrays(pa.array(offsets), picked, mask=pa.array(missing))
