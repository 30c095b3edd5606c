"""Gradients of batches against their plain twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.kernels import batch_pass as fast
from recsys_emb.kernels.row_steps import LOGISTIC, SQUARED, Examples, Histories, Lists, Tables, Task
from recsys_emb.kernels.sequential_reference import batch_pass_reference

V = 12
NOTHING = Lists(np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))


def lists_of(rng: np.random.Generator, N: int) -> Lists:
    """Up to four rows of any weight per example; repeats, and rows of the other side, included."""
    offsets = np.concatenate([[0], rng.integers(0, 5, N).cumsum()])
    rows, weights = rng.integers(0, V, offsets[-1]), rng.uniform(0.1, 1, offsets[-1])
    return Lists(offsets, rows.astype(np.int32), weights.astype(np.float32))


def examples_of(rng: np.random.Generator, link: int, N: int) -> Examples:
    targets = rng.integers(0, 2, N) if link == LOGISTIC else rng.normal(0, 1, N)
    past, weights = Histories(np.zeros(N, np.int64), NOTHING), rng.uniform(0, 2, N).astype(np.float32)
    return Examples(lists_of(rng, N), lists_of(rng, N), past, targets.astype(np.float32), weights)


def tables_of(rng: np.random.Generator, D: int) -> Tables:
    pace = rng.uniform(0.01, 0.1, (V, 4)).astype(np.float32)
    pace[rng.random(V) < 0.2, 0] = 0
    pace[rng.random(V) < 0.2, 2] = 0
    return Tables(rng.normal(0, 0.5, (V, D)).astype(np.float32), rng.normal(0, 0.5, V).astype(np.float32), pace)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    D=st.sampled_from([1, 2, 16]),
    N=st.integers(1, 60),
    link=st.sampled_from([SQUARED, LOGISTIC]),
)
def test_entries_add_up_to_the_gradients_of_the_plain_twin(seed: int, D: int, N: int, link: int) -> None:
    rng = np.random.default_rng(seed)
    examples, tables, chosen = (
        examples_of(rng, link, N),
        tables_of(rng, D),
        rng.integers(0, N, rng.integers(1, 2 * N + 1)),
    )
    most = 8 * len(chosen)
    entries = fast.Entries(
        np.empty(most, np.int64),
        np.empty((most, D), np.float32),
        np.empty(most, np.int64),
        np.empty((most, 1), np.float32),
    )
    task, before = Task(link, np.float32(0.2), 0, 0), tables.vectors.copy()
    loss, (vectors, biases) = fast.batch_pass(task, chosen, examples, tables, entries)
    expected, gradient, bias_gradient = batch_pass_reference(task, chosen, examples, tables)
    found, found_bias = np.zeros((V, D)), np.zeros(V)
    np.add.at(found, entries.vector_rows[:vectors], entries.vectors[:vectors])
    np.add.at(found_bias, entries.bias_rows[:biases], entries.biases[:biases, 0])
    assert loss == pytest.approx(expected, rel=1e-5, abs=1e-5)
    np.testing.assert_allclose(found, gradient, atol=2e-6, rtol=0)
    np.testing.assert_allclose(found_bias, bias_gradient, atol=2e-6, rtol=0)
    assert np.array_equal(tables.vectors, before)


def test_a_row_is_listed_as_often_as_it_is_named() -> None:
    one = Lists(np.array([0, 2]), np.array([3, 3], np.int32), np.ones(2, np.float32))
    other = Lists(np.array([0, 1]), np.array([5], np.int32), np.ones(1, np.float32))
    ones = np.ones(1, np.float32)
    tables = Tables(np.ones((V, 1), np.float32), np.zeros(V, np.float32), np.ones((V, 4), np.float32))
    entries = fast.Entries(
        np.empty(3, np.int64), np.empty((3, 1), np.float32), np.empty(3, np.int64), np.empty((3, 1), np.float32)
    )
    examples = Examples(one, other, Histories(np.zeros(1, np.int64), NOTHING), ones, ones)
    loss, found = fast.batch_pass(Task(SQUARED, np.float32(0), 0, 0), np.array([0]), examples, tables, entries)
    assert (loss, found) == (0.5, (3, 3))  # score 2, label 1
    assert entries.vector_rows.tolist() == [3, 3, 5]
    assert entries.vectors[:, 0].tolist() == [2.0, 2.0, 3.0]  # error · other side + L2
    assert entries.biases[:, 0].tolist() == [1.0, 1.0, 1.0]
