"""A folder in an object store: a reader finds the old save or the new one, whoever dies meanwhile.

The store is a file system of Arrow's over a temporary folder; `test_object_store.py` asks a real protocol.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyarrow import fs

import recsys_emb
import recsys_emb.artifact.stored as stored_module
from recsys_emb.artifact.folder import read_folder, write_folder
from recsys_emb.artifact.manifest import MANIFEST
from recsys_emb.artifact.store import Store
from recsys_emb.errors import ArtifactError
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, Schema
from recsys_emb.sources import locations

URI = "store://bucket/model"
SCHEMA = Schema(user=Categorical("user"), item=Categorical("item"), label="stars", embedding_dim=2)
ROWS = pd.DataFrame({"user": [1, 2, 1], "item": ["a", "b", "b"], "stars": [1.0, 5.0, 2.0]})
posix = pytest.mark.skipif(os.name != "posix", reason="kills processes")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder that holds the buckets of ``store://``."""
    (tmp_path / "stores" / "bucket").mkdir(parents=True)

    def open_store(uri: str) -> tuple[fs.FileSystem, str]:
        place = uri.partition("://")[2].partition("?")[0]
        return fs.SubTreeFileSystem(str(tmp_path / "stores"), fs.LocalFileSystem()), place

    monkeypatch.setattr(locations, "from_uri", open_store)
    return tmp_path / "stores"


def write(text: str, names: tuple[str, ...] = ("a.txt", "deep/b.txt")) -> Callable[[Path], None]:
    def writer(folder: Path) -> None:
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)

    return writer


def read_all(folder: Path) -> list[str]:
    return [(folder / name).read_text() for name in ("a.txt", "deep/b.txt")]


def saves(root: Path) -> list[Path]:
    return sorted((root / "bucket" / "model").glob("save-*"))


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(ArtifactError) as caught:
        act()
    return str(caught.value)


def test_what_was_written_is_read_and_the_manifest_names_it(root: Path) -> None:
    write_folder(URI, write("old"))
    assert read_folder(URI, read_all) == ["old", "old"]
    (save,) = saves(root)
    assert json.loads((save.parent / MANIFEST).read_text())["current"] == save.name
    assert sorted(path.name for path in save.parent.iterdir()) == [MANIFEST, save.name]


def test_the_earlier_save_is_removed_once_the_new_one_stands(root: Path) -> None:
    write_folder(URI, write("old"))
    (old,) = saves(root)
    write_folder(URI, write("new"))
    (new,) = saves(root)
    assert (read_folder(URI, read_all), new == old) == (["new", "new"], False)


def test_nothing_is_left_on_this_disk(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    write_folder(URI, write("old"))
    read_folder(URI, read_all)
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("step", ["write", "upload", "check", "put"])
def test_a_save_that_fails_leaves_the_old_one(root: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    write_folder(URI, write("old"))

    def fail(*_: object) -> None:
        raise ArtifactError("no")

    if step == "upload":
        monkeypatch.setattr(Store, "upload", fail)
    elif step == "check":
        monkeypatch.setattr(stored_module, "_check_arrived", fail)
    elif step == "put":
        monkeypatch.setattr(Store, "put", fail)
    assert refusal(lambda: write_folder(URI, fail if step == "write" else write("new"))) == "no"
    monkeypatch.undo()
    # After a failed put nobody knows whether the new manifest got there, so its save stays.
    assert len(saves(root)) == (2 if step == "put" else 1)


def test_files_that_arrive_otherwise_are_refused_and_removed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upload = Store.upload

    def cut(self: Store, folder: Path) -> None:
        upload(self, folder)
        (root / self.place.path / "a.txt").write_text("ha")

    monkeypatch.setattr(Store, "upload", cut)
    got = "expected files to arrive as they were written, got 'a.txt' otherwise. Save it again."
    assert refusal(lambda: write_folder(URI, write("half"))) == f"{URI}: {got}"
    assert saves(root) == []


def test_a_reader_whose_save_is_replaced_meanwhile_reads_the_new_one(root: Path, monkeypatch) -> None:
    write_folder(URI, write("old"))
    download, times = Store.download, []

    def overtaken(self: Store, *arguments: object) -> None:
        if not times:
            times.append(1)
            write_folder(URI, write("new"))
        download(self, *arguments)

    monkeypatch.setattr(Store, "download", overtaken)
    assert read_folder(URI, read_all) == ["new", "new"]


def test_a_reader_gives_up_when_the_folder_never_rests(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(URI, write("old"))
    download = Store.download

    def overtaken(self: Store, *arguments: object) -> None:
        write_folder(URI, write("new"))
        download(self, *arguments)

    monkeypatch.setattr(Store, "download", overtaken)
    expected = "expected a folder at rest, got one replaced 5 times while reading. Load it again."
    assert refusal(lambda: read_folder(URI, read_all)) == f"{URI}: {expected}"


def test_of_two_writers_the_last_to_finish_is_kept(root: Path) -> None:
    def write_slowly(folder: Path) -> None:
        write_folder(URI, write("fast"))
        write("slow")(folder)

    write_folder(URI, write_slowly)
    assert read_folder(URI, read_all) == ["slow", "slow"]
    assert len(saves(root)) == 1


def test_what_a_dead_writer_left_is_removed_a_day_later_and_not_before(root: Path) -> None:
    write_folder(URI, write("old"))
    for name, age in (("save-00000000000000aa", 90_000), ("save-00000000000000bb", 80_000)):
        shutil.copytree(saves(root)[0], root / "bucket" / "model" / name)
        for path in (root / "bucket" / "model" / name).rglob("*"):
            os.utime(path, (time.time() - age,) * 2)
    write_folder(URI, write("new"))
    assert [path.name for path in saves(root) if path.name.startswith("save-00000000000000")] == [
        "save-00000000000000bb"
    ]
    assert read_folder(URI, read_all) == ["new", "new"]


def test_litter_in_a_store_is_overlooked(root: Path) -> None:
    write_folder(URI, write("old"))
    for folder in (root / "bucket" / "model", saves(root)[0]):
        (folder / ".DS_Store").write_text("litter")
    assert read_folder(URI, read_all) == ["old", "old"]
    write_folder(URI, write("new"))
    assert read_folder(URI, read_all) == ["new", "new"]


def test_an_earlier_save_that_another_writer_removes_meanwhile_is_no_matter(root: Path, monkeypatch) -> None:
    write_folder(URI, write("old"))
    (old,) = saves(root)
    info = Store._info

    def removed_meanwhile(self: Store, name: str) -> fs.FileInfo:
        answer = info(self, name)
        if name == old.name:
            shutil.rmtree(old)
        return answer

    monkeypatch.setattr(Store, "_info", removed_meanwhile)
    write_folder(URI, write("new"))
    assert read_folder(URI, read_all) == ["new", "new"]


def test_a_store_that_does_not_let_go_of_the_earlier_save_is_warned_of(root: Path, monkeypatch) -> None:
    write_folder(URI, write("old"))

    def fail(self: Store, name: str) -> None:
        raise ArtifactError(f"{self.name}: no")

    monkeypatch.setattr(Store, "remove", fail)
    with pytest.warns(UserWarning, match="could not be removed") as caught:
        write_folder(URI, write("new"))
    expected = f"Saved, but what was there before could not be removed and costs room. {URI}: no"
    assert [(str(one.message), one.filename) for one in caught] == [(expected, __file__)]
    assert read_folder(URI, read_all) == ["new", "new"]


@pytest.mark.parametrize(
    ("uri", "got"),
    [
        ("store://", "a whole store"),
        ("store://bucket/taken", "a file"),
        ("store://bucket", "'model', 'notes', 'taken'"),
        ("store://bucket/notes", "'mine.txt'"),
    ],
)
def test_where_something_else_stands_nothing_is_saved(root: Path, uri: str, got: str) -> None:
    write_folder(URI, write("old"))
    (root / "bucket" / "taken").write_text("mine")
    (root / "bucket" / "notes").mkdir()
    (root / "bucket" / "notes" / "mine.txt").write_text("mine")
    expected = f"expected an artifact or an empty place, got {got}. Save elsewhere."
    assert refusal(lambda: write_folder(uri, write("new"))) == f"{uri}: {expected}"
    assert (root / "bucket" / "notes" / "mine.txt").read_text() == "mine"


def test_a_folder_of_another_kind_is_not_replaced(root: Path) -> None:
    write_folder(URI, write("old"), kind="checkpoint")
    expected = "expected a saved model, got a checkpoint. Give the folder of a model."
    assert refusal(lambda: write_folder(URI, write("new"))) == f"{URI}: {expected}"


@pytest.mark.parametrize("name", ["../../secret", "save-", "", "save-0123456789abcdeg", 5, None])
def test_a_manifest_that_leads_elsewhere_is_refused(root: Path, name: object) -> None:
    write_folder(URI, write("old"))
    path = root / "bucket" / "model" / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "current": name}))
    if name == "":
        got = f"{URI}: expected exactly the files of its manifest, got '{saves(root)[0].name}/a.txt', "
        assert refusal(lambda: read_folder(URI, read_all)).startswith(got)
        return
    got = f"{URI}: expected a 'manifest.json' naming a save below it, got {name!r}. Give a folder that save() wrote."
    assert refusal(lambda: read_folder(URI, read_all)) == got
    assert refusal(lambda: write_folder(URI, write("new"))) == got


def test_damage_in_a_store_is_named(root: Path) -> None:
    write_folder(URI, write("old"))
    (save,) = saves(root)
    (save / "a.txt").write_text("odd")
    got = "expected files as they were written, got 'a.txt' altered or cut short. Save it again."
    assert refusal(lambda: read_folder(URI, read_all)) == f"model: {got}"
    (save / "a.txt").unlink()
    (save / "c.txt").write_text("new")
    got = "expected exactly the files of its manifest, got 'a.txt' missing and 'c.txt' added. Save it again."
    assert refusal(lambda: read_folder(URI, read_all)) == f"{URI}: {got}"


def test_nothing_there_is_refused_by_its_uri(root: Path) -> None:
    expected = "expected a folder with a 'manifest.json', got nothing there. Give a folder that save() wrote."
    for uri in (URI, "store://nobody/model"):
        assert refusal(lambda: read_folder(uri, read_all)) == f"{uri}: {expected}"  # noqa: B023 — called at once


def test_a_store_that_does_not_answer_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("AWS Error NETWORK_CONNECTION")

    monkeypatch.setattr(fs, "copy_files", fail)
    remedy = "Check the URI, the network and the permissions."
    expected = f"expected a store that does what it is asked, got an error: AWS Error NETWORK_CONNECTION. {remedy}"
    assert refusal(lambda: write_folder(URI, write("new"))) == f"{URI}: {expected}"
    assert saves(root) == []


def test_a_folder_moves_from_a_disk_into_a_store_and_back(root: Path, tmp_path: Path) -> None:
    write_folder(tmp_path / "here", write("disk"))
    shutil.copytree(tmp_path / "here", root / "bucket" / "model")
    assert read_folder(URI, read_all) == ["disk", "disk"]
    write_folder(URI, write("store"))
    entries = {path.name for path in (root / "bucket" / "model").iterdir()}
    assert entries == {MANIFEST, "deep", saves(root)[0].name}
    assert not (root / "bucket" / "model" / "a.txt").exists()
    shutil.copytree(root / "bucket" / "model", tmp_path / "back")
    assert read_folder(tmp_path / "back", read_all) == ["store", "store"]
    (save,) = saves(root)
    shutil.rmtree(tmp_path / "back" / save.name)
    (tmp_path / "back" / save.name).symlink_to(save)
    expected = f"expected plain folders, got a link at {save.name!r}. Copy the folder in its place."
    assert refusal(lambda: read_folder(tmp_path / "back", read_all)) == f"back: {expected}"


@posix
def test_a_writer_that_was_killed_leaves_a_whole_folder(root: Path) -> None:
    write_folder(URI, write("o"))
    generator = np.random.default_rng(0)
    for _ in range(15):
        writer = os.fork()
        if not writer:
            try:
                while True:
                    write_folder(URI, write("n"))
            finally:
                os._exit(1)
        time.sleep(generator.uniform(0, 0.05))
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        assert read_folder(URI, read_all) in (["o", "o"], ["n", "n"])
    write_folder(URI, write("o"))
    assert read_folder(URI, read_all) == ["o", "o"]


# --- recommenders and checkpoints ----------------------------------------------------------------------------------


def test_a_recommender_is_saved_loaded_and_inspected_by_uri(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recommender = Recommender(SCHEMA, epochs=2, progress=False).fit(ROWS)
    recommender.save(URI)
    loaded = Recommender.load(URI)
    assert loaded.predict(ROWS).equals(recommender.predict(ROWS))
    loaded.partial_fit(ROWS.assign(user=[7, 8, 9])).save(URI)
    contents = recsys_emb.inspect(URI)
    assert (contents.vocabularies, contents.schema) == ({"user": 5, "item": 2}, SCHEMA)
    assert contents.tensors["vectors.tables.0.weight"] == "F32 (8, 2)"
    assert capsys.readouterr().out == f"{contents}\n"


def test_what_was_loaded_from_a_store_does_not_need_it_any_more(root: Path) -> None:
    recommender = Recommender(SCHEMA, epochs=2, progress=False).fit(ROWS)
    recommender.save(URI)
    loaded = Recommender.load(URI)
    shutil.rmtree(root)
    assert loaded.predict(ROWS).equals(recommender.predict(ROWS))
    assert pickle.loads(pickle.dumps(loaded)).predict(ROWS).equals(recommender.predict(ROWS))


def test_a_file_uri_is_a_folder_of_this_machine(tmp_path: Path) -> None:
    recommender = Recommender(SCHEMA, epochs=2, progress=False).fit(ROWS)
    uri = (tmp_path / "model").as_uri()
    recommender.save(uri)
    assert (tmp_path / "model" / "weights.safetensors").exists()
    assert Recommender.load(uri).predict(ROWS).equals(recommender.predict(ROWS))
    assert Recommender.load(tmp_path / "model").predict(ROWS).equals(recommender.predict(ROWS))


def test_a_fit_goes_on_from_a_checkpoint_in_a_store(root: Path) -> None:
    uri = "store://bucket/run"
    settings = {"epochs": 3, "progress": False}
    plain = Recommender(SCHEMA, **settings).fit(ROWS)
    first = Recommender(SCHEMA, **settings).fit(ROWS, checkpoint=uri)
    assert (root / "bucket" / "run" / MANIFEST).exists()
    again = Recommender(SCHEMA, **settings).fit(ROWS, checkpoint=uri)
    assert first.predict(ROWS).equals(plain.predict(ROWS))
    assert again.predict(ROWS).equals(plain.predict(ROWS))
    got = "expected a checkpoint of this run, got one of another in 'settings'. "
    remedy = "Fit as before to go on, or give an empty folder to start anew."
    other = Recommender(SCHEMA, epochs=4, progress=False)
    assert refusal(lambda: other.fit(ROWS, checkpoint=uri)) == f"{uri}: {got}{remedy}"


def test_a_checkpoint_is_refused_before_training_where_something_else_stands(root: Path) -> None:
    (root / "bucket" / "run").mkdir()
    (root / "bucket" / "run" / "mine.txt").write_text("mine")
    recommender = Recommender(SCHEMA, epochs=1, progress=False)
    expected = "expected a folder with a 'manifest.json', got nothing there. Give a folder that save() wrote."
    uri = "store://bucket/run"
    assert refusal(lambda: recommender.fit(ROWS, checkpoint=uri)) == f"{uri}: {expected}"


# --- paths and URIs that are not what they seem -------------------------------------------------------------------


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    write_folder("~/saved", write("home"))
    assert read_folder(tmp_path / "saved", read_all) == read_folder(Path("~/saved"), read_all) == ["home", "home"]


def test_a_uri_that_lost_a_slash_is_refused() -> None:
    for path in (Path("s3://bucket/model"), "s3:/bucket/model"):
        expected = "expected '://' in a URI, got one slash. Give a URI as text: a Path drops a slash."
        assert refusal(lambda: write_folder(path, write("new"))) == f"s3:/bucket/model: {expected}"  # noqa: B023


def test_a_uri_of_an_unknown_kind_is_refused() -> None:
    got = "got an error: Unrecognized filesystem type in URI: nobody://bucket/model. Check it."
    expected = f"nobody://bucket/model: expected a URI that can be opened, {got}"
    assert refusal(lambda: write_folder("nobody://bucket/model", write("new"))) == expected


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://KEY:hidden@bucket/model?region=us-east-1", "s3://bucket/model"),
        ("s3://KEY:hid/den@bucket/model", "s3://bucket/model"),
        ("s3://bucket/model?secret_key=hidden", "s3://bucket/model"),
        ("abfs://:hidden@account.blob.core.windows.net/model", "abfs://account.blob.core.windows.net/model"),
    ],
)
def test_credentials_in_a_uri_are_refused_and_not_shown(uri: str, shown: str) -> None:
    remedy = "Keep them where the store's own tools look: the environment, a profile or a role."
    expected = f"{shown}: expected a URI without credentials, got some in it. {remedy}"
    assert refusal(lambda: write_folder(uri, write("new"))) == expected
    assert refusal(lambda: Recommender.load(uri)) == expected
