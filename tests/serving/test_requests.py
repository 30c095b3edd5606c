"""Requests keep the caller's values and say what they are to the model."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from recsys_emb.errors import DataError
from recsys_emb.serving.requests import check_k, read_candidates, read_values
from recsys_emb.vocabulary.vocabulary import Vocabulary

VOCABULARY = Vocabulary.from_values([5, 5, 7], name="item")


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([5, 9], "int64"),
        (pd.Series([5, 9], dtype="int8"), "int8"),
        (pd.array([5, 9], dtype="Int16"), "Int16"),
        (np.array([5, 9], dtype=np.uint8), "uint8"),
        (pa.array([5, 9], pa.int32()), "int32"),
        (pl.Series([5, 9]), "int64"),
        (pd.Categorical([5, 9]), "category"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_keep_their_type(values: object, dtype: str) -> None:
    request = read_values(values, VOCABULARY, where="ask")
    assert (request.values.dtype, request.values.tolist(), request.indices.tolist()) == (dtype, [5, 9], [3, 2])
    assert len(request) == 2


def test_an_index_of_the_caller_is_not_kept() -> None:
    assert list(read_values(pd.Series([5], index=["k"]), VOCABULARY, where="ask").values.index) == [0]


def test_the_callers_series_is_untouched() -> None:
    series = pd.Series([5, 7], name="mine", index=[3, 3])
    read_values(series, VOCABULARY, where="ask")
    assert (series.name, list(series.index)) == ("mine", [3, 3])


def test_each_candidate_counts_once_and_missing_ones_do_not() -> None:
    request = read_candidates([7, 5, 99, 7, None, 98, 99], VOCABULARY, where="ask")
    assert sorted(request.values) == [5, 7, 98, 99]
    assert dict(zip(request.values, request.indices.tolist(), strict=True)) == {5: 3, 7: 4, 98: 2, 99: 2}


@pytest.mark.parametrize("values", [[], [None]])
def test_no_candidates_are_fine(values: list) -> None:
    assert len(read_candidates(values, VOCABULARY, where="ask")) == 0


@pytest.mark.parametrize("values", ["5", 5, None, {5}, iter([5]), np.array([[5]]), pd.DataFrame({"item": [5]})])
def test_what_is_no_list_is_refused(values: object) -> None:
    with pytest.raises(DataError, match=r"^ask: expected a list of values, got "):
        read_values(values, VOCABULARY, where="ask")


def test_integers_of_numpy_count_too() -> None:
    check_k(np.int64(3), where="ask")
