"""The row-by-row kernels against their plain twins."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.kernels import sequential as fast
from recsys_emb.kernels import sequential_reference as plain

USERS, ITEMS, SHARED, PAST, V = range(1, 6), range(6, 13), range(13, 20), range(20, 26), 26
LINKS = [fast.SQUARED, fast.LOGISTIC]


def lists_of(rng: np.random.Generator, ids: npt.NDArray[np.int64], extra: int, start: int = 1) -> fast.Lists:
    """One own row of weight 1 per list, and up to ``extra`` shared rows of any weight, repeats included."""
    lengths = start + rng.integers(0, extra + 1, len(ids))
    offsets = np.concatenate([[0], lengths.cumsum()])
    rows = rng.choice(SHARED, offsets[-1]).astype(np.int32)
    weights = rng.uniform(0.1, 1, offsets[-1]).astype(np.float32)
    if start:
        rows[offsets[:-1]], weights[offsets[:-1]] = ids, 1
    return fast.Lists(offsets, rows, weights)


def tables_of(rng: np.random.Generator, D: int) -> fast.Tables:
    vectors = rng.normal(0, 0.3, (V, D)).astype(np.float32)
    vectors[0] = 7
    pace = rng.uniform(0.01, 0.1, (V, 4)).astype(np.float32)
    pace[SHARED[0], fast.VECTOR_RATE] = 0
    # A history has one pace and no biases.
    pace[PAST] = pace[PAST[0]]
    pace[PAST, fast.BIAS_RATE] = 0
    biases = rng.normal(0, 0.1, V).astype(np.float32)
    biases[PAST] = 0
    return fast.Tables(vectors, biases, pace)


def doubled(tables: fast.Tables) -> fast.Tables:
    return fast.Tables(tables.vectors.astype(np.float64), tables.biases.astype(np.float64), tables.pace)


def examples_of(rng: np.random.Generator, link: int, N: int, extra: int) -> fast.Examples:
    users, items = rng.choice(USERS, N), rng.choice(ITEMS, N)
    users = np.sort(users) if rng.random() < 0.5 else users
    targets = rng.integers(0, 2, N) if link == fast.LOGISTIC else rng.normal(0, 1, N)
    weights = rng.uniform(0, 2, N)
    left, right = lists_of(rng, users, extra), lists_of(rng, items, extra)
    past = histories_of(rng, users, extra)
    return fast.Examples(left, right, past, targets.astype(np.float32), weights.astype(np.float32))


def histories_of(rng: np.random.Generator, users: npt.NDArray[np.int64], extra: int) -> fast.Histories:
    """Up to ``extra`` distinct rows per user, each of weight 1/√n; users come in runs or not."""
    lists = [rng.choice(PAST, rng.integers(0, extra + 1), replace=False) for _ in USERS]
    lengths = np.array([len(one) for one in lists])
    offsets, rows = np.concatenate([[0], lengths.cumsum()]), np.concatenate(lists).astype(np.int32)
    weights = np.repeat(1 / np.sqrt(np.maximum(lengths, 1)), lengths).astype(np.float32)
    return fast.Histories(users - USERS[0], fast.Lists(offsets, rows, weights))


def contrast_of(rng: np.random.Generator, examples: fast.Examples, extra: int) -> fast.Contrast:
    users = examples.users.rows[examples.users.offsets[:-1]] - USERS[0]
    items = examples.items.rows[examples.items.offsets[:-1]] - ITEMS[0]
    seen = [sorted({int(item) for item in items[users == user]}) for user in range(len(USERS))]
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in seen])]).astype(np.int64)
    flat = np.array([item for one in seen for item in one], np.int64)
    places = lists_of(rng, users, 1, start=0)
    return fast.Contrast(users.astype(np.int64), offsets, flat, lists_of(rng, np.array(ITEMS), extra), places)


def assert_equal(fast_tables: fast.Tables, plain_tables: fast.Tables) -> None:
    np.testing.assert_allclose(fast_tables.vectors, plain_tables.vectors, atol=1e-5, rtol=0)
    np.testing.assert_allclose(fast_tables.biases, plain_tables.biases, atol=1e-5, rtol=0)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), D=st.sampled_from([1, 2, 16]), N=st.integers(0, 40), link=st.sampled_from(LINKS))
def test_list_pass_equals_its_plain_twin(seed: int, D: int, N: int, link: int) -> None:
    rng = np.random.default_rng(seed)
    examples, tables = examples_of(rng, link, N, extra=3), tables_of(rng, D)
    twins, task = doubled(tables), fast.Task(link, np.float32(0.3), 0, 0)
    loss = fast.list_pass(task, (0, N), examples, tables)
    assert loss == pytest.approx(plain.list_pass_reference(task, (0, N), examples, twins), abs=1e-4)
    assert_equal(tables, twins)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), D=st.sampled_from([1, 2, 16]), N=st.integers(1, 40), link=st.sampled_from(LINKS))
def test_pair_pass_equals_the_plain_twin_of_list_pass(seed: int, D: int, N: int, link: int) -> None:
    rng = np.random.default_rng(seed)
    examples, tables = examples_of(rng, link, N, extra=0), tables_of(rng, D)
    tables.pace[USERS], tables.pace[ITEMS] = tables.pace[USERS[0]], tables.pace[ITEMS[0]]
    twins, task = doubled(tables), fast.Task(link, np.float32(-0.2), 0, 0)
    loss = fast.pair_pass(task, (0, N), examples, tables)
    assert loss == pytest.approx(plain.list_pass_reference(task, (0, N), examples, twins), abs=1e-4)
    assert_equal(tables, twins)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    D=st.sampled_from([1, 2, 16]),
    N=st.integers(0, 40),
    objective=st.sampled_from([(fast.PAIRWISE, 1), (fast.LOGISTIC, 1), (fast.LOGISTIC, 5)]),
)
def test_ranking_pass_equals_its_plain_twin(seed: int, D: int, N: int, objective: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    examples, tables = examples_of(rng, objective[0], N, extra=2), tables_of(rng, D)
    contrast, twins = contrast_of(rng, examples, extra=2), doubled(tables)
    task = fast.Task(objective[0], np.float32(-1), objective[1], int(rng.integers(2**63)))
    loss, learned = fast.ranking_pass(task, (0, N), examples, contrast, tables)
    expected, expected_learned = plain.ranking_pass_reference(task, (0, N), examples, contrast, twins)
    assert (learned, loss) == (expected_learned, pytest.approx(expected, abs=1e-4))
    assert_equal(tables, twins)


@pytest.mark.parametrize("link", LINKS)
def test_rows_that_no_example_names_stay_bit_for_bit(link: int) -> None:
    rng = np.random.default_rng(0)
    examples, tables = examples_of(rng, link, 200, extra=3), tables_of(rng, 8)
    before = tables.vectors.copy()
    fast.list_pass(fast.Task(link, np.float32(0), 0, 0), (0, 200), examples, tables)
    named = np.concatenate([examples.users.rows, examples.items.rows, examples.histories.lists.rows])
    assert 0 not in named
    assert np.array_equal(np.delete(tables.vectors, named, axis=0), np.delete(before, named, axis=0))


def test_a_row_of_vector_rate_zero_learns_a_bias_alone() -> None:
    rng = np.random.default_rng(0)
    examples, tables = examples_of(rng, fast.SQUARED, 200, extra=3), tables_of(rng, 8)
    vectors, biases = tables.vectors.copy(), tables.biases.copy()
    fast.list_pass(fast.Task(fast.SQUARED, np.float32(0), 0, 0), (0, 200), examples, tables)
    assert np.array_equal(tables.vectors[SHARED[0]], vectors[SHARED[0]])
    assert tables.biases[SHARED[0]] != biases[SHARED[0]]


def test_two_halves_of_a_pass_are_the_whole() -> None:
    rng = np.random.default_rng(0)
    examples, tables = examples_of(rng, fast.SQUARED, 60, extra=2), tables_of(rng, 4)
    whole = fast.Tables(tables.vectors.copy(), tables.biases.copy(), tables.pace)
    task = fast.Task(fast.SQUARED, np.float32(0), 0, 0)
    total = fast.list_pass(task, (0, 60), examples, whole)
    halves = [fast.list_pass(task, span, examples, tables) for span in ((0, 25), (25, 60))]
    assert np.array_equal(tables.vectors, whole.vectors)
    assert sum(halves) == pytest.approx(total)


def test_negatives_are_unseen_uniform_and_a_function_of_the_seed() -> None:
    rng = np.random.default_rng(0)
    examples = examples_of(rng, fast.LOGISTIC, 30, extra=0)
    contrast = contrast_of(rng, examples, extra=0)
    task = fast.Task(fast.LOGISTIC, np.float32(0), 4000, 5)
    user = contrast.users[0]
    own = set(contrast.seen[contrast.offsets[user] : contrast.offsets[user + 1]].tolist())
    drawn = plain.negatives_reference(task, contrast, 0)
    unseen = sorted(set(range(len(ITEMS))) - own)
    counts = [drawn.count(item) for item in unseen]
    assert sum(counts) == 4000
    assert max(counts) - min(counts) < 300
    assert drawn == plain.negatives_reference(task, contrast, 0)
    assert drawn != plain.negatives_reference(task._replace(seed=6), contrast, 0)


def test_an_example_whose_user_has_every_item_is_skipped() -> None:
    rng = np.random.default_rng(0)
    examples, tables = examples_of(rng, fast.LOGISTIC, 8, extra=0), tables_of(rng, 4)
    contrast = contrast_of(rng, examples, extra=0)
    everything = fast.Contrast(
        np.zeros(8, np.int64), np.array([0, len(ITEMS)]), np.arange(len(ITEMS)), contrast.catalogue, contrast.places
    )
    before = tables.vectors.copy()
    task = fast.Task(fast.LOGISTIC, np.float32(0), 3, 0)
    assert fast.ranking_pass(task, (0, 8), examples, everything, tables) == (0.0, 0)
    assert np.array_equal(tables.vectors, before)
