from __future__ import annotations

import pytest
import torch

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.stacking import stack_rows
from recsys_emb.errors import DataError


def batch_of(indices: list[int], lists: list[list[int]], limit: int) -> Batch:
    columns = {"id": torch.tensor(indices, dtype=torch.int64), "tags": Jagged.from_lists(lists)}
    return Batch(columns, limits={"id": limit, "tags": limit})


def test_rows_follow_each_other_and_the_largest_limit_holds() -> None:
    both = stack_rows([batch_of([1, 2], [[7], []], 9), batch_of([], [], 20), batch_of([3], [[8, 9]], 10)])
    assert both["id"].tolist() == [1, 2, 3]
    assert both.lists("tags").to_lists() == [[7], [], [8, 9]]
    assert both.limits == {"id": 20, "tags": 20}


def test_one_unchecked_batch_makes_the_whole_unchecked() -> None:
    unchecked = Batch(batch_of([3], [[8]], 9).columns, limits={"tags": 9})
    assert stack_rows([batch_of([1], [[7]], 9), unchecked]).limits == {"tags": 9}


def test_labels_weights_and_list_weights_are_joined() -> None:
    def weighted(label: float) -> Batch:
        lists = Jagged(torch.tensor([5]), torch.tensor([0, 1]), torch.tensor([label / 2]))
        return Batch({"tags": lists}, torch.tensor([label]), torch.tensor([1.0]))

    both = stack_rows([weighted(1), weighted(2)])
    assert both.label is not None
    assert both.label.tolist() == [1, 2]
    assert both.weight is not None
    assert both.weight.tolist() == [1, 1]
    weights = both.lists("tags").weights
    assert weights is not None
    assert weights.tolist() == [0.5, 1]


def test_a_single_batch_is_given_back_as_it_is() -> None:
    batch = batch_of([1], [[2]], 3)
    assert stack_rows([batch]) is batch


def test_labels_in_some_batches_only_are_refused() -> None:
    with pytest.raises(DataError) as caught:
        stack_rows([Batch({}, torch.tensor([1.0])), Batch({})])
    assert str(caught.value) == "stack_rows: expected a label in all 2 batches, got 1. Encode them alike."


def test_no_batches_are_refused() -> None:
    with pytest.raises(DataError) as caught:
        stack_rows([])
    assert str(caught.value) == "stack_rows: expected at least one batch, got none. Encode an empty frame instead."
