"""What the example on the cost of lookups claims; bytes are counted, so they are exact, and times are not compared."""

from __future__ import annotations

import pytest

B, SMALL, LARGE, D = 64, 1_000, 10_000, 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("out")


@pytest.fixture(scope="module")
def costs(example, folder):
    cases = [(SMALL, D), (LARGE, D), (LARGE, 2 * D), (10**9, D)]
    return example("lookup_cost").main(folder, cases=cases, patience=0.001, limit=2**28)


@pytest.fixture(scope="module")
def allocated(costs):
    return costs.set_index(["way", "gradient", "V", "D"])["bytes"]


def test_a_size_beyond_the_limit_of_memory_is_skipped(costs):
    assert sorted(costs["V"].unique()) == [SMALL, LARGE]


def test_a_dense_one_hot_matrix_takes_four_bytes_for_every_row_of_the_table_and_index(allocated):
    for rows in (SMALL, LARGE):
        assert allocated["dense one-hot", False, rows, D] >= 4 * B * rows


def test_a_lookup_allocates_the_same_however_many_rows_there_are(allocated):
    for gradient in (False, True):
        assert allocated["lookup", gradient, SMALL, D] == allocated["lookup", gradient, LARGE, D]
    assert allocated["lookup", True, LARGE, D] < 4 * LARGE


def test_a_sparse_one_hot_matrix_is_small_forward_but_its_gradient_is_a_whole_table(allocated):
    assert allocated["sparse one-hot", False, SMALL, D] == allocated["sparse one-hot", False, LARGE, D]
    assert allocated["sparse one-hot", True, LARGE, D] >= 4 * LARGE * D


def test_every_time_is_measured(costs):
    assert (costs["seconds"] > 0).all()


def test_the_picture_is_drawn(costs, folder):
    assert (folder / "lookup_cost.png").stat().st_size > 10_000
