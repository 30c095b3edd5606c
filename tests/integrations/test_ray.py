"""What Ray's workers make of rows, also when some of them are killed, is what threads of one process make of them.

Ray listens on every network interface, so this runs where there is only the loopback: ``make test-ray``.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.engine_transform import Shipment
from recsys_emb.errors import DataError, EngineError, KeyTypeError
from recsys_emb.integrations.ray import Ray
from recsys_emb.schema import Categorical, MultiCategorical, Numeric, Position, Schema
from recsys_emb.sources.parts import Blocks
from recsys_emb.sources.sources import Source, open_source
from recsys_emb.sources.writing import UNFINISHED
from recsys_emb.vocabulary.partitioned import PartitionedVocabulary
from recsys_emb.vocabulary.spilling import Spill
from recsys_emb.vocabulary.vocabulary import Vocabulary

ray = pytest.importorskip("ray")
if {name for _, name in socket.if_nameindex()} != {"lo"}:
    pytest.skip("Ray listens on every network interface; run make test-ray", allow_module_level=True)
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

STORE = 80 * 2**20  # hardly more than the least that Ray allows
ROWS = 200_000
SCHEMA = Schema(
    user=Categorical("user"),
    item=Categorical("item", min_count=2),
    position=Position("slot", max_position=20),
    user_features=[Numeric("age"), MultiCategorical("recent", vocabulary="item", max_length=2)],
    context_features=[Categorical("country", max_size=10)],
    label="rating",
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Ray]:
    # Paths of sockets may not be long.
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")
    os.environ.update(RAY_TMPDIR=folder, RAY_AUTH_MODE="disabled")
    with Ray(workers=2, object_store_memory=STORE) as started:
        yield started
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    users = rng.integers(-(2**62), 2**62, ROWS // 3)[rng.zipf(1.2, ROWS) % (ROWS // 3)]
    items = pd.Series(rng.zipf(1.3, ROWS) % 30_000).astype(str).radd("item ")
    frame = pd.DataFrame({"user": users, "item": items, "slot": rng.integers(0, 25, ROWS)})
    frame["age"] = rng.normal(size=ROWS) * 10.0 ** rng.integers(-9, 9, ROWS)
    frame["recent"] = [[one, other, one] for one, other in zip(items, items[::-1], strict=True)]
    frame["country"] = pd.Categorical.from_codes(rng.zipf(1.5, ROWS) % 30, [f"c{one}" for one in range(30)])
    frame["rating"] = rng.random(ROWS)
    for number in range(3):
        frame.iloc[number::3].to_parquet(folder / f"{number}.parquet", row_group_size=30_000, index=False)
    return folder


@pytest.fixture(scope="module")
def encoder(files: Path) -> FeatureEncoder:
    return FeatureEncoder(SCHEMA).fit(files)


def learned(encoder: FeatureEncoder) -> Any:
    state = encoder.to_state()
    tables = {name: one.to_table() for name, one in state.vocabularies.items()}
    streams = {name: (one.schema, [column.to_pylist() for column in one.columns]) for name, one in tables.items()}
    return state.fingerprint, streams, state.statistics


def content(folder: Path) -> dict[str, bytes]:
    whole = [path for path in folder.iterdir() if not path.name.endswith(UNFINISHED)]  # but for what the dead left
    return {path.name: path.read_bytes() for path in whole}


class KillsOnce:
    """Reads blocks of a part, and once kills the process that it is in, amid the rows."""

    def __init__(self, blocks: Blocks, marker: Path, times: int = 1) -> None:
        self.blocks, self.marker, self.times = blocks, marker, times

    def __call__(self, names: Sequence[str], number: int) -> Iterator[pa.RecordBatch]:
        for place, record in enumerate(self.blocks.read(names, number)):
            if number == 1 and not place:
                yield record.slice(0, 100)
                self.maybe_die()
                yield record.slice(100)
            else:
                yield record

    def maybe_die(self) -> None:
        deaths = self.marker.read_text() if self.marker.exists() else ""
        if len(deaths) < self.times:
            self.marker.write_text(deaths + "x")
            os.kill(os.getpid(), signal.SIGKILL)


def deadly(files: Path, marker: Path, times: int = 1) -> Source:
    """The files, of which one kills a worker."""
    first, *others = open_source(files).parts
    assert first.blocks is not None
    blocks = replace(first.blocks, read=KillsOnce(first.blocks, marker, times))
    return Source((replace(first, blocks=blocks), *others))


def test_workers_learn_what_one_process_does(engine: Ray, files: Path, encoder: FeatureEncoder) -> None:
    expected = learned(encoder)
    assert learned(FeatureEncoder(SCHEMA).fit(files, engine=engine)) == expected
    backwards = [str(path) for path in sorted(files.iterdir(), reverse=True)]
    assert learned(FeatureEncoder(SCHEMA).fit(backwards, engine=engine)) == expected


def test_rows_in_memory_travel_to_the_workers(engine: Ray, files: Path, encoder: FeatureEncoder) -> None:
    frame = pd.read_parquet(files)
    assert learned(FeatureEncoder(SCHEMA).fit(frame, engine=engine)) == learned(encoder)


def test_workers_write_the_files_that_threads_write(
    engine: Ray, files: Path, encoder: FeatureEncoder, tmp_path: Path
) -> None:
    encoder.transform_to(files, tmp_path / "threads")
    written = encoder.transform_to(files, tmp_path / "workers", engine=engine)
    assert len(written) == ROWS
    assert content(tmp_path / "workers") == content(tmp_path / "threads")


def test_a_worker_that_is_killed_changes_nothing(
    engine: Ray, files: Path, encoder: FeatureEncoder, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    assert learned(FeatureEncoder(SCHEMA).fit(deadly(files, marker), engine=engine)) == learned(encoder)
    assert marker.read_text() == "x"
    marker.unlink()
    encoder.transform_to(deadly(files, marker), tmp_path / "killed", engine=engine)
    assert marker.read_text() == "x"
    encoder.transform_to(deadly(files, marker), tmp_path / "threads")
    assert content(tmp_path / "killed") == content(tmp_path / "threads")


def test_workers_that_are_always_killed_are_reported_with_the_rows_that_they_read(
    engine: Ray, files: Path, tmp_path: Path
) -> None:
    source = deadly(files, tmp_path / "marker", times=9)
    with pytest.raises(EngineError) as caught:
        FeatureEncoder(SCHEMA).fit(source, engine=Ray(retries=0))
    assert str(caught.value).startswith(
        "Ray: fit 0.parquet, row group 1: expected a worker to finish, got WorkerCrashedError after 0 retries: "
    )
    assert ray.is_initialized()


def test_an_error_of_a_worker_is_raised_as_it_is_here(engine: Ray, files: Path, tmp_path: Path) -> None:
    schema = Schema(user=Categorical("recent"))
    with pytest.raises(KeyTypeError) as caught:
        FeatureEncoder(schema).fit(files, engine=engine)
    assert str(caught.value).startswith("0.parquet, row group 0: recent: expected flat keys, got list<")
    rows = pa.table({"age": [1.0] * 5 + [np.inf]})
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=2)
    with pytest.raises(DataError) as refused:
        FeatureEncoder(Schema(context_features=[Numeric("age")])).fit(tmp_path, engine=engine)
    assert str(refused.value) == (
        "rows.parquet, row group 2: age: expected finite numbers, got infinity in 1 row (first: row 5). "
        "Correct or drop such rows."
    )


def divided(number: int, by: int) -> float:
    return number / by


def waited(marker: Path) -> None:
    marker.touch()
    for _ in range(6000):
        time.sleep(0.1)


def test_what_is_not_done_is_called_off_when_the_caller_stops(engine: Ray, tmp_path: Path) -> None:
    handles = [engine.submit(divided, 7, 2)[0], *(engine.submit(waited, tmp_path / str(one))[0] for one in range(3))]
    values = engine.gather(handles)
    assert next(values) == 3.5
    while len(list(tmp_path.iterdir())) < engine.workers:
        time.sleep(0.1)
    values.close()
    for handle in handles[1:]:
        with pytest.raises(ray.exceptions.TaskCancelledError):
            ray.get(handle.reference, timeout=60)


def test_an_error_that_is_nobodys_own_is_not_its_own_cause(engine: Ray) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        list(engine.gather(engine.submit(divided, 1, 0)))
    assert caught.value.__cause__ is not caught.value


def sharing_of(shipment: Shipment) -> dict[str, bool]:
    """Whether the values and the table of each vocabulary lie in memory that processes share."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    spans = [(*(int(end, 16) for end in line[0].split("-")), line[1]) for line in lines]

    def is_shared(address: int) -> bool:
        return any(first <= address < last and kind.endswith("s") for first, last, kind in spans)

    found = {}
    for name, vocabulary in shipment.state.vocabularies.items():
        found[name] = is_shared(vocabulary.values.buffers()[-1].address)
        for table in vocabulary.index._tables.values():
            own = [one for one in vars(table).values() if isinstance(one, np.ndarray)]
            found[name] &= all(is_shared(one.ctypes.data) for one in own)
    return found


def test_the_encoder_lies_in_shared_memory_with_its_tables(engine: Ray, encoder: FeatureEncoder) -> None:
    shipment = engine.put(Shipment(encoder.to_state()))
    (found,) = engine.gather(engine.submit(sharing_of, shipment))
    assert found == {"user": True, "item": True, "country": True}


def test_what_does_not_fit_into_shared_memory_is_spilled(engine: Ray) -> None:
    rng = np.random.default_rng(1)
    numbers = rng.permutation(400_000)
    texts = pa.array([f"{one:0200}" for one in numbers.tolist()])
    rows = pa.table({"user": numbers, "item": texts})
    schema = Schema(user=Categorical("user"), item=Categorical("item"))
    spilled, done = set(), threading.Event()

    def watch() -> None:
        while not done.wait(0.1):
            spilled.update(Path(os.environ["RAY_TMPDIR"]).glob("ray/session_*/ray_spilled_objects*/*"))

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        fitted = FeatureEncoder(schema).fit(rows, engine=engine)
        done.set()
        watching.result()
    assert spilled
    assert fitted.fingerprint == FeatureEncoder(schema).fit(rows).fingerprint
    assert rows.nbytes > STORE


def test_vocabularies_that_stay_in_files_encode_the_same(
    engine: Ray, files: Path, encoder: FeatureEncoder, tmp_path: Path
) -> None:
    spill = Spill(str(tmp_path / "spilled"), above=10_000)
    spilled = FeatureEncoder(SCHEMA).fit(files, engine=engine, spill=spill)
    kinds = {name: type(one) for name, one in spilled.vocabularies.items()}
    assert [kinds["user"], kinds["country"]] == [PartitionedVocabulary, Vocabulary]
    assert spilled.fingerprint == encoder.fingerprint
    spilled.transform_to(files, tmp_path / "joined", engine=engine)
    encoder.transform_to(files, tmp_path / "threads")
    assert content(tmp_path / "joined") == content(tmp_path / "threads")


def test_settings_of_a_cluster_that_runs_are_refused(engine: Ray) -> None:
    with pytest.raises(DataError) as caught:
        Ray(workers=3)
    assert str(caught.value) == (
        "Ray: expected workers= and object_store_memory= for a cluster that is started here, got them for one that "
        "runs. Leave them out."
    )
