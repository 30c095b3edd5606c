"""The sealed folder: whole or not at all."""

from __future__ import annotations

import hashlib
import json
import pickle
import threading
from pathlib import Path

import pytest

import recsys_emb.artifact.swapping as swapping_module
from recsys_emb._version import __version__
from recsys_emb.artifact.folder import read_folder, write_folder
from recsys_emb.artifact.manifest import FORMAT_VERSION, MANIFEST, read_json
from recsys_emb.errors import ArtifactError


def write(text: str, names: tuple[str, ...] = ("a.txt", "deep/b.txt")):
    def writer(folder: Path) -> None:
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)

    return writer


def read_all(folder: Path) -> list[str]:
    return [(folder / name).read_text() for name in ("a.txt", "deep/b.txt")]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    write_folder(tmp_path / "saved", write("old"))
    return tmp_path / "saved"


def change_manifest(saved: Path, **changes: object) -> None:
    manifest = json.loads((saved / MANIFEST).read_text())
    (saved / MANIFEST).write_text(json.dumps({**manifest, **changes}))


def refusal(saved: Path) -> str:
    with pytest.raises(ArtifactError) as caught:
        read_folder(saved, read_all)
    return str(caught.value)


def test_what_was_written_is_read(saved: Path) -> None:
    assert read_folder(saved, read_all) == ["old", "old"]
    assert sorted(path.name for path in saved.iterdir()) == ["a.txt", "deep", MANIFEST]


def test_the_manifest_names_versions_and_every_file(saved: Path) -> None:
    manifest = json.loads((saved / MANIFEST).read_text())
    described = {"sha256": hashlib.sha256(b"old").hexdigest(), "bytes": 3}
    assert (manifest["format_version"], manifest["library_version"]) == (FORMAT_VERSION, __version__)
    assert manifest["files"] == {"a.txt": described, "deep/b.txt": described}


def test_an_earlier_artifact_is_replaced_and_nothing_is_left_beside_it(saved: Path) -> None:
    write_folder(saved, write("new"))
    assert read_folder(saved, read_all) == ["new", "new"]
    assert [path.name for path in saved.parent.iterdir()] == ["saved"]


def test_an_earlier_artifact_is_replaced_where_folders_cannot_be_swapped(saved: Path, monkeypatch) -> None:
    monkeypatch.setattr(swapping_module, "_exchange", lambda *_: False)
    write_folder(saved, write("new"))
    assert read_folder(saved, read_all) == ["new", "new"]
    assert [path.name for path in saved.parent.iterdir()] == ["saved"]


def test_an_empty_folder_may_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write_folder(tmp_path / "empty", write("new"))
    assert read_folder(tmp_path / "empty", read_all) == ["new", "new"]


def test_missing_parents_are_made(tmp_path: Path) -> None:
    write_folder(tmp_path / "one" / "two", write("new"))
    assert read_folder(tmp_path / "one" / "two", read_all) == ["new", "new"]


def test_a_failed_write_leaves_the_earlier_artifact_and_nothing_else(saved: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "a.txt").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_folder(saved, fail)
    assert read_folder(saved, read_all) == ["old", "old"]
    assert [path.name for path in saved.parent.iterdir()] == ["saved"]


def test_a_folder_of_something_else_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ArtifactError) as caught:
        write_folder(tmp_path, write("new"))
    expected = "expected an artifact or an empty place, got something else. Save elsewhere."
    assert str(caught.value) == f"{tmp_path.name}: {expected}"
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_file_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("mine")
    with pytest.raises(ArtifactError) as caught:
        write_folder(tmp_path / "model", write("new"))
    assert str(caught.value) == "model: expected an artifact or an empty place, got something else. Save elsewhere."
    assert (tmp_path / "model").read_text() == "mine"


def test_a_strangers_file_in_an_earlier_artifact_is_not_deleted(saved: Path) -> None:
    (saved / "notes.txt").write_text("mine")
    with pytest.raises(ArtifactError) as caught:
        write_folder(saved, write("new"))
    expected = "expected only the artifact's own files, got 'notes.txt' too. Move them away first."
    assert str(caught.value) == f"saved: {expected}"
    assert (saved / "notes.txt").read_text() == "mine"


def test_nothing_there_is_refused(tmp_path: Path) -> None:
    expected = "expected a folder with a 'manifest.json', got nothing there. Give a folder that save() wrote."
    assert refusal(tmp_path / "absent") == f"absent: {expected}"


def test_a_file_or_a_folder_without_manifest_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    remedy = "Give a folder that save() wrote."
    assert refusal(tmp_path / "file") == f"file: expected a folder with a 'manifest.json', got a file. {remedy}"
    got = "a folder without it"
    assert refusal(tmp_path / "folder") == f"folder: expected a folder with a 'manifest.json', got {got}. {remedy}"


def test_a_newer_format_is_refused_with_both_versions(saved: Path) -> None:
    change_manifest(saved, format_version=FORMAT_VERSION + 1, library_version="9.9")
    assert refusal(saved) == (
        f"saved: expected format version {FORMAT_VERSION} or older, got {FORMAT_VERSION + 1}, written by a newer "
        f"version of recsys_emb: 9.9. This is {__version__}; upgrade it."
    )


def test_a_manifest_of_something_else_is_refused(saved: Path) -> None:
    change_manifest(saved, format="other")
    expected = "expected a 'manifest.json' of format 'recsys_emb', got 'other'. Give a folder that save() wrote."
    assert refusal(saved) == f"saved: {expected}"


@pytest.mark.parametrize("version", ["1", 1.0, True, None])
def test_a_version_that_is_no_integer_is_shown(saved: Path, version: object) -> None:
    change_manifest(saved, format_version=version)
    expected = f"expected an integer format_version, got {version!r}. Give a folder that save() wrote."
    assert refusal(saved) == f"saved: {expected}"


@pytest.mark.parametrize("path", [None, 5, "a\0b", b"bytes"])
def test_what_is_no_path_is_refused(path: object) -> None:
    expected = f"artifact: expected the path of a folder, got {path!r}. Give a name or a Path."
    for act in (lambda: write_folder(path, lambda _: None), lambda: read_folder(path, lambda _: None)):
        with pytest.raises(ArtifactError) as caught:
            act()
        assert str(caught.value) == expected


def test_a_disk_is_refused_without_being_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    def walked(*_: object) -> None:
        raise AssertionError("walked")

    monkeypatch.setattr(Path, "rglob", walked)
    with pytest.raises(ArtifactError) as caught:
        write_folder("/", lambda _: None)
    assert str(caught.value) == "/: expected an artifact or an empty place, got something else. Save elsewhere."


def test_a_missing_file_is_named(saved: Path) -> None:
    (saved / "a.txt").unlink()
    assert refusal(saved) == "saved: expected exactly the files of its manifest, got 'a.txt' missing. Save it again."


def test_an_added_file_is_named(saved: Path) -> None:
    (saved / "c.txt").write_text("x")
    (saved / "deep" / "b.txt").unlink()
    got = "'deep/b.txt' missing and 'c.txt' added"
    assert refusal(saved) == f"saved: expected exactly the files of its manifest, got {got}. Save it again."


@pytest.mark.parametrize("name", [".DS_Store", "deep/Thumbs.db", "._a.txt", "desktop.ini"])
def test_what_an_operating_system_leaves_in_a_folder_is_overlooked_and_goes_with_it(saved: Path, name: str) -> None:
    (saved / name).write_text("litter")
    assert read_folder(saved, read_all) == ["old", "old"]
    write_folder(saved, write("new"))
    assert read_folder(saved, read_all) == ["new", "new"]
    assert not (saved / name).exists()


@pytest.mark.parametrize("name", [".hidden", "deep/DS_Store", ".DS_Store.txt"])
def test_a_file_that_only_looks_like_litter_is_refused(saved: Path, name: str) -> None:
    (saved / name).write_text("mine")
    got = f"{name!r} added"
    assert refusal(saved) == f"saved: expected exactly the files of its manifest, got {got}. Save it again."


@pytest.mark.parametrize("content", ["ol", "odd", "old and more"])
def test_an_altered_file_is_named(saved: Path, content: str) -> None:
    (saved / "a.txt").write_text(content)
    got = "'a.txt' altered or cut short"
    assert refusal(saved) == f"saved: expected files as they were written, got {got}. Save it again."


def test_a_link_is_refused_even_when_it_leads_to_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    (saved / "a.txt").rename(tmp_path / "elsewhere.txt")
    (saved / "a.txt").symlink_to(tmp_path / "elsewhere.txt")
    expected = "expected plain files, got a link or device at 'a.txt'. Copy the file in its place."
    assert refusal(saved) == f"saved: {expected}"


@pytest.mark.parametrize("name", ["../secret.txt", "/etc/passwd", "deep/../../secret.txt", "a\\..\\b", "C:b", ".", ""])
def test_a_name_that_leads_outside_is_refused(saved: Path, name: str) -> None:
    change_manifest(saved, files={name: {"sha256": "", "bytes": 0}})
    expected = f"expected a 'manifest.json' naming files inside the folder, got {name!r}. "
    assert refusal(saved) == f"saved: {expected}Give a folder that save() wrote."


def test_files_that_are_no_mapping_are_refused(saved: Path) -> None:
    change_manifest(saved, files=None)
    expected = "expected a 'manifest.json' naming files inside the folder, got None. Give a folder that save() wrote."
    assert refusal(saved) == f"saved: {expected}"


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"a": Infinity}', pickle.dumps({})], ids=range(6)
)
def test_what_is_no_json_object_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(ArtifactError) as caught:
        read_json(tmp_path / "x.json")
    assert str(caught.value) == "x.json: expected a JSON object, got something else. Save the artifact again."


def test_a_reader_that_was_overtaken_by_a_writer_reads_again(saved: Path) -> None:
    answers: list[list[str]] = []

    def read_slowly(folder: Path) -> list[str]:
        if not answers:
            answers.append(read_all(folder))
            write_folder(saved, write("new"))
        return read_all(folder)

    assert read_folder(saved, read_slowly) == ["new", "new"]


def test_a_reader_gives_up_when_the_folder_never_rests(saved: Path) -> None:
    with pytest.raises(ArtifactError) as caught:
        read_folder(saved, lambda _: write_folder(saved, write("new")))
    expected = "expected a folder at rest, got one replaced 5 times while reading. Load it again."
    assert str(caught.value) == f"saved: {expected}"


def test_readers_beside_a_writer_see_one_version_or_the_other(saved: Path) -> None:
    stop = threading.Event()

    def keep_writing() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            write_folder(saved, write(str(number)))
            stop.wait(0.02)

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        seen = [read_folder(saved, read_all) for _ in range(50)]
    finally:
        stop.set()
        writer.join()
    assert all(first == second for first, second in seen)


def test_a_folder_moved_aside_returns_when_the_new_one_cannot_take_its_name(tmp_path: Path, monkeypatch) -> None:
    write_folder(tmp_path / "saved", write("old"))
    monkeypatch.setattr(swapping_module, "_exchange", lambda *_: False)
    rename = Path.rename

    def refuse_the_second(self: Path, target: Path) -> Path:
        if target.name == "saved" and not self.name.endswith(".old"):
            raise PermissionError(1, "no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse_the_second)
    with pytest.raises(PermissionError):
        write_folder(tmp_path / "saved", write("new"))
    monkeypatch.undo()
    assert read_folder(tmp_path / "saved", read_all) == ["old", "old"]
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
