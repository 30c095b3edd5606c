"""Batches for training: shuffled epochs over encoded rows, and epochs straight from text in Parquet.

Run:    python benchmarks/load.py [--full | --tiny]
Needs:  nothing more; Hugging Face datasets takes part where it is installed

One epoch in batches of 8,192 is timed, one thread and no workers.

- **encoded, shuffled**: five columns of indices and a label, in memory, to tensors. By hand means the loop that an
  expert writes: `torch.randperm` and `index_select` on each column. `DataLoader` with a `BatchSampler` is what the
  manual advises; a `Dataset` that gives one row at a time is what tutorials show. All visit every row once; they draw
  other orders. The slow ones get fewer rows, which is in their favour, and their time is scaled up.
- **encoded with lists, shuffled**: the same and a column of lists of different lengths.
- **text**: from the file to batches of indices, by a vocabulary that was made before. Ours comes shuffled by windows of
  half the rows, all at once, for which all rows are encoded first, and in the order of the rows. pandas and datasets do
  not shuffle. datasets reads its own copy of the file, made before (in its favour), and its first batches alone are
  timed; its manual's way makes a tensor of each list, an expert's does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import logs
import numpy as np
import torch
from encode import SCHEMA as FEATURES
from harness import Bench, Entry
from load_peers import (
    BATCH,
    SINGLE,
    ByHand,
    Epoch,
    HuggingFace,
    HuggingFaceByHand,
    HuggingFaceText,
    NumpyRows,
    PandasRows,
    PandasText,
    in_batches,
    row_by_row,
)

from recsys_emb.encoding.batch import Batch
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.loading.loader import BatchLoader
from recsys_emb.schema import Schema

SCHEMA = Schema(
    user=FEATURES.user,
    item=FEATURES.item,
    item_features=FEATURES.item_features,
    context_features=FEATURES.context_features,
    label="label",
)


def drain(epoch: Epoch) -> None:
    for _ in epoch():
        pass


# --- shuffled epochs over encoded rows ---------------------------------------------------------------------------


class Ours:
    """`BatchLoader` over a batch; each epoch has an order of its own."""

    def __init__(self, encoder: FeatureEncoder, rows: Batch) -> None:
        self.loader = BatchLoader(encoder, rows, batch_size=BATCH, shuffle=True)

    def __call__(self) -> Iterable[Batch]:
        """Begin the next epoch."""
        self.loader.set_epoch(self.loader.epoch + 1)
        return self.loader


def on_encoded(bench: Bench) -> None:
    rows = bench.size(40_000, 2_000_000, 20_000_000)
    path = logs.log(rows, users=rows // 10, items=rows // 40)
    encoder = FeatureEncoder(SCHEMA).fit(path)
    batch = encoder.transform(path)
    single = batch.keeping(SINGLE)
    columns = [batch.indices(name) for name in SINGLE]
    assert batch.label is not None
    columns.append(batch.label)
    check_once(Ours(encoder, single), columns)
    check_once(ByHand(columns), columns)

    def slow(parts: int, make: Callable[[list[torch.Tensor]], Epoch]) -> dict[str, Any]:
        few = [column[: max(rows // parts, 10)] for column in columns]
        return {"start": lambda: partial(drain, make(few)), "share": len(few[0]) / rows}

    bench.race(
        "encoded, shuffled",
        f"{rows:,} rows × 5 indices and a label, one epoch of batches of 8,192",
        Entry("recsys_emb", lambda: partial(drain, Ours(encoder, single))),
        Entry("by hand: randperm, index_select", lambda: partial(drain, ByHand(columns)), "torch", goal=1.7),
        Entry("DataLoader(BatchSampler)", package="torch", goal=20, **slow(4, in_batches)),
        Entry("DataLoader, rows of numpy", package="torch", goal=100, **slow(40, lambda x: row_by_row(NumpyRows(x)))),
        Entry(
            "DataLoader, rows of pandas", package="torch", goal=400, **slow(400, lambda x: row_by_row(PandasRows(x)))
        ),
        Entry("Hugging Face datasets", package="datasets", goal=400, **slow(40, HuggingFace)),
    )
    lists = batch.lists("tags")
    bench.race(
        "encoded with lists, shuffled",
        f"{rows:,} rows × 5 indices, a list of tags and a label, one epoch of batches of 8,192",
        Entry("recsys_emb", lambda: partial(drain, Ours(encoder, batch))),
        Entry("by hand: randperm, index_select", lambda: partial(drain, ByHand(columns, lists)), "torch", goal=1.7),
    )
    on_growth(bench, encoder, single)


def check_once(epoch: Epoch, columns: list[torch.Tensor]) -> None:
    """Check that an epoch has every row once, by the sorted rows."""
    got = [[*batch.columns.values(), batch.label] if isinstance(batch, Batch) else batch for batch in epoch()]
    rows = np.stack([torch.cat(pieces).double().numpy() for pieces in zip(*got, strict=True)])
    expected = np.stack([column.double().numpy() for column in columns])
    assert not np.array_equal(rows, expected), "the epoch is not shuffled"
    assert np.array_equal(rows[:, np.lexsort(rows)], expected[:, np.lexsort(expected)]), "not every row once"


def on_growth(bench: Bench, encoder: FeatureEncoder, rows: Batch) -> None:
    case, about = "encoded, shuffled", "shuffled epoch of {:,} encoded rows"
    tenth = partial(drain, Ours(encoder, rows.select(torch.arange(len(rows) // 10))))
    whole = partial(drain, Ours(encoder, rows))
    bench.growth(case, about.format(len(rows) // 10), change="rows × 10", small=tenth, large=whole, goal=13)
    bench.second_thread(case, about.format(len(rows)), whole, goal=1)


# --- epochs from text --------------------------------------------------------------------------------------------


def on_text(bench: Bench) -> None:
    rows = bench.size(30_000, 1_000_000, 5_000_000)
    path = logs.log(rows, users=rows // 10, items=rows // 40)
    encoder = FeatureEncoder(SCHEMA).fit(path)
    first = max(rows // BATCH // 10, 1)

    def ours(name: str, **options: Any) -> Entry:
        return Entry(name, lambda: partial(drain, lambda: BatchLoader(encoder, path, batch_size=BATCH, **options)))

    def theirs(name: str, made: type[HuggingFaceText], goal: float | None = None) -> Entry:
        start = partial(made, encoder, path, first)
        return Entry(name, lambda: partial(drain, start()), "datasets", share=first * BATCH / rows, goal=goal)

    known = [[codes.numpy() for codes in batch] for batch in PandasText(encoder, path)()]
    for mine, other in zip(BatchLoader(encoder, path, batch_size=BATCH), known, strict=True):
        _check_text(mine, other)
    bench.race(
        "text",
        f"{rows:,} rows × 6 columns of Parquet and a label, one epoch of batches of 8,192",
        ours("recsys_emb, shuffled by windows", shuffle=True, window=rows // 2),
        ours("recsys_emb, shuffled", shuffle=True),
        ours("recsys_emb, in order"),
        Entry("pandas, in order", lambda: partial(drain, PandasText(encoder, path)), "pandas", goal=7),
        theirs("Hugging Face datasets, with_transform, in order", HuggingFaceText, goal=35),
        theirs("Hugging Face datasets, by hand, in order", HuggingFaceByHand),
    )


def _check_text(ours: Batch, other: list[Any]) -> None:
    for name, codes in zip(SINGLE, other[:5], strict=True):
        mine = ours.indices(name).numpy()
        assert np.array_equal(np.where(mine < 3, -1, mine - 3), codes), f"{name}: other codes"
    tags = ours.lists("tags")
    assert np.array_equal(tags.values.numpy() - 3, other[5]), "tags: other codes"
    assert np.array_equal(tags.offsets.numpy(), other[6]), "tags: other lists"
    assert ours.label is not None
    assert np.array_equal(ours.label.numpy(), other[7]), "other labels"


if __name__ == "__main__":
    bench = Bench("load", __doc__)
    on_encoded(bench)
    on_text(bench)
