"""Known faults of other libraries, kind "missing values": none of them here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.lookup.category import CategoryEmbedding
from recsys_emb.schema import Categorical, Schema, UnknownRow
from recsys_emb.vocabulary.reserved import MISSING_INDEX
from recsys_emb.vocabulary.vocabulary import Vocabulary

SPELLINGS: dict[str, Any] = {
    "None": pd.Series(["x", "y", None], dtype=object),
    "NaN": pd.Series(["x", "y", float("nan")], dtype=object),
    "pd.NA": pd.Series(["x", "y", pd.NA], dtype=object),
    "NaT": pd.Series(["x", "y", pd.NaT], dtype=object),
    "all at once": pd.Series(["x", "y", None, float("nan"), pd.NA, pd.NaT], dtype=object),
    "string dtype": pd.Series(["x", "y", None], dtype="string"),
    "category dtype": pd.Series(["x", "y", None], dtype="category"),
    "Arrow": pa.array(["x", "y", None]),
}

EMPTY_BATCHES: dict[str, Any] = {
    "NaN array": np.array([np.nan, np.nan]),
    "object None": pd.Series([None, None], dtype=object),
    "pd.NA in string dtype": pd.Series([pd.NA, pd.NA], dtype="string"),
    "Arrow null type": pa.nulls(2),
    "Arrow string nulls": pa.array([None, None], pa.string()),
}

INTEGER_FORMS: dict[str, Any] = {
    "int32": np.array([5, 7, 9], np.int32),
    "nullable Int64": pd.Series([5, 7, None], dtype="Int64"),
    "float64 with NaN": pd.Series([5.0, 7.0, np.nan]),
    "Arrow with a null": pa.array([5, 7, None]),
}

LOOKALIKES = ["NA", "null", "None", "nan", "", "0", "<unk>", "<pad>"]


@pytest.mark.parametrize("column", SPELLINGS.values(), ids=SPELLINGS)
def test_mv_01_every_spelling_of_missing_is_one_index(column: Any) -> None:
    vocabulary = Vocabulary.from_values(column, name="colour")
    assert vocabulary.values.to_pylist() == ["x", "y"]
    assert vocabulary.encode(column).tolist() == [3, 4] + [MISSING_INDEX] * (len(column) - 2)
    frame = pa.table({"colour": column}) if isinstance(column, pa.Array) else pd.DataFrame({"colour": column})
    encoder = FeatureEncoder(Schema(user=Categorical("colour"))).fit(frame)
    assert encoder.vocabularies["colour"].values.to_pylist() == ["x", "y"]
    assert encoder.transform(frame)["colour"].tolist() == [3, 4] + [MISSING_INDEX] * (len(column) - 2)


def test_mv_01_nan_in_a_float_column_is_no_value() -> None:
    vocabulary = Vocabulary.from_values(pa.array([1.0, float("nan"), None]))
    assert vocabulary.values.to_pylist() == [1]
    assert vocabulary.encode(pa.array([1.0, float("nan"), None])).tolist() == [3, MISSING_INDEX, MISSING_INDEX]


@pytest.mark.parametrize("batch", EMPTY_BATCHES.values(), ids=EMPTY_BATCHES)
def test_mv_02_a_wholly_missing_batch_finds_its_row_though_the_fit_saw_none(batch: Any) -> None:
    frame = pd.DataFrame({"colour": ["red", "blue", "red"]})
    encoder = FeatureEncoder(Schema(user=Categorical("colour"))).fit(frame)
    table = CategoryEmbedding(encoder.num_embeddings("colour"), 4)
    served = pa.table({"colour": batch}) if isinstance(batch, pa.Array) else pd.DataFrame({"colour": batch})
    for indices in (encoder.vocabularies["colour"].encode(batch), encoder.transform(served).indices("colour")):
        assert indices.tolist() == [MISSING_INDEX, MISSING_INDEX]
        assert table(indices).shape == (2, 4)


def test_mv_02_the_table_has_a_row_for_every_index() -> None:
    column = ["a", None, "b", None]
    vocabulary = Vocabulary.from_values(column)
    assert int(vocabulary.encode(column).max()) == vocabulary.num_embeddings - 1


@pytest.mark.parametrize("form", INTEGER_FORMS.values(), ids=INTEGER_FORMS)
def test_mv_03_integers_and_the_floats_that_a_null_made_of_them_are_one_key(form: Any) -> None:
    fitted_on_integers = Vocabulary.from_values(np.array([5, 7, 9]))
    fitted_on_floats = Vocabulary.from_values(pd.Series([5.0, 7.0, 9.0, np.nan]))
    assert fitted_on_integers.fingerprint == fitted_on_floats.fingerprint
    for vocabulary in (fitted_on_integers, fitted_on_floats):
        assert vocabulary.encode(form).tolist()[:2] == [3, 4]
        (decoded,) = vocabulary.decode(vocabulary.encode([5.0]))
        assert (decoded, str(decoded), type(decoded)) == (5, "5", int)


def test_mv_03_a_fractional_id_is_unknown_and_never_rounded() -> None:
    vocabulary = Vocabulary.from_values([5, 7, 9])
    assert vocabulary.encode([5.5, 5.0]).tolist() == [2, 3]
    assert vocabulary.encode(pd.Series([5.5, np.nan])).tolist() == [2, MISSING_INDEX]


@pytest.mark.parametrize("route", ["pandas", "Parquet"])
def test_mv_05_values_that_look_like_markers_are_ordinary_values(route: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"country": [*LOOKALIKES, *LOOKALIKES, None]})
    source: Any = frame
    if route == "Parquet":
        source = tmp_path / "countries.parquet"
        frame.to_parquet(source)
    encoder = FeatureEncoder(Schema(user=Categorical("country"))).fit(source)
    indices = encoder.transform(source).indices("country")
    vocabulary = encoder.vocabularies["country"]
    assert indices[-1] == MISSING_INDEX
    assert sorted(set(indices[:-1].tolist())) == list(range(3, 11))
    assert vocabulary.decode(indices) == [*LOOKALIKES, *LOOKALIKES, None]

    pq.write_table(vocabulary.to_table(), tmp_path / "vocabulary.parquet")
    table = pq.read_table(tmp_path / "vocabulary.parquet")
    loaded = Vocabulary.from_table(table, name="country", unknown=UnknownRow())
    assert torch.equal(loaded.encode(frame["country"]), indices)
    assert loaded.decode(indices) == [*LOOKALIKES, *LOOKALIKES, None]
