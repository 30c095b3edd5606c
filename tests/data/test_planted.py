"""The generator of planted effects."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

SCRIPT = Path(__file__).parents[2] / "data/planted/generate.py"


@pytest.fixture(scope="module")
def planted():
    spec = importlib.util.spec_from_file_location("planted_generate", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["planted_generate"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["planted_generate"]


def test_the_same_seed_gives_the_same_tables(planted):
    first, again, other = (planted.generate(rows=50, seed=seed) for seed in (1, 1, 2))
    pd.testing.assert_frame_equal(first.interactions, again.interactions)
    pd.testing.assert_frame_equal(first.items, again.items)
    assert not first.interactions.equals(other.interactions)


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_any_number_of_rows_has_the_same_columns_and_types(planted, rows):
    table = planted.generate(rows=rows, users=1, items=1, slots=1, dim=1).interactions
    assert len(table) == rows
    assert table.dtypes.astype(str).to_dict() == {
        "user_id": "int64",
        "item_id": "int64",
        "slot": "int64",
        "rating": "float32",
        "click": "int8",
    }


def test_ratings_are_the_planted_effects_plus_noise(planted):
    truth = planted.generate(rows=5_000, seed=3)
    rows = truth.interactions.merge(truth.users, on="user_id").merge(
        truth.items, on="item_id", suffixes=("_user", "_item")
    )
    rows = rows.merge(truth.slots, on="slot")
    users, items = truth.user_vectors[rows["user_id"] - 1], truth.item_vectors[rows["item_id"] - 1]
    score = rows["effect_user"] + rows["effect_item"] + rows["effect"] + (users * items).sum(axis=1)
    noise = rows["rating"] - 3 - score
    assert abs(noise.mean()) < 4 * planted.NOISE / np.sqrt(len(rows))
    assert noise.std() == pytest.approx(planted.NOISE, rel=0.05)


def test_slot_effects_fall_from_the_first_slot_to_the_last(planted):
    effects = planted.generate(rows=1, slots=4).slots["effect"]
    assert effects.iloc[0] == planted.SLOT_SPAN
    assert effects.iloc[-1] == 0
    assert effects.is_monotonic_decreasing


def test_items_stand_where_their_place_says_and_not_where_their_merit_says(planted):
    truth = planted.generate(rows=50_000, items=400, seed=0)
    mean_slot = truth.interactions.groupby("item_id")["slot"].mean().to_numpy()
    assert np.corrcoef(mean_slot, truth.items["place"])[0, 1] > 0.95
    assert abs(np.corrcoef(mean_slot, truth.items["effect"])[0, 1]) < 0.15


def test_the_script_writes_what_it_says(planted, tmp_path, capsys):
    counts = planted.main(["--rows", "30", "--items", "6"], out=tmp_path)
    assert counts == {"interactions": 30, "users": 400, "items": 6, "slots": 5}
    assert {path.name: len(pd.read_parquet(path)) for path in tmp_path.iterdir()} == {
        f"{name}.parquet": count for name, count in counts.items()
    }
    assert capsys.readouterr().out.splitlines()[0] == "interactions.parquet has 30 rows"
