"""Rounds of blocks: each example once, no row written by two workers, copies where several would."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.kernels.sequential import Examples, Histories, Lists
from recsys_emb.training.strata import Round, rounds_of, with_copies

USERS, ITEMS, V = 100, 80, 240  # 60 rows behind the users and items are anybody's


def lists_of(rng: np.random.Generator, own: np.ndarray, extra: int) -> Lists:
    """One own row per list and up to ``extra`` rows that others may name too."""
    lengths = 1 + rng.integers(0, extra + 1, len(own))
    offsets = np.concatenate([[0], lengths.cumsum()])
    rows = rng.integers(USERS + ITEMS, V, offsets[-1]).astype(np.int32)
    rows[offsets[:-1]] = own
    return Lists(offsets, rows, rng.uniform(0.1, 1, len(rows)).astype(np.float32))


def examples_of(rng: np.random.Generator, users: np.ndarray, items: np.ndarray, extra: int) -> Examples:
    past = [rng.choice(np.arange(USERS + ITEMS, V), rng.integers(0, extra + 1), replace=False) for _ in range(USERS)]
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in past])])
    rows = np.concatenate(past).astype(np.int32)
    histories = Histories(users, Lists(offsets, rows, np.ones(len(rows), np.float32)))
    numbers = np.ones(len(users), np.float32)
    return Examples(lists_of(rng, users, extra), lists_of(rng, items + USERS, extra), histories, numbers, numbers)


def drawn(seed: int, count: int, blocks: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[Round]]:
    rng = np.random.default_rng(seed)
    users, items = rng.integers(0, USERS, count), rng.integers(0, ITEMS, count)
    order, rounds = rounds_of(users, items, blocks=blocks, seed=seed)
    return users[order], items[order], order, rounds


def rows_in(lists: Lists, span: tuple[int, int]) -> set[int]:
    return set(lists.rows[lists.offsets[span[0]] : lists.offsets[span[1]]].tolist())


def named(examples: Examples, span: tuple[int, int]) -> set[int]:
    """Rows that a worker writes."""
    past = examples.histories
    remembered = [rows_in(past.lists, (user, user + 1)) for user in past.users[span[0] : span[1]]]
    return set().union(rows_in(examples.users, span), rows_in(examples.items, span), *remembered)


CASES = {"seed": st.integers(0, 10**6), "count": st.integers(1, 300), "blocks": st.integers(1, 5)}


@settings(max_examples=40, deadline=None)
@given(**CASES)
def test_every_example_has_its_turn_once(seed: int, count: int, blocks: int) -> None:
    _, _, order, rounds = drawn(seed, count, blocks)
    assert sorted(order.tolist()) == list(range(count))
    assert sorted(j for spans in rounds for span in spans for j in range(*span)) == list(range(count))
    assert {len(spans) for spans in rounds} == {blocks}


@settings(max_examples=40, deadline=None)
@given(**CASES)
def test_workers_of_a_round_have_no_user_and_no_item_in_common(seed: int, count: int, blocks: int) -> None:
    users, items, _, rounds = drawn(seed, count, blocks)
    for spans in rounds:
        for one, other in itertools.combinations(spans, 2):
            assert not set(users[slice(*one)]) & set(users[slice(*other)])
            assert not set(items[slice(*one)]) & set(items[slice(*other)])


@settings(max_examples=40, deadline=None)
@given(**CASES, extra=st.integers(0, 3))
def test_with_copies_no_row_is_written_by_two_workers(seed: int, count: int, blocks: int, extra: int) -> None:
    users, items, _, rounds = drawn(seed, count, blocks)
    examples = examples_of(np.random.default_rng(seed), users, items, extra)
    copied, shared = with_copies(examples, rounds, V)
    rows = np.concatenate([np.arange(V), *[shared.copies.originals] * blocks])
    assert len(rows) == V + shared.size
    for spans, touched, shares in zip(rounds, shared.touched, shared.shares, strict=True):
        written = [named(copied, span) for span in spans]
        assert sum(map(len, written)) == len(set().union(*written))
        # What a copy stands for is what was named before.
        for before, after in zip((named(examples, span) for span in spans), written, strict=True):
            assert {int(rows[row]) for row in after} == before
        moved = {int(rows[row]) for row in set().union(*written) if row >= V}
        assert moved == set(shared.copies.originals[touched].tolist())
        np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-6)


def test_copies_count_as_often_as_their_workers_name_them() -> None:
    lists = Lists(np.arange(5), np.array([0, 0, 0, 1], np.int32), np.ones(4, np.float32))
    nothing = Lists(np.zeros(5, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
    past = Histories(
        np.array([0, 0, 1, 1]), Lists(np.array([0, 1, 1]), np.array([2], np.int32), np.ones(1, np.float32))
    )
    ones = np.ones(4, np.float32)
    copied, shared = with_copies(Examples(lists, nothing, past, ones, ones), [((0, 1), (2, 4)), ((1, 2), (4, 4))], 3)
    assert shared.copies.originals.tolist() == [0]
    assert copied.users.rows.tolist() == [3, 3, 4, 1]
    assert [one.tolist() for one in shared.shares] == [[[0.5, 0.5]], [[1.0, 0.0]]]


def test_one_block_is_the_order_given_in_about_fifty_parts() -> None:
    _, _, order, rounds = drawn(0, 1234, 1)
    assert order.tolist() == list(range(1234))
    cuts = np.linspace(0, 1234, 51).astype(int).tolist()
    assert rounds == [((start, stop),) for start, stop in itertools.pairwise(cuts)]


@pytest.mark.parametrize("blocks", [2, 3, 4])
def test_workers_get_about_as_much_to_do(blocks: int) -> None:
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 5000, 10**5), (5000 * rng.random(10**5) ** 3).astype(np.int64)
    for spans in rounds_of(users, items, blocks=blocks, seed=0)[1]:
        sizes = [stop - start for start, stop in spans]
        assert max(sizes) < 1.2 * min(sizes)
