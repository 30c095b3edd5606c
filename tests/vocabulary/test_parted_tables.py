"""Shards in memory: who waits for whom, what is read again, and what an error leaves."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from recsys_emb.errors import DataError
from recsys_emb.vocabulary.kinds import Kind, kind_named
from recsys_emb.vocabulary.parted_tables import Shards, Tables, joined_tables

INTEGER: Kind = kind_named("integer")
WAIT = 30  # seconds, for what takes none unless it is wrong


class Files:
    """Shards of one key each, the number of the shard plus 50; notes what is read, and how often it is told of."""

    def __init__(self) -> None:
        self.read: list[int] = []
        self.told = 0

    def __call__(self, shard: int) -> Tables:
        self.read.append(shard)
        return joined_tables(pa.array([50 + shard]), np.array([shard + 3]))

    def tell(self) -> None:
        self.told += 1


def test_the_latest_shards_stay_and_reading_again_is_told_of_once() -> None:
    files = Files()
    shards = Shards(files, 4, 2, files.tell)
    assert [shards.table(shard, INTEGER).find_one(50 + shard) for shard in (0, 1, 0, 2, 0)] == [3, 4, 3, 5, 3]
    assert (files.read, files.told) == ([0, 1, 2], 0)
    for shard in (1, 2, 0):
        shards.table(shard, INTEGER)
    assert (files.read, files.told) == ([0, 1, 2, 1, 2, 0], 1)


def test_a_shard_that_is_being_read_keeps_nobody_from_another_and_is_read_once() -> None:
    files, begun, go_on = Files(), threading.Event(), threading.Event()

    def read(shard: int) -> Tables:
        if shard == 0:
            begun.set()
            assert go_on.wait(WAIT)
        return files(shard)

    shards = Shards(read, 2, 2, files.tell)
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(shards.table, 0, INTEGER)
        assert begun.wait(WAIT)
        waiting = pool.submit(shards.table, 0, INTEGER)
        try:
            assert shards.table(1, INTEGER).find_one(51) == 4
            assert not slow.done()
        finally:
            go_on.set()
        assert slow.result(WAIT) is waiting.result(WAIT)
    assert sorted(files.read) == [0, 1]


def test_after_an_error_the_next_one_reads_again() -> None:
    files, broken = Files(), [DataError("gone")]

    def read(shard: int) -> Tables:
        if broken:
            raise broken.pop()
        return files(shard)

    shards = Shards(read, 1, 1, files.tell)
    with pytest.raises(DataError, match=r"^gone$"):
        shards.table(0, INTEGER)
    assert (shards.table(0, INTEGER).find_one(50), files.told) == (3, 0)
