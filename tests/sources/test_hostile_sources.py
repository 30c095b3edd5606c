"""Sources as they turn up: loops of links, missing files, empty paths, keys that a float cannot tell apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import ColumnError, DataError, KeyTypeError, UnknownValueError
from recsys_emb.schema import Categorical, MultiCategorical, RefuseUnknown, Schema
from recsys_emb.sources.sources import open_source
from recsys_emb.vocabulary.vocabulary import Vocabulary


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows" / "sub").mkdir(parents=True)
    pd.DataFrame({"u": [1, 2, 3]}).to_parquet(tmp_path / "rows" / "sub" / "a.parquet")
    return tmp_path / "rows"


def test_a_link_back_up_does_not_multiply_the_rows(folder: Path) -> None:
    (folder / "sub" / "up").symlink_to("..")
    assert open_source(folder).num_rows == 3


def test_a_link_to_a_folder_beside_is_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    pd.DataFrame({"u": [4]}).to_parquet(tmp_path / "more" / "b.parquet")
    (folder / "beside").symlink_to(tmp_path / "more")
    assert open_source(folder).num_rows == 4


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_a_missing_file_is_said_to_be_missing_without_a_search(tmp_path: Path, prefix: str) -> None:
    location = f"{prefix}{tmp_path}/nope.parquet"
    with pytest.raises(DataError) as caught:
        open_source(location)
    assert str(caught.value) == f"{location}: expected Parquet files, got none. Check the path."


def test_a_scheme_that_nobody_knows_is_an_error_of_the_data() -> None:
    with pytest.raises(DataError, match="foo://x: expected a URI that can be opened, got an error: "):
        open_source("foo://x")


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        open_source("")
    assert str(caught.value) == "source: expected a path, got an empty text. Write '.' for the current folder."


def test_rows_as_mappings_are_refused_with_the_way_to_give_them() -> None:
    rows = [{"user": 1, "tags": ["a", "b"]}, {"user": 2, "tags": []}]
    with pytest.raises(DataError) as caught:
        open_source(rows)
    assert str(caught.value) == "source: expected tables, got rows as mappings. Pass pd.DataFrame(rows)."
    assert [part.columns for part in open_source(pd.DataFrame(rows)).parts] == [("user", "tags")]


def test_a_column_that_is_the_index_of_a_frame_is_said_to_be() -> None:
    frame = pd.DataFrame({"user": [1], "item": [2]}).set_index("user")
    with pytest.raises(ColumnError) as caught:
        open_source(frame).check(["user"])
    assert str(caught.value) == ("frame: expected a column 'user', got 'item'. It is the index: call reset_index().")


@pytest.mark.parametrize(("dtype", "power"), [("float16", 11), ("float32", 24), ("float64", 53)])
def test_float_keys_are_refused_from_where_their_type_no_longer_counts(dtype: str, power: int) -> None:
    exact = np.array([2.0**power - 1], dtype)
    assert Vocabulary.from_values(exact).decode([3]) == [2**power - 1]
    with pytest.raises(KeyTypeError) as caught:
        Vocabulary.from_values(np.array([2.0**power], dtype), name="u")
    called = dtype if power < 53 else "float"
    assert str(caught.value) == (
        f"u: expected {called} keys below 2**{power} in magnitude, got {2.0**power!r}. Store them as integers or text."
    )


def test_list_weights_that_overflow_float32_are_refused() -> None:
    schema = Schema(context_features=[MultiCategorical("g", weights="w")])
    frame = pd.DataFrame({"g": [[1, 2]], "w": [[1e300, 1.0]]})
    encoder = FeatureEncoder(schema).fit(frame)
    with pytest.raises(DataError, match="expected finite weights of at least 0, got others in 1 row"):
        encoder.transform(frame)


def test_a_message_shortens_long_keys() -> None:
    schema = Schema(context_features=[Categorical("g", unknown=RefuseUnknown())])
    encoder = FeatureEncoder(schema).fit(pd.DataFrame({"g": ["a"]}))
    with pytest.raises(UnknownValueError) as caught:
        encoder.transform(pd.DataFrame({"g": ["k" * 100_000]}))
    assert len(str(caught.value)) < 400
