"""Loaders as others write them: an epoch of batches of 8,192 over encoded rows, or straight from text.

An epoch is called to begin, and gives its batches; a batch is tensors, column by column.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import harness
import logs
import numpy as np
import pandas as pd
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, TensorDataset

from recsys_emb.encoding.batch import Jagged
from recsys_emb.encoding.encoder import FeatureEncoder

BATCH = 8192
SINGLE = logs.COLUMNS[:-1]
Epoch: TypeAlias = Callable[[], Iterable[Any]]

# --- encoded rows, shuffled --------------------------------------------------------------------------------------


class ByHand:
    """`randperm` and `index_select`."""

    def __init__(self, columns: list[torch.Tensor], lists: Jagged | None = None) -> None:
        self.columns, self.lists = columns, lists
        self.generator = torch.Generator().manual_seed(0)

    def __call__(self) -> Iterator[list[Any]]:
        """Begin the next epoch."""
        for rows in torch.randperm(len(self.columns[0]), generator=self.generator).split(BATCH):
            picked: list[Any] = [column.index_select(0, rows) for column in self.columns]
            yield picked if self.lists is None else [*picked, *_pick_lists(self.lists, rows)]


def _pick_lists(lists: Jagged, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Pick ragged rows without a loop, as one would by hand."""
    starts, ends = lists.offsets[rows], lists.offsets[rows + 1]
    lengths = ends - starts
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    places = torch.arange(int(offsets[-1])) + (starts - offsets[:-1]).repeat_interleave(lengths)
    return lists.values[places], offsets


class NumpyRows(Dataset[Any]):
    """One row at a time, from numpy arrays."""

    def __init__(self, columns: list[torch.Tensor]) -> None:
        self.columns = [column.numpy() for column in columns]

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.columns[0])

    def __getitem__(self, row: int) -> Any:
        """Give a row."""
        return tuple(column[row] for column in self.columns)


class PandasRows(Dataset[Any]):
    """One row at a time, from a data frame."""

    def __init__(self, columns: list[torch.Tensor]) -> None:
        self.frame = _frame(columns)

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.frame)

    def __getitem__(self, row: int) -> Any:
        """Give a row."""
        return torch.tensor(self.frame.iloc[row].to_numpy())


class HuggingFace:
    """`Dataset.shuffle` and `iter` of Hugging Face datasets, as tensors."""

    def __init__(self, columns: list[torch.Tensor]) -> None:
        made = _quiet_datasets().Dataset.from_pandas(_frame(columns), preserve_index=False)
        self.rows, self.seed = made.with_format("torch"), 0

    def __call__(self) -> Iterable[Any]:
        """Begin the next epoch."""
        self.seed += 1
        return self.rows.shuffle(seed=self.seed, keep_in_memory=True).iter(BATCH)


def _quiet_datasets() -> ModuleType:
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
    datasets = harness.needs("datasets")
    datasets.disable_progress_bars()
    return datasets


def _frame(columns: list[torch.Tensor]) -> pd.DataFrame:
    return pd.DataFrame({f"c{number}": column.numpy() for number, column in enumerate(columns)})


def in_batches(columns: list[torch.Tensor]) -> Epoch:
    """`DataLoader` that is asked for whole batches."""
    rows = TensorDataset(*columns)
    generator = torch.Generator().manual_seed(0)
    sampler = BatchSampler(RandomSampler(rows, generator=generator), BATCH, drop_last=False)
    loader = DataLoader(rows, sampler=sampler, batch_size=None)
    return lambda: loader


def row_by_row(rows: Dataset[Any]) -> Epoch:
    loader = DataLoader(rows, batch_size=BATCH, shuffle=True, generator=torch.Generator().manual_seed(0))
    return lambda: loader


# --- text, in order ---------------------------------------------------------------------------------------------


class PandasText:
    """Read the file, then look up batch by batch in an `Index` that is kept."""

    def __init__(self, encoder: FeatureEncoder, path: Path) -> None:
        self.path = path
        self.known = {name: pd.Index(encoder.vocabularies[name].values.to_pandas()) for name in logs.COLUMNS}

    def __call__(self) -> Iterator[list[torch.Tensor]]:
        """Begin an epoch."""
        frame = pd.read_parquet(self.path, columns=[*logs.COLUMNS, "label"], use_threads=False)
        for first in range(0, len(frame), BATCH):
            batch = frame.iloc[first : first + BATCH]
            columns = [batch[name] for name in SINGLE]
            tags, lengths = batch["tags"].explode().dropna(), batch["tags"].str.len().fillna(0)
            codes = [self.known[one.name].get_indexer(one) for one in (*columns, tags)]
            offsets = np.concatenate([[0], lengths.to_numpy(np.int64).cumsum()])
            yield [*map(torch.from_numpy, (*codes, offsets)), torch.from_numpy(batch["label"].to_numpy(np.float32))]


class HuggingFaceText:
    """The first batches of an epoch over the file, looked up in dicts by a transform, as the manual shows."""

    def __init__(self, encoder: FeatureEncoder, path: Path, batches: int) -> None:
        made = _quiet_datasets().Dataset.from_parquet(str(path), cache_dir=str(harness.OUT / "data"))
        self.rows, self.batches = made.select_columns([*logs.COLUMNS, "label"]), batches
        values = {name: vocabulary.values.to_pylist() for name, vocabulary in encoder.vocabularies.items()}
        self.known = {name: {value: code for code, value in enumerate(own)} for name, own in values.items()}

    def __call__(self) -> Iterator[Any]:
        """Begin an epoch."""
        yield from itertools.islice(self.rows.with_transform(self._encoded).iter(BATCH), self.batches)

    def _encoded(self, batch: dict[str, list[Any]]) -> dict[str, Any]:
        known = self.known["tags"]
        codes = {name: torch.tensor(self._codes(name, batch[name])) for name in SINGLE}
        tags = [torch.tensor([known.get(tag, -1) for tag in tags or ()]) for tags in batch["tags"]]
        return {**codes, "tags": tags, "label": torch.tensor(batch["label"], dtype=torch.float32)}

    def _codes(self, name: str, values: list[Any]) -> list[int]:
        return [self.known[name].get(value, -1) for value in values]


class HuggingFaceByHand(HuggingFaceText):
    """The same by an expert, who makes no tensor for each list."""

    def __call__(self) -> Iterator[list[torch.Tensor]]:
        """Begin an epoch."""
        for batch in itertools.islice(self.rows.iter(BATCH), self.batches):
            tags = [tags or () for tags in batch["tags"]]
            codes = [self._codes(name, batch[name]) for name in SINGLE]
            offsets = [0, *itertools.accumulate(map(len, tags))]
            values = self._codes("tags", [*itertools.chain(*tags)])
            yield [*map(torch.tensor, (*codes, values, offsets)), torch.tensor(batch["label"], dtype=torch.float32)]
