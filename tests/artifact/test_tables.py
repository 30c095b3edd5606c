"""Encoded rows survive Parquet bit for bit, and what does not fit is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.artifact.tables import batch_to_table, read_table, table_to_batch, write_table
from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.errors import ArtifactError

LIMITS = {"item": 9, "tags": 9, "age": 2}


def batch(lists: list[list[int]], *, weighted: bool = False) -> Batch:
    tags = Jagged.from_lists(lists)
    if weighted:
        tags = Jagged(tags.values, tags.offsets, torch.arange(len(tags.values)) / 7)
    numbers = torch.arange(2.0 * len(lists)).reshape(len(lists), 2) / 3
    return Batch({"item": torch.arange(len(lists)) % 9, "tags": tags, "age": numbers})


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 8), max_size=4), max_size=6), st.booleans())
def test_a_batch_comes_back_bit_for_bit(lists: list[list[int]], weighted: bool) -> None:
    before = batch(lists, weighted=weighted)
    after = table_to_batch(batch_to_table(before), LIMITS, where="x")
    assert after.names == before.names
    assert torch.equal(after.indices("item"), before.indices("item"))
    assert torch.equal(after.indices("age"), before.indices("age"))
    assert after.lists("tags").to_lists() == lists
    assert (after.lists("tags").weights is None) == (not weighted)
    if weighted:
        assert torch.equal(after.lists("tags").weights, before.lists("tags").weights)


def test_a_file_comes_back_and_is_writable(tmp_path: Path) -> None:
    write_table(batch_to_table(batch([[1], []])), tmp_path / "x.parquet")
    after = table_to_batch(read_table(tmp_path / "x.parquet"), LIMITS, where="x")
    after.indices("item")[0] = 5
    assert after.indices("item").tolist() == [5, 1]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"\x80\x04N.", b"PAR1" + bytes(40) + b"PAR1"])
def test_what_is_no_parquet_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"^x\.parquet: expected a Parquet file, got "):
        read_table(tmp_path / "x.parquet")


def test_other_columns_are_refused() -> None:
    with pytest.raises(ArtifactError) as caught:
        table_to_batch(pa.table({"a": [1]}), {"b": 3}, where="x")
    assert str(caught.value) == "x: expected columns 'b', got 'a'. Save the artifact again."


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["3"]),
        pa.array([3], pa.int32()),
        pa.array([3.0]),
        pa.array([None], pa.int64()),
        pa.array([[3]], pa.list_(pa.int64())),
        pa.array([None], pa.large_list(pa.int64())),
        pa.array([[None]], pa.large_list(pa.int64())),
        pa.array([[1.0, None]], pa.list_(pa.float32(), 2)),
        pa.array([[1.0, 2.0]], pa.list_(pa.float64(), 2)),
    ],
    ids=str,
)
def test_other_types_and_nulls_are_refused(array: pa.Array) -> None:
    with pytest.raises(ArtifactError) as caught:
        table_to_batch(pa.table({"a": array}), {"a": 9}, where="x")
    expected = "x: a: expected int64, lists of int64 or pairs of float32 without nulls"
    assert str(caught.value) == f"{expected}, got {array.type}. Save the artifact again."


@pytest.mark.parametrize(("indices", "got"), [([-1, 3], "-1 to 3"), ([3, 9], "3 to 9")])
@pytest.mark.parametrize("lists", [False, True])
def test_indices_outside_their_table_are_refused(indices: list[int], got: str, lists: bool) -> None:
    array = pa.array([indices], pa.large_list(pa.int64())) if lists else pa.array(indices)
    with pytest.raises(ArtifactError) as caught:
        table_to_batch(pa.table({"a": array}), {"a": 9}, where="x")
    expected = f"x: a: expected indices in [0, 9), got {got}. The file does not belong to these vocabularies."
    assert str(caught.value) == expected


def test_rows_that_were_read_carry_their_limits() -> None:
    assert dict(table_to_batch(batch_to_table(batch([[1]])), LIMITS, where="x").limits) == LIMITS
