"""Make interactions whose true user, item and slot effects are known.

Run:    python data/planted/generate.py --rows 20000 --seed 0
Needs:  numpy, pandas, pyarrow.
Writes: interactions.parquet, users.parquet, items.parquet and slots.parquet beside this file, and prints their
        row counts. The last three hold the truth.

The model is the one that the library fits, so that what it learns can be held against the truth:

    score = user effect + item effect + slot effect + <user vector, item vector>
    rating = 3 + score + noise               click = 1 with chance 1 / (1 + exp(1 - score))

Better slots have larger effects, and items do not reach them by merit: each item has a place where the page tends
to put it, drawn apart from its effect. A model that is blind to slots takes the place for merit.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
SLOT_SPAN = 1.5
NOISE = 0.3


@dataclass(frozen=True)
class Planted:
    """Interactions and the truth behind them.

    Parameters
    ----------
    interactions
        Columns ``user_id``, ``item_id`` (from 1), ``slot`` (from 1), ``rating`` float32, ``click`` int8.
    users, items, slots
        One row each, with its planted ``effect``; items also with the ``place`` where they tend to stand.
    user_vectors, item_vectors
        float64 ``(users, dim)`` and ``(items, dim)``, row 0 for id 1.
    """

    interactions: pd.DataFrame
    users: pd.DataFrame
    items: pd.DataFrame
    slots: pd.DataFrame
    user_vectors: np.ndarray
    item_vectors: np.ndarray


def generate(
    *, rows: int = 20_000, users: int = 400, items: int = 100, slots: int = 5, dim: int = 3, seed: int = 0
) -> Planted:
    """Draw ``rows`` interactions of uniformly drawn users and items; the same arguments give the same tables."""
    rng = np.random.default_rng(seed)
    user_effects, item_effects = rng.normal(0, 0.3, users), rng.normal(0, 0.5, items)
    user_vectors, item_vectors = rng.normal(0, 0.5, (users, dim)), rng.normal(0, 0.5, (items, dim))
    slot_effects = np.linspace(SLOT_SPAN, 0, slots)
    places = rng.uniform(0.5, slots + 0.5, items)
    user, item = rng.integers(0, users, rows), rng.integers(0, items, rows)
    slot = np.clip(np.rint(places[item] + rng.normal(0, slots / 8, rows)), 1, slots).astype(np.int64)
    taste = np.einsum("nd,nd->n", user_vectors[user], item_vectors[item])
    score = user_effects[user] + item_effects[item] + slot_effects[slot - 1] + taste
    interactions = {
        "user_id": user + 1,
        "item_id": item + 1,
        "slot": slot,
        "rating": (3 + score + rng.normal(0, NOISE, rows)).astype(np.float32),
        "click": (rng.random(rows) < 1 / (1 + np.exp(1 - score))).astype(np.int8),
    }
    return Planted(
        interactions=pd.DataFrame(interactions),
        users=pd.DataFrame({"user_id": np.arange(1, users + 1), "effect": user_effects}),
        items=pd.DataFrame({"item_id": np.arange(1, items + 1), "effect": item_effects, "place": places}),
        slots=pd.DataFrame({"slot": np.arange(1, slots + 1), "effect": slot_effects}),
        user_vectors=user_vectors,
        item_vectors=item_vectors,
    )


def main(arguments: list[str] | None = None, *, out: Path = HERE) -> dict[str, int]:
    """Generate, write the tables into ``out`` and return their row counts."""
    parser = argparse.ArgumentParser(description="Make interactions with planted effects.")
    for name, default in {"rows": 20_000, "users": 400, "items": 100, "slots": 5, "dim": 3, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    planted = generate(**vars(parser.parse_args(arguments)))
    tables = {name: getattr(planted, name) for name in ("interactions", "users", "items", "slots")}
    for name, table in tables.items():
        table.to_parquet(out / f"{name}.parquet", index=False)
        print(f"{name}.parquet has {len(table):,} rows")
    return {name: len(table) for name, table in tables.items()}


if __name__ == "__main__":
    main()
