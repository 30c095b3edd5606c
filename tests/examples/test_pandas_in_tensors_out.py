"""What the example of the feature layer inside a foreign module claims."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="module")
def figures(example):
    with torch.random.fork_rng():
        return example("pandas_in_tensors_out").main()


def test_the_foreign_loop_learns(figures):
    assert figures["losses"][-1] < 0.1 * figures["losses"][0]


def test_the_foreign_network_beats_the_mean_rating_on_held_out_rows(figures):
    assert figures["rmse"] < 0.6 * figures["mean_rmse"]
