"""Lookups of rows are counted as pooling and the tables make them."""

from __future__ import annotations

import pytest
import torch

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.lookup.row_counts import row_counts
from recsys_emb.schema.columns import Categorical, MultiCategorical, Numeric, Position
from recsys_emb.schema.schema import Schema

SCHEMA = Schema(
    user=Categorical("user"),
    position=Position("slot", max_position=2),
    item_features=[MultiCategorical("tags"), Numeric("year")],
    item=Categorical("film", min_count=2),
)
FRAME = {
    "user": ["a", "b", "a", None],
    "film": [1, 1, 2, 3],
    "slot": [0, 2, None, 0],
    "tags": [["x", "y", "x"], [], None, [None]],
    "year": [1.0, None, 3.0, 4.0],
}


def test_every_lookup_of_a_batch_is_counted() -> None:
    batch = FeatureEncoder(SCHEMA).fit(FRAME).transform(FRAME)
    assert {name: counts.tolist() for name, counts in row_counts(batch).items()} == {
        "user": [0, 1, 0, 2, 1],
        "film": [0, 0, 2, 2],
        "slot": [0, 1, 0, 2, 0, 1],
        "tags": [0, 3, 0, 2, 1],
        "year": [3, 1],
    }


def test_counts_of_batches_add_up() -> None:
    batch = FeatureEncoder(SCHEMA).fit(FRAME).transform(FRAME)
    parts = [row_counts(batch.select(torch.tensor(rows, dtype=torch.int64))) for rows in ([0], [1, 2, 3], [])]
    for name, counts in row_counts(batch).items():
        assert torch.equal(sum(part[name] for part in parts), counts)


@pytest.mark.parametrize("size", [0, 1])
def test_padding_and_entries_of_no_weight_are_no_lookups(size: int) -> None:
    values, offsets = (torch.tensor(numbers, dtype=torch.int64) for numbers in ([0, 5, 6] * size, [0, *[3] * size]))
    lists = Jagged(values, offsets, torch.tensor([1.0, 0.0, 2.0] * size))
    padding = torch.zeros(size, dtype=torch.int64)
    counts = row_counts(Batch({"tags": lists, "user": padding}, limits={"tags": 8, "user": 3}))
    assert counts["tags"].tolist() == [0, 0, 0, 0, 0, 0, size, 0]
    assert counts["user"].tolist() == [0, 0, 0]
