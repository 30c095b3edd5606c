"""Copies of rows that threads moved apart become one row again: the kernel against its plain twin."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.kernels import row_copies
from recsys_emb.kernels.row_steps import Tables

V = 9


def tables_of(rng: np.random.Generator, rows: int, D: int, dtype: type = np.float32) -> Tables:
    vectors, biases = rng.normal(0, 0.5, (rows, D)), rng.normal(0, 0.5, rows)
    return Tables(vectors.astype(dtype), biases.astype(dtype), np.zeros((rows, 4), np.float32))


def shares_of(rng: np.random.Generator, rows: int, workers: int) -> npt.NDArray[np.float32]:
    counts = rng.integers(0, 5, (rows, workers)) + np.eye(workers)[rng.integers(0, workers, rows)]
    return (counts / counts.sum(1, keepdims=True)).astype(np.float32)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), D=st.sampled_from([1, 2, 16]), workers=st.integers(1, 4), copied=st.integers(0, V))
def test_merging_equals_its_plain_twin(seed: int, D: int, workers: int, copied: int) -> None:
    rng = np.random.default_rng(seed)
    originals = np.sort(rng.choice(V, copied, replace=False))
    tables = tables_of(rng, V + workers * copied, D)
    twins = Tables(tables.vectors.astype(np.float64), tables.biases.astype(np.float64), tables.pace)
    touched = np.flatnonzero(rng.random(copied) < 0.7)
    copies, shares = row_copies.Copies(originals, V, workers), shares_of(rng, len(touched), workers)
    before = tables.vectors.copy()
    row_copies.merge(copies, touched, shares, tables)
    row_copies.merge_reference(copies, touched, shares, twins)
    np.testing.assert_allclose(tables.vectors, twins.vectors, atol=1e-6, rtol=0)
    np.testing.assert_allclose(tables.biases, twins.biases, atol=1e-6, rtol=0)
    others = np.delete(np.arange(V), originals[touched])
    assert np.array_equal(tables.vectors[others], before[others])


def test_two_copies_meet_where_they_went_on_average() -> None:
    tables = Tables(np.array([[1.0], [0.0], [3.0], [6.0]], np.float32), np.zeros(4, np.float32), np.zeros((4, 4)))
    copies = row_copies.Copies(np.array([0]), 2, 2)
    row_copies.merge(copies, np.array([0]), np.array([[0.75, 0.25]], np.float32), tables)
    assert tables.vectors[:, 0].tolist() == [3.75, 0.0, 3.75, 3.75]


def test_rows_whose_copies_stayed_keep_their_bits() -> None:
    rng = np.random.default_rng(0)
    own = tables_of(rng, 100, 7)
    tables = Tables(np.concatenate([own.vectors] * 4), np.concatenate([own.biases] * 4), own.pace)
    row_copies.merge(row_copies.Copies(np.arange(100), 100, 3), np.arange(100), shares_of(rng, 100, 3), tables)
    assert np.array_equal(tables.vectors.reshape(4, 100, 7), [own.vectors] * 4)
    assert np.array_equal(tables.biases.reshape(4, 100), [own.biases] * 4)
