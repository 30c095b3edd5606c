from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.encoding.batch import Batch
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import DataError
from recsys_emb.loading.loader import BatchLoader
from recsys_emb.schema import Categorical, MultiCategorical, Numeric, Schema

ROWS = 40
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


def labels_of(batch: Batch) -> list[int]:
    assert batch.label is not None
    assert torch.equal(batch.indices("row"), batch.label.long() + 3)
    return batch.label.long().tolist()


@given(
    rows=st.integers(0, ROWS),
    world_size=st.integers(1, 6),
    batch_size=st.integers(1, 9),
    options=st.sampled_from([{}, {"shuffle": True}, {"shuffle": True, "window": 4}]),
    prefetch=st.integers(0, 1),
)
@settings(max_examples=60, deadline=None)
def test_all_ranks_have_as_many_batches_and_together_every_row_once(
    rows: int, world_size: int, batch_size: int, options: dict[str, object], prefetch: int
) -> None:
    common = {"batch_size": batch_size, "world_size": world_size, "prefetch": prefetch, **options}
    loaders = [BatchLoader(ENCODER, FRAME.iloc[:rows], rank=rank, **common) for rank in range(world_size)]
    found = [[labels_of(batch) for batch in loader] for loader in loaders]

    assert {len(batches) for batches in found} == {len(loaders[0])}
    for step in zip(*found, strict=True):
        assert max(map(len, step)) - min(map(len, step)) <= 1
        assert max(map(len, step)) > 0
    assert sorted(label for batches in found for batch in batches for label in batch) == list(range(rows))


def test_a_batch_without_rows_has_all_columns(tmp_path: Path) -> None:
    FRAME.to_parquet(tmp_path / "rows.parquet")
    for source in (FRAME.iloc[:17], str(tmp_path / "rows.parquet")):
        count = len(BatchLoader(ENCODER, source, batch_size=1))
        loader = BatchLoader(ENCODER, source, batch_size=count // 2, world_size=count - 1)
        batches = list(loader)
        assert [len(batch) for batch in batches] == [1]
        *_, last = BatchLoader(ENCODER, source, batch_size=1, world_size=count - 1)
        assert (last.names, len(last), len(last.lists("tags"))) == (("row", "tags", "size"), 0, 0)
        assert last.label is not None
        assert last.indices("size").shape == (0, 2)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_reads_its_own_row_groups_alone(rank: int, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    FRAME.to_parquet(path, row_group_size=10)
    footer = pq.ParquetFile(path).metadata
    with path.open("r+b") as file:
        for group in ({0, 1}, {2, 3})[1 - rank]:
            for column in map(footer.row_group(group).column, range(footer.num_columns)):
                file.seek(column.dictionary_page_offset or column.data_page_offset)
                file.write(b"\xff" * column.total_compressed_size)

    batches = list(BatchLoader(ENCODER, str(path), batch_size=5, rank=rank, world_size=2))
    assert [row for batch in batches for row in labels_of(batch)] == list(range(20 * rank, 20 * rank + 20))
    with pytest.raises(DataError):
        list(BatchLoader(ENCODER, str(path), batch_size=5, rank=1 - rank, world_size=2))


def test_a_rank_that_resumes_yields_what_was_to_come_and_the_empty_batch_too() -> None:
    options = {"batch_size": 4, "world_size": 3}
    for rank, sizes in enumerate([[4, 4, 0], [4, 4, 0], [4, 4, 1]]):
        loader = BatchLoader(ENCODER, FRAME.iloc[:25], rank=rank, **options)
        batches = iter(loader)
        assert len(next(batches)) == sizes[0]
        state = loader.state_dict()
        later = BatchLoader(ENCODER, FRAME.iloc[:25], rank=rank, **options)
        later.load_state_dict(state)
        assert [len(batch) for batch in later] == sizes[1:] == [len(batch) for batch in batches]
