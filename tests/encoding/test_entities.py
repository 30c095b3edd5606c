from __future__ import annotations

import pytest
import torch

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.entities import EntityTable
from recsys_emb.errors import ColumnError
from recsys_emb.vocabulary.reserved import MISSING_INDEX

NAMES = ["item", "tags", "price"]


def batch_of(items: list[int], tags: list[list[int]], prices: list[float]) -> Batch:
    price = torch.tensor([[value, 0.0] for value in prices]).reshape(-1, 2)
    columns = {
        "user": torch.full((len(items),), 3),
        "item": torch.tensor(items, dtype=torch.int64),
        "tags": Jagged.from_lists(tags),
        "price": price,
    }
    return Batch(columns, limits={"user": 4, "item": 20, "tags": 30, "price": 2})


@pytest.fixture
def items() -> EntityTable:
    batch = batch_of([9, 4, 9, 7, 2, 1], [[5], [6, 7], [8], [], [9], [9]], [1, 2, 3, 4, 5, 6])
    return EntityTable.from_batch(batch, "item", NAMES)


def test_each_entity_is_known_by_its_last_row_in_ascending_order(items: EntityTable) -> None:
    assert len(items) == 3
    assert items.indices.tolist() == [4, 7, 9]
    assert items.features.names == ("item", "tags", "price")
    assert items.features.lists("tags").to_lists() == [[6, 7], [], [8], []]
    assert items.features.indices("price").tolist() == [[2, 0], [4, 0], [3, 0], [0, 1]]


def test_missing_and_unknown_values_describe_nobody(items: EntityTable) -> None:
    assert items.rows_of(torch.tensor([0, 1, 2])).tolist() == [3, 3, 3]


def test_values_in_unknown_buckets_describe_nobody() -> None:
    batch = batch_of([3, 6], [[], []], [0, 0])
    assert EntityTable.from_batch(batch, "item", NAMES, first_index=6).indices.tolist() == [6]


def test_a_lookup_follows_the_question_with_repeats_and_strangers(items: EntityTable) -> None:
    found = items.lookup(torch.tensor([9, 2, 4, 9, 1000]))
    assert found.indices("item").tolist() == [9, 2, 4, 9, 1000]
    assert found.lists("tags").to_lists() == [[8], [], [6, 7], [8], []]
    assert found.indices("price").tolist() == [[3, 0], [0, 1], [2, 0], [3, 0], [0, 1]]
    assert found.names == ("item", "tags", "price")


def test_the_key_of_a_lookup_carries_no_limit(items: EntityTable) -> None:
    assert items.lookup(torch.tensor([9])).limits == {"tags": 30, "price": 2}


def test_a_lookup_of_nothing_has_no_rows(items: EntityTable) -> None:
    assert len(items.lookup(torch.zeros(0, dtype=torch.int64))) == 0


def test_a_stranger_has_missing_features_of_every_kind() -> None:
    columns = {
        "item": torch.tensor([3]),
        "brand": torch.tensor([8]),
        "tags": Jagged(torch.tensor([5]), torch.tensor([0, 1]), torch.tensor([0.5])),
    }
    table = EntityTable.from_batch(Batch(columns), "item", ["item", "brand", "tags"])
    stranger = table.lookup(torch.tensor([99]))
    assert stranger.indices("brand").tolist() == [MISSING_INDEX]
    weights = stranger.lists("tags").weights
    assert weights is not None
    assert weights.dtype == torch.float32
    assert len(weights) == 0


def test_nobody_is_known_of_no_rows() -> None:
    nobody = EntityTable.from_batch(batch_of([], [], []), "item", NAMES)
    assert len(nobody) == 0
    assert nobody.rows_of(torch.tensor([5, 6])).tolist() == [0, 0]
    assert nobody.lookup(torch.tensor([5])).indices("price").tolist() == [[0, 1]]


def test_the_later_table_wins_and_neither_changes(items: EntityTable) -> None:
    later = EntityTable.from_batch(batch_of([7, 12], [[1], [2]], [70, 120]), "item", NAMES)
    merged = items.merged(later)
    assert merged.indices.tolist() == [4, 7, 9, 12]
    assert merged.features.lists("tags").to_lists() == [[6, 7], [1], [8], [2], []]
    assert items.indices.tolist() == [4, 7, 9]
    assert later.merged(items).features.lists("tags").to_lists() == [[6, 7], [], [8], [2], []]


def test_labels_are_not_kept() -> None:
    batch = Batch({"item": torch.tensor([3])}, torch.tensor([1.0]), torch.tensor([1.0]))
    table = EntityTable.from_batch(batch, "item", ["item"])
    assert table.features.label is None
    assert table.features.weight is None


def test_a_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(ColumnError):
        EntityTable.from_batch(batch_of([3], [[]], [0]), "item", ["item", "brand"])


def test_a_table_moves_to_a_device(items: EntityTable) -> None:
    moved = items.to("meta")
    assert moved.indices.device.type == moved.features.indices("price").device.type == "meta"
