"""A value has one index, whatever its container, its nulls, its slices, its chunks and its dictionary."""

from __future__ import annotations

import datetime
import decimal
import io
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.schema import Categorical, MultiCategorical, Schema
from recsys_emb.vocabulary.vocabulary import Vocabulary

DAY, SECOND = datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 12)
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [-1, 0, 127]),
    "int64": (pa.int64(), [-(2**63), 2**53 + 1, 2**63 - 1]),
    "uint64": (pa.uint64(), [0, 2**53 + 1, 2**64 - 1]),
    "float32": (pa.float32(), [0.0, -3.0, 2.0**20]),
    "float64": (pa.float64(), [0.5, -3.0, 2.0**52]),
    "text": (pa.string(), ["", "nan", "ä\u0000b"]),
    "large text": (pa.large_string(), ["a", "a ", "日" * 50]),
    "bytes": (pa.binary(), [b"", b"\xff", b"a\x00"]),
    "booleans": (pa.bool_(), [True, False]),
    "dates": (pa.date32(), [DAY, datetime.date(1969, 12, 31)]),
    "timestamps": (pa.timestamp("us"), [SECOND, datetime.datetime(1969, 1, 1, 0, 0, 0, 1)]),
    "decimals": (pa.decimal128(8, 2), [decimal.Decimal("1.50"), decimal.Decimal("-2.25")]),
}


@st.composite
def columns(draw: st.DrawFn, kind: str) -> tuple[list[Any], list[int]]:
    """Values, some of them missing, and where to cut them."""
    values = draw(st.lists(st.none() | st.sampled_from(KINDS[kind][1]), max_size=12))
    return values, sorted(draw(st.lists(st.integers(0, len(values)), max_size=3)))


def pieces(array: pa.Array, cuts: list[int]) -> list[pa.Array]:
    return [array[start:end] for start, end in zip([0, *cuts], [*cuts, len(array)], strict=True)]


def written(array: pa.Array, *, groups: int) -> pa.ChunkedArray:
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": array}), sink, row_group_size=groups)
    return pq.read_table(io.BytesIO(sink.getvalue()))["x"]


def slice_of(values: list[Any], kind_type: pa.DataType, around: list[Any]) -> pa.Array:
    return pa.array([*around, *values, *around], kind_type)[len(around) : len(around) + len(values)]


def containers(
    values: list[Any], kind_type: pa.DataType, cuts: list[int], around: list[Any]
) -> Iterator[tuple[str, Any]]:
    array = pa.array(values, kind_type)
    yield "array", array
    yield "slice", slice_of(values, kind_type, around)
    yield "chunks", pa.chunked_array(pieces(array, cuts), array.type)
    yield "Parquet", written(array, groups=3)
    yield "pandas", pd.Series(pd.array(array, dtype=pd.ArrowDtype(array.type)))
    yield "objects", pd.Series(values, dtype=object)
    yield "list", values


def flat_containers(
    values: list[Any], kind_type: pa.DataType, cuts: list[int], around: list[Any]
) -> Iterator[tuple[str, Any]]:
    yield from containers(values, kind_type, cuts, around)
    array = pa.array(values, kind_type)
    yield "dictionary", pa.array([*around, *values], kind_type).dictionary_encode()[len(around) :]
    yield "dictionaries", pa.chunked_array([one.dictionary_encode() for one in pieces(array, cuts)])
    yield "runs", pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(array) + 1), pa.int32()), array)
    yield "Polars", pl.Series(pl.from_arrow(array))
    if array.null_count < len(array):  # or the categories would be of no type
        yield "categories", pd.Series(pd.Categorical(pd.Series(values, dtype=object)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_has_one_index_in_every_container(kind: str) -> None:
    kind_type, known = KINDS[kind]
    vocabulary = Vocabulary.from_values(pa.array(known[:-1], kind_type), name="x")
    around = [known[-1], None, known[0]]
    expected = {None: 1, known[-1]: 2, **{value: vocabulary.encode([value]).item() for value in known[:-1]}}

    @settings(max_examples=12, deadline=None)
    @given(columns(kind))
    def check(drawn: tuple[list[Any], list[int]]) -> None:
        values, cuts = drawn
        plain = Vocabulary.from_values(pa.array(values, kind_type), name="x")
        for name, container in flat_containers(values, kind_type, cuts, around):
            assert vocabulary.encode(container).tolist() == [expected[value] for value in values], name
            grown = Vocabulary.from_values(container, name="x")
            assert grown.decode(grown.encode(container)) == values, name
            assert grown.fingerprint == plain.fingerprint, name

    check()


LAYOUTS: dict[str, Callable[[pa.DataType], pa.DataType]] = {
    "lists": pa.list_,
    "large lists": pa.large_list,
    "list views": pa.list_view,
    "lists of a dictionary": lambda kind_type: pa.list_(pa.dictionary(pa.int32(), kind_type)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["int64", "text", "bytes", "float64"])
def test_a_list_has_the_same_indices_in_every_container(kind: str, layout: str) -> None:
    kind_type, known = KINDS[kind]
    list_type = LAYOUTS[layout](kind_type)
    schema = Schema(context_features=[MultiCategorical("x")], embedding_dim=2)
    encoder = FeatureEncoder(schema).fit({"x": pa.array([known[:-1]], pa.list_(kind_type))})
    index = {value: encoder.vocabularies["x"].encode([value]).item() for value in known}

    @settings(max_examples=6, deadline=None)
    @given(st.lists(st.none() | st.lists(st.sampled_from(known), max_size=4), max_size=6), st.integers(0, 6))
    def check(values: list[list[Any] | None], cut: int) -> None:
        plain = layout in ("lists", "large lists")
        around = [[known[-1]], None]
        every = list(containers(values, list_type, [min(cut, len(values))], around)) if plain else []
        every += [("array", pa.array(values, list_type)), ("slice", slice_of(values, list_type, around))]
        for name, container in every:
            found = encoder.transform({"x": container}).lists("x").to_lists()
            assert found == [[index[one] for one in row or []] for row in values], name

    check()


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_size_of_a_batch_changes_nothing(size: int) -> None:
    frame = pd.DataFrame(
        {"item": [3, None, 5, 3, 9, None, 7], "x": [["a"], [], None, ["b", "zz"], ["a"], ["b"], ["zz"]]}
    )
    schema = Schema(item=Categorical("item"), item_features=[MultiCategorical("x", max_length=1)], embedding_dim=2)
    encoder = FeatureEncoder(schema).fit(frame[:5])
    whole = encoder.transform(frame)
    parts = [encoder.transform(frame[start : start + size]) for start in range(0, len(frame), size)]
    assert [one for part in parts for one in part.indices("item").tolist()] == whole.indices("item").tolist()
    assert [one for part in parts for one in part.lists("x").to_lists()] == whole.lists("x").to_lists()
