"""Unseen items: exact, uniform, never a positive, never a loop."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.encoding.batch import Batch
from recsys_emb.errors import FitError
from recsys_emb.schema import Categorical, Schema, UnknownBuckets
from recsys_emb.training.sampling import Interactions, Seen

PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6)), max_size=30)


def seen_of(pairs: list[tuple[int, int]]) -> Seen:
    users, items = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
    return Seen.from_pairs(users, items, num_users=4, num_items=7)


@settings(max_examples=60, deadline=None)
@given(pairs=PAIRS)
def test_unseen_items_are_all_items_but_the_seen_ones_in_order(pairs: list[tuple[int, int]]) -> None:
    seen = seen_of(pairs)
    for user in range(4):
        expected = sorted(set(range(7)) - {item for owner, item in pairs if owner == user})
        assert seen.unseen_counts(torch.tensor([user])).tolist() == [len(expected)]
        found = seen.nth_unseen(torch.tensor([user]), torch.arange(len(expected)).unsqueeze(0))
        assert found.tolist() == [expected]


@settings(max_examples=30, deadline=None)
@given(pairs=PAIRS, seed=st.integers(0, 100))
def test_draws_never_hit_a_positive_and_repeat_with_the_seed(pairs: list[tuple[int, int]], seed: int) -> None:
    seen = seen_of(pairs)
    users = (seen.unseen_counts(torch.arange(4)) > 0).nonzero()[:, 0]
    drawn = seen.draw(users, 5, torch.Generator().manual_seed(seed))
    again = seen.draw(users, 5, torch.Generator().manual_seed(seed))
    assert torch.equal(drawn, again)
    assert not {(user, item) for user, row in zip(users.tolist(), drawn.tolist(), strict=True) for item in row} & set(
        pairs
    )


def test_draws_are_uniform_over_the_unseen() -> None:
    seen = seen_of([(0, 0), (0, 3), (0, 3)])
    drawn = seen.draw(torch.zeros(1, dtype=torch.int64), 50_000, torch.Generator().manual_seed(0))
    shares = torch.bincount(drawn[0], minlength=7) / 50_000
    torch.testing.assert_close(shares[[1, 2, 4, 5, 6]], torch.full((5,), 0.2), atol=0.01, rtol=0)


def test_distinct_draws_have_no_repeats_and_depend_on_their_user_alone() -> None:
    seen = seen_of([(0, 1), (1, 2), (1, 3)])
    both = seen.draw_distinct(torch.tensor([0, 1]), 4, seed=3).to_lists()
    alone = seen.draw_distinct(torch.tensor([1]), 4, seed=3).to_lists()
    assert [len(set(one)) for one in both] == [4, 4]
    assert both[1:] == alone
    assert seen.draw_distinct(torch.tensor([1]), 4, seed=4).to_lists() != alone


def test_nobody_and_nothing_can_be_asked() -> None:
    seen = Seen.from_pairs(*torch.zeros(2, 0, dtype=torch.int64), num_users=0, num_items=0)
    assert seen.draw(torch.zeros(0, dtype=torch.int64), 3, torch.Generator()).shape == (0, 3)
    assert len(seen.draw_distinct(torch.zeros(0, dtype=torch.int64), 3, seed=0)) == 0


def test_the_catalogue_holds_real_items_with_their_features() -> None:
    schema = Schema(user=Categorical("u"), item=Categorical("i", unknown=UnknownBuckets(2)), item_features=[])
    batch = Batch({"u": torch.tensor([5, 5, 3, 3]), "i": torch.tensor([1, 3, 4, 6])})
    interactions = Interactions.from_batch(batch, schema)
    assert interactions.catalogue.indices.tolist() == [4, 6]
    assert interactions.users.tolist() == [1, 1, 0, 0]
    assert interactions.items.tolist() == [2, 2, 0, 1]
    assert interactions.contrasted().tolist() == [0, 1]


def test_rows_that_have_every_item_leave_nothing_to_contrast() -> None:
    schema = Schema(user=Categorical("u"), item=Categorical("i"))
    interactions = Interactions.from_batch(Batch({"u": torch.tensor([3, 3]), "i": torch.tensor([3, 4])}), schema)
    with pytest.raises(FitError) as error:
        interactions.contrasted()
    assert str(error.value) == (
        "negatives: expected a user without one of the 2 items, got none. "
        "There is nothing to contrast; learn a label, or add users or items."
    )


def test_rows_without_a_known_item_are_refused() -> None:
    schema = Schema(user=Categorical("u"), item=Categorical("i"))
    with pytest.raises(FitError) as error:
        Interactions.from_batch(Batch({"u": torch.tensor([3]), "i": torch.tensor([2])}), schema)
    assert str(error.value) == (
        "i: expected a known item to draw negatives from, got none in 1 row. Every item is missing or unknown."
    )


@pytest.mark.parametrize(
    ("schema", "missing"),
    [(Schema(user=Categorical("u")), "item"), (Schema(item=Categorical("i")), "user")],
)
def test_ranking_needs_a_user_and_an_item(schema: Schema, missing: str) -> None:
    with pytest.raises(FitError) as error:
        Interactions.from_batch(Batch({"u": torch.tensor([3]), "i": torch.tensor([3])}), schema)
    assert str(error.value) == (
        f"negatives: expected a schema with a user and an item, got {missing}=None. Declare {missing}=Categorical(...)."
    )
