"""Columns that are read one after another, on threads, are what columns read together are, bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from recsys_emb.encoding import crew
from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import ColumnError, DataError, KeyTypeError
from recsys_emb.schema import Categorical, MultiCategorical, Numeric, Position, Schema
from recsys_emb.sources import files, frames, parts, sources
from recsys_emb.sources.sources import open_source

SCHEMA = Schema(
    user=Categorical("user"),
    item=Categorical("item"),
    position=Position("slot", max_position=9),
    user_features=[Numeric("age"), MultiCategorical("recent", vocabulary="item")],
    item_features=[MultiCategorical("tags", weights="tag_weights")],
    label="rating",
    weight="importance",
)
FRAME = pd.DataFrame(
    {
        "rating": [4.0, 3.5, 1.0],
        "user": [70, 90, 70],
        "item": ["b", "a", "b"],
        "slot": [0, 2, 9],
        "age": [30.0, np.nan, 40.0],
        "recent": [["a", "c"], [], None],
        "tags": [["x", "y"], None, ["y"]],
        "tag_weights": [[0.5, 1.0], None, [2.0]],
        "importance": [1.0, 0.0, 2.0],
    }
)


@pytest.fixture(scope="module")
def encoder() -> FeatureEncoder:
    return FeatureEncoder(SCHEMA).fit(FRAME)


def content(batch: Batch) -> Any:
    columns = {
        name: (one.values, one.offsets, one.weights) if isinstance(one, Jagged) else (one,)
        for name, one in {**batch.columns, "label": batch.label, "weight": batch.weight}.items()
    }
    return [
        (name, None if one is None else (one.dtype, one.tolist())) for name, own in columns.items() for one in own
    ], batch.limits


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few rows are enough to read column by column, batch by batch, on two threads."""
    monkeypatch.setattr(sources, "BATCH_ROWS", 0)
    for module in (files, frames, parts):
        monkeypatch.setattr(module, "BATCH_ROWS", 2)
    monkeypatch.setattr(crew, "_WORTH_IT", 0)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


def many_rows(rows: int) -> pd.DataFrame:
    return pd.concat([FRAME] * rows, ignore_index=True).iloc[:rows]


@pytest.mark.parametrize("rows", [1, 2, 5, 24])
@pytest.mark.usefixtures("small_batches")
def test_columns_that_are_read_apart_give_the_same_bits(encoder: FeatureEncoder, rows: int, tmp_path: Path) -> None:
    frame = many_rows(rows)
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=4)
    together = pa.Table.from_pandas(frame).to_reader(max_chunksize=3)
    for source in (
        frame,
        pa.Table.from_pandas(frame),
        pl.from_pandas(frame),
        tmp_path,
        [frame.iloc[:1], frame.iloc[1:]],
    ):
        apart = FeatureEncoder(SCHEMA).fit(source)
        assert open_source(source).by_column
        assert apart.fingerprint == FeatureEncoder(SCHEMA).fit(many_rows(rows).to_dict("list")).fingerprint
        assert content(encoder.transform(source)) == content(encoder.transform(frame.to_dict("list")))
    assert content(encoder.transform(together)) == content(encoder.transform(frame))


@pytest.mark.usefixtures("small_batches")
def test_of_several_broken_columns_the_first_feature_is_named(encoder: FeatureEncoder) -> None:
    frame = many_rows(24).assign(user="x", item=5, slot=0.5)
    # A fit takes user ids as they are; the text in "recent" then contradicts the integers in "item".
    for method, name in ((encoder.transform, "user"), (FeatureEncoder(SCHEMA).fit, "item")):
        with pytest.raises(KeyTypeError, match=f"^{name}: expected"):
            method(frame)


@pytest.mark.usefixtures("small_batches")
def test_a_missing_column_is_noticed_before_any_row_is_read(encoder: FeatureEncoder) -> None:
    with pytest.raises(ColumnError, match="expected a column 'slot'"):
        encoder.transform(many_rows(9).drop(columns="slot").assign(user="x"))


@pytest.mark.usefixtures("small_batches")
def test_a_source_that_changes_while_it_is_read_is_noticed(encoder: FeatureEncoder) -> None:
    for rows, got in ((23, "23"), (25, "more")):
        (part,) = open_source(pa.Table.from_pandas(many_rows(24))).parts
        changed = open_source(pa.Table.from_pandas(many_rows(rows))).parts[0]
        with pytest.raises(DataError) as caught:
            encoder.transform(sources.Source((dataclasses.replace(part, read=changed.read),)))
        assert str(caught.value) == (f"source: expected 24 rows, got {got}. Leave it as it is while it is read.")
