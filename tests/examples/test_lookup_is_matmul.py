"""What the example on lookups and one-hot products claims."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("out")


@pytest.fixture(scope="module")
def figures(example, folder):
    return example("lookup_is_matmul").main(folder)


def test_three_spellings_of_a_lookup_give_the_same_numbers_and_the_same_gradient(figures):
    assert list(figures["differences"]) == ["lookup E[i]", "one_hot(i) @ E", "linear layer without bias"]
    assert max(max(pair) for pair in figures["differences"].values()) < 1e-6


def test_only_the_rows_that_were_looked_up_have_a_gradient(figures):
    assert figures["touched"] == [1, 2, 3, 5, 6]


def test_a_row_looked_up_three_times_has_three_times_the_gradient(figures):
    tea = figures["vectors"]["lookup E[i]"][0].detach()
    for gradient in figures["gradients"].values():
        torch.testing.assert_close(gradient[3], 3 * tea)


def test_values_come_back_from_their_indices_and_unknown_and_missing_ones_as_none(figures):
    assert figures["decoded"] == ["tea", "cocoa", "tea", "milk", "tea", None, None]


def test_the_picture_is_drawn(figures, folder):
    assert (folder / "lookup_is_matmul.png").stat().st_size > 10_000
