from __future__ import annotations

import itertools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.engines.local import Local
from recsys_emb.errors import ColumnError, DataError, EmptySourceError, KeyTypeError, LineageError
from recsys_emb.schema import Categorical, History, MultiCategorical, Numeric, Position, Schema, UnknownBuckets

SCHEMA = Schema(
    user=Categorical("user", unknown=UnknownBuckets(3)),
    item=Categorical("item", min_count=2),
    position=Position("slot", max_position=9),
    user_features=[
        Numeric("age"),
        MultiCategorical("recent", vocabulary="item", max_length=2, keep="first"),
        History("item", name="history", max_length=3),
    ],
    item_features=[MultiCategorical("tags", max_size=4), Categorical("empty")],
    label="rating",
)


def table(rows: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    items = rng.zipf(1.5, (rows, 3)) % 30
    tags = rng.integers(0, 9, rows)
    missing = rng.random(rows) < 0.1
    return pa.table(
        {
            "user": pa.array(rng.integers(0, max(rows // 4, 1), rows), mask=missing),
            "item": [f"i{one}" for one in items[:, 0]],
            "slot": rng.integers(0, 12, rows),
            # Sums of these depend on the order, unless they are exact.
            "age": pa.array(rng.normal(size=rows) * 10.0 ** rng.integers(-9, 9, rows), mask=rng.random(rows) < 0.1),
            "recent": [[f"i{one}" for one in row] for row in items.tolist()],
            "tags": [None if one == 8 else [f"t{one}", f"t{one // 2}"] for one in tags],
            "empty": pa.nulls(rows),
            "rating": rng.random(rows).astype(np.float32),
        }
    )


def learned(encoder: FeatureEncoder) -> Any:
    """All that a fit learned, with the types, for comparison bit by bit."""
    state = encoder.to_state()
    vocabularies = {name: one.to_table() for name, one in state.vocabularies.items()}
    streams = {name: (one.schema, one.to_pydict()) for name, one in vocabularies.items()}
    return state.fingerprint, streams, state.statistics


def in_files(rows: pa.Table, folder: Path, files: int) -> Path:
    size = max(1, -(-len(rows) // files))
    for number in range(files):
        pq.write_table(rows.slice(number * size, size), folder / f"{number}.parquet", row_group_size=max(1, size // 3))
    return folder


@pytest.mark.parametrize("rows", [1, 5, 400])
def test_an_engine_learns_what_one_process_does(rows: int, pickling: Local, tmp_path: Path) -> None:
    whole = table(rows)
    expected = learned(FeatureEncoder(SCHEMA).fit(whole))
    folder = in_files(whole, tmp_path, 3)
    with Local(2) as threads:
        for engine in (threads, pickling):
            for source in (folder, whole, whole.to_pandas(), whole.to_reader(max_chunksize=7)):
                assert learned(FeatureEncoder(SCHEMA).fit(source, engine=engine)) == expected


@settings(max_examples=10, deadline=None)
@given(cuts=st.lists(st.integers(0, 60), max_size=4), seed=st.integers(0, 99), workers=st.integers(1, 5))
def test_neither_cuts_nor_order_nor_workers_change_a_bit(cuts: list[int], seed: int, workers: int) -> None:
    whole = table(60, seed)
    bounds = [0, *sorted(cuts), 60]
    pieces = [whole.slice(first, last - first) for first, last in itertools.pairwise(bounds)]
    with Local(workers) as engine:
        shuffled = [pieces[place] for place in np.random.default_rng(seed).permutation(len(pieces))]
        fitted = FeatureEncoder(SCHEMA).fit(shuffled, engine=engine)
    assert learned(fitted) == learned(FeatureEncoder(SCHEMA).fit(whole))


def test_a_column_of_other_types_in_other_files_is_one_vocabulary(tmp_path: Path, pickling: Local) -> None:
    columns = [pa.array([5, 7], pa.int8()), pa.array([7.0, 0.5]), pa.array([5, 5]).dictionary_encode()]
    for number, column in enumerate(columns):
        pq.write_table(pa.table({"user": column}), tmp_path / f"{number}.parquet")
    schema = Schema(user=Categorical("user"))
    fitted = FeatureEncoder(schema).fit(tmp_path, engine=pickling)
    assert fitted.vocabularies["user"].values.to_pylist() == [5.0, 7.0, 0.5]
    assert learned(fitted) == learned(FeatureEncoder(schema).fit(tmp_path))


def test_an_error_names_the_file_the_row_group_and_the_column(tmp_path: Path, pickling: Local) -> None:
    rows = pa.table({"user": [1, 2, 3, 4], "age": [1.0, 2.0, 3.0, np.inf]})
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=2)
    schema = Schema(user=Categorical("user"), user_features=[Numeric("age")])
    with pytest.raises(DataError) as caught:
        FeatureEncoder(schema).fit(tmp_path, engine=pickling)
    assert str(caught.value) == (
        "rows.parquet, row group 1: age: expected finite numbers, got infinity in 1 row (first: row 3). "
        "Correct or drop such rows."
    )


def test_text_and_integers_in_two_files_are_refused_as_in_one_process(tmp_path: Path, pickling: Local) -> None:
    pq.write_table(pa.table({"user": [1, 2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"user": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(KeyTypeError) as caught:
        FeatureEncoder(Schema(user=Categorical("user"))).fit(tmp_path, engine=pickling)
    assert str(caught.value) == (
        "b.parquet, row group 0: user: expected integer keys as before, got text ('x'). "
        "Convert the column to one type before fitting."
    )


def test_a_missing_column_is_refused_before_anything_is_read(pickling: Local) -> None:
    with pytest.raises(ColumnError) as caught:
        FeatureEncoder(SCHEMA).fit(table(5).drop_columns(["slot"]), engine=pickling)
    assert "expected a column 'slot'" in str(caught.value)


def test_no_rows_are_refused(pickling: Local) -> None:
    for source in (table(0), table(0).to_reader()):
        with pytest.raises(EmptySourceError):
            FeatureEncoder(SCHEMA).fit(source, engine=pickling)


def test_an_index_does_not_move_unsaid_on_an_engine_either(pickling: Local) -> None:
    encoder = FeatureEncoder(Schema(user=Categorical("user"))).fit({"user": ["a", "b", "b"]})
    before = learned(encoder)
    with pytest.raises(LineageError):
        encoder.fit({"user": ["a"]}, engine=pickling)
    assert learned(encoder) == before
    assert encoder.fit({"user": ["a"]}, engine=pickling, renumber=True).vocabularies["user"].values.to_pylist() == ["a"]


def test_a_schema_without_vocabularies_is_fitted(pickling: Local) -> None:
    schema = Schema(position=Position("slot", max_position=3), context_features=[Numeric("age")])
    frame = pd.DataFrame({"age": [1.0, 2.0], "slot": [3, 0]})
    assert learned(FeatureEncoder(schema).fit(frame, engine=pickling)) == learned(FeatureEncoder(schema).fit(frame))


def test_processes_learn_what_one_does(tmp_path: Path) -> None:
    folder = in_files(table(60), tmp_path, 2)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        fitted = FeatureEncoder(SCHEMA).fit(folder, engine=Local(2, executor=pool))
    assert learned(fitted) == learned(FeatureEncoder(SCHEMA).fit(folder))


def test_a_bar_counts_the_pieces(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = in_files(table(90), tmp_path, 2)
    with Local(1) as engine:
        FeatureEncoder(SCHEMA).fit(folder, engine=engine, progress=True)
    assert "6/6" in capsys.readouterr().err
