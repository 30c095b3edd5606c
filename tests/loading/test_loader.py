from __future__ import annotations

import pickle
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import recsys_emb.loading.feeds as feeds_module
from recsys_emb.encoding.batch import Batch
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import DataError
from recsys_emb.loading.feeds import StoredRows
from recsys_emb.loading.loader import BatchLoader
from recsys_emb.loading.orders import Shuffled
from recsys_emb.schema import Categorical, MultiCategorical, Numeric, Schema

ROWS = 23
FRAME = pd.DataFrame(
    {
        "row": np.arange(ROWS),
        "tags": [[row] * (row % 3) for row in range(ROWS)],
        "size": np.arange(ROWS) / 2,
        "label": np.arange(ROWS) * 1.0,
    }
)
SCHEMA = Schema(user=Categorical("row"), context_features=[MultiCategorical("tags"), Numeric("size")], label="label")
ENCODER = FeatureEncoder(SCHEMA).fit(FRAME)


def rows_of(batches: Iterable[Batch]) -> list[list[int]]:
    """Original row numbers, as the labels tell them, with everything else checked against them."""
    found = []
    for batch in batches:
        assert batch.label is not None
        rows = batch.label.long()
        assert torch.equal(batch.indices("row"), rows + 3)
        assert batch.lists("tags").lengths.tolist() == (rows % 3).tolist()
        assert torch.equal(batch.indices("size"), ENCODER.transform(FRAME).indices("size")[rows])
        found.append(rows.tolist())
    return found


def flat(batches: Iterable[Batch]) -> list[int]:
    return [row for batch in rows_of(batches) for row in batch]


def loader_of(source: Any = FRAME, **options: Any) -> BatchLoader:
    return BatchLoader(ENCODER, source, **{"batch_size": 4, **options})


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_files(folder: Path) -> Path:
    for start in range(0, ROWS, 5):
        FRAME.iloc[start : start + 5].to_parquet(folder / f"{start:02}.parquet")
    return folder


def table() -> pa.Table:
    return pa.Table.from_pandas(FRAME)


# --- order -------------------------------------------------------------------------------------------------------


def test_rows_come_in_their_own_order_in_batches() -> None:
    loader = loader_of()
    assert rows_of(loader) == [list(range(start, min(start + 4, ROWS))) for start in range(0, ROWS, 4)]
    assert len(loader) == 6
    assert loader.num_rows == ROWS


@pytest.mark.parametrize("shuffle", [False, True])
def test_every_source_gives_the_same_batches(shuffle: bool, tmp_path: Path) -> None:
    expected = rows_of(loader_of(shuffle=shuffle))
    sources = [
        table(),
        table().to_reader(max_chunksize=3),
        in_files(tmp_path),
        [FRAME.iloc[:7], FRAME.iloc[7:7], FRAME.iloc[7:]],
        ENCODER.transform(FRAME),
    ]
    for source in sources:
        loader = loader_of(source, shuffle=shuffle)
        assert len(loader) == 6
        assert rows_of(loader) == expected
        assert rows_of(loader) == expected


@given(
    batch_size=st.integers(1, 30),
    world_size=st.integers(1, 4),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    epoch=st.integers(0, 3),
)
@settings(max_examples=60, deadline=None)
def test_ranks_share_the_rows_without_overlap_and_lose_only_the_stated_remainder(
    batch_size: int, world_size: int, shuffle: bool, drop_last: bool, epoch: int
) -> None:
    seen: list[int] = []
    for rank in range(world_size):
        options = {"batch_size": batch_size, "rank": rank, "world_size": world_size}
        loader = loader_of(shuffle=shuffle, drop_last=drop_last, **options)
        loader.set_epoch(epoch)
        batches = rows_of(loader)
        assert len(batches) == len(loader)
        sizes = [len(batch) for batch in batches]
        assert all(size == batch_size for size in sizes[: None if drop_last else -1])
        assert not drop_last or len(batches) == ROWS // world_size // batch_size
        seen += [row for batch in batches for row in batch]
    assert len(seen) == len(set(seen))
    assert drop_last or sorted(seen) == list(range(ROWS))


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        loader = loader_of(shuffle=True, seed=seed)
        loader.set_epoch(epoch)
        return flat(loader)

    orders = {(seed, epoch): tuple(order(seed, epoch)) for seed in range(3) for epoch in range(3)}
    assert len(set(orders.values())) == 9
    assert tuple(order(1, 2)) == orders[1, 2]
    assert orders[0, 0] != tuple(range(ROWS))


def test_the_order_does_not_depend_on_the_batch_size() -> None:
    assert flat(loader_of(shuffle=True, batch_size=5)) == flat(loader_of(shuffle=True, batch_size=23))


def test_an_epoch_that_is_not_set_comes_again() -> None:
    loader = loader_of(shuffle=True)
    assert flat(loader) == flat(loader)


def test_global_random_state_is_neither_read_nor_written() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = flat(loader_of(shuffle=True))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert flat(loader_of(shuffle=True)) == first


# --- sizes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 3, 4, 5, 9])
def test_no_size_loses_a_row(rows: int, shuffle: bool) -> None:
    loader = loader_of(FRAME.iloc[:rows], shuffle=shuffle)
    assert len(loader) == -(-rows // 4)
    assert sorted(flat(loader)) == list(range(rows))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size to be an integer of at least 1, got 0. Give batch_size=1 or more."),
        ({"batch_size": 1.5}, "batch_size to be an integer of at least 1, got 1.5. Give batch_size=1 or more."),
        ({"batch_size": True}, "batch_size to be an integer of at least 1, got True. Give batch_size=1 or more."),
        ({"batch_size": "8"}, "batch_size to be an integer of at least 1, got '8'. Give batch_size=1 or more."),
        ({"rank": 2, "world_size": 2}, "rank in [0, 2), got 2. Number the ranks from 0."),
        ({"rank": -1}, "rank to be an integer of at least 0, got -1. Give rank=0 or more."),
        ({"rank": 0.5, "world_size": 2}, "rank to be an integer of at least 0, got 0.5. Give rank=0 or more."),
        ({"world_size": 1.5}, "world_size to be an integer of at least 1, got 1.5. Give world_size=1 or more."),
        ({"seed": -1}, "seed to be an integer of at least 0, got -1. Give seed=0 or more."),
        ({"seed": 0.5}, "seed to be an integer of at least 0, got 0.5. Give seed=0 or more."),
        ({"window": 0, "shuffle": True}, "window to be an integer of at least 1, got 0. Give window=1 or more."),
        ({"window": 2.5, "shuffle": True}, "window to be an integer of at least 1, got 2.5. Give window=1 or more."),
        ({"window": 5}, "shuffle=True beside window=, got shuffle=False. Leave one out."),
        ({"prefetch": -1}, "prefetch to be an integer of at least 0, got -1. Give prefetch=0 or more."),
        ({"prefetch": 1.5}, "prefetch to be an integer of at least 0, got 1.5. Give prefetch=0 or more."),
    ],
)
def test_arguments_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError) as caught:
        loader_of(**options)
    assert str(caught.value) == f"BatchLoader: expected {message}"


def test_sizes_may_be_integers_of_numpy() -> None:
    loader = loader_of(batch_size=np.int32(4), seed=np.int64(1), prefetch=np.int8(1), shuffle=True)
    assert rows_of(loader) == rows_of(loader_of(seed=1, shuffle=True))
    assert pickle.loads(pickle.dumps(loader.state_dict())) == loader_of(seed=1, shuffle=True).state_dict() | {
        "batch": 6
    }


@pytest.mark.parametrize("epoch", [-1, 1.5])
def test_an_epoch_is_numbered_from_0(epoch: Any) -> None:
    loader = loader_of()
    with pytest.raises(DataError) as caught:
        loader.set_epoch(epoch)
    assert str(caught.value) == (
        f"BatchLoader.set_epoch: expected epoch to be an integer of at least 0, got {epoch}. Give epoch=0 or more."
    )
    assert loader.epoch == 0


@pytest.mark.parametrize("at_once", [1, 4, 10, 100])
@pytest.mark.parametrize(("batch_size", "after"), [(1, 0), (3, 2), (7, 0), (7, 1), (23, 0), (40, 0)])
def test_how_many_rows_are_encoded_together_changes_no_batch(
    at_once: int, batch_size: int, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds_module, "BATCH_ROWS", at_once)
    loader = loader_of(in_files(tmp_path), batch_size=batch_size)
    loader.load_state_dict(loader.state_dict() | {"batch": after})
    batches = list(loader)
    expected = [list(range(start, min(start + batch_size, ROWS))) for start in range(0, ROWS, batch_size)]
    assert rows_of(batches) == expected[after:]
    tags = ENCODER.transform(FRAME).lists("tags").to_lists()
    assert [one for batch in batches for one in batch.lists("tags").to_lists()] == tags[after * batch_size :]


def test_a_source_that_shrinks_between_passes_is_noticed(tmp_path: Path) -> None:
    class Shrinking:
        rows = ROWS

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return table().slice(0, self.rows).__arrow_c_stream__(requested_schema)

    source = Shrinking()
    loader = loader_of(source)
    source.rows = 10
    with pytest.raises(DataError) as caught:
        list(loader)
    assert str(caught.value) == "BatchLoader: expected 23 rows, got fewer. The source has changed."


# --- standing still and going on ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("after", range(7))
def test_a_pass_resumes_at_any_batch_exactly(after: int, shuffle: bool) -> None:
    options = {"shuffle": shuffle, "seed": 5}
    loader = loader_of(**options)
    loader.set_epoch(3)
    batches = iter(loader)
    done = [next(batches) for _ in range(after)]
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    whole = loader_of(**options)
    whole.set_epoch(3)
    resumed = loader_of(**options)
    resumed.load_state_dict(state)
    resumed.set_epoch(3)  # the same epoch: as a training loop says again when it resumes
    assert rows_of([*done, *resumed]) == rows_of(whole)
    assert len(rows_of(resumed)) == 6


def test_another_epoch_begins_at_its_first_batch() -> None:
    loader = loader_of(shuffle=True)
    loader.load_state_dict({**loader.state_dict(), "batch": 4})
    loader.set_epoch(1)
    assert len(rows_of(loader)) == 6


def test_a_finished_epoch_is_finished() -> None:
    loader = loader_of()
    list(loader)
    again = loader_of()
    again.load_state_dict(loader.state_dict())
    assert rows_of(again) == []


def test_a_state_of_other_rows_or_another_order_is_refused() -> None:
    state = loader_of(shuffle=True, seed=1).state_dict()
    with pytest.raises(DataError) as caught:
        loader_of(shuffle=True, seed=2).load_state_dict(state)
    assert str(caught.value) == (
        "BatchLoader.load_state_dict: expected seed=2, got 1. Resume with the loader that the state came from."
    )
    with pytest.raises(DataError, match="expected num_rows=5, got 23"):
        loader_of(FRAME.iloc[:5], shuffle=True, seed=1).load_state_dict(state)


# --- workers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [False, True])
def test_workers_yield_the_same_batches_in_the_same_order(shuffle: bool) -> None:
    loader = loader_of(shuffle=shuffle)
    expected = rows_of(loader)
    assert rows_of(DataLoader(loader, batch_size=None)) == expected
    parallel = DataLoader(loader, batch_size=None, num_workers=2, multiprocessing_context="fork")
    assert rows_of(parallel) == expected
    assert len(parallel) == 6


def test_workers_that_live_on_hear_of_the_next_epoch() -> None:
    loader = loader_of(shuffle=True)
    workers = DataLoader(
        loader, batch_size=None, num_workers=1, persistent_workers=True, multiprocessing_context="fork"
    )
    first = flat(workers)
    loader.set_epoch(1)
    second = flat(workers)
    del workers
    assert second == flat(loader)
    assert sorted(first) == sorted(second)
    assert first != second


def test_a_loader_travels_to_another_process() -> None:
    for shuffle in (False, True):
        loader = loader_of(table(), shuffle=shuffle)
        assert rows_of(pickle.loads(pickle.dumps(loader))) == rows_of(loader)


# --- windows -----------------------------------------------------------------------------------------------------


@given(
    batch_size=st.integers(1, 9),
    window=st.integers(1, 30),
    world_size=st.integers(1, 3),
    drop_last=st.booleans(),
    prefetch=st.integers(0, 2),
    epoch=st.integers(0, 3),
)
@settings(max_examples=40, deadline=None)
def test_windows_visit_every_row_exactly_once(
    *, batch_size: int, window: int, world_size: int, drop_last: bool, prefetch: int, epoch: int
) -> None:
    seen: list[int] = []
    for rank in range(world_size):
        options = {"batch_size": batch_size, "rank": rank, "world_size": world_size, "drop_last": drop_last}
        loader = loader_of(table(), shuffle=True, window=window, prefetch=prefetch, **options)
        loader.set_epoch(epoch)
        batches = rows_of(loader)
        assert len(batches) == len(loader)
        seen += [row for batch in batches for row in batch]
    assert len(seen) == len(set(seen))
    assert drop_last or sorted(seen) == list(range(ROWS))


def test_windows_work_on_every_source(tmp_path: Path) -> None:
    sources = [
        FRAME,
        table(),
        table().to_reader(max_chunksize=3),
        in_files(tmp_path),
        [FRAME.iloc[:7], FRAME.iloc[7:7], table().slice(7)],
        ENCODER.transform(FRAME),
        {name: FRAME[name] for name in FRAME},
        pl.from_pandas(FRAME),
        pl.from_pandas(FRAME).lazy(),
    ]
    for source in sources:
        loader = loader_of(source, shuffle=True, window=8)
        orders = []
        for epoch in range(2):
            loader.set_epoch(epoch)
            orders.append(flat(loader))
            assert flat(loader) == orders[-1]
            assert sorted(orders[-1]) == list(range(ROWS))
        assert orders[0] != orders[1]


def test_row_groups_come_in_random_order(tmp_path: Path) -> None:
    FRAME.to_parquet(tmp_path / "rows.parquet", row_group_size=4)
    loader = loader_of(tmp_path / "rows.parquet", shuffle=True, window=8, batch_size=4)
    firsts = set()
    for epoch in range(20):
        loader.set_epoch(epoch)
        firsts.add(next(iter(rows_of(loader)))[0] // 4)
    assert len(firsts) > 3


def test_a_window_is_all_that_is_read_ahead() -> None:
    class Counting:
        read = 0

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return pa.RecordBatchReader.from_batches(table().schema, self.batches()).__arrow_c_stream__()

        def batches(self) -> Iterator[pa.RecordBatch]:
            for batch in table().to_batches(max_chunksize=2):
                self.read += batch.num_rows
                yield batch

    source = Counting()
    loader = loader_of(source, shuffle=True, window=8, batch_size=2)
    source.read = 0
    with torch_threads(1):
        next(iter(loader))
    assert source.read <= 8 + 2


@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("after", range(7))
def test_a_windowed_pass_resumes_at_any_batch_exactly(after: int, prefetch: int) -> None:
    options = {"shuffle": True, "seed": 5, "window": 8, "prefetch": prefetch}
    loader = loader_of(**options)
    batches = iter(loader)
    done = [next(batches) for _ in range(after)]
    assert loader.state_dict()["batch"] == after  # what was made ahead does not count
    resumed = loader_of(**options)
    resumed.load_state_dict(pickle.loads(pickle.dumps(loader.state_dict())))
    assert rows_of([*done, *resumed]) == rows_of(loader_of(**options))


def test_a_window_over_other_blocks_of_the_same_rows_is_another_order(tmp_path: Path) -> None:
    for name, size in (("long", 8), ("short", 4)):
        pq.write_table(table(), tmp_path / f"{name}.parquet", row_group_size=size)
    long, short = (loader_of(tmp_path / f"{name}.parquet", shuffle=True, window=8) for name in ("long", "short"))
    state = long.state_dict()
    with pytest.raises(DataError) as caught:
        short.load_state_dict(state)
    assert str(caught.value) == (
        f"BatchLoader.load_state_dict: expected blocks={short.state_dict()['blocks']!r}, got {state['blocks']!r}. "
        "Resume with the loader that the state came from."
    )


def test_workers_yield_the_same_windows() -> None:
    loader = loader_of(table(), shuffle=True, window=8)
    parallel = DataLoader(loader, batch_size=None, num_workers=2, multiprocessing_context="fork")
    assert rows_of(parallel) == rows_of(loader)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": -1}, "expected batch to be an integer of at least 0, got -1. Give batch=0 or more."),
        ({"batch": "1"}, "expected batch to be an integer of at least 0, got '1'. Give batch=0 or more."),
        ({"batch": 1.5}, "expected batch to be an integer of at least 0, got 1.5. Give batch=0 or more."),
        ({"batch": 99}, "expected a batch of 6 at most, got 99. Save what state_dict() gives."),
        ({"epoch": "x"}, "expected epoch to be an integer of at least 0, got 'x'. Give epoch=0 or more."),
        ({"epoch": -1}, "expected epoch to be an integer of at least 0, got -1. Give epoch=0 or more."),
        ({"epoch": None}, "expected epoch to be an integer of at least 0, got None. Give epoch=0 or more."),
    ],
)
def test_a_state_of_no_place_in_the_epoch_is_refused(change: dict[str, object], message: str) -> None:
    loader = loader_of()
    with pytest.raises(DataError) as caught:
        loader.load_state_dict({**loader.state_dict(), **change})
    assert str(caught.value) == f"BatchLoader.load_state_dict: {message}"
    assert (loader.state_dict()["epoch"], loader.state_dict()["batch"]) == (0, 0)


def test_what_is_no_state_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        loader_of().load_state_dict(None)
    assert str(caught.value) == ("BatchLoader.load_state_dict: expected what state_dict() gives, got None. Save that.")
    with pytest.raises(DataError, match="expected num_rows=23, got None"):
        loader_of().load_state_dict({})


# --- ahead -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_made_ahead_are_the_same(shuffle: bool) -> None:
    assert rows_of(loader_of(shuffle=shuffle, prefetch=2)) == rows_of(loader_of(shuffle=shuffle))


def test_a_loader_that_is_left_early_leaves_no_thread_behind() -> None:
    batches = iter(loader_of(shuffle=True, prefetch=2))
    next(batches)
    batches.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


def test_an_error_ahead_arrives_after_the_batches_before_it() -> None:
    class Shrinking:
        rows = ROWS

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return table().slice(0, self.rows).__arrow_c_stream__(requested_schema)

    source = Shrinking()
    loader = loader_of(source, prefetch=3)
    source.rows = 10
    batches = iter(loader)
    assert rows_of([next(batches), next(batches)]) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(DataError, match="The source has changed"):
        next(batches)


def test_a_batch_on_another_device_is_picked_there() -> None:
    held = StoredRows(ENCODER.transform(FRAME))
    (picked,) = held.batches([(0, 3)], Shuffled(ROWS, [1]), prefetch=False)
    assert rows_of([picked]) == [Shuffled(ROWS, [1]).rows(0, 3).tolist()]
