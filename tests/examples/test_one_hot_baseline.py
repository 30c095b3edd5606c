"""What the example on kinds of tables claims."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="module")
def figures(example):
    with torch.random.fork_rng():
        return example("one_hot_baseline").main()


def test_lookup_and_one_hot_agree_to_rounding(figures):
    assert figures["difference"]["lookup, one-hot"] < 1e-4
    assert figures["one-hot"]["RMSE"] == pytest.approx(figures["lookup"]["RMSE"], abs=1e-5)
    for name in ("parameters", "weight bytes"):
        assert figures["one-hot"][name] == figures["lookup"][name]


def test_parameters_are_those_of_tables_with_a_row_per_value(figures):
    users, items, slots = 3 + 1000, 3 + 300, 3 + 6
    assert figures["lookup"]["parameters"] == (users + items + slots) * (8 + 1)
    assert figures["lookup"]["weight bytes"] == 4 * figures["lookup"]["parameters"]


def test_only_one_hot_makes_matrices_as_wide_as_the_tables(figures):
    assert figures["one-hot"]["one-hot bytes"] == 2 * 4 * 512 * (1003 + 303)
    assert [figures[name]["one-hot bytes"] for name in ("lookup", "hashed", "quotient-remainder")] == [0, 0, 0]


@pytest.mark.parametrize("name", ["hashed", "quotient-remainder"])
def test_smaller_tables_predict_worse_than_a_row_per_value_and_better_than_the_mean(figures, name):
    assert figures[name]["parameters"] < 0.5 * figures["lookup"]["parameters"]
    assert figures["lookup"]["RMSE"] + 0.05 < figures[name]["RMSE"] < 0.8


def test_a_row_per_value_comes_near_the_noise_of_the_ratings(figures):
    assert 0.3 < figures["lookup"]["RMSE"] < 0.45
