"""Batches: what they trust, and what they do not."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.errors import ColumnError, DataError, KeyTypeError, listed


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


@pytest.mark.parametrize("rows", [slice(1, 3), slice(None), slice(-1, None), slice(2, 1), slice(0, 99, 1)])
def test_a_slice_of_rows_is_a_batch(rows: slice) -> None:
    users = torch.tensor([3, 4, 5])
    batch = Batch({"u": users, "tags": Jagged.from_lists([[3], [], [4, 5]])}, label=users.float(), limits={"u": 6})
    part = batch[rows]
    assert part["u"].tolist() == users[rows].tolist()
    assert part.lists("tags").to_lists() == [[3], [], [4, 5]][rows]
    assert part.label.tolist() == users[rows].tolist()
    assert part.limits == {"u": 6}


@pytest.mark.parametrize("rows", [0, slice(0, 2, 2)])
def test_other_picks_of_rows_are_refused(rows: Any) -> None:
    with pytest.raises(KeyTypeError) as caught:
        Batch({"u": torch.tensor([3])})[rows]
    assert str(caught.value) == (
        f"Batch: expected the name of a feature, or a slice of step 1, got {rows!r}. Pick rows with select."
    )


def test_a_batch_that_is_taken_for_a_dictionary_says_where_names_are() -> None:
    batch = Batch({"u": torch.tensor([3])})
    with pytest.raises(AttributeError) as caught:
        batch.keys()
    assert str(caught.value) == "Batch: no attribute 'keys'. It has names and columns."
    assert copy.deepcopy(pickle.loads(pickle.dumps(batch)))["u"].tolist() == [3]


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


@settings(max_examples=40, deadline=None)
@given(lists=st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=8), ends=st.tuples(*[st.integers(0, 8)] * 2))
def test_a_slice_is_what_selecting_the_same_rows_gives(lists: list[list[int]], ends: tuple[int, int]) -> None:
    first, last = sorted(min(end, len(lists)) for end in ends)
    tags = Jagged.from_lists(lists)
    tags = Jagged(tags.values, tags.offsets, tags.values.float() / 2)
    numbers = torch.arange(len(lists))
    batch = Batch({"tags": tags, "u": numbers}, numbers.float(), numbers.float() + 1, {"u": 9})
    cut, picked = batch.slice(first, last), batch.select(numbers[first:last])
    assert cut.lists("tags").to_lists() == lists[first:last]
    for one in (cut.lists("tags").weights, cut["u"], cut.label, cut.weight):
        assert one is not None
    assert torch.equal(cut.lists("tags").weights, picked.lists("tags").weights)
    assert all(torch.equal(a, b) for a, b in ((cut["u"], picked["u"]), (cut.label, picked.label)))
    assert torch.equal(cut.weight, picked.weight)
    assert cut.limits == {"u": 9}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1], [0, 1]), "values to be a tensor, got list. Use Jagged.from_lists."),
        (
            (torch.ones(2), torch.tensor([0, 2])),
            "values to be integers (N,), got (2,) of torch.float32. Lay the lists end to end.",
        ),
        (
            (torch.ones(2, 1, dtype=torch.int64), torch.tensor([0, 2])),
            "values to be integers (N,), got (2, 1) of torch.int64. Lay the lists end to end.",
        ),
        (
            (torch.tensor([1]), torch.tensor([0.0, 1.0])),
            "offsets to be integers (B + 1,), got (2,) of torch.float32. Lay the lists end to end.",
        ),
        (
            (torch.tensor([1, 2]), torch.tensor([0, 2]), torch.tensor([1.0])),
            "weights of shape (2,), got (1,). Give one per value.",
        ),
    ],
)
def test_tensors_of_other_shapes_and_types_are_no_lists(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(DataError) as caught:
        Jagged(*arguments)
    assert str(caught.value) == f"Jagged: expected {message}"


@pytest.mark.parametrize("offsets", [[], [1, 2], [0, 1], [0, 3], [0, 2, 1, 2], [-1, 2]])
def test_offsets_go_from_0_up_to_the_number_of_values(offsets: list[int]) -> None:
    with pytest.raises(DataError) as caught:
        Jagged(torch.tensor([7, 8]), torch.tensor(offsets, dtype=torch.int64))
    assert str(caught.value) == (
        f"Jagged: expected offsets that go from 0 up to 2, got {listed(offsets)}. "
        "They are where lists begin, and where the last one ends."
    )


def test_indices_in_lists_are_integers() -> None:
    with pytest.raises(DataError) as caught:
        Jagged.from_lists([[1], [1.5]])
    assert str(caught.value) == (
        "Jagged: expected values to be integers (N,), got (2,) of torch.float32. Lay the lists end to end."
    )


@pytest.mark.parametrize("answers", [{"label": torch.zeros(2)}, {"weight": torch.zeros(2)}])
def test_label_and_weight_have_as_many_rows_as_the_columns(answers: dict[str, torch.Tensor]) -> None:
    with pytest.raises(ColumnError) as caught:
        Batch({"u": torch.tensor([3])}, **answers)
    (name,) = answers
    assert str(caught.value) == (
        f"Batch: expected columns of equal length, got {{'u': 1, 'its {name}': 2}}. Encode them from one table."
    )


@pytest.mark.parametrize(("column", "got"), [([1], "list"), (torch.tensor(1), "one number")])
def test_a_column_is_a_tensor_with_rows_or_lists(column: Any, got: str) -> None:
    with pytest.raises(DataError) as caught:
        Batch({"u": column})
    assert str(caught.value) == (f"Batch: expected 'u' to be a tensor (B, ...) or a Jagged, got {got}. Encode a table.")
