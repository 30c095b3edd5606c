"""Where the batches of an epoch come from: rows that are kept encoded, or rows that are read anew in every epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias

import numpy as np
import torch

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.crew import Crew, ahead, crew
from recsys_emb.encoding.filling import Array
from recsys_emb.encoding.row_encoder import Answers, RowEncoder
from recsys_emb.encoding.stacking import stack_rows
from recsys_emb.errors import DataError
from recsys_emb.loading.orders import Order, Windowed
from recsys_emb.loading.row_store import RowStore
from recsys_emb.sources.parts import Rows
from recsys_emb.sources.sources import Source

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

    def _pick(self, rows: Array) -> Batch:
        if isinstance(self._rows, RowStore):
            return self._rows.pick(rows)
        return self._rows.select(torch.from_numpy(rows.astype(np.int64)).to(device_of(self._rows)))


class StreamedRows:
    """Rows that are read and encoded anew in every epoch."""

    def __init__(self, source: Source, encoder: RowEncoder, answers: Answers) -> None:
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
                for pieces in self._cut(bounds, None, hands):
                    yield stack_rows([self._encoder.encode(piece, self._answers, hands) for piece in pieces])

    def _windowed(self, bounds: Bounds, order: Windowed, hands: Crew, *, prefetch: bool) -> Iterator[Batch]:
        """Encode window after window; with ``prefetch``, the next while batches are picked from the present one."""
        wanted: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for first, last in bounds:
            wanted.setdefault(order.window_of(first), []).append((first, last))
        stores = ahead(self._stores(list(wanted), order, hands), int(prefetch))
        for ((start, end), inside), store in zip(wanted.items(), stores, strict=True):
            shuffled = order.within(start, end)
            for first, last in inside:
                yield store.pick(shuffled[first - start : last - start])

    def _stores(self, windows: Bounds, order: Windowed, hands: Crew) -> Iterator[RowStore]:
        for (start, end), pieces in zip(windows, self._cut(windows, order, hands), strict=True):
            encoded = (self._encoder.encode(piece, self._answers, hands) for piece in pieces)
            yield RowStore.of(encoded, num_rows=end - start)

    def _cut(self, bounds: Bounds, order: Windowed | None, hands: Crew) -> Iterator[list[Rows]]:
        """Give the rows between ``bounds``, which ascend; what lies between them is read and left out."""
        blocks = None if order is None else [self._blocks[number] for number in order.blocks]
        start = bounds[0][0]
        columns = [*self._encoder.columns, *self._answers.columns]
        stream = hands.ahead(self._source.rows(columns, start=start, blocks=blocks))
        rows = None
        for first, last in bounds:
            pieces, at = [], first
            while at < last:
                while rows is None or start + len(rows) <= at:
                    start += 0 if rows is None else len(rows)
                    rows = next(stream, None)
                    if rows is None:
                        raise DataError(f"BatchLoader: expected {len(self)} rows, got fewer. The source has changed.")
                end = min(last - start, len(rows))
                pieces.append(rows.slice(at - start, end))
                at = start + end
            yield pieces


def device_of(batch: Batch) -> torch.device:
    """Say where a batch is."""
    columns = (column.offsets if isinstance(column, Jagged) else column for column in batch.columns.values())
    return next((column.device for column in columns), torch.device("cpu"))


def encoded_rows(source: Source, encoder: RowEncoder, answers: Answers) -> Iterator[Batch]:
    """Encode a source batch by batch, a batch without rows first, so that a source without rows has columns too."""
    yield encoder.nothing(answers)
    with crew(source.num_rows) as hands:
        for rows in hands.ahead(source.rows([*encoder.columns, *answers.columns])):
            yield encoder.encode(rows, answers, hands)
