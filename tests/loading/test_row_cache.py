from __future__ import annotations

import errno
import os
import pickle
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.row_encoder import RowEncoder
from recsys_emb.errors import DataError
from recsys_emb.loading import row_cache
from recsys_emb.loading.loader import BatchLoader
from recsys_emb.schema import Categorical, MultiCategorical, Numeric, Schema

ROWS = 40
FRAME = pd.DataFrame(
    {
        "user": np.arange(ROWS) % 7,
        "tags": [[row] * (row % 3) for row in range(ROWS)],
        "sizes": [[row / 2] * (row % 3) for row in range(ROWS)],
        "age": np.where(np.arange(ROWS) % 5, np.arange(ROWS) / 3, np.nan),
        "label": np.arange(ROWS) * 1.0,
        "weight": np.arange(ROWS) / 4,
    }
)
SCHEMA = Schema(
    user=Categorical("user"),
    context_features=[MultiCategorical("tags", weights="sizes"), Numeric("age")],
    label="label",
    weight="weight",
)
ENCODER = FeatureEncoder(SCHEMA).fit(FRAME)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "rows"
    folder.mkdir()
    FRAME.iloc[:15].to_parquet(folder / "a.parquet", row_group_size=6)
    FRAME.iloc[15:].to_parquet(folder / "b.parquet", row_group_size=6)
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "cache"


def loader_of(source: Any, encoder: FeatureEncoder = ENCODER, **options: Any) -> BatchLoader:
    return BatchLoader(encoder, source, **{"batch_size": 6, "shuffle": True, **options})


def seen(loader: BatchLoader) -> list[Any]:
    return [
        (
            batch["user"].tolist(),
            batch.lists("tags").to_lists(),
            batch.lists("tags").weights.tolist(),
            batch["age"].tolist(),
            batch.label.tolist(),
            batch.weight.tolist(),
            dict(batch.limits),
        )
        for batch in loader
    ]


def refuse_to_encode(monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(*arguments: object) -> None:
        assert arguments[1].record.num_rows == 0, "encoded again"
        return original(*arguments)

    original = RowEncoder.encode
    monkeypatch.setattr(RowEncoder, "encode", encode)


def folders(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir())


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_cache_changes_no_batch(source: Path, cache: Path, shuffle: bool) -> None:
    expected = seen(loader_of(source, shuffle=shuffle))
    for _ in range(2):
        loader = loader_of(source, shuffle=shuffle, cache=cache)
        assert seen(loader) == expected
        loader.set_epoch(1)
        assert (seen(loader) != expected) is shuffle


def test_windows_over_a_cache_visit_every_row_once(source: Path, cache: Path) -> None:
    batches = seen(loader_of(source, window=12, cache=cache))
    assert sorted(label for batch in batches for label in batch[4]) == FRAME["label"].tolist()


def test_the_second_loader_encodes_nothing(source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = seen(loader_of(source, cache=cache))
    refuse_to_encode(monkeypatch)
    assert seen(loader_of(source, cache=str(cache))) == expected


def test_changed_files_are_encoded_anew_and_the_old_rows_removed(source: Path, cache: Path) -> None:
    loader_of(source, cache=cache)
    before = folders(cache)
    file = source / "a.parquet"
    FRAME.iloc[:15].assign(user=6).to_parquet(file, row_group_size=6)
    os.utime(file, ns=(1, 10**18))
    assert seen(loader_of(source, cache=cache)) == seen(loader_of(source))
    assert len(folders(cache)) == 1
    assert folders(cache) != before


def test_a_touched_file_is_encoded_anew(source: Path, cache: Path) -> None:
    loader_of(source, cache=cache)
    before = folders(cache)
    os.utime(source / "b.parquet", ns=(1, 10**18))
    loader_of(source, cache=cache)
    assert folders(cache) != before


def test_what_another_fit_learned_makes_rows_out_of_date(source: Path, cache: Path) -> None:
    loader_of(source, cache=cache)
    other = FeatureEncoder(SCHEMA).fit(FRAME.iloc[::-1].assign(user=9 - FRAME["user"]))
    assert seen(loader_of(source, other, cache=cache)) == seen(loader_of(source, other))
    assert len(folders(cache)) == 1


def test_files_and_schemas_share_a_folder(source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = FeatureEncoder(Schema(user=Categorical("user"), label="label")).fit(FRAME)
    loaders = [(source, ENCODER), (source / "a.parquet", ENCODER), (source, bare)]
    for path, encoder in loaders:
        loader_of(path, encoder, cache=cache)
    assert len(folders(cache)) == 3
    refuse_to_encode(monkeypatch)
    for path, encoder in loaders:
        loader_of(path, encoder, cache=cache)


def test_rows_in_memory_are_refused(cache: Path) -> None:
    with pytest.raises(DataError) as caught:
        loader_of(FRAME, cache=cache)
    assert str(caught.value) == (
        "BatchLoader: expected files for cache=, got frame. "
        "Write it to Parquet, or leave cache= out: shuffle=True encodes rows in memory once anyway."
    )


def test_rows_that_are_encoded_are_refused_too(cache: Path) -> None:
    with pytest.raises(DataError) as caught:
        BatchLoader(ENCODER, ENCODER.transform(FRAME), cache=cache)
    assert str(caught.value) == (
        "BatchLoader: expected files for cache=, got a Batch. Leave cache= out: it is encoded."
    )
    assert not cache.exists()


CONTENTS = ["{", "null", "[]", "{}", '{"arrays": []}', '{"arrays": {"cells": 3}}', '{"arrays": {"cells": [1, [], {}]}}']


@pytest.mark.parametrize("damage", ["short", "absent", "other bytes", "zeros", *CONTENTS])
def test_damaged_rows_are_encoded_anew(source: Path, cache: Path, damage: str) -> None:
    expected = seen(loader_of(source, cache=cache))
    (place,) = cache.iterdir()
    if damage == "short":
        (place / "cells").write_bytes(b"1234")
    elif damage == "absent":
        (place / "0.values").unlink()
    elif damage in CONTENTS:
        (place / "content.json").write_text(damage)
    else:
        content = bytearray((place / "cells").read_bytes())
        content[8:12] = b"\xff\xff\xff\x7f" if damage == "other bytes" else bytes(4)
        (place / "cells").write_bytes(content)
    assert seen(loader_of(source, cache=cache)) == expected
    assert len(folders(cache)) == 1


def test_rows_that_cannot_be_read_just_now_are_kept(source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, before = seen(loader_of(source, cache=cache)), folders(cache)

    def refuse(*_: object, verify: bool) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(row_cache, "_map", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        seen(loader_of(source, cache=cache))
    assert folders(cache) == before
    monkeypatch.undo()
    refuse_to_encode(monkeypatch)
    assert seen(loader_of(source, cache=cache)) == expected


def test_rows_that_cannot_be_encoded_leave_nothing_behind(source: Path, cache: Path) -> None:
    FRAME.iloc[:15].assign(label=np.nan).to_parquet(source / "a.parquet")
    with pytest.raises(DataError, match="expected finite"):
        loader_of(source, cache=cache)
    assert folders(cache) == []


def test_a_file_that_changes_while_it_is_encoded_is_noticed(
    source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*arguments: Any) -> None:
        original(*arguments)
        os.utime(source / "b.parquet", ns=(1, 10**18))

    original = row_cache._write
    monkeypatch.setattr(row_cache, "_write", write)
    with pytest.raises(DataError) as caught:
        loader_of(source, cache=cache)
    assert str(caught.value) == (
        "BatchLoader: expected files that stay as they are, got changes. Make the loader anew."
    )


def test_loaders_that_start_at_once_agree(source: Path, cache: Path) -> None:
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(seen(loader_of(source, cache=cache)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [seen(loader_of(source))] * 4
    assert len(folders(cache)) == 1


def test_the_rows_of_who_was_first_are_kept(source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(folder: Path, batches: Any) -> None:
        original(folder, batches)
        monkeypatch.setattr(row_cache, "_write", original)
        first.append(loader_of(source, cache=cache))

    first: list[BatchLoader] = []
    original = row_cache._write
    monkeypatch.setattr(row_cache, "_write", write)
    assert seen(loader_of(source, cache=cache)) == seen(first[0])
    assert len(folders(cache)) == 1


def test_rows_that_another_encoder_removes_are_missed(
    source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Path.rename
    monkeypatch.setattr(Path, "rename", lambda old, new: shutil.rmtree(original(old, new)))
    with pytest.raises(DataError) as caught:
        loader_of(source, cache=cache)
    assert str(caught.value) == (
        f"BatchLoader: expected the rows to stay in {cache}, got them removed by a loader with another encoder. "
        "Give every encoder a folder of its own."
    )


def test_a_loader_travels_without_its_rows(source: Path, cache: Path) -> None:
    loader = loader_of(source, cache=cache)
    travelled = pickle.dumps(loader._rows)
    assert len(travelled) < 3000
    assert seen(loader) == seen(pickle.loads(pickle.dumps(loader)))
    assert len(pickle.loads(travelled)) == ROWS


def test_a_loader_that_travelled_misses_rows_that_are_gone(source: Path, cache: Path) -> None:
    travelled = pickle.dumps(loader_of(source, cache=cache))
    (place,) = cache.iterdir()
    shutil.rmtree(place)
    with pytest.raises(DataError) as caught:
        pickle.loads(travelled)
    assert str(caught.value) == (
        f"BatchLoader: expected the rows of its cache in {place}, got none that are whole. Make the loader anew."
    )


def test_a_cache_that_is_no_folder_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        loader_of(source, cache=5)
    assert str(caught.value) == "BatchLoader: cache: expected a path, got 5. Give a text or a Path."
    file = source / "a.parquet"
    with pytest.raises(DataError) as caught:
        loader_of(source, cache=file)
    assert str(caught.value) == (f"BatchLoader: expected a folder for cache=, got a file: {file}. Give another name.")
    with pytest.raises(DataError, match=r"^\S+/a\.parquet/within: expected a folder for cache=, got an error: "):
        loader_of(source, cache=file / "within")


def test_rows_reach_the_disk_before_their_name(source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events, fsync, rename = [], os.fsync, Path.rename
    monkeypatch.setattr(os, "fsync", lambda file: (events.append("fsync"), fsync(file)))
    monkeypatch.setattr(Path, "rename", lambda self, to: (events.append("rename"), rename(self, to))[1])
    loader_of(source, cache=cache)
    files = len(list(next(cache.iterdir()).iterdir()))
    assert events == ["fsync"] * files + ["rename"]


def test_no_rows_are_kept_too(tmp_path: Path, cache: Path) -> None:
    FRAME.iloc[:0].astype({"tags": object}).to_parquet(tmp_path / "none.parquet")
    for _ in range(2):
        assert seen(loader_of(tmp_path / "none.parquet", cache=cache)) == []


def test_rows_of_the_cache_cannot_be_written_to(source: Path, cache: Path) -> None:
    store = loader_of(source, cache=cache)._rows._rows
    assert not store.cells.flags.writeable
