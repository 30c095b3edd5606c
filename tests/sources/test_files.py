from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_emb.errors import ColumnError, DataError
from recsys_emb.sources.sources import open_source


def write(path: Path, **columns: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def values_of(source: object, *names: str, types: dict[str, pa.DataType] | None = None) -> list[tuple[object, ...]]:
    return [
        row
        for rows in open_source(source, types).rows(names)
        for row in zip(*(rows.column(name).to_pylist() for name in names), strict=True)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "b.parquet", user=[3])
    write(tmp_path / "a.parquet", user=[1, 2])
    write(tmp_path / "deep" / "c.parq", user=[4])
    return tmp_path


def test_a_file_a_path_and_a_uri_mean_the_same(folder: Path) -> None:
    path = folder / "a.parquet"
    assert values_of(path, "user") == values_of(str(path), "user") == values_of(path.as_uri(), "user") == [(1,), (2,)]


def test_a_folder_is_read_at_any_depth_in_the_order_of_the_paths(folder: Path) -> None:
    assert values_of(folder, "user") == [(1,), (2,), (3,), (4,)]
    assert values_of(folder.as_uri(), "user") == [(1,), (2,), (3,), (4,)]


def test_a_list_is_read_in_its_own_order(folder: Path) -> None:
    assert values_of([folder / "b.parquet", folder / "a.parquet"], "user") == [(3,), (1,), (2,)]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.parquet", [1, 2, 3]),
        ("[b-z].parquet", [3]),
        ("?.parquet", [1, 2, 3]),
        ("**/*.par*", [1, 2, 3, 4]),
        ("d*/c.parq", [4]),
        ("*/*", [4]),
    ],
)
def test_a_glob_is_read_in_the_order_of_the_paths(folder: Path, pattern: str, expected: list[int]) -> None:
    assert [user for (user,) in values_of(f"{folder}/{pattern}", "user")] == expected


@pytest.mark.parametrize(("pattern", "expected"), [("*.parquet", [1, 2, 3]), ("**/c.*", [4])])
def test_a_uri_may_be_a_glob(folder: Path, pattern: str, expected: list[int]) -> None:
    assert [user for (user,) in values_of(f"{folder.as_uri()}/{pattern}", "user")] == expected


def test_paths_relative_to_the_working_folder_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert values_of("a.parquet", "user") == [(1,), (2,)]
    assert values_of("*.parquet", "user") == values_of("./*.parquet", "user") == [(1,), (2,), (3,)]
    assert len(values_of(".", "user")) == 4


def test_markers_and_other_files_in_a_folder_are_left_out(folder: Path) -> None:
    write(folder / "_temporary" / "d.parquet", user=[9])
    write(folder / ".hidden.parquet", user=[9])
    (folder / "_SUCCESS").write_text("")
    (folder / "notes.txt").write_text("")
    assert len(values_of(folder, "user")) == 4


@pytest.mark.parametrize("location", ["nothing.parquet", "*.orc", "no/such/folder/*.parquet"])
def test_a_place_without_files_is_refused(folder: Path, location: str) -> None:
    with pytest.raises(DataError) as caught:
        open_source(f"{folder}/{location}")
    assert str(caught.value) == f"{folder}/{location}: expected Parquet files, got none. Check the path."


def test_the_number_of_rows_comes_from_the_footers(folder: Path) -> None:
    assert open_source(folder).num_rows == 4


def test_a_missing_column_is_reported_with_the_file(folder: Path) -> None:
    write(folder / "z.parquet", userid=[1], extra=[2])
    with pytest.raises(ColumnError) as caught:
        values_of(folder, "user")
    assert str(caught.value) == "z.parquet: expected a column 'user', got 'userid', 'extra'. Did you mean 'userid'?"


def test_another_format_is_refused_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "notes.csv").write_text("user\n1\n")
    with pytest.raises(DataError) as caught:
        open_source(tmp_path / "notes.csv")
    assert str(caught.value).startswith("notes.csv: expected a whole Parquet file, got an error: Parquet file size is")
    assert str(caught.value).endswith(". Write it again; read other formats with pandas and pass the frame.")


def test_damage_inside_a_file_is_reported_with_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", user=list(range(1000)))
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xff" * 64 + content[68:])
    with pytest.raises(DataError, match=r"^a\.parquet: expected a whole Parquet file, got an error: "):
        values_of(path, "user")


def test_every_file_is_read_with_its_own_types(tmp_path: Path) -> None:
    write(tmp_path / "1.parquet", user=pa.array([1], pa.int32()), brand=pa.nulls(1))
    write(tmp_path / "2.parquet", user=pa.array([2], pa.int64()), brand=pa.array(["x"]).dictionary_encode())
    write(tmp_path / "3.parquet", user=pa.array([3.0]), brand=pa.array(["y"], pa.large_string()))
    types = [str(rows.column("brand").type) for rows in open_source(tmp_path).rows(["brand"])]
    assert types[0] == "null"
    assert types[2] == "large_string"
    assert values_of(tmp_path, "user", "brand") == [(1, None), (2, "x"), (3.0, "y")]


def test_small_text_columns_arrive_as_dictionaries_and_others_as_they_are(tmp_path: Path) -> None:
    columns = {"small": ["a", "b", None] * 1000, "large": [str(row) for row in range(3000)]}
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=1000)
    seen = [
        (rows.column("small").type, rows.column("large").type) for rows in open_source(path).rows(["small", "large"])
    ]
    assert {pa.types.is_dictionary(small) for small, _ in seen} == {True}
    assert {large for _, large in seen} == {pa.string()}
    assert values_of(path, "small", "large") == list(zip(columns["small"], columns["large"], strict=True))


@pytest.mark.parametrize("name", ["type", "items", "a.b", "a b", "tags.list.element", "größe"])
def test_any_text_names_a_column(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "a.parquet", **{name: ["x", "y"], "a": [1, 2]})
    assert values_of(path, name, "a") == [("x", 1), ("y", 2)]


def test_a_file_without_rows_is_a_source_without_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", user=pa.array([], pa.int64()))
    assert values_of(path, "user") == []
    assert open_source(path).num_rows == 0
    assert list(open_source(path).parts[0].rows(["user"])) == []


# --- folder names as columns -------------------------------------------------------------------------------------


@pytest.fixture
def hive(tmp_path: Path) -> Path:
    write(tmp_path / "day=01" / "country=a%2Fb" / "0.parquet", user=[1])
    write(tmp_path / "day=02" / "country=__HIVE_DEFAULT_PARTITION__" / "0.parquet", user=[2, 3])
    return tmp_path


def test_folder_names_are_columns_of_text(hive: Path) -> None:
    expected = [(1, "01", "a/b"), (2, "02", None), (3, "02", None)]
    assert values_of(hive, "user", "day", "country") == expected
    assert values_of(f"{hive}/*/*/*.parquet", "user", "day", "country") == expected


def test_folder_names_are_read_as_the_type_that_is_declared(hive: Path) -> None:
    assert values_of(hive, "day", types={"day": pa.int64()}) == [(1,), (2,), (2,)]


def test_a_folder_name_of_another_type_is_refused(hive: Path) -> None:
    with pytest.raises(DataError) as caught:
        values_of(hive, "country", types={"country": pa.int64()})
    assert str(caught.value) == (
        "day=01/country=a%2Fb/0.parquet: expected 'country' to be int64, got 'a/b'. "
        "Rename the folder, or change dtype=."
    )


def test_a_column_in_the_file_precedes_one_in_the_folder_name(tmp_path: Path) -> None:
    write(tmp_path / "user=9" / "0.parquet", user=[1])
    assert values_of(tmp_path, "user") == [(1,)]


def test_two_readings_of_one_path_do_not_disturb_each_other(folder: Path) -> None:
    source = open_source(folder / "a.parquet")
    first, second = source.rows(["user"]), source.rows(["user"])
    assert next(first).column("user").to_pylist() == next(second).column("user").to_pylist() == [1, 2]


# --- row groups --------------------------------------------------------------------------------------------------


def test_lists_of_text_arrive_as_dictionaries_whatever_their_row_groups_hold(tmp_path: Path) -> None:
    few = [["red", None], [], None, ["blue", "red"]] * 30
    many = [[f"a rather long text {number}"] for number in range(120)]
    path = tmp_path / "rows.parquet"
    with pq.ParquetWriter(path, pa.schema({"tags": pa.list_(pa.string()), "user": pa.int64()})) as writer:
        for lists in (few, few, many, few):
            table = pa.table({"tags": pa.array(lists, pa.list_(pa.string())), "user": range(len(lists))})
            writer.write_table(table.cast(writer.schema))
    pieces = [rows.column("tags") for rows in open_source(path).rows(["tags"])]
    assert [value for piece in pieces for value in piece.to_pylist()] == [*few, *few, *many, *few]
    assert [pa.types.is_dictionary(piece.type.value_type) for piece in pieces] == [True, True, False, True]
    assert values_of(path, "user", "tags") == list(zip([*range(120)] * 4, [*few, *few, *many, *few], strict=True))


def test_blocks_are_row_groups_and_can_be_read_in_any_order(tmp_path: Path) -> None:
    for name, users in (("a", range(5)), ("b", range(5, 12))):
        pq.write_table(pa.table({"user": users}), tmp_path / f"{name}.parquet", row_group_size=3)
    source = open_source([tmp_path, pa.table({"user": [12, 13]}), {"user": [14]}])
    blocks = source.blocks("user")
    assert [block.num_rows for block in blocks] == [3, 2, 3, 3, 1, 2, 1]
    chosen = [blocks[number] for number in (6, 3, 1, 5)]
    rows = list(source.rows(["user"], start=3, blocks=chosen))
    assert [row for one in rows for row in one.column("user").to_pylist()] == [10, 3, 4, 12, 13]
    assert [one.start for one in rows] == [5, 3, 0]


def test_the_version_of_a_file_changes_with_it(folder: Path) -> None:
    def version() -> object:
        (part,) = open_source(folder / "a.parquet").parts
        assert part.version is not None
        return part.version()

    before = version()
    assert before == version()
    assert str(folder / "a.parquet") in str(before)
    os.utime(folder / "a.parquet", ns=(1, 10**18))
    assert version() != before


def test_the_bytes_of_columns_are_known(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", user=list(range(1000)), tags=[["a", "b"]] * 1000)
    source = open_source(path)
    assert source.size(["user"]) > 1000
    assert source.size(["user", "tags"]) == source.size(["user"]) + source.size(["tags"])
    assert source.size(["nothing"]) == 0
