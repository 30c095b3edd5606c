"""Faults that others had in reading files and frames, each with the answer it should have."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.inference import infer_schema
from recsys_emb.errors import ColumnError, DataError, EmptySourceError
from recsys_emb.loading.loader import BatchLoader
from recsys_emb.schema import Categorical, Numeric, Position, Schema
from recsys_emb.vocabulary.reserved import MISSING_INDEX, UNKNOWN_INDEX

USERS_AND_BRANDS = Schema(user=Categorical("u"), item=Categorical("brand"))


# --- PQ-02: one file has only nulls in a column ------------------------------------------------------------------


@pytest.fixture
def two_files(tmp_path: Path) -> tuple[Path, Path]:
    first, second = tmp_path / "a.parquet", tmp_path / "b.parquet"
    pq.write_table(pa.table({"u": [1, 2], "brand": ["x", "y"]}), first)
    pq.write_table(pa.table({"u": [3], "brand": pa.nulls(1)}), second)
    assert pq.read_schema(second).field("brand").type == pa.null()
    return first, second


def test_pq_02_a_file_of_nulls_reads_alike_before_and_after_the_others(two_files: tuple[Path, Path]) -> None:
    by_user = []
    for files in (list(two_files), list(two_files[::-1])):
        encoder = FeatureEncoder(USERS_AND_BRANDS).fit(files)
        assert encoder.vocabularies["brand"].values.to_pylist() == ["x", "y"]
        batch = encoder.transform(files)
        order = batch.indices("u").argsort()
        by_user.append((batch.indices("u")[order].tolist(), batch.indices("brand")[order].tolist()))
    assert by_user[0] == by_user[1] == ([3, 4, 5], [3, 4, MISSING_INDEX])


def test_pq_02_a_fit_on_the_file_of_nulls_alone_takes_all_else_as_unknown(two_files: tuple[Path, Path]) -> None:
    encoder = FeatureEncoder(USERS_AND_BRANDS).fit(two_files[1])
    assert encoder.num_embeddings("brand") == 3
    assert encoder.transform(two_files[1]).indices("brand").tolist() == [MISSING_INDEX]
    assert encoder.transform(two_files[0]).indices("brand").tolist() == [UNKNOWN_INDEX, UNKNOWN_INDEX]


# --- PQ-03: the frame's index ------------------------------------------------------------------------------------

INDEXED = pd.DataFrame({"u": ["a", "b", "c", "d"], "y": [1, 2, 3, 4]}, index=[3, 0, 2, 2])
WITH_LABEL = Schema(user=Categorical("u"), label="y")


def test_pq_03_rows_are_matched_by_place_not_by_index(tmp_path: Path) -> None:
    encoder = FeatureEncoder(WITH_LABEL).fit(INDEXED)
    INDEXED.to_parquet(tmp_path / "indexed.parquet")
    assert "__index_level_0__" in pq.read_schema(tmp_path / "indexed.parquet").names
    for source in (INDEXED, INDEXED.reset_index(drop=True), tmp_path / "indexed.parquet"):
        batch = encoder.transform(source)
        assert batch.indices("u").tolist() == [3, 4, 5, 6]
        assert batch.label is not None
        assert batch.label.tolist() == [1, 2, 3, 4]


def test_pq_03_the_index_in_a_file_is_no_feature_unless_named(tmp_path: Path) -> None:
    INDEXED.to_parquet(tmp_path / "indexed.parquet")
    shown: list[str] = []
    schema = infer_schema(tmp_path / "indexed.parquet", show=shown.append)
    assert "__index_level_0__" not in schema.names
    assert "it numbers the rows" in shown[0]
    named = FeatureEncoder(Schema(user=Categorical("__index_level_0__"))).fit(tmp_path / "indexed.parquet")
    assert named.vocabularies["__index_level_0__"].values.to_pylist() == [2, 0, 3]


def test_pq_03_the_callers_frame_is_unchanged() -> None:
    frame, copy = INDEXED.copy(), INDEXED.copy(deep=True)
    encoder = FeatureEncoder(WITH_LABEL).fit(frame)
    encoder.inverse_transform(encoder.transform(frame))
    assert frame.equals(copy)
    assert frame.index.equals(copy.index)
    assert list(frame.columns) == list(copy.columns)


# --- PQ-04: columns by name --------------------------------------------------------------------------------------

ORDERED = pd.DataFrame({"user": [1, 2], "item": ["x", "y"], "pos": [0, 1]})
PLACED = Schema(user=Categorical("user"), item=Categorical("item"), position=Position("pos", max_position=3))


@pytest.mark.parametrize("columns", [["pos", "item", "user"], ["user", "junk", "item", "pos"]])
def test_pq_04_reordered_and_extra_columns_change_nothing(columns: list[str]) -> None:
    encoder = FeatureEncoder(PLACED).fit(ORDERED)
    expected, got = encoder.transform(ORDERED), encoder.transform(ORDERED.assign(junk="j")[columns])
    assert got.names == expected.names
    assert all(torch.equal(got.indices(name), expected.indices(name)) for name in got)


def test_pq_04_an_absent_column_is_named() -> None:
    with pytest.raises(ColumnError) as caught:
        FeatureEncoder(PLACED).fit(ORDERED).transform(ORDERED[["user", "item"]])
    assert str(caught.value) == "frame: expected a column 'pos', got 'user', 'item'."


@pytest.mark.parametrize("form", ["pandas", "arrow", "parquet"])
def test_pq_04_a_column_that_is_there_twice_is_named(form: str, tmp_path: Path) -> None:
    table = pa.table([[1], ["x"], ["z"], [0]], names=["user", "item", "item", "pos"])
    frame = pd.DataFrame([[1, "x", "z", 0]], columns=["user", "item", "item", "pos"])
    pq.write_table(table, tmp_path / "twice.parquet")
    source = {"pandas": frame, "arrow": table, "parquet": tmp_path / "twice.parquet"}[form]
    name = {"pandas": "frame", "arrow": "table", "parquet": "twice.parquet"}[form]
    with pytest.raises(ColumnError) as caught:
        FeatureEncoder(PLACED).fit(ORDERED).transform(source)
    assert str(caught.value) == (f"{name}: expected one column 'item', got 2 of that name. Rename or drop the others.")


# --- PQ-06: unusual arrays ---------------------------------------------------------------------------------------


def read_only(values: list[int]) -> np.ndarray:
    array = np.array(values)
    array.flags.writeable = False
    return array


ARRAYS: dict[str, Callable[[], object]] = {
    "pandas": lambda: pd.Series([3, 1, 2]),
    "arrow": lambda: pa.array([3, 1, 2]),
    "numpy view of arrow": lambda: pa.array([3, 1, 2]).to_numpy(),
    "read-only": lambda: read_only([3, 1, 2]),
    "reversed": lambda: np.array([2, 1, 3])[::-1],
    "every second": lambda: np.array([3, 9, 1, 9, 2, 9])[::2],
    "big-endian": lambda: np.array([3, 1, 2], dtype=">i8"),
    "int16": lambda: np.array([3, 1, 2], dtype=np.int16),
    "uint8": lambda: np.array([3, 1, 2], dtype=np.uint8),
}


@pytest.mark.parametrize("form", ARRAYS)
def test_pq_06_any_array_encodes_alike_and_stays_as_it_was(form: str) -> None:
    encoder = FeatureEncoder(Schema(user=Categorical("u"), context_features=[Numeric("x")])).fit(
        {"u": [1, 1, 1, 2, 2, 3], "x": [1, 2, 3, 1, 2, 3]}
    )
    values = ARRAYS[form]()
    before = hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = encoder.transform({"u": values, "x": values})
        batch.indices("u").add_(7)
        batch.indices("x").add_(7)
    assert batch.indices("u").sub(7).tolist() == [5, 3, 4]
    assert batch.indices("u").dtype == torch.int64
    assert hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest() == before


# --- PQ-07: degenerate sizes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 1, 3, 4, 5, 9])
@pytest.mark.parametrize("shuffle", [False, True])
def test_pq_07_every_number_of_rows_is_encoded_and_loaded_whole(rows: int, shuffle: bool) -> None:
    schema = Schema(user=Categorical("u"), context_features=[Numeric("x")], label="y")
    fitted = FeatureEncoder(schema).fit({"u": range(9), "x": np.arange(9.0), "y": np.zeros(9)})
    frame = pd.DataFrame({"u": np.arange(rows), "x": np.arange(rows) / 2, "y": np.arange(rows) * 1.0})
    batch = fitted.transform(frame)
    assert len(batch) == rows
    assert batch.indices("u").dtype == torch.int64
    assert batch.indices("x").shape == (rows, 2)
    assert batch.label is not None
    assert batch.label.shape == (rows,)
    seen = [row for part in BatchLoader(fitted, frame, batch_size=4, shuffle=shuffle) for row in part.indices("u")]
    assert sorted(int(row) for row in seen) == list(range(3, 3 + rows))


def test_pq_07_a_fit_on_no_rows_raises_and_an_empty_category_column_encodes(tmp_path: Path) -> None:
    empty = pd.DataFrame({"u": pd.Categorical([], categories=["a"])})
    empty.to_parquet(tmp_path / "empty.parquet")
    schema = Schema(user=Categorical("u"))
    for source in (empty, tmp_path / "empty.parquet"):
        with pytest.raises(EmptySourceError):
            FeatureEncoder(schema).fit(source)
        assert len(FeatureEncoder(schema).fit({"u": ["a"]}).transform(source)) == 0


# --- labels: TR-05 and RE-07, as far as encoding goes ------------------------------------------------------------

CLEAN = pd.DataFrame({"u": range(10), "x": np.arange(10.0), "y": np.arange(10.0)})
LABELLED = Schema(user=Categorical("u"), context_features=[Numeric("x")], label="y")


@pytest.mark.parametrize(("column", "value"), [("y", np.nan), ("y", np.inf), ("x", np.inf)])
def test_tr_05_one_number_that_is_not_finite_is_refused_with_column_and_count(column: str, value: float) -> None:
    encoder = FeatureEncoder(LABELLED).fit(CLEAN)
    spoilt = CLEAN.copy()
    spoilt.loc[4, column] = value
    with pytest.raises(DataError, match=rf"^{column}: expected finite .* in 1 row \(first: row 4\)\."):
        encoder.transform(spoilt)


def test_tr_05_a_missing_number_is_the_missing_row_and_text_is_no_label() -> None:
    encoder = FeatureEncoder(LABELLED).fit(CLEAN)
    spoilt = CLEAN.copy()
    spoilt.loc[4, "x"] = np.nan
    assert encoder.transform(spoilt).indices("x")[4].tolist() == [0, 1]
    with pytest.raises(DataError) as caught:
        encoder.transform(CLEAN.assign(y=["4.0"] * 10))
    assert str(caught.value) == "y: expected numbers, got text in 10 rows. Convert the column to numbers."
    label = encoder.transform(CLEAN.assign(y=[True] * 5 + [False] * 5)).label
    assert label is not None
    assert label.tolist() == [1.0] * 5 + [0.0] * 5


@pytest.mark.parametrize("label", [None, [np.nan] * 10, ["text"] * 10, [999.0] * 10])
def test_re_07_features_are_encoded_alike_whatever_the_label(label: list[object] | None) -> None:
    encoder = FeatureEncoder(LABELLED).fit(CLEAN)
    frame = CLEAN.drop(columns="y") if label is None else CLEAN.assign(y=label)
    columns = list(frame.columns)
    got, expected = encoder.transform(frame, with_label=False), encoder.transform(CLEAN)
    assert got.label is None
    assert all(torch.equal(got.indices(name), expected.indices(name)) for name in expected)
    assert list(frame.columns) == columns
