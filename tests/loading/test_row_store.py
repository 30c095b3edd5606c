from __future__ import annotations

import numpy as np
import pytest
import torch

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.filling import Growing
from recsys_emb.errors import DataError
from recsys_emb.loading.row_store import RowStore


def batch_of(*rows: int, label: bool = True) -> Batch:
    indices = torch.tensor(rows, dtype=torch.int64)
    weights = indices.repeat_interleave(2).float()
    columns = {
        "id": indices,
        "size": torch.stack([indices * 0.5, indices % 2.0], dim=1),
        "tags": Jagged(indices.repeat_interleave(2), torch.arange(len(rows) + 1) * 2, weights),
        "slot": indices + 100,
        "words": Jagged.from_lists([[row] * (row % 3) for row in rows]),
    }
    return Batch(columns, indices.float() if label else None, indices * 2.0, {"id": 1000})


@pytest.mark.parametrize("pieces", [[(0, 1, 2, 3, 4)], [(), (0, 1), (2,), (3, 4)]])
@pytest.mark.parametrize("rows", [[], [3], [4, 0, 0, 2]])
def test_picked_rows_are_as_they_were(pieces: list[tuple[int, ...]], rows: list[int]) -> None:
    picked = RowStore.of(batch_of(*piece) for piece in pieces).pick(np.array(rows, np.int32))
    expected = batch_of(*rows)
    assert picked.names == expected.names
    assert picked.limits == expected.limits
    for name in ("id", "size", "slot"):
        assert torch.equal(picked.indices(name), expected.indices(name))
        assert picked.indices(name).dtype == expected.indices(name).dtype
        assert picked.indices(name).is_contiguous()
    for name in ("tags", "words"):
        assert picked.lists(name).to_lists() == expected.lists(name).to_lists()
        assert picked.lists(name).values.dtype == torch.int64
    assert torch.equal(picked.lists("tags").weights, expected.lists("tags").weights)
    assert torch.equal(picked.label, expected.label)
    assert torch.equal(picked.weight, expected.weight)


def test_a_weight_without_a_label_stays_a_weight() -> None:
    picked = RowStore.of([batch_of(5, label=False)]).pick(np.array([0]))
    assert picked.label is None
    assert picked.weight is not None
    assert picked.weight.tolist() == [10]


def test_rows_without_single_columns_are_counted_too() -> None:
    store = RowStore.of([Batch({"tags": Jagged.from_lists([[1], []])}), Batch({"tags": Jagged.from_lists([[2]])})])
    assert len(store) == 3
    assert store.pick(np.array([2, 0])).lists("tags").to_lists() == [[2], [1]]


def test_indices_take_four_bytes() -> None:
    store = RowStore.of([batch_of(1, 2)])
    assert store.cells.dtype == np.int32
    assert store.cells.shape == (2, 6)
    assert store.lists["tags"].values.dtype == np.int32


def test_an_index_beyond_32_bits_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        RowStore.of([Batch({"id": torch.tensor([2**31])})])
    assert str(caught.value) == ("RowStore: expected indices of at most 2147483647, got 2147483648. Load unshuffled.")


def test_no_batches_are_refused() -> None:
    with pytest.raises(DataError) as caught:
        RowStore.of([])
    assert str(caught.value) == "RowStore: expected at least one batch, got none. Encode an empty frame instead."


def test_a_room_is_written_over_and_batches_that_were_picked_stay() -> None:
    def rows(first: int, count: int) -> Batch:
        numbers = torch.arange(first, first + count)
        tags = Jagged.from_lists([[number, number + 1] for number in numbers.tolist()])
        return Batch({"u": numbers, "tags": tags}, label=numbers.float())

    room: dict[str, Growing] = {}
    every = np.arange(3)
    picked = RowStore.of([rows(10, 3)], num_rows=3, room=room).pick(every)
    for first, count in ((20, 3), (30, 2), (40, 50)):
        again = RowStore.of([rows(first, count)], num_rows=count, room=room)
        assert len(again) == count
        assert again.pick(np.array([count - 1])).lists("tags").to_lists() == [[first + count - 1, first + count]]
    assert picked["u"].tolist() == [10, 11, 12]
    assert picked.lists("tags").to_lists() == [[10, 11], [11, 12], [12, 13]]
    assert picked.label is not None
    assert picked.label.tolist() == [10.0, 11.0, 12.0]
