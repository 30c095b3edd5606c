"""Rebuild the small sample of the Open Bandit Dataset as two Parquet files.

Run:    python data/open_bandit/prepare.py
Needs:  pandas, pyarrow and a pip that can download packages; a few seconds. The sample lies inside the wheel
        of the package obp, as one CSV per campaign and policy. Only needed to check the files that are here.
Writes: impressions.parquet and items.parquet beside this file, and prints their row counts.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
PACKAGE = "obp==0.4.1"
CAMPAIGNS = ("all", "men", "women")
POLICIES = ("random", "bts")
USER_FEATURES = [f"user_feature_{i}" for i in range(4)]
ITEM_FEATURES = [f"item_feature_{i}" for i in range(1, 4)]
AFFINITY = "user-item_affinity_"


def read(wheel: Path, policy: str, campaign: str, file: str) -> pd.DataFrame:
    """Read one CSV of the wheel; items get the campaign's name in front, as their numbers repeat."""
    with zipfile.ZipFile(wheel) as archive, archive.open(f"obp/dataset/obd/{policy}/{campaign}/{file}.csv") as csv:
        frame = pd.read_csv(csv, index_col=0)
    names = campaign + "-" + frame["item_id"].astype(str).str.zfill(2)
    return frame.assign(item_id=names, campaign=campaign, policy=policy)


def shortened(hashes: pd.Series, prefix: str) -> pd.Series:
    """Replace hashes, which mean nothing to a reader, by their number in order of first sight."""
    return pd.Series([f"{prefix}{code}" for code in pd.factorize(hashes)[0]], index=hashes.index)


def past_clicks(log: pd.DataFrame) -> pd.DataFrame:
    """Turn the affinity columns (clicks of this user on each item before) into two lists per row."""
    columns = [column for column in log.columns if column.startswith(AFFINITY)]
    counts = log[columns].to_numpy()
    names = [f"{log['campaign'].iloc[0]}-{int(column.removeprefix(AFFINITY)):02d}" for column in columns]
    lists = {
        "past_clicked_items": [[names[i] for i in row.nonzero()[0]] for row in counts],
        "past_click_counts": [row[row.nonzero()].astype(int).tolist() for row in counts],
    }
    return log.drop(columns=columns).assign(**lists)


def impressions(wheel: Path) -> pa.Table:
    """Join the six logs: what was shown to whom in which slot, and whether it was clicked."""
    logs = [read(wheel, policy, campaign, campaign) for campaign in CAMPAIGNS for policy in POLICIES]
    frame = pd.concat([past_clicks(log) for log in logs], ignore_index=True)
    for i, feature in enumerate(USER_FEATURES):
        frame[feature] = shortened(frame[feature], f"uf{i}_")
    frame["user_segment"] = frame[USER_FEATURES].agg("|".join, axis=1)
    frame["timestamp"] = pd.to_datetime(frame["timestamp"], utc=True, format="ISO8601").dt.as_unit("us")
    frame = frame.rename(columns={"propensity_score": "propensity"})
    frame = frame.sort_values(["campaign", "policy", "timestamp"], kind="stable", ignore_index=True)
    types = {
        "timestamp": pa.timestamp("us", tz="UTC"),
        **dict.fromkeys(["campaign", "policy", "user_segment", *USER_FEATURES], pa.string()),
        "past_clicked_items": pa.list_(pa.string()),
        "past_click_counts": pa.list_(pa.int16()),
        "item_id": pa.string(),
        "position": pa.int8(),
        "propensity": pa.float32(),
        "click": pa.int8(),
    }
    return pa.Table.from_pandas(frame, schema=pa.schema(types), preserve_index=False)


def items(wheel: Path) -> pa.Table:
    """List the items; both policies describe the same ones under different hashes, so one is enough."""
    frame = pd.concat([read(wheel, "random", campaign, "item_context") for campaign in CAMPAIGNS], ignore_index=True)
    for i, feature in enumerate(ITEM_FEATURES, start=1):
        frame[feature] = shortened(frame[feature], f"if{i}_")
    types = {
        **dict.fromkeys(["item_id", "campaign"], pa.string()),
        "item_feature_0": pa.float32(),
        **dict.fromkeys(ITEM_FEATURES, pa.string()),
    }
    return pa.Table.from_pandas(frame, schema=pa.schema(types), preserve_index=False)


def main(out: Path = HERE) -> dict[str, int]:
    """Write the two files into ``out`` and return their row counts."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        subprocess.run(command, check=True)
        wheel = next(Path(folder).glob("*.whl"))
        tables = {"impressions": impressions(wheel), "items": items(wheel)}
    for name, table in tables.items():
        pq.write_table(table, out / f"{name}.parquet", compression="zstd", compression_level=19)
        print(f"{name}.parquet has {table.num_rows:,} rows")
    return {name: table.num_rows for name, table in tables.items()}


if __name__ == "__main__":
    main()
