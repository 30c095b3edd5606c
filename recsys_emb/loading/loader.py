"""`BatchLoader`: encoded batches in row order or shuffled, resumable at any batch."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import os
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from recsys_emb.encoding.batch import Batch
from recsys_emb.encoding.crew import ahead
from recsys_emb.encoding.encoded_folder import EncodedRows
from recsys_emb.encoding.encoded_table import EncodedReader
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.row_encoder import Answers, RowEncoder
from recsys_emb.errors import DataError, at_least
from recsys_emb.loading.feeds import Feed, StoredRows, StreamedRows, device_of, encoded_rows
from recsys_emb.loading.orders import InOrder, Order, Shuffled, Windowed, digest_of
from recsys_emb.loading.row_cache import RowCache
from recsys_emb.loading.row_store import RowStore
from recsys_emb.sources.locations import local_path
from recsys_emb.sources.sources import open_source


class BatchLoader(IterableDataset[Batch]):
    """Iterate over a source in encoded batches.

    **Order.** Without ``shuffle``, rows come in their own order and the source is streamed in bounded memory. With
    it, the rows are encoded once and kept, 4 bytes per column and row, and each epoch visits every row exactly once
    in an order drawn evenly from all possible orders (a Rao-Sandelius shuffle over splitmix64 streams; each draw
    departs from evenness by less than 2**-30). The order is a function of ``seed`` and the epoch only.

    **Windows** are for rows that do not fit into memory. Each epoch visits the blocks of the source (row groups of
    Parquet files, slices of frames; a stream is one block) in random order, and shuffles the rows of this sequence
    evenly within windows of ``window`` rows, of which two are in memory at most. Every row still comes exactly
    once, but rows of one block come near each other: with k blocks to a window a batch mixes about k places of the
    source, so a window should be many times larger than a block. Within a block that is larger than the window, or a
    stream, a row moves by a third of the window on average. The order is a function of ``seed``, the epoch,
    ``window``, ``batch_size``, the ranks and the blocks.

    **Cache.** With ``cache``, the rows of files are encoded once for all runs, into files in that folder which are
    mapped into memory and shared by all processes: any number of them may start at once. They are written anew when
    a source file has another size or time of change, or ``encoder`` learned something else, or when their checksums
    do not agree: each loader reads them once when it is made, at some 2 GB a second. The order is the same as
    without, but with ``window``, for the blocks are others.

    **Ranks** take consecutive, disjoint ranges of that order, ``num_rows * rank // world_size`` and so on, which
    differ by at most one row. In the rows' own order each reads its own row groups alone; with ``shuffle``, each of
    them keeps all rows, unless there is a cache or a window.
    All have the same number of batches, since processes that learn together wait for each other at each: the last
    batch of a rank may have one row less than that of another, and hence none. With ``drop_last``, every rank has
    ``num_rows // world_size // batch_size`` full batches, and what remains is left out of the epoch.

    **Workers.** Under ``DataLoader(loader, batch_size=None, num_workers=n)``, worker w yields batches w, w + n, ...:
    the same batches in the same order as without workers. Each reads the whole source, so ``prefetch`` is the cheaper
    way to load while a model is busy.

    Parameters
    ----------
    encoder
        Fitted.
    source
        Anything that ``encoder.transform`` takes, a `Batch` that it gave, or `EncodedRows` that it wrote.
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
    window
        Shuffle so many rows at a time, rounded up to whole batches; None shuffles all at once.
    cache
        Folder for encoded rows, on a local disk; made if it is not there. Different files, and different schemas, may
        share it; encoders of one schema may not, for each would undo what the other wrote.
    prefetch
        Batches to make ahead on a thread, and with ``window`` the next window too; 0 makes each when it is asked for.

    Raises
    ------
    DataError
        When an argument is out of range, or ``cache`` is given with rows that are not in files; in an epoch, when a
        file is another than the one that was opened.

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
    >>> loader = BatchLoader(encoder, frame, batch_size=2, shuffle=True, window=4)
    >>> [batch["user_id"].tolist() for batch in loader]
    [[5, 6], [3, 4], [8, 7], [10, 9], [12, 11]]
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
        window: int | None = None,
        cache: str | os.PathLike[str] | None = None,
        prefetch: int = 0,
    ) -> None:
        whole = functools.partial(at_least, "BatchLoader")
        self.batch_size, self.prefetch = whole("batch_size", batch_size, 1), whole("prefetch", prefetch, 0)
        self.shuffle, self.seed, self.drop_last = shuffle, whole("seed", seed, 0), drop_last
        self.rank, self.world_size = whole("rank", rank, 0), whole("world_size", world_size, 1)
        if self.rank >= self.world_size:
            raise DataError(f"BatchLoader: expected rank in [0, {world_size}), got {rank}. Number the ranks from 0.")
        self.window = None if window is None else whole("window", window, 1)
        if window is not None and not shuffle:
            raise DataError("BatchLoader: expected shuffle=True beside window=, got shuffle=False. Leave one out.")
        self._rows = _open_rows(encoder, source, stored=shuffle and window is None, cache=cache)
        # Shared, so that workers that live on between epochs see `set_epoch`.
        self._epoch = operator.methodcaller("share_memory_")(torch.zeros(1, dtype=torch.int64))
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
        number = at_least("BatchLoader.set_epoch", "epoch", epoch, 0)
        if number != self.epoch:
            self._next = self._resume_at = 0
        self._epoch.fill_(number)

    def __len__(self) -> int:
        """Count the batches of an epoch, on this rank as on any other."""
        if self.drop_last:
            return self.num_rows // self.world_size // self.batch_size
        most = math.ceil(self.num_rows / self.world_size)
        return math.ceil(most / self.batch_size)

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
        starts = [first + one * self.batch_size for one in wanted]
        bounds = [(start, min(start + self.batch_size, last)) for start in starts if start < last]
        batches = self._rows.batches(bounds, self._order(first, last), prefetch=self.prefetch > 0)
        if len(bounds) < len(wanted):
            batches = itertools.chain(batches, [self._rows.nothing()])
        for one, batch in zip(wanted, ahead(batches, self.prefetch), strict=True):
            self._next = one + 1
            yield batch

    def _order(self, first: int, last: int) -> Order:
        """Order of this epoch, of which this rank visits places ``first`` to ``last - 1``."""
        parts = [self.seed, self.epoch]
        if self.window is None:
            return Shuffled(self.num_rows, parts) if self.shuffle else InOrder()
        size = math.ceil(self.window / self.batch_size) * self.batch_size
        return Windowed(self._rows.blocks, size=size, first=first, last=last, step=self.batch_size, parts=parts)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands: the epoch, the number of the next batch, and what the order depends on."""
        return {"epoch": self.epoch, "batch": self._next, **self._settings()}

    def _settings(self) -> dict[str, Any]:
        names = ("num_rows", "batch_size", "shuffle", "seed", "rank", "world_size", "drop_last", "window")
        settings = {name: getattr(self, name) for name in names}
        # The order within windows depends on the blocks of the source as well.
        return settings if self.window is None else {**settings, "blocks": digest_of(self._rows.blocks)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Stand where ``state`` says; the next iteration yields exactly the batches that were still to come.

        Raises
        ------
        DataError
            When the state belongs to other rows or another order, or to a place that is not in it.
        """
        where = "BatchLoader.load_state_dict"
        if not isinstance(state, Mapping):
            raise DataError(f"{where}: expected what state_dict() gives, got {state!r}. Save that.")
        for name, value in self._settings().items():
            if state.get(name) != value:
                raise DataError(
                    f"{where}: expected {name}={value!r}, got {state.get(name)!r}. "
                    "Resume with the loader that the state came from."
                )
        epoch, batch = (at_least(where, name, state.get(name), 0) for name in ("epoch", "batch"))
        if batch > len(self):
            raise DataError(
                f"{where}: expected a batch of {len(self)} at most, got {batch}. Save what state_dict() gives."
            )
        self._epoch.fill_(epoch)
        self._next = self._resume_at = batch


def _open_rows(encoder: FeatureEncoder, source: Any, *, stored: bool, cache: str | os.PathLike[str] | None) -> Feed:
    if isinstance(source, Batch):
        if cache is not None:
            raise DataError("BatchLoader: expected files for cache=, got a Batch. Leave cache= out: it is encoded.")
        return StoredRows(RowStore.of([source]) if device_of(source).type == "cpu" else source)
    schema = encoder.to_state().schema
    row_encoder: RowEncoder | EncodedReader
    if isinstance(source, EncodedRows):
        row_encoder, opened, answers = source.reader(encoder), source.source, source.answers
    else:
        row_encoder = encoder.row_encoder
        opened = open_source(source, row_encoder.types)
        answers = Answers.of(schema, opened)
    if cache is None and opened.repeatable and not stored:
        return StreamedRows(opened, row_encoder, answers)
    batches = encoded_rows(opened, row_encoder, answers)
    if cache is None:
        return StoredRows(RowStore.of(batches, num_rows=opened.num_rows or 0))
    meaning = ([schema.to_json(), answers.columns], encoder.fingerprint)
    folder = local_path(cache, "BatchLoader: cache")
    return StoredRows(RowCache(folder, opened.parts, meaning).rows(batches, row_encoder.nothing(answers)))
