"""Where the batches of an epoch come from: rows that are kept encoded, or rows that are read anew in every epoch."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias

import numpy as np
import torch

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.crew import Crew, ahead, crew
from recsys_emb.encoding.encoded_table import EncodedReader
from recsys_emb.encoding.filling import Array, Growing
from recsys_emb.encoding.row_encoder import Answers, RowEncoder
from recsys_emb.encoding.stacking import stack_rows
from recsys_emb.errors import DataError
from recsys_emb.loading.orders import Order, Windowed
from recsys_emb.loading.row_store import RowStore
from recsys_emb.sources.parts import BATCH_ROWS, Rows
from recsys_emb.sources.sources import Block, Source

Bounds: TypeAlias = Sequence[tuple[int, int]]
"""Places of the order that each batch holds, first and one past the last, ascending."""

_RUN = 2**16  # rows of a block of stored rows: read from a disk, they take little longer than one


class Feed(Protocol):
    """Rows, in batches."""

    def __len__(self) -> int:
        """Count the rows."""

    @property
    def blocks(self) -> Sequence[int]:
        """Rows of each block that is read in one go."""

    def batches(self, bounds: Bounds, order: Order, *, prefetch: bool) -> Iterator[Batch]:
        """Yield the batches between ``bounds`` of an order."""

    def nothing(self) -> Batch:
        """Give a batch without rows."""


class StoredRows:
    """Rows that were encoded once and are picked in any order."""

    def __init__(self, rows: RowStore | Batch) -> None:
        self._rows = rows

    def __len__(self) -> int:
        """Count the rows."""
        return len(self._rows)

    @property
    def blocks(self) -> Sequence[int]:
        """Rows of each block, of equal size but for the last."""
        return [min(_RUN, len(self) - start) for start in range(0, len(self), _RUN)]

    def batches(self, bounds: Bounds, order: Order, *, prefetch: bool) -> Iterator[Batch]:
        """Yield the batches between ``bounds`` of an order."""
        del prefetch
        for first, last in bounds:
            yield self._pick(order.rows(first, last))

    def nothing(self) -> Batch:
        """Give a batch without rows."""
        return self._pick(np.empty(0, np.int64))

    def _pick(self, rows: Array) -> Batch:
        if isinstance(self._rows, RowStore):
            return self._rows.pick(rows)
        return self._rows.select(torch.from_numpy(rows.astype(np.int64)).to(device_of(self._rows)))


class StreamedRows:
    """Rows that are read and encoded anew in every epoch."""

    def __init__(self, source: Source, encoder: RowEncoder | EncodedReader, answers: Answers) -> None:
        self._source, self._encoder, self._answers = source, encoder, answers
        self._blocks = source.blocks(encoder.columns[0])

    def __len__(self) -> int:
        """Count the rows."""
        return sum(self.blocks)

    @property
    def blocks(self) -> Sequence[int]:
        """Rows of each block that the source can read by itself."""
        return [block.num_rows for block in self._blocks]

    def batches(self, bounds: Bounds, order: Order, *, prefetch: bool) -> Iterator[Batch]:
        """Yield the batches between ``bounds`` of the rows' own order, or of a windowed one."""
        if not bounds:
            return
        with crew(None) as hands:
            if isinstance(order, Windowed):
                yield from self._windowed(bounds, order, hands, prefetch=prefetch)
            else:
                yield from self._in_order(bounds, hands)

    def nothing(self) -> Batch:
        """Give a batch without rows."""
        return self._encoder.nothing(self._answers)

    def _in_order(self, bounds: Bounds, hands: Crew) -> Iterator[Batch]:
        """Encode neighbouring batches together, since the dictionaries of columns are looked up in each call anew."""
        runs = _runs(bounds)
        pieces = self._cut([(run[0][0], run[-1][1]) for run in runs], None, hands)
        for run in runs:
            encoded: list[Batch] = []
            start = end = run[0][0]
            for first, last in run:
                while end < last:
                    encoded.append(self._encoder.encode(next(pieces), self._answers, hands))
                    end += len(encoded[-1])
                yield stack_rows(_between(encoded, first - start, last - start))

    def _windowed(self, bounds: Bounds, order: Windowed, hands: Crew, *, prefetch: bool) -> Iterator[Batch]:
        """Encode window after window; with ``prefetch``, the next while batches are picked from the present one."""
        wanted: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for first, last in bounds:
            wanted.setdefault(order.window_of(first), []).append((first, last))
        # A store is in use until the next but one is made, or the next.
        rooms: list[dict[str, Growing]] = [{} for _ in range(1 + prefetch)]
        stores = ahead(self._stores(list(wanted), order, hands, rooms), int(prefetch))
        for ((start, end), inside), store in zip(wanted.items(), stores, strict=True):
            shuffled = order.within(start, end)
            for first, last in inside:
                yield store.pick(shuffled[first - start : last - start])

    def _stores(
        self, windows: Bounds, order: Windowed, hands: Crew, rooms: Sequence[dict[str, Growing]]
    ) -> Iterator[RowStore]:
        """Encode windows, in rooms that take turns."""
        pieces = self._cut(windows, order, hands)
        for (start, end), room in zip(windows, itertools.cycle(rooms), strict=False):
            inside = _first(pieces, end - start)
            encoded = (self._encoder.encode(piece, self._answers, hands) for piece in inside)
            yield RowStore.of(encoded, num_rows=end - start, room=room)

    def _cut(self, bounds: Bounds, order: Windowed | None, hands: Crew) -> Iterator[Rows]:
        """Give the rows between ``bounds``, which ascend, piece by piece; what lies between them is left out."""
        start = bounds[0][0]
        before, blocks = self._holding(start, bounds[-1][1]) if order is None else (0, self._in(order))
        columns = [*self._encoder.columns, *self._answers.columns]
        stream = hands.ahead(self._source.rows(columns, start=start - before, blocks=blocks))
        rows = None
        for first, last in bounds:
            at = first
            while at < last:
                while rows is None or start + len(rows) <= at:
                    start += 0 if rows is None else len(rows)
                    rows = next(stream, None)
                    if rows is None:
                        raise DataError(f"BatchLoader: expected {len(self)} rows, got fewer. The source has changed.")
                end = min(last - start, len(rows))
                yield rows.slice(at - start, end)
                at = start + end

    def _in(self, order: Windowed) -> list[Block]:
        return [self._blocks[number] for number in order.blocks]

    def _holding(self, first: int, last: int) -> tuple[int, list[Block] | None]:
        """Count the rows before the blocks that hold rows ``first`` to ``last - 1``, and give these; None for all."""
        ends = list(itertools.accumulate(self.blocks))
        low, high = bisect.bisect_right(ends, first), bisect.bisect_left(ends, last) + 1
        whole = low == 0 and high >= len(ends)
        return (0, None) if whole else (ends[low - 1] if low else 0, list(self._blocks[low:high]))


def _runs(bounds: Bounds) -> list[list[tuple[int, int]]]:
    """Group neighbouring batches that together have as many rows as are read at once, or fewer."""
    runs: list[list[tuple[int, int]]] = []
    for first, last in bounds:
        if runs and runs[-1][-1][1] == first and last - runs[-1][0][0] <= BATCH_ROWS:
            runs[-1].append((first, last))
        else:
            runs.append([(first, last)])
    return runs


def _first(pieces: Iterator[Rows], count: int) -> Iterator[Rows]:
    """Take pieces that have ``count`` rows together."""
    while count > 0:
        piece = next(pieces)
        count -= len(piece)
        yield piece


def _between(batches: Sequence[Batch], first: int, last: int) -> list[Batch]:
    """Rows ``first`` to ``last - 1`` of batches that follow each other."""
    found = []
    for batch in batches:
        if first < len(batch) and last > 0:
            found.append(batch.slice(max(first, 0), min(last, len(batch))))
        first, last = first - len(batch), last - len(batch)
    return found


def device_of(batch: Batch) -> torch.device:
    """Say where a batch is."""
    columns = (column.offsets if isinstance(column, Jagged) else column for column in batch.columns.values())
    return next((column.device for column in columns), torch.device("cpu"))


def encoded_rows(source: Source, encoder: RowEncoder | EncodedReader, answers: Answers) -> Iterator[Batch]:
    """Encode a source batch by batch, a batch without rows first, so that a source without rows has columns too."""
    yield encoder.nothing(answers)
    with crew(source.num_rows) as hands:
        for rows in hands.ahead(source.rows([*encoder.columns, *answers.columns])):
            yield encoder.encode(rows, answers, hands)
