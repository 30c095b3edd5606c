"""Saving is one step for whoever reads, whatever happens to whoever writes."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import recsys_emb.artifact.swapping as swapping_module
from recsys_emb.artifact.folder import read_folder, write_folder
from recsys_emb.errors import ArtifactError
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, Schema

SCHEMA = Schema(user=Categorical("user"), item=Categorical("item"), label="stars", embedding_dim=4)
posix = pytest.mark.skipif(os.name != "posix", reason="kills processes")


def rows(seed: int) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    columns = {name: generator.integers(0, 30, 200) for name in ("user", "item")}
    return pd.DataFrame({**columns, "stars": generator.integers(1, 6, 200)})


def fitted(seed: int) -> Recommender:
    return Recommender(SCHEMA, epochs=2, progress=False).fit(rows(seed))


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_everything_is_on_the_disk_before_the_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("looks behind file handles")
    flushed: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def note_flush(handle: int) -> None:
        flushed.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        fsync(handle)

    def note_rename(self: Path, target: Path) -> Path:
        flushed.append("renamed")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", note_flush)
    monkeypatch.setattr(Path, "rename", note_rename)
    fitted(0).save(tmp_path / "model")
    before = flushed[: flushed.index("renamed")]
    names = {Path(path).name for path in before}
    assert {"manifest.json", "weights.safetensors", "memory.safetensors", "schema.json", "000.parquet"} <= names
    assert any(Path(path).name == "vocabularies" for path in before)
    assert flushed[-1] == str(tmp_path)


@posix
@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_a_disk_that_fills_leaves_the_old_model(tmp_path: Path, share: float) -> None:
    import resource

    old, new = fitted(0), fitted(1)
    old.save(tmp_path / "model")
    limit = int(share * max(path.stat().st_size for path in (tmp_path / "model").rglob("*") if path.is_file()))
    child = os.fork()
    if not child:
        # Files may not grow beyond the limit, in this process alone.
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            new.save(tmp_path / "model")
        except OSError:
            os._exit(7)
        os._exit(0)
    assert exit_code(child) == 7
    assert Recommender.load(tmp_path / "model").predict(rows(0)).equals(old.predict(rows(0)))
    assert leftovers(tmp_path) == []


def test_a_disk_that_is_full_when_it_is_flushed_leaves_the_old_model(tmp_path: Path, monkeypatch) -> None:
    old = fitted(0)
    old.save(tmp_path / "model")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        fitted(1).save(tmp_path / "model")
    assert Recommender.load(tmp_path / "model").predict(rows(0)).equals(old.predict(rows(0)))
    assert leftovers(tmp_path) == []


def started(folder: Path, letter: str, times: int) -> int:
    """Let another process write a folder again and again; it starts where this one stands."""
    child = os.fork()
    if child:
        return child

    def write(inside: Path) -> None:
        for number in range(4):
            (inside / f"{number}.txt").write_text(letter * 1000)

    code = 1
    try:
        for _ in range(times):
            write_folder(folder, write)
        code = 0
    finally:
        os._exit(code)


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def letters(folder: Path) -> set[str]:
    return {letter for number in range(4) for letter in (folder / f"{number}.txt").read_text()}


@posix
def test_two_processes_that_save_at_once_leave_one_whole_folder(tmp_path: Path) -> None:
    writers = [started(tmp_path / "x", letter, 100) for letter in "ab"]
    codes: dict[int, int] = {}
    seen: set[str] = set()
    while len(codes) < len(writers):
        ended = [os.waitpid(child, os.WNOHANG) for child in writers if child not in codes]
        codes |= {child: os.waitstatus_to_exitcode(status) for child, status in ended if child}
        with contextlib.suppress(ArtifactError):  # nothing there yet, or never at rest
            found = read_folder(tmp_path / "x", letters)
            assert len(found) == 1
            seen |= found
    assert list(codes.values()) == [0, 0]
    assert seen
    assert read_folder(tmp_path / "x", letters) in ({"a"}, {"b"})
    assert leftovers(tmp_path) == []


@posix
def test_a_writer_that_was_killed_leaves_a_whole_folder_and_the_next_one_clears_up(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        for number in range(4):
            (folder / f"{number}.txt").write_text("old")

    write_folder(tmp_path / "x", write)
    generator = np.random.default_rng(0)
    for _ in range(40):
        writer = started(tmp_path / "x", "n", 10**6)
        time.sleep(generator.uniform(0, 0.03))
        os.kill(writer, signal.SIGKILL)
        assert exit_code(writer) == -signal.SIGKILL
        assert read_folder(tmp_path / "x", letters) in ({"o", "l", "d"}, {"n"})
    write_folder(tmp_path / "x", write)
    assert leftovers(tmp_path) == []


@posix
def test_a_folder_that_a_living_writer_is_filling_is_not_cleared_away(tmp_path: Path) -> None:
    def write_inside(folder: Path) -> None:
        (folder / "a").write_text("outer")
        write_folder(tmp_path / "x", lambda inner: (inner / "a").write_text("inner"))
        assert (folder / "a").read_text() == "outer"

    write_folder(tmp_path / "x", write_inside)
    assert read_folder(tmp_path / "x", lambda folder: (folder / "a").read_text()) == "outer"
    assert leftovers(tmp_path) == []


def test_folders_that_only_look_like_leftovers_stay(tmp_path: Path) -> None:
    for name in (".x.backup", ".y.0123456789abcdef", ".x.0123456789abcdef.old"):
        (tmp_path / name).mkdir()
    (tmp_path / ".x.0123456789abcdee").write_text("a file")
    swapping_module._clear_leftovers(tmp_path / "x")
    assert len(leftovers(tmp_path)) == 4


@posix
def test_an_earlier_folder_that_was_moved_aside_is_cleared_once_there_is_a_new_one(tmp_path: Path) -> None:
    (tmp_path / ".x.0123456789abcdef.old").mkdir()
    (tmp_path / "x").mkdir()
    swapping_module._clear_leftovers(tmp_path / "x")
    assert leftovers(tmp_path) == []
