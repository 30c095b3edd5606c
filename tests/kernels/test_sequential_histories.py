"""Long histories through the row-by-row kernels: cached for a user's run, and still one exact step per example."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.kernels import sequential as fast
from recsys_emb.kernels import sequential_reference as plain

USERS, ITEMS, PAST = 4, 50, range(60, 260)
V = PAST.stop


def single(rows: np.ndarray) -> fast.Lists:
    """One row of weight 1 per example."""
    return fast.Lists(np.arange(len(rows) + 1), rows.astype(np.int32), np.ones(len(rows), np.float32))


def histories_of(rng: np.random.Generator, users: np.ndarray) -> fast.Histories:
    """Up to 200 items for each user but the first, who has none."""
    lists = [rng.choice(PAST, length, replace=False) for length in (0, *rng.integers(1, len(PAST) + 1, USERS - 1))]
    lengths = np.array([len(one) for one in lists])
    weights = np.repeat(1 / np.sqrt(np.maximum(lengths, 1)), lengths).astype(np.float32)
    offsets = np.concatenate([[0], lengths.cumsum()])
    return fast.Histories(users, fast.Lists(offsets, np.concatenate(lists).astype(np.int32), weights))


def examples_of(rng: np.random.Generator, N: int, link: int = fast.SQUARED) -> fast.Examples:
    """Users one after another, as training stores them, with a stranger now and then."""
    users = np.where(rng.random(N) < 0.1, 0, np.sort(rng.integers(1, USERS, N)))
    targets = rng.normal(0, 1, N) if link == fast.SQUARED else rng.integers(0, 2, N)
    weights = rng.uniform(0, 2, N).astype(np.float32)
    items = single(10 + rng.integers(0, ITEMS, N))
    return fast.Examples(single(users), items, histories_of(rng, users), targets.astype(np.float32), weights)


def tables_of(rng: np.random.Generator, D: int, *, rate: float = 0.02) -> fast.Tables:
    pace = rng.uniform(0.01, 0.05, (V, 4)).astype(np.float32)
    pace[PAST] = rate, 0.3, 0, 0
    vectors, biases = rng.normal(0, 0.2, (V, D)).astype(np.float32), rng.normal(0, 0.1, V).astype(np.float32)
    biases[PAST] = 0
    return fast.Tables(vectors, biases, pace)


def doubled(tables: fast.Tables) -> fast.Tables:
    return fast.Tables(tables.vectors.astype(np.float64), tables.biases.astype(np.float64), tables.pace)


def contrast_of(rng: np.random.Generator, users: np.ndarray) -> fast.Contrast:
    """Each user has seen three items; no positions."""
    seen = np.concatenate([np.sort(rng.choice(ITEMS, 3, replace=False)) for _ in range(USERS)])
    nowhere = fast.Lists(np.zeros(len(users) + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
    return fast.Contrast(users, 3 * np.arange(USERS + 1), seen, single(10 + np.arange(ITEMS)), nowhere)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), D=st.sampled_from([1, 16]), link=st.sampled_from([fast.SQUARED, fast.LOGISTIC]))
def test_long_runs_over_long_histories_equal_the_plain_twin(seed: int, D: int, link: int) -> None:
    rng = np.random.default_rng(seed)
    examples, tables = examples_of(rng, 300, link), tables_of(rng, D)
    twins, task, before = doubled(tables), fast.Task(link, np.float32(0.1), 0, 0), tables.vectors.copy()
    loss = fast.list_pass(task, (0, 300), examples, tables)
    assert loss == pytest.approx(plain.list_pass_reference(task, (0, 300), examples, twins), rel=1e-4)
    np.testing.assert_allclose(tables.vectors, twins.vectors, atol=1e-5, rtol=0)
    np.testing.assert_allclose(tables.biases, twins.biases, atol=1e-5, rtol=0)
    assert np.abs(tables.vectors[PAST] - before[PAST]).max() > 0.001


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    D=st.sampled_from([1, 16]),
    objective=st.sampled_from([(fast.PAIRWISE, 1), (fast.LOGISTIC, 5)]),
)
def test_rankings_with_long_histories_equal_the_plain_twin(seed: int, D: int, objective: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    examples, tables = examples_of(rng, 100), tables_of(rng, D)
    contrast, twins = contrast_of(rng, examples.histories.users), doubled(tables)
    task = fast.Task(objective[0], np.float32(-1), objective[1], int(rng.integers(2**63)))
    loss, learned = fast.ranking_pass(task, (0, 100), examples, contrast, tables)
    expected, _ = plain.ranking_pass_reference(task, (0, 100), examples, contrast, twins)
    assert (learned, loss) == (100, pytest.approx(expected, rel=1e-4))
    np.testing.assert_allclose(tables.vectors, twins.vectors, atol=1e-5, rtol=0)
    np.testing.assert_allclose(tables.biases, twins.biases, atol=1e-5, rtol=0)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), borders=st.lists(st.integers(0, 120), max_size=6))
def test_a_run_that_is_cut_in_the_middle_is_the_same_run(seed: int, borders: list[int]) -> None:
    rng = np.random.default_rng(seed)
    examples, tables = examples_of(rng, 120), tables_of(rng, 8)
    whole = fast.Tables(tables.vectors.copy(), tables.biases.copy(), tables.pace)
    task, cuts = fast.Task(fast.SQUARED, np.float32(0), 0, 0), [0, *sorted(borders), 120]
    total = fast.list_pass(task, (0, 120), examples, whole)
    parts = [fast.list_pass(task, span, examples, tables) for span in itertools.pairwise(cuts)]
    assert sum(parts) == pytest.approx(total, rel=1e-4)
    np.testing.assert_allclose(tables.vectors, whole.vectors, atol=1e-5, rtol=0)


def test_a_history_of_rate_zero_stays_bit_for_bit_and_counts() -> None:
    rng = np.random.default_rng(0)
    examples, tables = examples_of(rng, 200), tables_of(rng, 8, rate=0)
    before, twins = tables.vectors.copy(), doubled(tables)
    task = fast.Task(fast.SQUARED, np.float32(0), 0, 0)
    loss = fast.list_pass(task, (0, 200), examples, tables)
    assert np.array_equal(tables.vectors[PAST], before[PAST])
    assert loss == pytest.approx(plain.list_pass_reference(task, (0, 200), examples, twins), rel=1e-4)
    np.testing.assert_allclose(tables.vectors, twins.vectors, atol=1e-5, rtol=0)
