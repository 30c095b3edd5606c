"""Sources, saved recommenders and checkpoints in S3, asked of a server on this machine."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyarrow import fs

import recsys_emb
from recsys_emb.artifact.folder import read_folder, write_folder
from recsys_emb.encoding.encoded_folder import EncodedRows
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import ArtifactError, DataError
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, Numeric, Schema
from recsys_emb.sources.sources import open_source
from recsys_emb.vocabulary.spilling import Spill

pytestmark = pytest.mark.skipif(importlib.util.find_spec("moto") is None, reason="needs moto[s3], flask, flask-cors")

SECRET = "a-secret-that-nobody-may-see"
SCHEMA = Schema(
    user=Categorical("user"), item=Categorical("item"), user_features=[Numeric("age")], label="stars", embedding_dim=2
)
ROWS = pd.DataFrame({"user": [1, 2, 1], "item": ["a", "b", "b"], "age": [1.0, 2.0, 1.0], "stars": [1.0, 5.0, 2.0]})


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A server of this machine alone, with dummy credentials where a client looks for them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    said = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in said.items():
            patch.setenv(name, value)
        try:
            _wait(f"http://127.0.0.1:{port}/moto-api/")
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(10)


def _wait(address: str) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=1):
            return
        time.sleep(0.1)
    pytest.fail("the server did not start")


_NUMBERS = itertools.count(100)


class Bucket:
    """An empty bucket: URIs in it, and what is there."""

    def __init__(self, endpoint: str, name: str) -> None:
        self.name, self._query = name, f"?endpoint_override={endpoint}&scheme=http&region=us-east-1"
        self.filesystem, _ = fs.FileSystem.from_uri(f"s3://{name}{self._query}&allow_bucket_creation=true")
        self.filesystem.create_dir(name)

    def uri(self, path: str) -> str:
        return f"s3://{self.name}/{path}{self._query}"

    def files(self) -> list[str]:
        infos = self.filesystem.get_file_info(fs.FileSelector(self.name, recursive=True))
        return sorted(info.path for info in infos if info.is_file)

    def content(self) -> bytes:
        return b"".join(self.filesystem.open_input_stream(path).read() for path in self.files())


@pytest.fixture
def bucket(endpoint: str) -> Bucket:
    return Bucket(endpoint, f"bucket-{next(_NUMBERS)}")


@pytest.fixture
def rows(bucket: Bucket, tmp_path: Path) -> Bucket:
    for day in range(3):
        ROWS.iloc[day : day + 1].to_parquet(tmp_path / "part.parquet")
        target = f"{bucket.name}/rows/day={day}/part.parquet"
        fs.copy_files(str(tmp_path / "part.parquet"), target, fs.LocalFileSystem(), bucket.filesystem)
    return bucket


def write(text: str):
    def writer(folder: Path) -> None:
        (folder / "deep").mkdir()
        for name in ("a.txt", "deep/b.txt"):
            (folder / name).write_text(text)

    return writer


def read_all(folder: Path) -> list[str]:
    return [(folder / name).read_text() for name in ("a.txt", "deep/b.txt")]


# --- sources -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["rows", "rows/*/*.parquet", "rows/day=*/part.parquet"])
def test_a_folder_and_a_glob_are_read_as_a_frame_is(rows: Bucket, where: str) -> None:
    encoder, expected = FeatureEncoder(SCHEMA).fit(rows.uri(where)), FeatureEncoder(SCHEMA).fit(ROWS)
    assert encoder.fingerprint == expected.fingerprint
    assert encoder.transform(rows.uri(where))["user"].tolist() == expected.transform(ROWS)["user"].tolist()


def test_a_file_and_a_list_of_files_are_read_in_their_order(rows: Bucket) -> None:
    files = [rows.uri(f"rows/day={day}/part.parquet") for day in (2, 0)]
    assert [batch.column("item").to_pylist() for batch in open_source(files).rows(["item"])] == [["b"], ["a"]]
    assert open_source(files[1]).num_rows == 1


def test_names_of_folders_are_columns(rows: Bucket) -> None:
    source = open_source(rows.uri("rows"))
    assert [batch.column("day").to_pylist() for batch in source.rows(["day"])] == [["0"], ["1"], ["2"]]


def test_a_source_travels_without_credentials(rows: Bucket) -> None:
    message = pickle.dumps(open_source(rows.uri("rows")))
    assert SECRET.encode() not in message
    assert pickle.loads(message).num_rows == 3


def test_the_endpoint_may_stand_in_the_environment(rows: Bucket, endpoint: str, monkeypatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{endpoint}")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert open_source(f"s3://{rows.name}/rows").num_rows == 3


def test_a_missing_key_and_a_missing_bucket_are_named(rows: Bucket) -> None:
    query = rows.uri("").partition("?")[2]
    for uri in (rows.uri("none.parquet"), rows.uri("none/*.parquet"), f"s3://no-such-bucket/rows?{query}"):
        with pytest.raises(DataError) as caught:
            open_source(uri)
        assert str(caught.value) == f"{uri}: expected Parquet files, got none. Check the path."


def test_a_dead_endpoint_is_named_within_bounded_time(endpoint: str) -> None:
    uri = "s3://bucket/rows?endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1"
    start = time.monotonic()
    with pytest.raises(DataError) as caught:
        open_source(uri)
    assert str(caught.value).startswith(f"{uri}: expected a place that can be searched, got an error: ")
    assert "NETWORK_CONNECTION" in str(caught.value)
    assert time.monotonic() - start < 60


# --- recommenders and checkpoints ----------------------------------------------------------------------------------


def test_a_recommender_is_saved_replaced_loaded_and_inspected(bucket: Bucket, capsys) -> None:
    recommender = Recommender(SCHEMA, epochs=2, progress=False).fit(ROWS)
    recommender.save(bucket.uri("models/one"))
    loaded = Recommender.load(bucket.uri("models/one"))
    assert loaded.predict(ROWS).equals(recommender.predict(ROWS))
    loaded.partial_fit(ROWS.assign(user=[7, 8, 9])).save(bucket.uri("models/one"))
    again = Recommender.load(bucket.uri("models/one"))
    assert again.predict(ROWS).equals(loaded.predict(ROWS))
    assert recsys_emb.inspect(bucket.uri("models/one")).vocabularies == {"user": 5, "item": 2}
    # One manifest that names the save, and one save: nothing of the earlier one is left.
    assert len(bucket.files()) == 1 + 7
    assert SECRET.encode() not in bucket.content()
    assert SECRET.encode() not in pickle.dumps(again)


def test_a_fit_goes_on_from_its_checkpoint(bucket: Bucket) -> None:
    first = Recommender(SCHEMA, epochs=3, progress=False).fit(ROWS, checkpoint=bucket.uri("run"))
    again = Recommender(SCHEMA, epochs=3, progress=False).fit(ROWS, checkpoint=bucket.uri("run"))
    assert again.predict(ROWS).equals(first.predict(ROWS))
    assert SECRET.encode() not in bucket.content()


def test_nothing_there_and_no_bucket_are_named(bucket: Bucket) -> None:
    query = bucket.uri("").partition("?")[2]
    nobody = f"s3://no-such-bucket/model?{query}"
    for uri in (bucket.uri("none"), nobody):
        with pytest.raises(ArtifactError) as caught:
            Recommender.load(uri)
        got = "got nothing there. Give a folder that save() wrote."
        assert str(caught.value) == f"{uri}: expected a folder with a 'manifest.json', {got}"
    written: list[Path] = []
    with pytest.raises(ArtifactError) as caught:
        write_folder(nobody, written.append)
    assert str(caught.value).startswith(f"{nobody}: expected a store that does what it is asked, got an error: ")
    assert "'no-such-bucket' not found" in str(caught.value)
    assert written == []


def test_readers_beside_two_writers_see_one_save_or_the_other(bucket: Bucket) -> None:
    write_folder(bucket.uri("x"), write("start"))
    writers = [threading.Thread(target=_write_often, args=(bucket.uri("x"), letter, 6)) for letter in "ab"]
    for writer in writers:
        writer.start()
    seen = [read_folder(bucket.uri("x"), read_all) for _ in range(12)]
    for writer in writers:
        writer.join()
    assert all(first == second for first, second in seen)
    assert read_folder(bucket.uri("x"), read_all) in (["a", "a"], ["b", "b"])


def _write_often(uri: str, text: str, times: int) -> None:
    for _ in range(times):
        write_folder(uri, write(text))


@pytest.mark.skipif(os.name != "posix", reason="kills a process")
def test_a_writer_that_is_killed_leaves_a_whole_folder(bucket: Bucket) -> None:
    write_folder(bucket.uri("x"), write("old"))
    process = multiprocessing.get_context("spawn").Process(target=_write_often, args=(bucket.uri("x"), "new", 10**6))
    process.start()
    while read_folder(bucket.uri("x"), read_all) == ["old", "old"]:
        time.sleep(0.05)
    time.sleep(np.random.default_rng(0).uniform(0, 0.3))
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    assert read_folder(bucket.uri("x"), read_all) == ["new", "new"]
    write_folder(bucket.uri("x"), write("after"))
    assert read_folder(bucket.uri("x"), read_all) == ["after", "after"]


# --- encoded rows and vocabularies in files ------------------------------------------------------------------------


def test_rows_are_encoded_into_a_bucket_by_vocabularies_in_it(rows: Bucket) -> None:
    expected = FeatureEncoder(SCHEMA).fit(ROWS)
    encoder = FeatureEncoder(SCHEMA).fit(rows.uri("rows"), spill=Spill(rows.uri("vocabularies"), above=0))
    assert encoder.fingerprint == expected.fingerprint
    written = encoder.transform_to(rows.uri("rows"), rows.uri("encoded"))
    assert [part.name for part in written.parts] == [f"0000{day}-day={day}.part-00000.parquet" for day in range(3)]
    read = EncodedRows(rows.uri("encoded")).read(expected)
    assert read.indices("user").tolist() == expected.transform(ROWS).indices("user").tolist()
    copied = pickle.loads(pickle.dumps(encoder))
    assert copied.transform(ROWS).indices("item").tolist() == expected.transform(ROWS).indices("item").tolist()
    rows.filesystem.delete_file(f"{rows.name}/encoded/{written.parts[1].name}")
    with pytest.raises(DataError, match=r"got none of '00001-day=1\.part-00000\.parquet'"):
        EncodedRows(rows.uri("encoded"))
    assert SECRET.encode() not in rows.content()
