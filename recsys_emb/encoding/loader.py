"""`BatchLoader`: encoded batches in row order or shuffled, resumable at any batch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from recsys_emb import kernels
from recsys_emb.encoding.batch import Batch
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.row_encoder import Answers, RowEncoder
from recsys_emb.encoding.row_store import RowStore
from recsys_emb.encoding.sources import Source, open_source
from recsys_emb.encoding.stacking import stack_rows
from recsys_emb.errors import DataError


class BatchLoader(IterableDataset[Batch]):
    """Iterate over a source in encoded batches.

    **Order.** Without ``shuffle``, rows come in their own order and the source is streamed in bounded memory. With
    it, the rows are encoded once and kept, 4 bytes per column and row, and each epoch visits every row exactly once
    in an order drawn evenly from all possible orders (a Rao-Sandelius shuffle over splitmix64 streams; each draw
    departs from evenness by less than 2**-30). The order is a function of ``seed`` and the epoch only.

    **Ranks** take consecutive, disjoint ranges of that order, ``num_rows * rank // world_size`` and so on, which
    differ by at most one row; with ``shuffle``, each of them keeps all rows. With ``drop_last``, every rank has
    ``num_rows // world_size // batch_size`` full batches, and what remains is left out of the epoch.

    **Workers.** Under ``DataLoader(loader, batch_size=None, num_workers=n)``, worker w yields batches w, w + n, ...:
    the same batches in the same order as without workers.

    Parameters
    ----------
    encoder
        Fitted.
    source
        Anything that ``encoder.transform`` takes, or a `Batch` that it gave.
    batch_size
        Rows per batch; the last batch of an epoch may have fewer.
    shuffle
        Visit the rows in random order.
    seed
        Of the order.
    rank, world_size
        This process among all that share the rows.
    drop_last
        Leave out what does not fill a batch.

    Raises
    ------
    DataError
        When an argument is out of range.

    Examples
    --------
    >>> import pandas as pd
    >>> from recsys_emb.schema import Categorical, Schema
    >>> frame = pd.DataFrame({"user_id": range(10)})
    >>> encoder = FeatureEncoder(Schema(user=Categorical("user_id"))).fit(frame)
    >>> loader = BatchLoader(encoder, frame, batch_size=4)
    >>> [batch["user_id"].tolist() for batch in loader]
    [[3, 4, 5, 6], [7, 8, 9, 10], [11, 12]]
    >>> loader = BatchLoader(encoder, frame, batch_size=4, shuffle=True, seed=1)
    >>> loader.set_epoch(1)
    >>> sorted(index for batch in loader for index in batch["user_id"].tolist())
    [3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    """

    def __init__(
        self,
        encoder: FeatureEncoder,
        source: Any,
        *,
        batch_size: int = 8192,
        shuffle: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = False,
    ) -> None:
        if batch_size < 1:
            raise DataError(f"BatchLoader: expected batch_size of at least 1, got {batch_size}. Give 1 or more.")
        if not 0 <= rank < world_size:
            raise DataError(f"BatchLoader: expected rank in [0, {world_size}), got {rank}. Number the ranks from 0.")
        self.batch_size, self.shuffle, self.seed = batch_size, shuffle, seed
        self.rank, self.world_size, self.drop_last = rank, world_size, drop_last
        self._rows = _open_rows(encoder, source, shuffle=shuffle)
        # Shared, so that workers that live on between epochs see `set_epoch`.
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        self._next = self._resume_at = 0

    @property
    def num_rows(self) -> int:
        """Rows of the source, over all ranks."""
        return len(self._rows)

    @property
    def epoch(self) -> int:
        """Number of the epoch, which `set_epoch` sets."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next pass. Another epoch than the present one begins at its first batch."""
        if epoch != self.epoch:
            self._next = self._resume_at = 0
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        """Count the batches of this rank in an epoch."""
        if self.drop_last:
            return self.num_rows // self.world_size // self.batch_size
        first, last = self._range()
        return math.ceil((last - first) / self.batch_size)

    def _range(self) -> tuple[int, int]:
        first, last = (self.num_rows * rank // self.world_size for rank in (self.rank, self.rank + 1))
        return first, last

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches of the epoch from the first, or after `load_state_dict` from where it stood."""
        number, self._resume_at = self._resume_at, 0
        worker = get_worker_info()
        step, phase = (1, 0) if worker is None else (worker.num_workers, worker.id)
        wanted = [one for one in range(number, len(self)) if one % step == phase]
        first, last = self._range()
        bounds = [(first + one * self.batch_size, min(first + (one + 1) * self.batch_size, last)) for one in wanted]
        order = self._order() if self.shuffle else None
        for one, batch in zip(wanted, self._rows.batches(bounds, order), strict=True):
            self._next = one + 1
            yield batch

    def _order(self) -> Tensor:
        """Row numbers in the order of the epoch, ``(num_rows,)``."""
        order = np.empty(self.num_rows, np.int32 if self.num_rows < 2**31 else np.int64)
        keys = np.random.SeedSequence([self.seed, self.epoch]).generate_state(2, np.uint64)
        kernels.gather.shuffle(keys, kernels.gather.bucket_bits(self.num_rows), order)
        return torch.from_numpy(order)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands: the epoch, the number of the next batch, and what the order depends on."""
        return {"epoch": self.epoch, "batch": self._next, **self._settings()}

    def _settings(self) -> dict[str, Any]:
        names = ("num_rows", "batch_size", "shuffle", "seed", "rank", "world_size", "drop_last")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Stand where ``state`` says; the next iteration yields exactly the batches that were still to come.

        Raises
        ------
        DataError
            When the state belongs to other rows or another order.
        """
        for name, value in self._settings().items():
            if state[name] != value:
                raise DataError(
                    f"BatchLoader.load_state_dict: expected {name}={value!r}, got {state[name]!r}. "
                    "Resume with the loader that the state came from."
                )
        self._epoch.fill_(state["epoch"])
        self._next = self._resume_at = state["batch"]


class _StoredRows:
    """Rows that were encoded once and are picked in any order."""

    def __init__(self, store: RowStore) -> None:
        self.store = store

    def __len__(self) -> int:
        return len(self.store)

    def batches(self, bounds: Sequence[tuple[int, int]], order: Tensor | None) -> Iterator[Batch]:
        """Yield the batches between ``bounds`` of the order."""
        device = self.store.indices.device
        for first, last in bounds:
            rows = torch.arange(first, last) if order is None else order[first:last]
            yield self.store.pick(rows.to(device))


class _StreamedRows:
    """Rows that are read and encoded anew in every pass, in their own order."""

    def __init__(self, source: Source, encoder: RowEncoder, answers: Answers) -> None:
        self.source, self.encoder, self.answers = source, encoder, answers
        self.num_rows = source.count(encoder.columns[0])

    def __len__(self) -> int:
        return self.num_rows

    def batches(self, bounds: Sequence[tuple[int, int]], order: Tensor | None) -> Iterator[Batch]:
        """Yield the batches between ``bounds``, which ascend; rows between them are read but not encoded."""
        del order
        start = bounds[0][0] if bounds else 0
        stream = self.source.rows([*self.encoder.columns, *self.answers.columns], start=start)
        rows = None
        for first, last in bounds:
            pieces, at = [], first
            while at < last:
                while rows is None or start + len(rows) <= at:
                    start += 0 if rows is None else len(rows)
                    rows = next(stream, None)
                    if rows is None:
                        raise DataError(
                            f"BatchLoader: expected {self.num_rows} rows, got fewer. The source has changed."
                        )
                end = min(last - start, len(rows))
                pieces.append(self.encoder.encode(rows.slice(at - start, end), self.answers))
                at = start + end
            yield stack_rows(pieces)


def _open_rows(encoder: FeatureEncoder, source: Any, *, shuffle: bool) -> _StoredRows | _StreamedRows:
    if isinstance(source, Batch):
        return _StoredRows(RowStore.of([source]))
    row_encoder = encoder.row_encoder
    opened = open_source(source, row_encoder.types)
    answers = Answers.of(encoder.to_state().schema, opened)
    if opened.repeatable and not shuffle:
        return _StreamedRows(opened, row_encoder, answers)
    # The batch without rows comes first, so that a source without rows has columns too.
    pieces = opened.rows([*row_encoder.columns, *answers.columns])
    encoded = (row_encoder.encode(rows, answers) for rows in pieces)
    return _StoredRows(RowStore.of(itertools.chain([row_encoder.nothing(answers)], encoded)))
