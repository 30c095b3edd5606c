from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_emb.errors import ColumnError, DataError
from recsys_emb.sources.locations import Location, locate
from recsys_emb.sources.pieces import Piece, pieces
from recsys_emb.sources.sources import open_source
from recsys_emb.sources.writing import write_bytes, written

ROWS = pa.table({"user": range(300_000), "age": np.arange(300_000) / 2})


def users(piece: Piece) -> list[int]:
    return [user for rows in piece.rows(["user"]) for user in rows.column("user").to_pylist()]


def test_a_piece_of_a_file_is_a_row_group_and_travels_as_its_place(tmp_path: Path) -> None:
    for name in ("a", "b"):
        pq.write_table(ROWS.slice(0, 5), tmp_path / f"{name}.parquet", row_group_size=2)
    found = [pickle.loads(pickle.dumps(piece)) for piece in pieces(open_source(tmp_path), ["user"])]
    assert [(piece.name, piece.place, piece.start) for piece in found[:4]] == [
        ("a.parquet, row group 0", 0, 0),
        ("a.parquet, row group 1", 0, 2),
        ("a.parquet, row group 2", 0, 4),
        ("b.parquet, row group 0", 1, 0),
    ]
    assert [users(piece) for piece in found] == 2 * [[0, 1], [2, 3], [4]]
    assert len(pickle.dumps(found[0])) < 1000
    assert [rows.where("user") for rows in found[1].rows(["user"])] == ["a.parquet, row group 1: user"]


def test_what_a_file_calls_text_and_is_not_is_refused_in_a_piece_too(tmp_path: Path) -> None:
    offsets = pa.py_buffer(np.array([0, 1, 2], np.int32))
    broken = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"a\xff")])
    pq.write_table(pa.table({"user": broken}), tmp_path / "rows.parquet", use_dictionary=False)
    (piece,) = pieces(open_source(tmp_path), ["user"])
    with pytest.raises(DataError, match=r"^rows.parquet, row group 0: expected columns as they are declared, got an "):
        users(piece)


def test_rows_in_memory_travel_alone() -> None:
    for source in (ROWS, ROWS.to_pandas(), ROWS.to_reader(max_chunksize=2**17)):
        found = list(pieces(open_source(source), ["user"]))
        assert [piece.start for piece in found] == [0, 2**17, 2**18]
        for piece in found:
            content = pickle.dumps(piece)
            assert len(content) < 8 * 2**17 + 2000
            assert users(pickle.loads(content)) == users(piece)


def test_lists_and_dictionaries_travel_too() -> None:
    frame = pd.DataFrame({"tags": [["a"], None, ["b", "a"]], "country": pd.Categorical(["x", "y", "x"])})
    (piece,) = pieces(open_source(frame), ["tags", "country", "tags"])
    (rows,) = pickle.loads(pickle.dumps(piece)).rows(["country", "tags"])
    assert rows.record.to_pydict() == {"country": ["x", "y", "x"], "tags": [["a"], None, ["b", "a"]]}


def test_a_missing_column_is_refused_at_once() -> None:
    with pytest.raises(ColumnError):
        next(pieces(open_source(ROWS), ["name"]))


def write_half(place: Location) -> None:
    with written(place, "rows") as file:
        file.write(b"broken")
        raise RuntimeError


def test_a_file_has_its_name_when_it_is_whole_and_not_before(tmp_path: Path) -> None:
    place = locate(str(tmp_path))
    with written(place, "rows") as file:
        file.write(b"half")
        assert not (tmp_path / "rows").exists()
    assert (tmp_path / "rows").read_text() == "half"
    with pytest.raises(RuntimeError):
        write_half(place)
    write_bytes(place, "more", b"more")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["more", "rows"]
    assert (tmp_path / "rows").read_text() == "half"
