from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_emb.encoding import encoder as encoder_room
from recsys_emb.encoding.encoded_folder import EncodedRows
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.engines.local import Local
from recsys_emb.errors import DataError
from recsys_emb.loading.loader import BatchLoader
from recsys_emb.schema import Categorical, Schema
from recsys_emb.sources.sources import Source, open_source

CHANGED = (
    "rows.parquet: expected the file that was opened, got one of another size or time of change. "
    "The source has changed. Open it anew."
)


def write(path: Path, rows: int, group: int) -> None:
    pq.write_table(pa.table({"user": np.arange(rows)}), path, row_group_size=group)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write(tmp_path / "rows.parquet", 100, 10)
    return tmp_path / "rows.parquet"


@pytest.fixture
def encoder() -> FeatureEncoder:
    return FeatureEncoder(Schema(user=Categorical("user"))).fit({"user": np.arange(100)})


@pytest.mark.parametrize("shape", [(60, 5), (60, 20), (100, 10)])
@pytest.mark.parametrize("verb", ["transform_to", "fit", "fit on an engine"])
def test_a_file_that_is_replaced_after_it_was_opened_is_refused(
    verb: str, shape: tuple[int, int], file: Path, encoder: FeatureEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replaced(source: object, types: object) -> Source:
        opened = open_source(source)
        write(file, *shape)
        os.utime(file, ns=(1, 1))
        return opened

    monkeypatch.setattr(encoder_room, "open_source", replaced)
    verbs: dict[str, Callable[[], object]] = {
        "transform_to": lambda: encoder.transform_to(file, file.parent / "out", engine=Local(2)),
        "fit": lambda: FeatureEncoder(encoder.schema).fit(file),
        "fit on an engine": lambda: FeatureEncoder(encoder.schema).fit(file, engine=Local(2)),
    }
    with pytest.raises(DataError) as caught:
        verbs[verb]()
    assert str(caught.value) == CHANGED


def test_a_file_that_is_replaced_while_the_last_piece_is_encoded_is_refused(
    file: Path, encoder: FeatureEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gather = Local.gather

    def late(self: Local, handles: list[object]) -> object:
        yield from gather(self, handles)
        os.utime(file, ns=(1, 1))

    monkeypatch.setattr(Local, "gather", late)
    for verb in (
        lambda: encoder.transform_to(file, tmp_path / "out"),
        lambda: FeatureEncoder(encoder.schema).fit(file, engine=Local(1)),
    ):
        write(file, 100, 10)
        with pytest.raises(DataError) as caught:
            verb()
        assert str(caught.value) == CHANGED
    with pytest.raises(DataError, match="one that is not finished"):
        EncodedRows(tmp_path / "out")


@pytest.mark.parametrize("options", [{}, {"shuffle": True, "window": 16}])
@pytest.mark.parametrize("rows", [60, 120])
def test_an_epoch_over_a_file_that_was_replaced_is_refused(
    rows: int, options: dict[str, int], file: Path, encoder: FeatureEncoder
) -> None:
    loader = BatchLoader(encoder, file, batch_size=7, **options)
    assert sum(map(len, loader)) == 100
    write(file, rows, 10)
    with pytest.raises(DataError) as caught:
        list(loader)
    assert str(caught.value) == CHANGED


@pytest.mark.parametrize("users", [range(100, 0, -1), range(60)])
def test_encoded_rows_do_not_read_what_was_written_over_them(
    users: range, encoder: FeatureEncoder, tmp_path: Path
) -> None:
    rows = encoder.transform_to({"user": list(range(1, 101))}, tmp_path / "out")
    encoder.transform_to({"user": list(users)}, tmp_path / "out")
    for use in (lambda: rows.read(encoder), lambda: BatchLoader(encoder, rows), lambda: rows.source):
        with pytest.raises(DataError) as caught:
            use()
        assert str(caught.value) == (
            f"{tmp_path / 'out'}: expected the rows that were opened, got others. The folder has changed. "
            "Open it anew: EncodedRows(folder)."
        )


def test_encoded_rows_that_were_written_again_as_they_were_are_read(encoder: FeatureEncoder, tmp_path: Path) -> None:
    rows = encoder.transform_to({"user": [1, 2]}, tmp_path / "out")
    encoder.transform_to({"user": [1, 2]}, tmp_path / "out")
    assert rows.read(encoder)["user"].tolist() == [4, 5]


def test_two_runs_may_write_the_same_rows_to_a_folder_at_the_same_time(
    file: Path, encoder: FeatureEncoder, tmp_path: Path
) -> None:
    def run(_: int) -> EncodedRows:
        return encoder.transform_to(file, tmp_path / "out", engine=Local(2))

    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(run, range(12)))
    expected = encoder.transform(file)["user"].tolist()
    assert [rows.read(encoder)["user"].tolist() for rows in runs] == [expected] * 12
    assert len(list((tmp_path / "out").iterdir())) == 11
