from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import ColumnError, DataError, KeyTypeError
from recsys_emb.schema import Categorical, MultiCategorical, Numeric, Schema
from recsys_emb.sources.sources import Source, open_source

FRAME = pd.DataFrame({"user": [3, 1, 2], "item": ["x", None, "z"], "extra": [0.5, 1.5, 2.5]}, index=[5, 5, 0])
TABLE = pa.Table.from_pandas(FRAME, preserve_index=False)


class Stream:
    """Speaks nothing but the Arrow stream protocol."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return TABLE.__arrow_c_stream__(requested_schema)


def dataset_in(folder: Any) -> ds.Dataset:
    pq.write_table(TABLE, folder / "one.parquet")
    return ds.dataset(folder)


FORMS: dict[str, Callable[[Any], Any]] = {
    "pandas": lambda _: FRAME,
    "pandas arrow-backed": lambda _: FRAME.convert_dtypes(dtype_backend="pyarrow"),
    "pandas nullable": lambda _: FRAME.convert_dtypes(),
    "pandas category": lambda _: FRAME.astype({"item": "category"}),
    "pandas object": lambda _: FRAME.astype(object),
    "polars": lambda _: pl.from_pandas(FRAME),
    "polars lazy": lambda _: pl.from_pandas(FRAME).lazy(),
    "arrow table": lambda _: TABLE,
    "arrow table in chunks": lambda _: pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)]),
    "arrow record batch": lambda _: TABLE.combine_chunks().to_batches()[0],
    "arrow reader": lambda _: TABLE.to_reader(max_chunksize=2),
    "arrow dataset": dataset_in,
    "arrow stream": lambda _: Stream(),
    "mapping of lists": lambda _: {"user": [3, 1, 2], "item": ["x", None, "z"], "extra": [0.5, 1.5, 2.5]},
    "mapping of arrays": lambda _: {"user": np.array([3, 1, 2]), "item": pd.Series(["x", None, "z"]), "extra": ()},
    "list of two": lambda _: [FRAME.iloc[:1], TABLE.slice(1)],
}


def values_of(source: Source, *names: str, start: int = 0) -> list[tuple[object, ...]]:
    return [
        row
        for rows in source.rows(names, start=start)
        for row in zip(*(rows.column(name).to_pylist() for name in names), strict=True)
    ]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_streams_the_same_rows_with_columns_by_name(form: str, tmp_path: Any) -> None:
    source = open_source(FORMS[form](tmp_path))
    assert values_of(source, "item", "user") == [("x", 3), (None, 1), ("z", 2)]


@pytest.mark.parametrize("form", [form for form in FORMS if form != "arrow reader"])
def test_every_form_but_a_reader_is_read_again_and_again(form: str, tmp_path: Any) -> None:
    source = open_source(FORMS[form](tmp_path))
    assert source.repeatable
    assert source.count("user") == 3
    assert values_of(source, "user") == values_of(source, "user") == [(3,), (1,), (2,)]


def test_a_reader_is_read_once_and_says_so() -> None:
    source = open_source(TABLE.to_reader())
    assert not source.repeatable
    assert len(values_of(source, "user")) == 3
    with pytest.raises(DataError) as caught:
        values_of(source, "user")
    assert str(caught.value) == ("reader: expected rows, got a reader that was read before. Pass a table or files.")


def test_the_number_of_rows_is_known_where_it_costs_nothing() -> None:
    assert open_source([FRAME, TABLE]).num_rows == 6
    assert open_source([FRAME, TABLE.to_reader()]).num_rows is None


def test_reading_starts_at_any_row_and_skips_whole_parts() -> None:
    parts = [FRAME, pl.from_pandas(FRAME).lazy(), TABLE]
    expected = [(user,) for user in [3, 1, 2] * 3]
    for start in range(11):
        assert values_of(open_source(parts), "user", start=start) == expected[start:]


def test_a_long_frame_comes_in_pieces() -> None:
    source = open_source({"user": np.arange(300_000)})
    pieces = [(rows.start, len(rows)) for rows in source.rows(["user"])]
    assert pieces == [(0, 131072), (131072, 131072), (262144, 37856)]


def test_a_missing_column_is_named_with_its_neighbours() -> None:
    with pytest.raises(ColumnError) as caught:
        values_of(open_source(FRAME), "itm")
    assert str(caught.value) == "frame: expected a column 'itm', got 'user', 'item', 'extra'. Did you mean 'item'?"


def test_all_parts_are_checked_before_any_is_read() -> None:
    def fail() -> Iterator[pa.RecordBatch]:
        raise AssertionError("was read")
        yield

    reader = pa.RecordBatchReader.from_batches(TABLE.schema, fail())
    with pytest.raises(ColumnError, match="table: expected a column 'item', got 'user'"):
        values_of(open_source([reader, TABLE.select(["user"])]), "item")


def test_a_frame_without_columns_says_so() -> None:
    with pytest.raises(ColumnError) as caught:
        values_of(open_source(pd.DataFrame()), "user")
    assert str(caught.value) == "frame: expected a column 'user', got no columns."


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (pd.DataFrame([[1, 2]], columns=["item", "item"]), "frame"),
        (pa.table([[1], [2]], names=["item", "item"]), "table"),
    ],
)
def test_a_column_that_is_there_twice_is_refused_only_when_it_is_asked_for(source: object, name: str) -> None:
    with pytest.raises(ColumnError) as caught:
        values_of(open_source(source), "item")
    assert str(caught.value) == (f"{name}: expected one column 'item', got 2 of that name. Rename or drop the others.")


def test_a_column_of_another_name_that_is_there_twice_is_ignored() -> None:
    frame = pd.DataFrame([[1, 2, 3]], columns=["user", "junk", "junk"])
    assert values_of(open_source(frame), "user") == [(1,)]


def test_a_mapping_of_unequal_columns_is_refused() -> None:
    with pytest.raises(ColumnError) as caught:
        values_of(open_source({"a": [1], "b": [1, 2]}), "a", "b")
    assert str(caught.value) == (
        "mapping: expected columns of equal length, got {'a': 1, 'b': 2}. Give every row a value."
    )


def test_a_mixed_column_is_refused_with_its_types() -> None:
    with pytest.raises(KeyTypeError) as caught:
        values_of(open_source(pd.DataFrame({"item": pd.Series([1, "1"], dtype=object)})), "item")
    assert str(caught.value) == "item: expected values of one type, got int, str. Convert the column to one type."


@pytest.mark.parametrize(("source", "kind"), [(5, "int"), (FRAME["user"], "Series"), (np.zeros((2, 2)), "ndarray")])
def test_what_is_not_tabular_is_refused(source: object, kind: str) -> None:
    with pytest.raises(DataError) as caught:
        open_source(source)
    assert str(caught.value) == (
        f"source: expected a frame, an Arrow table, a mapping of columns or a path, got {kind}. "
        "Pass a pandas DataFrame."
    )


def test_an_empty_list_of_sources_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        open_source([])
    assert str(caught.value) == (
        "source: expected at least one file or table, got an empty list. Check how it is made."
    )


def test_an_open_source_opens_as_itself() -> None:
    source = open_source(FRAME)
    assert open_source(source) is source


# --- Polars ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lazy", [False, True])
def test_polars_columns_of_python_objects_are_read_as_the_objects(lazy: bool) -> None:
    frame = pl.DataFrame(
        {
            "user": pl.Series([2**60 + 1, None, 2**60 + 2], dtype=pl.Object),
            "item": pl.Series(["b", "a", None], dtype=pl.Object),
            "tags": pl.Series([["x"], None, ["y", "x"]], dtype=pl.Object),
            "age": [1.0, 2.0, 3.0],
        }
    )
    schema = Schema(
        user=Categorical("user"), item=Categorical("item"), item_features=[MultiCategorical("tags"), Numeric("age")]
    )
    source = frame.lazy() if lazy else frame
    fitted = FeatureEncoder(schema).fit(source)
    assert fitted.vocabularies["user"].values.to_pylist() == [2**60 + 1, 2**60 + 2]
    assert fitted.vocabularies["item"].values.to_pylist() == ["a", "b"]
    batch = fitted.transform(source)
    assert batch.indices("user").tolist() == [3, 1, 4]
    assert batch.lists("tags").to_lists() == [[3], [], [4, 3]]


def test_polars_objects_that_are_no_keys_are_refused() -> None:
    frame = pl.DataFrame({"user": pl.Series([object(), object()], dtype=pl.Object)})
    with pytest.raises(KeyTypeError) as caught:
        FeatureEncoder(Schema(user=Categorical("user"))).fit(frame)
    assert str(caught.value) == ("user: expected integers, text or another flat type, got object. Convert the column.")
