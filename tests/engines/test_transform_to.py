from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.encoded_folder import EncodedRows
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.engines.local import Local
from recsys_emb.errors import ColumnError, DataError, LineageError, UnknownValueError
from recsys_emb.loading.loader import BatchLoader
from recsys_emb.schema import Categorical, MultiCategorical, Numeric, Position, RefuseUnknown, Schema, UnknownBuckets

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
    (tmp_path / "out" / ".00000-b-00000.parquet.0123.unfinished").write_bytes(b"half")
    encoder.transform_to(files / "b.parquet", tmp_path / "out")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [*(f"00000-b-0000{group}.parquet" for group in range(3)), "manifest.json"]


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
        encoder.transform_to(files, files)
    assert str(caught.value) == (
        f"{files}: expected an empty folder, or one of encoded rows, got 'b.parquet'. Give another folder."
    )
    assert {path: path.read_bytes() for path in files.rglob("*.parquet")} == before
    with pytest.raises(DataError) as caught:
        EncodedRows(files)
    assert str(caught.value) == (
        f"{files}: expected a folder of encoded rows, got none. Encode again with transform_to."
    )


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
