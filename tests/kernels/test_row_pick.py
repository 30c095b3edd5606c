"""Rows are picked as plain indexing does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.kernels.row_pick import (
    pick_cells,
    pick_cells_reference,
    pick_lists_reference,
    pick_offsets,
    pick_values,
)


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(1, 50),
    widths=st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 2)),
    picked=st.lists(st.integers(0, 49), max_size=200),
    dtype=st.sampled_from([np.int32, np.int64]),
)
def test_cells_agree_with_the_twin(size: int, widths: tuple[int, int, int], picked: list[int], dtype: type) -> None:
    cells = np.random.default_rng(size).integers(-(2**31), 2**31, (size, sum(widths))).astype(np.int32)
    rows = (np.array(picked, np.int64) % size).astype(dtype)
    indices, numbers = np.empty((widths[0], len(rows)), np.int64), np.empty((len(rows), widths[1]), np.int32)
    answers = np.empty((widths[2], len(rows)), np.int32)
    pick_cells(cells, rows, indices, numbers, answers)
    for got, expected in zip((indices, numbers, answers), pick_cells_reference(cells, rows, *widths[:2]), strict=True):
        assert got.tolist() == expected.tolist()


@settings(max_examples=60, deadline=None)
@given(
    lists=st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5), min_size=1, max_size=40),
    picked=st.lists(st.integers(0, 39), max_size=200),
)
@pytest.mark.parametrize(("kept", "given_out"), [(np.int32, np.int64), (np.float32, np.float32)])
def test_lists_agree_with_the_twin(lists: list[list[int]], picked: list[int], kept: type, given_out: type) -> None:
    values = np.array([value for one in lists for value in one], kept)
    offsets = np.cumsum([0, *map(len, lists)])
    rows = np.array([row % len(lists) for row in picked], np.int32)
    starts, out_offsets = np.empty(len(rows), np.int64), np.empty(len(rows) + 1, np.int64)
    pick_offsets(offsets, rows, starts, out_offsets)
    out = np.empty(out_offsets[-1], given_out)
    pick_values(values, starts, out_offsets, out)
    expected, expected_offsets = pick_lists_reference(values.tolist(), offsets.tolist(), rows.tolist())
    assert out_offsets.tolist() == expected_offsets
    assert out.tolist() == expected
