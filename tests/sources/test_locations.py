"""Paths and URIs: where they lead, what travels, and what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from recsys_emb.errors import DataError
from recsys_emb.sources import locations
from recsys_emb.sources.sources import open_source

URI = "store://bucket/rows"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder that holds the buckets of ``store://``: a file system of Arrow's that is none of this machine."""

    def open_store(uri: str) -> tuple[fs.FileSystem, str]:
        return fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), uri.partition("://")[2]

    monkeypatch.setattr(locations, "from_uri", open_store)
    for number, name in enumerate(["a.parquet", "day=1/b.parquet", "day=2/c.parquet", "_marker/d.parquet"]):
        path = tmp_path / "bucket" / "rows" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"user": [number, number], "tags": [["x"], []]}), path)
    return tmp_path


def users(source: object) -> list[int]:
    return [user for rows in open_source(source).rows(["user"]) for user in rows.column("user").to_pylist()]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("", [0, 0, 1, 1, 2, 2]),
        ("/", [0, 0, 1, 1, 2, 2]),
        ("/a.parquet", [0, 0]),
        ("/*.parquet", [0, 0]),
        ("/*/b.parquet", [1, 1]),
        ("/**/*.parquet", [3, 3, 0, 0, 1, 1, 2, 2]),
    ],
)
def test_files_of_a_store_are_found_in_the_order_of_their_paths(root: Path, where: str, expected: list[int]) -> None:
    assert users(URI + where) == expected


def test_a_list_of_uris_is_read_in_its_own_order(root: Path) -> None:
    assert users([f"{URI}/day=2/c.parquet", f"{URI}/a.parquet"]) == [2, 2, 0, 0]


def test_folder_names_and_lists_are_read_from_a_store(root: Path) -> None:
    source = open_source([f"{URI}/day=1", f"{URI}/day=2"], {"day": pa.int64()})
    rows = [rows.record.to_pydict() for rows in source.rows(["day", "tags"])]
    assert rows == [{"day": [day, day], "tags": [["x"], []]} for day in (1, 2)]


def test_what_travels_of_a_source_is_its_uri(root: Path) -> None:
    message = pickle.dumps(open_source(URI))
    assert URI.encode() in message
    assert b"FileSystem" not in message
    assert users(pickle.loads(message)) == [0, 0, 1, 1, 2, 2]


def test_what_travels_of_a_path_is_the_whole_path(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root / "bucket")
    message = pickle.dumps(open_source("rows"))
    monkeypatch.chdir(root)
    assert users(pickle.loads(message)) == [0, 0, 1, 1, 2, 2]


def test_a_store_that_does_not_answer_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(uri: str) -> tuple[fs.FileSystem, str]:
        raise OSError(f"AWS Error NETWORK_CONNECTION\n  for {uri}")

    monkeypatch.setattr(locations, "from_uri", fail)
    with pytest.raises(DataError) as caught:
        open_source(URI)
    reason = f"got an error: AWS Error NETWORK_CONNECTION for {URI}. Check it."
    assert str(caught.value) == f"{URI}: expected a URI that can be opened, {reason}"


def test_nothing_there_is_named(root: Path) -> None:
    for uri in ("store://bucket/none", "store://nobody/rows/*.parquet"):
        with pytest.raises(DataError) as caught:
            open_source(uri)
        assert str(caught.value) == f"{uri}: expected Parquet files, got none. Check the path."


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://KEY:hidden@bucket/rows?region=us-east-1", "s3://bucket/rows"),
        ("s3://KEY:hid/den@bucket/rows", "s3://bucket/rows"),
        ("s3://KEY:hid%2Fden@bucket/rows", "s3://bucket/rows"),
        ("s3://bucket/rows?secret_key=hidden", "s3://bucket/rows"),
        ("s3://bucket/rows?region=x&session_token=hidden", "s3://bucket/rows"),
    ],
)
def test_credentials_are_refused_and_not_shown(uri: str, shown: str) -> None:
    with pytest.raises(DataError) as caught:
        open_source(uri)
    remedy = "Keep them where the store's own tools look: the environment, a profile or a role."
    assert str(caught.value) == f"{shown}: expected a URI without credentials, got some in it. {remedy}"


@pytest.mark.parametrize(
    "uri",
    [
        "store://user@host/x",
        "store://host:9000/x",
        "store://bucket/a:b@c",
        "store://host:9000/a@b",
        "store://b/x?region=y",
    ],
)
def test_a_user_a_port_and_odd_names_are_no_credentials(root: Path, uri: str) -> None:
    assert locations.locate(uri).name == uri


def test_a_uri_that_lost_a_slash_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        open_source(Path("s3://bucket/rows"))
    remedy = "got one slash. Give a URI as text: a Path drops a slash."
    assert str(caught.value) == f"s3:/bucket/rows: expected '://' in a URI, {remedy}"


def test_a_tilde_is_the_home_folder_or_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(root / "bucket"))
    monkeypatch.setenv("USERPROFILE", str(root / "bucket"))
    assert users("~/rows/a.parquet") == [0, 0]
    with pytest.raises(DataError) as caught:
        open_source("~nobody-of-that-name/rows")
    expected = "expected '~' to be a home folder, got none. Write the path out."
    assert str(caught.value) == f"~nobody-of-that-name/rows: {expected}"


def test_what_must_be_on_this_machine_is_refused_elsewhere(root: Path) -> None:
    assert locations.local_path(root, "cache") == locations.local_path(str(root), "cache") == root
    with pytest.raises(DataError) as caught:
        locations.local_path(URI, "BatchLoader: cache")
    assert str(caught.value) == f"BatchLoader: cache: expected a path on this machine, got {URI}. Copy what is there."


@pytest.mark.parametrize(
    ("uri", "opened"),
    [
        ("gs://bucket/rows", "gs://bucket/rows?retry_limit_seconds=30"),
        ("gcs://bucket/rows", "gcs://bucket/rows?retry_limit_seconds=30"),
        ("gs://bucket/rows?scheme=http", "gs://bucket/rows?scheme=http&retry_limit_seconds=30"),
        ("gs://bucket/rows?retry_limit_seconds=5", "gs://bucket/rows?retry_limit_seconds=5"),
        ("s3://bucket/rows", "s3://bucket/rows"),
        ("file:///rows", "file:///rows"),
    ],
)
def test_googles_store_is_not_waited_for_without_end(uri: str, opened: str) -> None:
    assert locations.limited(uri) == opened


def test_a_limit_of_retries_is_one_that_arrow_knows() -> None:
    place = locations.locate("gs://bucket/rows")
    assert (place.name, place.filesystem.type_name, place.path) == ("gs://bucket/rows", "gcs", "bucket/rows")
