"""Rankings are exact: held to scores summed in fractions, and to each other however they are cut."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from recsys_emb.encoding.batch import Jagged
from recsys_emb.errors import DataError, IndexRangeError
from recsys_emb.evaluation import catalogue as catalogues
from recsys_emb.evaluation import ranking as rankings
from recsys_emb.evaluation import scan as scans
from recsys_emb.evaluation.catalogue import Catalogue, tie_order
from recsys_emb.evaluation.ranking import Ranking, rank, top_k


def random_sides(users: int, items: int, width: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = [(users, width), (items, width), (items,)]
    first, second, third = (torch.randn(size, generator=generator) for size in sizes)
    return first, second, third


def by_hand(users: Tensor, items: Tensor, biases: Tensor, k: int, barred: list[list[int]]) -> list[list[int]]:
    """Rank by sums of fractions, which do not round, and break ties by the stated order."""
    place = {item: place for place, item in enumerate(tie_order(torch.arange(len(items))).tolist())}
    answer = []
    for user, seen in zip(users.tolist(), barred, strict=True):
        scores = {
            item: Fraction(bias) + sum(Fraction(a) * Fraction(b) for a, b in zip(user, vector, strict=True))
            for item, (vector, bias) in enumerate(zip(items.tolist(), biases.tolist(), strict=True))
            if item not in seen
        }
        answer.append(sorted(scores, key=lambda item: (-scores[item], place[item]))[:k])
    return answer


def same(first: Ranking, second: Ranking) -> bool:
    items, lengths = torch.equal(first.items, second.items), torch.equal(first.lengths, second.lengths)
    return items and lengths and torch.equal(first.scores.nan_to_num(0), second.scores.nan_to_num(0))


@pytest.fixture(params=["kernel", "torch"])
def scan(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = scans.scan_with_kernel if request.param == "kernel" else scans.scan_with_torch
    monkeypatch.setattr(rankings, "scan_for", lambda _: chosen)


# --- exactness -------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 5]), st.integers(1, 60), st.integers(1, 70), st.booleans())
def test_the_best_are_those_of_arithmetic_without_rounding(
    seed: int, width: int, num_items: int, k: int, tied: bool
) -> None:
    users, items, biases = random_sides(3, num_items, width, seed)
    if tied:
        users, items, biases = users.round(), items.round(), biases.round()
    rng = np.random.default_rng(seed)
    barred = [rng.integers(0, num_items, rng.integers(0, num_items)).tolist() for _ in range(3)]
    ranking = top_k(users, items, biases, k, excluded=Jagged.from_lists(barred))
    assert ranking.to_lists() == by_hand(users, items, biases, k, barred)


@pytest.mark.usefixtures("scan")
def test_both_scans_rank_alike() -> None:
    users, items, biases = random_sides(7, 400, 8)
    barred = [[5 * user, 6 * user, 399] for user in range(7)]
    ranking = top_k(users, items, biases, 9, excluded=Jagged.from_lists(barred))
    assert ranking.to_lists() == by_hand(users, items, biases, 9, barred)


@pytest.mark.usefixtures("scan")
def test_differences_below_float32_decide_when_many_items_are_that_near() -> None:
    # 1 + n * 2**-40 is one number in float32; only the exact scores tell these 200 items apart.
    steps = torch.randperm(200, generator=torch.Generator().manual_seed(0)).double()
    items = torch.stack([torch.ones(200, dtype=torch.float64), steps * 2.0**-40], dim=1)
    ranking = top_k(torch.ones(2, 2), items, None, 5)
    assert ranking.to_lists() == [steps.argsort(descending=True)[:5].tolist()] * 2


@pytest.mark.usefixtures("scan")
def test_items_of_one_vector_are_ordered_by_the_tie_order_alone() -> None:
    users, items, _ = random_sides(3, 1, 6)
    ranking = top_k(users, items.expand(5000, 6), None, 4)
    assert ranking.to_lists() == [tie_order(torch.arange(5000))[:4].tolist()] * 3


@pytest.mark.usefixtures("scan")
def test_a_user_of_zeros_ranks_by_bias_and_ties_by_the_tie_order() -> None:
    biases = torch.tensor([1.0, 2.0] * 50)
    ranking = top_k(torch.zeros(1, 4), random_sides(1, 100, 4)[1], biases, 60)
    order = tie_order(torch.arange(100)).tolist()
    assert ranking.to_lists() == [[*(i for i in order if i % 2), *(i for i in order if not i % 2)][:60]]


def test_biases_beyond_float32_are_told_apart() -> None:
    biases = torch.arange(100, dtype=torch.float64) + 2.0**40
    assert top_k(torch.zeros(1, 0), torch.zeros(100, 0), biases, 3).to_lists() == [[99, 98, 97]]


def test_scores_are_the_inner_product_plus_the_bias_in_float64() -> None:
    users, items, biases = random_sides(4, 30, 16)
    ranking = top_k(users, items, biases, 30)
    expected = (users.double() @ items.double().T + biases.double()).gather(1, ranking.items)
    assert ranking.scores.dtype == torch.float64
    torch.testing.assert_close(ranking.scores, expected, rtol=0, atol=1e-13)


def test_coarse_matrix_products_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    users, items, biases = random_sides(5, 300, 8)
    expected = top_k(users, items, biases, 10)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")

    fine = Catalogue.tiles
    monkeypatch.setattr(Catalogue, "tiles", lambda catalogue, vectors: fine(catalogue, vectors.bfloat16()))
    assert same(top_k(users, items, biases, 10), expected)


@pytest.mark.parametrize("width", [0, 1, 2, 5, 64, 65])
def test_both_ways_to_settle_agree_to_the_bit(width: int) -> None:
    users, items, biases = random_sides(5, 90, width)
    catalogue = Catalogue(items, biases)
    columns = torch.randperm(90)[:70].view(5, 14).clone()
    columns[2, 3:] = scans.NO_COLUMN
    for k in (1, 6, 14):
        kernel, plain = (
            settle(catalogue, users, columns, k) for settle in (scans.settle_with_kernel, scans.settle_with_torch)
        )
        assert torch.equal(kernel.scores, plain.scores)
        assert torch.equal(kernel.columns, plain.columns)


# --- what an answer must not depend on -------------------------------------------------------------------------


def test_the_best_k_are_the_first_of_the_best_k_plus_one() -> None:
    users, items, biases = random_sides(3, 40, 1)
    users, items = users.round(), items.round()
    longest = top_k(users, items, biases.round(), 40)
    for k in range(1, 40):
        assert torch.equal(top_k(users, items, biases.round(), k).items, longest.items[:, :k])


@pytest.mark.parametrize("block", [1, 2, 7])
def test_users_ranked_alone_or_together_get_the_same(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    users, items, biases = random_sides(7, 500, 12)
    excluded = Jagged.from_lists([[user, user + 3, 499] for user in range(7)])
    together = top_k(users, items, biases, 10, excluded=excluded)
    monkeypatch.setattr(rankings, "BLOCK", block)
    monkeypatch.setattr(catalogues, "CPU_TILE", 64)
    monkeypatch.setattr(catalogues, "PAIRS", 5)
    assert same(top_k(users, items, biases, 10, excluded=excluded), together)


def test_a_catalogue_laid_out_once_answers_like_top_k() -> None:
    users, items, biases = random_sides(4, 50, 3)
    candidates = torch.arange(10, 40)
    once = rank(Catalogue(items, biases, candidates=candidates), users, 6)
    assert same(once, top_k(users, items, biases, 6, candidates=candidates))


def test_the_order_and_repeats_of_candidates_do_not_matter() -> None:
    users = torch.zeros(1, 2)
    items = torch.zeros(9, 2)
    first = top_k(users, items, None, 9, candidates=torch.tensor([7, 2, 5]))
    second = top_k(users, items, None, 9, candidates=torch.tensor([5, 7, 7, 2, 5], dtype=torch.int32))
    assert same(first, second)
    assert sorted(first.to_lists()[0]) == [2, 5, 7]


def test_the_order_and_repeats_of_excluded_items_do_not_matter() -> None:
    users, items, biases = random_sides(1, 30, 4)
    first = top_k(users, items, biases, 30, excluded=Jagged.from_lists([[9, 3, 9, 28]]))
    assert same(first, top_k(users, items, biases, 30, excluded=Jagged.from_lists([[3, 9, 28]])))


def test_an_excluded_item_that_is_no_candidate_changes_nothing() -> None:
    users, items, biases = random_sides(1, 5, 2)
    candidates = torch.tensor([1, 3])
    ranking = top_k(users, items, biases, 5, candidates=candidates, excluded=Jagged.from_lists([[0, 3]]))
    assert ranking.to_lists() == [[1]]


def test_ties_know_nothing_of_the_index() -> None:
    # Indices follow popularity, so a constant model must spread its choices over them as chance would.
    best = top_k(torch.zeros(1, 1), torch.zeros(10_000, 1), None, 1000).items[0]
    counts = torch.bincount(best // 1000, minlength=10)
    assert counts.min() > 70
    assert counts.max() < 130


def test_parameters_may_be_ranked_and_keep_their_gradients_out() -> None:
    users = torch.nn.Parameter(torch.ones(1, 2))
    ranking = top_k(users, torch.nn.Parameter(torch.eye(2)), None, 2)
    assert not ranking.scores.requires_grad
    assert users.grad is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_any_type_of_number_is_taken(dtype: torch.dtype) -> None:
    users, items = torch.tensor([[1, 2]]).to(dtype), torch.tensor([[1, 0], [0, 1], [2, 2]]).to(dtype)
    ranking = top_k(users, items, torch.tensor([0, 5, 0]).to(dtype), 3)
    assert (ranking.to_lists(), ranking.scores.tolist()) == ([[1, 2, 0]], [[7.0, 6.0, 1.0]])


# --- the edges -------------------------------------------------------------------------------------------------


def test_only_what_is_left_is_given() -> None:
    items = torch.tensor([[5.0], [4.0], [3.0], [2.0], [1.0]])
    seen = Jagged.from_lists([[0, 1, 2, 4], [0, 1, 2, 3, 4], []])
    ranking = top_k(torch.ones(3, 1), items, None, 10, excluded=seen)
    assert ranking.to_lists() == [[3], [], [0, 1, 2, 3, 4]]
    assert ranking.lengths.tolist() == [1, 0, 5]
    assert ranking.items[0].tolist() == [3, -1, -1, -1, -1]
    assert ranking.scores[0].isnan().tolist() == [False, True, True, True, True]
    assert torch.equal(ranking.mask, ~ranking.scores.isnan())


@pytest.mark.parametrize(("users", "items"), [(0, 5), (2, 0), (0, 0)])
def test_nobody_or_nothing_gives_an_empty_ranking(users: int, items: int) -> None:
    ranking = top_k(torch.ones(users, 3), torch.ones(items, 3), torch.ones(items), 4)
    assert ranking.items.shape == (users, min(items, 4))
    assert len(ranking) == users
    assert ranking.lengths.tolist() == [0] * users


def test_no_candidates_give_nothing() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    assert top_k(torch.ones(2, 1), torch.ones(3, 1), None, 2, candidates=none).to_lists() == [[], []]


def test_vectors_of_width_one_and_one_of_each_side() -> None:
    assert top_k(torch.ones(1, 1), torch.ones(1, 1), None, 1).to_lists() == [[0]]


def test_tiny_numbers_are_ranked_though_float32_loses_their_products() -> None:
    items = torch.arange(1, 51)[:, None] * 1e-25
    assert top_k(torch.full((1, 1), 1e-25), items, None, 3).to_lists() == [[49, 48, 47]]


def test_memory_does_not_grow_with_users_times_items() -> None:
    users, items, biases = random_sides(3000, 3000, 4)
    catalogue = Catalogue(items, biases)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        rank(catalogue, users, 2)
    peaks = [event.self_cpu_memory_usage for event in profile.events()]
    assert max(peaks) <= 4 * catalogues.CPU_TILE < 4 * 3000 * 3000


# --- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, -1, 2.0, True, None])
def test_k_is_a_positive_integer(k: object) -> None:
    with pytest.raises(DataError) as caught:
        top_k(torch.ones(1, 1), torch.ones(1, 1), None, k)
    expected = f"top_k: expected k to be an integer of at least 1, got {k!r}. Ask for at least one item."
    assert str(caught.value) == expected


def test_sides_of_different_widths_are_refused() -> None:
    with pytest.raises(DataError) as caught:
        top_k(torch.ones(1, 2), torch.ones(1, 3), None, 1)
    assert str(caught.value) == (
        "top_k: expected user and item vectors of one width, got 2 and 3. Take both from one model."
    )


def test_vectors_are_two_dimensional() -> None:
    with pytest.raises(DataError) as caught:
        top_k(torch.ones(2), torch.ones(1, 2), None, 1)
    assert str(caught.value) == "top_k: expected user vectors of shape (rows, width), got (2,). Reshape them."


def test_another_number_of_biases_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        top_k(torch.ones(1, 2), torch.ones(3, 2), torch.ones(2), 1)
    assert (
        str(caught.value) == "top_k: expected one bias per item, got shape (2,) for 3 items. Take both from one model."
    )


def test_another_number_of_lists_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        top_k(torch.ones(1, 2), torch.ones(3, 2), None, 1, excluded=Jagged.from_lists([[], []]))
    assert str(caught.value) == (
        "top_k: expected one list of excluded items per user, got 2 lists for 1 user. Give an empty list for none."
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("side", ["user vectors", "item vectors", "item biases"])
def test_a_broken_model_is_refused(side: str, value: float) -> None:
    sides = {"user vectors": torch.ones(4, 2), "item vectors": torch.ones(4, 2), "item biases": torch.ones(4)}
    sides[side].view(-1)[-1] = value
    with pytest.raises(DataError) as caught:
        top_k(sides["user vectors"], sides["item vectors"], sides["item biases"], 1)
    assert str(caught.value) == (
        f"top_k: expected finite {side}, got 1 row with NaN, infinite or huge values. "
        "Train again with a smaller learning rate."
    )


def test_scores_that_float32_cannot_hold_are_refused() -> None:
    with pytest.raises(DataError) as caught:
        top_k(torch.full((1, 1), 1e30, dtype=torch.float64), torch.full((1, 1), 1e30, dtype=torch.float64), None, 1)
    assert str(caught.value) == "top_k: expected scores within float32, got up to 1e+60. Scale the vectors down."


@pytest.mark.parametrize("row", [-1, 3])
def test_excluded_and_candidates_are_item_rows(row: int) -> None:
    arguments = {"excluded": Jagged.from_lists([[row]]), "candidates": torch.tensor([0, row])}
    for name, value in arguments.items():
        with pytest.raises(IndexRangeError) as caught:
            top_k(torch.ones(1, 1), torch.ones(3, 1), None, 1, **{name: value})
        assert str(caught.value) == f"top_k: expected {name} in [0, 3), got {row}. Give item rows."


def test_a_mask_is_not_a_list_of_candidates() -> None:
    with pytest.raises(DataError) as caught:
        top_k(torch.ones(1, 1), torch.ones(2, 1), None, 1, candidates=torch.tensor([True, False]))
    assert str(caught.value) == (
        "top_k: expected candidates as integer item rows, got torch.bool. Convert them to row numbers."
    )


# --- finders -----------------------------------------------------------------------------------------------------


class Proposing:
    """Proposes the same columns to everybody."""

    def __init__(self, columns: list[int]) -> None:
        self.columns, self.wanted = columns, []

    def find(self, catalogue: Catalogue, users: Tensor, wanted: Tensor) -> Tensor:
        self.wanted += wanted.tolist()
        return torch.tensor(self.columns, dtype=torch.int64).expand(len(users), -1)


@pytest.mark.parametrize("settled", [scans.settle_with_kernel, scans.settle_with_torch])
def test_of_what_is_found_the_best_that_may_be_given_are_given(settled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rankings, "settle", settled)
    users, items, biases = random_sides(4, 50, 6)
    catalogue = Catalogue(items, biases, candidates=torch.arange(0, 50, 2))
    barred = [[*catalogue.items[[3, 8]].tolist(), 1], [], catalogue.items[:2].tolist(), [3]]
    finder = Proposing([8, -1, 3, 11, 20, 0])
    found = rank(catalogue, users, 3, excluded=Jagged.from_lists(barred), finder=finder)
    proposed = set(catalogue.items[[8, 3, 11, 20, 0]].tolist())
    rest = [[item for item in range(50) if item not in proposed or item in seen] for seen in barred]
    assert found.to_lists() == by_hand(users, items, biases, 3, rest)
    assert finder.wanted == [3 + rankings.MARGIN + len(seen) for seen in barred]


@pytest.mark.parametrize("columns", [[], [4], [4, 5, -1, -1, -1], [4, 5, 6, -1, -1]])
def test_who_is_found_too_few_gets_the_answer_of_the_scan(columns: list[int]) -> None:
    users, items, biases = random_sides(3, 30, 6)
    catalogue = Catalogue(items, biases)
    barred = Jagged.from_lists([[], catalogue.items[[5, 6]].tolist(), catalogue.items[[4]].tolist()])
    found = rank(catalogue, users, 3, excluded=barred, finder=Proposing(columns))
    exact = rank(catalogue, users, 3, excluded=barred)
    start = 1 if len(columns) == 5 and columns[2] == 6 else 0
    assert found.to_lists()[start:] == exact.to_lists()[start:]
    assert torch.equal(found.scores[start:], exact.scores[start:])
