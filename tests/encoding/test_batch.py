"""Batches: what they trust, and what they do not."""

from __future__ import annotations

import pytest
import torch

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.errors import ColumnError


def test_a_replaced_column_loses_the_limit_that_the_old_one_was_checked_against() -> None:
    batch = Batch({"u": torch.tensor([3]), "i": torch.tensor([4])}, limits={"u": 5, "i": 6})
    assert batch.replacing({"u": torch.tensor([10**9])}).limits == {"i": 6}


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ColumnError) as caught:
        Batch({"u": torch.tensor([3]), "tags": Jagged.from_lists([[3], []])})
    assert str(caught.value) == (
        "Batch: expected columns of equal length, got {'u': 1, 'tags': 2}. Encode them from one table."
    )


def test_lists_and_single_indices_are_told_apart() -> None:
    batch = Batch({"u": torch.tensor([3]), "tags": Jagged.from_lists([[3]])})
    with pytest.raises(ColumnError) as caught:
        batch.indices("tags")
    assert str(caught.value) == ("Batch: expected one index per row in 'tags', got lists. Declare it Categorical.")
    with pytest.raises(ColumnError) as caught:
        batch.lists("u")
    assert str(caught.value) == ("Batch: expected a list per row in 'u', got one value. Declare it MultiCategorical.")


def test_selected_rows_repeat_and_reorder_lists_with_their_weights() -> None:
    lists = Jagged(torch.tensor([3, 4, 5]), torch.tensor([0, 2, 2, 3]), torch.tensor([0.1, 0.2, 0.3]))
    picked = lists.select(torch.tensor([2, 0, 1, 2]))
    assert picked.to_lists() == [[5], [3, 4], [], [5]]
    torch.testing.assert_close(picked.weights, torch.tensor([0.3, 0.1, 0.2, 0.3]))


def test_padding_cuts_to_the_first_values_and_fills_with_padding() -> None:
    lists = Jagged.from_lists([[3, 4, 5], [], [6]])
    assert lists.pad(2).tolist() == [[3, 4], [0, 0], [6, 0]]
    assert lists.pad(4).tolist() == [[3, 4, 5, 0], [0, 0, 0, 0], [6, 0, 0, 0]]


def test_batches_of_no_rows_are_ordinary() -> None:
    empty = Batch({"u": torch.zeros(0, dtype=torch.int64), "tags": Jagged.from_lists([])}, label=torch.zeros(0))
    assert len(empty) == 0
    assert len(empty.select(torch.zeros(0, dtype=torch.int64))) == 0
    assert empty.lists("tags").pad().shape == (0, 0)


def test_a_batch_keeps_label_weight_and_limits_through_select_and_keeping() -> None:
    batch = Batch(
        {"u": torch.tensor([3, 4]), "i": torch.tensor([5, 6])},
        label=torch.tensor([1.0, 2.0]),
        weight=torch.tensor([0.5, 1.5]),
        limits={"u": 9},
    )
    kept = batch.select(torch.tensor([1])).keeping(["i"])
    assert kept.names == ("i",)
    assert kept["i"].tolist() == [6]
    assert kept.label is not None
    assert kept.label.tolist() == [2.0]
    assert kept.weight is not None
    assert kept.weight.tolist() == [1.5]
    assert kept.limits == {"u": 9}
