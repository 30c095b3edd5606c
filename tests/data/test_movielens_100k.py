"""What the script that makes the MovieLens tables does with a wheel, and the tables themselves where they are."""

from __future__ import annotations

import importlib.util
import subprocess
import zipfile
from pathlib import Path

import pandas as pd
import pytest

FOLDER = Path(__file__).parents[2] / "data/movielens_100k"
needs_tables = pytest.mark.skipif(
    not (FOLDER / "ratings.parquet").exists(), reason="python data/movielens_100k/prepare.py was not run"
)
FILES = {
    "inter": "user_id:token\titem_id:token\trating:float\ttimestamp:float\n196\t242\t3\t881250949\n",
    "user": "user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token\n196\t49\tM\twriter\t55105\n",
    "item": (
        "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
        "1\tToy Story\t1995\tAnimation Children's Comedy\n267\tunkonwn\tunkonwn\tunknown\n"
    ),
}


@pytest.fixture
def prepare(monkeypatch, tmp_path):
    """The script, with a small wheel instead of the download."""
    spec = importlib.util.spec_from_file_location("prepare_movielens", FOLDER / "prepare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    wheel = tmp_path / "small.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for kind, text in FILES.items():
            archive.writestr(f"{module.INSIDE}.{kind}", text)
    monkeypatch.setattr(module, "download", lambda _: zipfile.ZipFile(wheel))
    return module


def test_the_tables_are_typed_and_lists_are_lists(prepare, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(prepare, "ROWS", {"ratings": 1, "users": 1, "items": 2})
    prepare.main(tmp_path)
    ratings, users, items = (pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("ratings", "users", "items"))
    assert ratings.to_dict("records") == [{"user_id": 196, "movie_id": 242, "rating": 3.0, "timestamp": 881250949}]
    assert ratings.dtypes.astype(str).tolist() == ["int64", "int64", "float32", "int64"]
    assert users.to_dict("records") == [{"user_id": 196, "age": 49, "gender": "M", "occupation": "writer"}]
    assert [list(genres) for genres in items["genres"]] == [["Animation", "Children's", "Comedy"], ["unknown"]]
    assert items["year"].tolist() == [1995, pd.NA]
    assert capsys.readouterr().out == "ratings.parquet has 1 rows\nusers.parquet has 1 rows\nitems.parquet has 2 rows\n"


def test_without_a_network_one_sentence_says_what_runs_all_the_same(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("prepare_movielens", FOLDER / "prepare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    refused = subprocess.CompletedProcess([], 1, stdout="", stderr="WARNING: retrying\nERROR: No network\n")
    monkeypatch.setattr(module.subprocess, "run", lambda *_, **__: refused)
    with pytest.raises(SystemExit) as caught:
        module.main(tmp_path)
    assert caught.value.code == (
        "Could not fetch MovieLens 100K: it lies in the package recbole==1.2.1, for which pip needs a network or an "
        "index that has it. What runs without is on bundled data, for example python examples/open_bandit.py. "
        "pip said: ERROR: No network"
    )
    assert not list(tmp_path.iterdir())


def test_another_number_of_rows_is_an_error_and_writes_nothing(prepare, tmp_path):
    with pytest.raises(ValueError, match="no longer holds") as caught:
        prepare.main(tmp_path)
    assert str(caught.value) == (
        "recbole==1.2.1: expected {'ratings': 100000, 'users': 943, 'items': 1682} rows, got "
        "{'ratings': 1, 'users': 1, 'items': 2}. The package no longer holds this data set."
    )
    assert not list(tmp_path.glob("*.parquet"))


@needs_tables
def test_the_tables_have_the_rows_of_movielens_100k():
    counts = {name: len(pd.read_parquet(FOLDER / f"{name}.parquet")) for name in ("ratings", "users", "items")}
    assert counts == {"ratings": 100_000, "users": 943, "items": 1_682}


@needs_tables
def test_every_rating_has_its_user_and_its_movie():
    ratings = pd.read_parquet(FOLDER / "ratings.parquet")
    assert ratings["user_id"].isin(pd.read_parquet(FOLDER / "users.parquet")["user_id"]).all()
    assert ratings["movie_id"].isin(pd.read_parquet(FOLDER / "items.parquet")["movie_id"]).all()
    assert not ratings.duplicated(["user_id", "movie_id"]).any()
    assert ratings["rating"].isin([1, 2, 3, 4, 5]).all()
