from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from recsys_emb.errors import FitError, IndexRangeError
from recsys_emb.lookup.history import HistoryEmbedding


def history(**options: object) -> HistoryEmbedding:
    """Five items from index 3, six users from index 3; all rows away from zero."""
    return HistoryEmbedding(
        8, 4, num_users=9, padding_index=0, reserved=3, reserved_users=3, init_std=1.0,
        generator=torch.Generator().manual_seed(0), name="item_history", **options,
    )  # fmt: skip


def remembered(users: list[int], items: list[int], **options: object) -> HistoryEmbedding:
    made = history(**options)
    made.remember(torch.tensor(users, dtype=torch.int64), torch.tensor(items, dtype=torch.int64))
    return made


def lists_of(made: HistoryEmbedding) -> dict[int, list[int]]:
    return {user: items for user, items in enumerate(made.lists().to_lists()) if items}


PAIRS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 7)), max_size=30)


@settings(max_examples=50, deadline=None)
@given(pairs=PAIRS, max_length=st.none() | st.integers(1, 4), parts=st.integers(0, 30))
def test_a_history_holds_the_latest_distinct_items_in_row_order(
    pairs: list[tuple[int, int]], max_length: int | None, parts: int
) -> None:
    expected: dict[int, list[int]] = {}
    for user, item in pairs:
        if user >= 3 and item >= 3:
            past = [other for other in expected.get(user, []) if other != item]
            expected[user] = [*past, item][-(max_length or 99) :]
    users, items = [user for user, _ in pairs], [item for _, item in pairs]
    whole = remembered(users, items, max_length=max_length)
    assert lists_of(whole) == expected
    in_parts = remembered(users[:parts], items[:parts], max_length=max_length)
    in_parts.remember(torch.tensor(users[parts:]).long(), torch.tensor(items[parts:]).long(), anew=False)
    assert torch.equal(in_parts.offsets, whole.offsets)
    assert torch.equal(in_parts.values, whole.values)


def test_remembering_anew_forgets_what_was() -> None:
    made = remembered([3, 4], [5, 6])
    made.remember(torch.tensor([5]), torch.tensor([7]))
    assert lists_of(made) == {5: [7]}


def test_the_vector_of_a_user_is_the_sum_of_its_items_over_the_root_of_their_number() -> None:
    made = remembered([3, 4, 3, 3], [5, 6, 7, 3])
    table = made.items.weight
    vectors = made(torch.tensor([4, 3]))
    assert_close(vectors, torch.stack([table[6], (table[5] + table[7] + table[3]) / 3**0.5]))


@pytest.mark.parametrize("user", [0, 1, 2, 5, 8])
def test_who_has_no_items_has_the_zero_vector(user: int) -> None:
    made = remembered([3, user if user < 3 else 3], [5, 6])
    assert torch.equal(made(torch.tensor([user])), torch.zeros(1, 4))


def test_nobody_remembers_missing_and_unknown_items() -> None:
    made = remembered([3, 3, 3, 3], [0, 1, 2, 4])
    assert lists_of(made) == {3: [4]}


@pytest.mark.parametrize("shape", [(0,), (1,), (2, 3), ()])
def test_users_of_any_shape_are_looked_up(shape: tuple[int, ...]) -> None:
    made = remembered([3, 4], [5, 6])
    vectors = made(torch.full(shape, 4))
    assert torch.equal(vectors, made.items.weight[6].expand(*shape, 4))


def test_a_vector_does_not_depend_on_the_other_users() -> None:
    generator = torch.Generator().manual_seed(0)
    users, items = (torch.randint(3, high, (60,), generator=generator) for high in (9, 8))
    made = history()
    made.remember(users, items)
    together = made(torch.arange(9))
    assert all(torch.equal(made(torch.tensor([user]))[0], together[user]) for user in range(9))


@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_are_those_of_the_written_out_sum(sparse: bool) -> None:
    made = remembered([3, 4, 3, 3], [5, 6, 7, 3], sparse=sparse)
    users, direction = torch.tensor([3, 4, 3, 1]), torch.arange(16.0).view(4, 4)
    vectors, squares = made.pooled(users)
    ((vectors * direction).sum() + squares.sum()).backward()
    table = made.items.weight.detach().clone().requires_grad_()
    past = {3: [5, 7, 3], 4: [6], 1: []}
    total = torch.zeros(())
    for user, one in zip(users.tolist(), direction, strict=True):
        rows = table[past[user]]
        if len(rows):
            total = total + (rows.sum(0) / len(rows) ** 0.5 * one).sum() + rows.square().sum() / len(rows)
    total.backward()
    gradient = made.items.weight.grad
    assert gradient is not None
    assert gradient.is_sparse == sparse
    assert_close(gradient.to_dense(), table.grad)


def test_weights_stand_beside_the_items() -> None:
    lists = remembered([3, 4, 3], [5, 6, 7]).lists(torch.tensor([4, 1, 3]))
    assert lists.to_lists() == [[6], [], [5, 7]]
    assert lists.weights is not None
    assert lists.weights.tolist() == pytest.approx([1, 0.5**0.5, 0.5**0.5])


@pytest.mark.parametrize(
    ("users", "items", "message"),
    [
        ([9], [3], "feature 'item_history: user': expected indices in [0, 9), got 9"),
        ([3], [8], "feature 'item_history': expected indices in [0, 8), got 8"),
    ],
)
def test_what_has_no_row_cannot_be_remembered(users: list[int], items: list[int], message: str) -> None:
    with pytest.raises(IndexRangeError) as caught:
        remembered(users, items)
    assert str(caught.value).startswith(message)


def test_a_user_outside_the_table_is_refused() -> None:
    with pytest.raises(IndexRangeError) as caught:
        history()(torch.tensor([3, 9]))
    assert str(caught.value).startswith("feature 'item_history': expected indices in [0, 9), got 9 (first at")


def test_growth_keeps_rows_and_histories_bit_for_bit() -> None:
    made = remembered([3, 8], [5, 7])
    before = made(torch.arange(9)).detach()
    rows = made.items.weight.detach().clone()
    made.admit(12)
    made.grow(10, generator=torch.Generator().manual_seed(1))
    assert (made.num_users, made.num_embeddings) == (12, 10)
    assert torch.equal(made.items.weight[:8], rows)
    assert torch.equal(made(torch.arange(12)), torch.cat([before, torch.zeros(3, 4)]))
    made.remember(torch.tensor([11]), torch.tensor([9]), anew=False)
    assert lists_of(made) == {3: [5], 8: [7], 11: [9]}


def test_a_table_does_not_shrink() -> None:
    with pytest.raises(FitError):
        history().grow(7)


def test_a_reset_draws_the_table_anew_and_keeps_the_histories() -> None:
    made = remembered([3], [5])
    made.reset_parameters(init_std=0.5, generator=torch.Generator().manual_seed(3))
    assert lists_of(made) == {3: [5]}
    assert not made.items.weight[:3].any()
    assert made.items.weight[3:].std() < 0.9


@pytest.mark.parametrize("assign", [False, True])
def test_histories_travel_with_the_state_whatever_their_length(assign: bool) -> None:
    made, other = remembered([3, 4, 3], [5, 6, 7]), remembered([8], [3])
    other.load_state_dict(copy.deepcopy(made.state_dict()), assign=assign)
    assert lists_of(other) == {3: [5, 7], 4: [6]}
    assert torch.equal(other(torch.arange(9)), made(torch.arange(9)))


def test_a_state_survives_that_its_module_learns_something_new() -> None:
    made = remembered([3, 4], [5, 6])
    state = copy.deepcopy(made.state_dict())
    made.remember(torch.tensor([4]), torch.tensor([7]), anew=False)
    made.load_state_dict(state)
    assert lists_of(made) == {3: [5], 4: [6]}


@pytest.mark.parametrize(
    "damage",
    [
        {"values": torch.tensor([5, 8])},
        {"values": torch.tensor([5, -1])},
        {"offsets": torch.tensor([0, 0, 0, 0, 1, 2, 2, 2, 2, 3])},
        {"offsets": torch.tensor([0, 0, 0, 0, 2, 1, 2, 2, 2, 2])},
    ],
)
def test_lists_that_are_none_are_not_loaded(damage: dict[str, torch.Tensor]) -> None:
    made = remembered([3, 4], [5, 6])
    with pytest.raises(RuntimeError, match=r"values: expected lists of items in \[0, 8\) for 9 users, got others\."):
        made.load_state_dict({**made.state_dict(), **damage})


@pytest.mark.filterwarnings("ignore")  # of torch.export's own making
def test_an_exported_program_pools_any_number_of_users() -> None:
    from torch.fx.experimental import _config

    made = remembered([3, 4, 3, 3], [5, 6, 7, 3])
    with _config.patch(backed_size_oblivious=True):
        shapes = ({0: torch.export.Dim.DYNAMIC},)
        program = torch.export.export(made, (torch.tensor([3, 4, 8]),), dynamic_shapes=shapes, strict=False)
        for users in ([3], [4, 3], [1, 8, 4, 3, 3]):
            assert_close(program.module()(torch.tensor(users)), made(torch.tensor(users)))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_agrees_with_cpu_and_remembers_rows_from_the_cpu() -> None:
    generator = torch.Generator().manual_seed(0)
    users, items = (torch.randint(3, high, (60,), generator=generator) for high in (9, 8))
    made, on_device = history(), history().cuda()
    made.remember(users, items)
    on_device.remember(users, items)
    assert torch.equal(on_device.values.cpu(), made.values)
    assert_close(on_device(torch.arange(9, device="cuda")).cpu(), made(torch.arange(9)))


def test_printing_tells_users_and_length() -> None:
    assert "'item_history', num_users=9, max_length=2" in repr(history(max_length=2))
