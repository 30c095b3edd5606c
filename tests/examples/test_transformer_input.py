"""What the example on the inputs of Transformer and BERT claims."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("out")


@pytest.fixture(scope="module")
def laws(example, folder):
    return example("transformer_input").main(folder)


def test_padding_changes_no_other_token_and_is_zero_itself(laws):
    assert laws["five words of padding leave the others as they are"] == 0
    assert laws["and are zero themselves"] == 0


def test_a_sum_of_three_lookups_is_one_three_hot_product(laws):
    assert laws["a sum of three lookups is one three-hot × matrix"] < 1e-6


def test_the_dot_product_of_two_positions_depends_on_their_distance_alone(laws):
    assert laws["P[p] · P[q] depends on the distance p - q alone"] < 1e-4


@pytest.mark.parametrize("picture", ["transformer_input", "bert_input", "positions"])
def test_the_pictures_are_drawn(laws, folder, picture):
    assert (folder / f"{picture}.png").stat().st_size > 10_000
