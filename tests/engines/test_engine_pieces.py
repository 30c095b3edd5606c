from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from recsys_emb.encoding.engine_pieces import submit_pieces
from recsys_emb.engines.local import Local
from recsys_emb.sources.pieces import Piece


class Waiting:
    """Submits work that waits to be released."""

    def __init__(self, engine: Local) -> None:
        self.engine, self.release = engine, threading.Event()

    def __call__(self, *_: Any) -> list[Any]:
        return self.engine.submit(self.release.wait, 10)


def piece(number: int, *, is_file: bool) -> Piece:
    return Piece("part", 0, number, 0, is_file, pa.table({"user": [number]}).select)


def test_of_rows_that_travel_only_a_few_pieces_wait() -> None:
    read = []

    def stream() -> Iterator[Piece]:
        for number in range(40):
            read.append(number)
            yield piece(number, is_file=False)

    with Local(1) as engine, ThreadPoolExecutor(1) as caller:
        waiting = Waiting(engine)
        running = caller.submit(submit_pieces, engine, stream(), waiting)
        while len(read) < 5:
            time.sleep(0.001)
        time.sleep(0.05)
        assert len(read) == 5
        waiting.release.set()
        assert len(running.result()) == 40


def test_pieces_of_files_are_all_submitted_at_once() -> None:
    with Local(1) as engine:
        waiting = Waiting(engine)
        handles = submit_pieces(engine, [piece(number, is_file=True) for number in range(40)], waiting)
        assert len(handles) == 40
        waiting.release.set()
