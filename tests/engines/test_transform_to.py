from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from recsys_emb.encoding import engine_transform
from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.encoded_folder import EncodedRows
from recsys_emb.encoding.encoded_table import to_table
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.row_encoder import Answers
from recsys_emb.engines.local import Local
from recsys_emb.errors import ColumnError, DataError, LineageError, UnknownValueError
from recsys_emb.loading.loader import BatchLoader
from recsys_emb.schema import Categorical, MultiCategorical, Numeric, Position, RefuseUnknown, Schema, UnknownBuckets
from recsys_emb.sources import locations

SCHEMA = Schema(
    user=Categorical("user", unknown=UnknownBuckets(3)),
    item=Categorical("item"),
    position=Position("slot", max_position=9),
    user_features=[Numeric("age"), MultiCategorical("recent", vocabulary="item", max_length=2)],
    item_features=[MultiCategorical("tags", weights="tag_weights")],
    label="rating",
    weight="importance",
)


def table(rows: int) -> pa.Table:
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 3, rows)
    return pa.table(
        {
            "user": rng.integers(0, 2**60, rows),
            "item": [f"i{one}" for one in rng.integers(0, 9, rows)],
            "slot": rng.integers(0, 12, rows),
            "age": pa.array(rng.normal(size=rows), mask=rng.random(rows) < 0.3),
            "recent": [[f"i{one}"] * 3 for one in rng.integers(0, 9, rows)],
            "tags": [["a", "b"][:one] for one in lengths],
            "tag_weights": [[0.5, 2.0][:one] for one in lengths],
            "rating": rng.random(rows),
            "importance": rng.random(rows),
        }
    )


ROWS = table(50)


@pytest.fixture(scope="module")
def encoder() -> FeatureEncoder:
    return FeatureEncoder(SCHEMA).fit(ROWS.slice(0, 30))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "raw" / "day=1").mkdir(parents=True)
    pq.write_table(ROWS.slice(0, 20), tmp_path / "raw" / "b.parquet", row_group_size=8)
    pq.write_table(ROWS.slice(20, 30), tmp_path / "raw" / "day=1" / "a b.parquet")
    return tmp_path / "raw"


def content(batch: Batch) -> Any:
    columns = {
        name: (one.values, one.offsets, one.weights) if isinstance(one, Jagged) else (one,)
        for name, one in {**batch.columns, "label": batch.label, "weight": batch.weight}.items()
    }
    tensors = [
        (name, None if one is None else (one.dtype, one.tolist())) for name, own in columns.items() for one in own
    ]
    return tensors, dict(batch.limits)


@pytest.mark.parametrize("rows", [0, 1, 50])
def test_what_is_read_back_is_what_transform_gives(
    rows: int, encoder: FeatureEncoder, pickling: Local, tmp_path: Path
) -> None:
    source = ROWS.slice(0, rows)
    expected = content(encoder.transform(source))
    for number, engine in enumerate((None, pickling)):
        for place, given in enumerate((source, source.to_pandas(), source.to_reader(max_chunksize=7))):
            folder = tmp_path / f"{number}{place}"
            written = encoder.transform_to(given, folder, engine=engine)
            assert len(written) == rows
            assert content(written.read(encoder)) == content(EncodedRows(folder).read(encoder)) == expected


def test_parts_are_named_after_files_and_row_groups(encoder: FeatureEncoder, files: Path, tmp_path: Path) -> None:
    written = encoder.transform_to(files, tmp_path / "out")
    expected = [f"00000-b-0000{group}.parquet" for group in range(3)] + ["00001-day=1.a_b-00000.parquet"]
    assert [part.name for part in written.parts] == expected
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [*expected, "manifest.json"]
    assert [part.num_rows for part in written.parts] == [8, 8, 4, 30]
    assert content(written.read(encoder)) == content(encoder.transform(ROWS))


def test_a_second_run_ends_in_the_same_folder(encoder: FeatureEncoder, files: Path, tmp_path: Path) -> None:
    runs = []
    for _ in range(2):
        encoder.transform_to(files, tmp_path / "out")
        runs.append({path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()})
    assert runs[0] == runs[1]


def test_parts_of_an_earlier_run_and_of_lost_workers_are_removed(
    encoder: FeatureEncoder, files: Path, tmp_path: Path
) -> None:
    encoder.transform_to(files, tmp_path / "out")
    left, living = (tmp_path / "out" / f".00000-b-00000.parquet.{one}.unfinished" for one in ("0123", "4567"))
    left.write_bytes(b"half")
    living.write_bytes(b"half")
    os.utime(left, (0, 0))
    encoder.transform_to(files / "b.parquet", tmp_path / "out")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [living.name, *(f"00000-b-0000{group}.parquet" for group in range(3)), "manifest.json"]


def test_what_others_put_into_the_folder_stays(encoder: FeatureEncoder, files: Path, tmp_path: Path) -> None:
    encoder.transform_to(files, tmp_path / "out")
    pq.write_table(pa.table({"mine": [1]}), tmp_path / "out" / "mine.parquet")
    written = encoder.transform_to(files, tmp_path / "out")
    assert (tmp_path / "out" / "mine.parquet").exists()
    assert content(written.read(encoder)) == content(encoder.transform(files))


def test_the_loader_takes_encoded_rows_in_any_order(encoder: FeatureEncoder, files: Path, tmp_path: Path) -> None:
    written = encoder.transform_to(files, tmp_path / "out")
    for options in ({}, {"shuffle": True}, {"shuffle": True, "window": 16}, {"cache": tmp_path / "cache"}):
        batches = BatchLoader(encoder, written, batch_size=8, **options)
        raw = list(BatchLoader(encoder, files, batch_size=8, **options))
        assert [content(batch) for batch in batches] == [content(batch) for batch in raw]


def test_every_rank_reads_its_rows(encoder: FeatureEncoder, files: Path, tmp_path: Path) -> None:
    written = encoder.transform_to(files, tmp_path / "out")
    ranks = [BatchLoader(encoder, written, batch_size=8, rank=rank, world_size=3) for rank in range(3)]
    users = [index for rank in ranks for batch in rank for index in batch.indices("user").tolist()]
    assert users == encoder.transform(ROWS).indices("user").tolist()


def test_a_missing_part_is_refused_by_name(encoder: FeatureEncoder, files: Path, tmp_path: Path) -> None:
    encoder.transform_to(files, tmp_path / "out")
    (tmp_path / "out" / "00000-b-00001.parquet").unlink()
    with pytest.raises(DataError) as caught:
        EncodedRows(tmp_path / "out")
    assert str(caught.value) == (
        f"{tmp_path / 'out'}: expected 4 parts, got none of '00000-b-00001.parquet'. Encode again with transform_to."
    )


def test_a_part_of_another_size_is_refused_by_name(encoder: FeatureEncoder, files: Path, tmp_path: Path) -> None:
    encoder.transform_to(files, tmp_path / "out")
    with (tmp_path / "out" / "00000-b-00001.parquet").open("ab") as file:
        file.write(b"more")
    with pytest.raises(DataError) as caught:
        EncodedRows(tmp_path / "out")
    assert str(caught.value) == (
        f"{tmp_path / 'out'}: expected 4 parts, got others of another size: '00000-b-00001.parquet'. "
        "Encode again with transform_to."
    )


def test_rows_of_another_encoder_are_refused(encoder: FeatureEncoder, files: Path, tmp_path: Path) -> None:
    written = encoder.transform_to(files, tmp_path / "out")
    other = FeatureEncoder(SCHEMA).fit(ROWS)
    for use in (lambda: written.read(other), lambda: BatchLoader(other, written)):
        with pytest.raises(LineageError) as caught:
            use()
        assert str(caught.value) == (
            f"{tmp_path / 'out'}: expected rows of the encoder {other.fingerprint[:8]}, got rows of another: "
            f"{encoder.fingerprint[:8]}. Encode again with transform_to."
        )


def test_a_folder_that_is_not_finished_is_refused(encoder: FeatureEncoder, files: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with pytest.raises(DataError) as caught:
        encoder.transform_to([files / "b.parquet", ROWS.set_column(3, "age", pa.array([np.inf] * 50))], folder)
    assert str(caught.value).startswith("age: expected finite numbers, got infinity in 50 rows (first: row 0).")
    with pytest.raises(DataError) as caught:
        EncodedRows(folder)
    assert str(caught.value) == (
        f"{folder}: expected a folder of encoded rows, got one that is not finished. Encode again with transform_to."
    )
    assert content(encoder.transform_to(files, folder).read(encoder)) == content(encoder.transform(ROWS))


def test_a_folder_with_other_files_is_left_alone(encoder: FeatureEncoder, files: Path) -> None:
    before = {path: path.read_bytes() for path in files.rglob("*.parquet")}
    with pytest.raises(DataError) as caught:
        encoder.transform_to(ROWS, files)
    assert str(caught.value) == (
        f"{files}: expected an empty folder, or one of encoded rows, got 'b.parquet'. Give another folder."
    )
    assert {path: path.read_bytes() for path in files.rglob("*.parquet")} == before
    with pytest.raises(DataError) as caught:
        EncodedRows(files)
    assert str(caught.value) == (
        f"{files}: expected a folder of encoded rows, got none. Encode again with transform_to."
    )


@pytest.mark.parametrize("way", ["folder", "slash", "URI", "part", "glob", "list", "above", "URI of a part"])
@pytest.mark.parametrize("door", ["transform", "fit", "transform_to", "BatchLoader"])
def test_encoded_rows_given_as_a_path_are_not_encoded_again(way: str, door: str, tmp_path: Path) -> None:
    encoder = FeatureEncoder(Schema(user=Categorical("user"))).fit({"user": [3, 4, 5]})
    part = encoder.transform_to({"user": [3, 4, 5]}, tmp_path / "out").parts[0].name
    folder = str(tmp_path / "out")
    source, name = {
        "folder": (folder, folder),
        "slash": (f"{folder}/", folder),
        "URI": (f"file://{folder}", f"file://{folder}"),
        "part": (tmp_path / "out" / part, folder),
        "glob": (f"{tmp_path}/o*/*.parquet", folder),
        "list": ([{"user": [3]}, folder], folder),
        "above": (tmp_path, folder),
        "URI of a part": (f"file://{folder}/{part}", f"file://{folder}"),
    }[way]
    doors = {
        "transform": encoder.transform,
        "fit": encoder.fit,
        "transform_to": lambda source: encoder.transform_to(source, tmp_path / "again"),
        "BatchLoader": lambda source: BatchLoader(encoder, source),
    }
    with pytest.raises(DataError) as caught:
        doors[door](source)
    assert str(caught.value) == (
        f"{name}: expected raw rows, got rows that transform_to encoded. "
        f"Pass EncodedRows({name!r}) to BatchLoader, and the raw rows elsewhere."
    )
    assert not (tmp_path / "again").exists()


def test_the_remedy_for_a_relative_path_is_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    encoder = FeatureEncoder(Schema(user=Categorical("user"))).fit({"user": [3]})
    encoder.transform_to({"user": pd.Series([], dtype="int64")}, "out")
    with pytest.raises(DataError) as caught:
        encoder.transform("out")
    assert str(caught.value) == (
        "out: expected raw rows, got rows that transform_to encoded. "
        "Pass EncodedRows('out') to BatchLoader, and the raw rows elsewhere."
    )
    assert len(EncodedRows("out")) == 0


def test_the_remedy_for_a_store_is_a_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bucket").mkdir()
    store = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(locations, "from_uri", lambda uri: (store, uri.partition("://")[2].partition("?")[0]))
    encoder = FeatureEncoder(Schema(user=Categorical("user"))).fit({"user": [3]})
    part = encoder.transform_to({"user": [3]}, "store://bucket/out?region=here").parts[0].name
    for path in ("out", "out/", f"out/{part}", "*"):
        with pytest.raises(DataError) as caught:
            encoder.transform(f"store://bucket/{path}?region=here" if path != "*" else "store://bucket?region=here")
        assert str(caught.value) == (
            "store://bucket/out?region=here: expected raw rows, got rows that transform_to encoded. "
            "Pass EncodedRows('store://bucket/out?region=here') to BatchLoader, and the raw rows elsewhere."
        )
    with pytest.raises(DataError) as caught:
        encoder.transform_to("store://bucket/raw/*.parquet", "store://bucket/raw")
    assert str(caught.value) == "store://bucket/raw/*.parquet: expected Parquet files, got none. Check the path."
    pq.write_table(ROWS.select(["user"]), tmp_path / "bucket" / "rows.parquet")
    (tmp_path / "bucket" / "out" / "manifest.json").unlink()
    with pytest.raises(DataError) as caught:
        encoder.transform_to("store://bucket", "store://bucket/again")
    assert str(caught.value) == (
        "store://bucket/again: expected a folder that 'store://bucket' does not read, got one within. "
        "Write beside the source."
    )


@pytest.mark.parametrize("source", ["raw", ["raw"], "raw/**/*.parquet", "raw/"])
@pytest.mark.parametrize("within", ["raw/out", "raw/day=2/out"])
def test_a_folder_from_which_the_source_would_be_read_again_is_refused(
    source: str | list[str], within: str, encoder: FeatureEncoder, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files.parent)
    with pytest.raises(DataError) as caught:
        encoder.transform_to(source, within)
    said = source[0] if isinstance(source, list) else source
    assert str(caught.value) == (
        f"{within}: expected a folder that {said!r} does not read, got one within. Write beside the source."
    )
    assert not Path(within).exists()


def test_the_folder_of_the_source_itself_is_refused(encoder: FeatureEncoder, files: Path) -> None:
    (files / "b.parquet").unlink()  # what is left is in a folder below
    with pytest.raises(DataError) as caught:
        encoder.transform_to(files, files)
    assert str(caught.value) == (
        f"{files}: expected a folder that {str(files)!r} does not read, got one within. Write beside the source."
    )
    assert [path.name for path in files.iterdir()] == ["day=1"]


@pytest.mark.parametrize("beside", ["raw/_out", "raw/.out", "raw2", "out"])
def test_a_folder_that_the_source_leaves_out_is_taken(
    beside: str, encoder: FeatureEncoder, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files.parent)
    for _ in range(2):
        written = encoder.transform_to("raw", beside)
    assert content(written.read(encoder)) == content(encoder.transform("raw"))


def test_a_manifest_that_cannot_be_read_is_not_taken_for_none(encoder: FeatureEncoder, tmp_path: Path) -> None:
    encoder.transform_to(ROWS, tmp_path / "out")
    (tmp_path / "out" / "manifest.json").unlink()
    (tmp_path / "out" / "manifest.json").mkdir()
    for read in (EncodedRows, encoder.transform):
        with pytest.raises(
            DataError, match=r"^\S+/out/manifest.json: expected a file that can be read, got an error: "
        ):
            read(tmp_path / "out")


def test_what_rows_are_refused_for_is_not_laid_to_the_folder(
    encoder: FeatureEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(batch: Batch, answers: Answers) -> pa.Table:
        if len(batch):
            raise pa.ArrowInvalid("no such rows")
        return to_table(batch, answers)

    monkeypatch.setattr(engine_transform, "to_table", refuse)
    with pytest.raises(pa.ArrowInvalid, match=r"^no such rows$"):
        encoder.transform_to(ROWS, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["manifest.json"]


def test_a_disk_that_is_full_is_named(encoder: FeatureEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", refuse)
    with pytest.raises(DataError) as caught:
        encoder.transform_to(ROWS, tmp_path / "out")
    assert str(caught.value) == (
        f"{tmp_path / 'out'}/00000-table-00000.parquet: expected a file to write, got an error: no space left. "
        "Check the folder and the permissions."
    )
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["manifest.json"]


def test_files_in_deep_folders_are_written_under_names_that_are_short_enough(tmp_path: Path) -> None:
    encoder = FeatureEncoder(Schema(user=Categorical("user"))).fit({"user": [3, 4]})
    folder = tmp_path.joinpath("raw", *(f"key{one}={'ü' * 30}" for one in range(9)))
    folder.mkdir(parents=True)
    for name, users in (("a", [3, 4]), ("b", [4, 9])):
        pq.write_table(pa.table({"user": users}), folder / f"{name}.parquet")
    written = encoder.transform_to(tmp_path / "raw", tmp_path / "out")
    assert [(part.name[:6], part.name[-16:]) for part in written.parts] == [
        ("00000-", ".a-00000.parquet"),
        ("00001-", ".b-00000.parquet"),
    ]
    assert written.read(encoder)["user"].tolist() == [3, 4, 4, 2]


def test_a_missing_column_is_refused_before_anything_is_written(encoder: FeatureEncoder, tmp_path: Path) -> None:
    with pytest.raises(ColumnError):
        encoder.transform_to(ROWS.drop_columns(["slot"]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_unknown_value_that_is_refused_names_the_row_group(tmp_path: Path, pickling: Local) -> None:
    pq.write_table(pa.table({"user": ["a", "b", "c"]}), tmp_path / "rows.parquet", row_group_size=2)
    encoder = FeatureEncoder(Schema(user=Categorical("user", unknown=RefuseUnknown()))).fit({"user": ["a", "b"]})
    with pytest.raises(UnknownValueError) as caught:
        encoder.transform_to(tmp_path / "rows.parquet", tmp_path / "out", engine=pickling)
    assert str(caught.value) == (
        "rows.parquet, row group 1: user: expected values of the vocabulary, got 'c'. "
        "Fit on them, or declare unknown=UnknownRow()."
    )


def test_an_index_outside_its_table_is_refused(encoder: FeatureEncoder, tmp_path: Path) -> None:
    written = encoder.transform_to(ROWS, tmp_path / "out")
    manifest = tmp_path / "out" / "manifest.json"
    said = json.loads(manifest.read_text())
    said["num_embeddings"]["item"] = 4
    manifest.write_text(json.dumps(said))
    with pytest.raises(DataError) as caught:
        EncodedRows(tmp_path / "out").read(encoder)
    assert str(caught.value) == (
        f"{written.parts[0].name}: item: expected indices in [0, 4), got 3 to "
        f"{int(encoder.transform(ROWS).indices('item').max())}. Encode again with transform_to."
    )


def test_a_newer_format_is_refused(encoder: FeatureEncoder, tmp_path: Path) -> None:
    encoder.transform_to(ROWS, tmp_path / "out")
    manifest = tmp_path / "out" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format_version": 1', '"format_version": 2'))
    with pytest.raises(DataError) as caught:
        EncodedRows(tmp_path / "out")
    assert str(caught.value) == f"{tmp_path / 'out'}: expected format version 1, got 2. Upgrade recsys_emb."


def test_a_manifest_that_lacks_something_is_refused(encoder: FeatureEncoder, tmp_path: Path) -> None:
    encoder.transform_to(ROWS, tmp_path / "out")
    manifest = tmp_path / "out" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"fingerprint"', '"finger"'))
    with pytest.raises(DataError) as caught:
        EncodedRows(tmp_path / "out")
    assert str(caught.value) == (
        f"{tmp_path / 'out'}: expected a whole 'manifest.json', got an error: 'fingerprint'. "
        "Encode again with transform_to."
    )


def test_labels_can_be_left_out(encoder: FeatureEncoder, tmp_path: Path) -> None:
    batch = encoder.transform_to(ROWS, tmp_path / "out", with_label=False).read(encoder)
    assert (batch.label, batch.weight) == (None, None)
    assert content(batch) == content(encoder.transform(ROWS, with_label=False))


def test_the_parts_are_plain_parquet(encoder: FeatureEncoder, tmp_path: Path) -> None:
    frame = pd.DataFrame({name: ROWS[name].to_pandas() for name in ROWS.column_names}).head(2)
    written = encoder.transform_to(frame, tmp_path / "out")
    read = pq.read_table(tmp_path / "out" / written.parts[0].name)
    assert read.column_names == [*encoder.get_feature_names_out(), "rating", "importance"]
    assert read["item"].type == pa.int32()
    assert read["tags"].type.value_type == pa.struct({"index": pa.int32(), "weight": pa.float32()})


def test_a_folder_is_a_path(encoder: FeatureEncoder) -> None:
    with pytest.raises(DataError) as caught:
        encoder.transform_to(ROWS, None)
    assert str(caught.value) == (
        "FeatureEncoder.transform_to: folder: expected a path, got None. Give a text or a Path."
    )
