"""A folder that the first version wrote is read like one of today, and what does not fit is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from recsys_emb.artifact.manifest import FORMAT_VERSION, MANIFEST, describe_file
from recsys_emb.artifact.migrations import MIGRATIONS, steps
from recsys_emb.artifact.tables import read_table, write_table
from recsys_emb.artifact.version_1 import table_to_batch
from recsys_emb.errors import ArtifactError
from recsys_emb.recommender import Recommender

FOLDER = Path(__file__).parent / "version_1"

# What the library of that version answered, printed when the folder was made.
ANSWER = pd.DataFrame(
    [
        ("ann", 3, 3.0700425386, 1, True),
        ("cy", 1, 3.1268710014, 1, True),
        ("zoe", 1, 3.1268551141, 1, False),
        ("zoe", 3, 3.0699150364, 2, False),
        ("zoe", 2, 2.8836278201, 3, False),
    ],
    columns=["user", "item", "score", "rank", "known"],
)
MORE = pd.DataFrame({"user": ["dan"], "item": [4], "slot": [1], "age": [50.0], "tags": [["z"]], "stars": [2.0]})


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return shutil.copytree(FOLDER, tmp_path / "old")


def reseal(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    manifest["files"] = {name: describe_file(folder / name) for name in names if name != MANIFEST}
    (folder / MANIFEST).write_text(json.dumps(manifest))


def refusal(folder: Path) -> str:
    reseal(folder)
    with pytest.raises(ArtifactError) as caught:
        Recommender.load(folder)
    return str(caught.value)


def test_it_answers_as_it_did() -> None:
    answer = Recommender.load(FOLDER).recommend(["ann", "cy", "zoe"], k=3)
    pd.testing.assert_frame_equal(answer, ANSWER, check_dtype=False, rtol=1e-9)


def test_it_has_a_lineage_of_one_step_and_the_strength_of_its_solver() -> None:
    recommender = Recommender.load(FOLDER)
    (step,) = recommender.lineage
    assert (step.fingerprint, step.rows) == (recommender.encoder.fingerprint, 6)
    assert step.values == {"user": 3, "item": 3, "tags": 2}
    assert recommender._fitted.strength.l2 == 0.07


def test_it_grows_and_is_saved_in_the_format_of_today(tmp_path: Path) -> None:
    recommender = Recommender.load(FOLDER).partial_fit(MORE)
    recommender.save(tmp_path / "new")
    assert json.loads((tmp_path / "new" / MANIFEST).read_text())["format_version"] == FORMAT_VERSION
    again = Recommender.load(tmp_path / "new")
    assert again.predict(MORE).equals(recommender.predict(MORE))
    assert len(again.lineage) == 2


def test_there_is_a_step_from_every_version() -> None:
    assert sorted(MIGRATIONS) == list(range(1, FORMAT_VERSION))
    assert len(steps(1)) == FORMAT_VERSION - 1
    assert steps(FORMAT_VERSION) == []


def test_its_seen_lists_must_match_its_users(saved: Path) -> None:
    write_table(read_table(saved / "seen.parquet").slice(0, 1), saved / "seen.parquet")
    expected = "seen.parquet: expected 4 lists, as users.parquet has rows, got 1. Save the artifact again."
    assert refusal(saved) == expected


@pytest.mark.parametrize("rows", [[1, 0, 2, 3], []])
def test_its_items_must_ascend(saved: Path, rows: list[int]) -> None:
    table = read_table(saved / "items.parquet").take(pa.array(rows, pa.int64()))
    write_table(table, saved / "items.parquet")
    expected = "items.parquet: expected ascending indices and a stranger's row, got others. Save the artifact again."
    assert refusal(saved) == expected


@pytest.mark.parametrize("content", [b"", b"PAR1", b"\x80\x04N.", b"PAR1" + bytes(40) + b"PAR1"])
def test_what_is_no_parquet_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"^x\.parquet: expected a Parquet file, got "):
        read_table(tmp_path / "x.parquet")


def test_other_columns_are_refused() -> None:
    with pytest.raises(ArtifactError) as caught:
        table_to_batch(pa.table({"a": [1]}), {"b": 3}, where="x")
    assert str(caught.value) == "x: expected columns 'b', got 'a'. Save the artifact again."


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["3"]),
        pa.array([3], pa.int32()),
        pa.array([3.0]),
        pa.array([None], pa.int64()),
        pa.array([[3]], pa.list_(pa.int64())),
        pa.array([None], pa.large_list(pa.int64())),
        pa.array([[None]], pa.large_list(pa.int64())),
        pa.array([[1.0, None]], pa.list_(pa.float32(), 2)),
        pa.array([[1.0, 2.0]], pa.list_(pa.float64(), 2)),
    ],
    ids=str,
)
def test_other_types_and_nulls_are_refused(array: pa.Array) -> None:
    with pytest.raises(ArtifactError) as caught:
        table_to_batch(pa.table({"a": array}), {"a": 9}, where="x")
    expected = "x: a: expected int64, lists of int64 or pairs of float32 without nulls"
    assert str(caught.value) == f"{expected}, got {array.type}. Save the artifact again."


@pytest.mark.parametrize(("indices", "got"), [([-1, 3], "-1 to 3"), ([3, 9], "3 to 9")])
@pytest.mark.parametrize("lists", [False, True])
def test_indices_outside_their_table_are_refused(indices: list[int], got: str, lists: bool) -> None:
    array = pa.array([indices], pa.large_list(pa.int64())) if lists else pa.array(indices)
    with pytest.raises(ArtifactError) as caught:
        table_to_batch(pa.table({"a": array}), {"a": 9}, where="x")
    expected = f"x: a: expected indices in [0, 9), got {got}. The file does not belong to these vocabularies."
    assert str(caught.value) == expected
