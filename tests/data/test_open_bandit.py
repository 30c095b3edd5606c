"""The bundled sample of the Open Bandit Dataset, and the script that rebuilds it."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pandas as pd
import pytest

FOLDER = Path(__file__).parents[2] / "data/open_bandit"
HASHES = {"user_feature_0": "a9", "user_feature_1": "b7", "user_feature_2": "c2", "user_feature_3": "d4"}


@pytest.fixture
def prepare():
    spec = importlib.util.spec_from_file_location("prepare_open_bandit", FOLDER / "prepare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def wheel(tmp_path, prepare):
    """A wheel of one display per log, in which the user had clicked item 1 twice."""
    log = {
        "timestamp": "2019-11-24 00:00:17+00:00",
        "item_id": 0,
        "position": 2,
        "click": 1,
        "propensity_score": 0.5,
        **HASHES,
        "user-item_affinity_0": 0.0,
        "user-item_affinity_1": 2.0,
    }
    items = pd.DataFrame(
        {"item_id": [0, 1], "item_feature_0": [0.5, -1.0], **{f"item_feature_{i}": ["x", "y"] for i in (1, 2, 3)}}
    )
    path = tmp_path / "small.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for policy in prepare.POLICIES:
            for campaign in prepare.CAMPAIGNS:
                inside = f"obp/dataset/obd/{policy}/{campaign}"
                archive.writestr(f"{inside}/{campaign}.csv", pd.DataFrame([log]).to_csv())
                archive.writestr(f"{inside}/item_context.csv", items.to_csv())
    return path


def test_a_log_becomes_rows_with_short_names_and_lists(prepare, wheel):
    table = prepare.impressions(wheel)
    assert table.num_rows == 6
    row = table.slice(0, 1).to_pylist()[0]
    assert (row["campaign"], row["policy"], row["item_id"]) == ("all", "bts", "all-00")
    assert (row["past_clicked_items"], row["past_click_counts"]) == (["all-01"], [2])
    assert row["user_segment"] == "uf0_0|uf1_0|uf2_0|uf3_0"


def test_items_of_all_campaigns_are_told_apart(prepare, wheel):
    table = prepare.items(wheel)
    assert table["item_id"].to_pylist() == ["all-00", "all-01", "men-00", "men-01", "women-00", "women-01"]
    assert table["item_feature_1"].to_pylist() == ["if1_0", "if1_1"] * 3


def test_the_bundled_tables_are_what_their_readme_says():
    impressions, items = pd.read_parquet(FOLDER / "impressions.parquet"), pd.read_parquet(FOLDER / "items.parquet")
    assert (len(impressions), len(items), impressions["click"].sum()) == (60_000, 160, 287)
    assert impressions.groupby(["campaign", "policy"]).size().tolist() == [10_000] * 6
    assert set(impressions["position"]) == {1, 2, 3}
    assert impressions["item_id"].isin(items["item_id"]).all()
