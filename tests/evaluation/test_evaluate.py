"""Evaluations over the full catalogue, against a loop over users."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.exceptions import UndefinedMetricWarning

from recsys_emb.encoding.batch import Jagged
from recsys_emb.errors import DataError
from recsys_emb.evaluation import evaluate
from recsys_emb.evaluation.catalogue import Catalogue
from recsys_emb.evaluation.evaluate import evaluate_binary, evaluate_ranking, evaluate_ratings, judge
from recsys_emb.evaluation.ranking import rank, top_k

METRICS = ("recall", "ndcg", "mrr", "hit_rate")


def descending(num_items: int) -> Catalogue:
    """Items whose rank is their row, for a user of 1."""
    return Catalogue(-torch.arange(num_items, dtype=torch.float32)[:, None], None)


def random_case(users: int = 40, items: int = 60) -> tuple[torch.Tensor, Catalogue, Jagged, Jagged]:
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(users, 4, generator=generator)
    catalogue = Catalogue(torch.randn(items, 4, generator=generator), torch.randn(items, generator=generator))

    def lists(longest: int) -> Jagged:
        lengths = torch.randint(0, longest, (users,), generator=generator).tolist()
        return Jagged.from_lists([torch.randint(0, items, (n,), generator=generator).tolist() for n in lengths])

    return vectors, catalogue, lists(6), lists(20)


def test_rows_are_judged_all_at_once() -> None:
    assert evaluate_ratings([1.0, 3.0, 5.0], [1.0, 2.0, 5.0]) == {
        "rmse": math.sqrt(1 / 3),
        "mae": 1 / 3,
        "n_rows": 3,
    }
    label, probability = [0, 1, 0, 1, 0, 0, 0], torch.tensor([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3])
    answer = evaluate_binary(label, probability)
    assert (answer["auc"], answer["n_rows"]) == (pytest.approx(0.7), 7)


def test_means_are_those_of_a_loop_over_users() -> None:
    vectors, catalogue, relevant, seen = random_case()
    rows = []
    for user, (wanted, barred) in enumerate(zip(relevant.to_lists(), seen.to_lists(), strict=True)):
        if not wanted:
            continue
        best = rank(catalogue, vectors[user : user + 1], 5, excluded=Jagged.from_lists([barred])).to_lists()[0]
        ranks = [place for place, item in enumerate(best, start=1) if item in wanted]
        ideal = sum(1 / math.log2(place + 1) for place in range(1, min(5, len(set(wanted))) + 1))
        gained = sum(1 / math.log2(place + 1) for place in ranks)
        first = 1 / ranks[0] if ranks else 0.0
        rows.append((len(ranks) / len(set(wanted)), gained / ideal, first, float(bool(ranks))))
    expected = dict(zip(METRICS, (sum(column) / len(rows) for column in zip(*rows, strict=True)), strict=True))
    answer = evaluate_ranking(catalogue, vectors, relevant, k=5, excluded=seen)
    assert answer == pytest.approx({**expected, "n_evaluated": len(rows), "n_skipped": 40 - len(rows)}, abs=1e-12)


@pytest.mark.parametrize("block", [1, 3, 100])
def test_the_size_of_a_block_does_not_matter(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, catalogue, relevant, seen = random_case()
    expected = evaluate_ranking(catalogue, vectors, relevant, excluded=seen)
    monkeypatch.setattr(evaluate, "BLOCK", block)
    assert evaluate_ranking(catalogue, vectors, relevant, excluded=seen) == expected


def test_the_order_of_users_does_not_matter() -> None:
    vectors, catalogue, relevant, seen = random_case()
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    shuffled = evaluate_ranking(catalogue, vectors[order], relevant.select(order), excluded=seen.select(order))
    assert shuffled == evaluate_ranking(catalogue, vectors, relevant, excluded=seen)


def test_users_without_relevant_items_are_skipped_and_users_without_a_list_count_as_0() -> None:
    relevant = Jagged.from_lists([[0, 1], [], [2]])
    everything = Jagged.from_lists([[], [], list(range(12))])
    answer = evaluate_ranking(descending(12), torch.ones(3, 1), relevant, k=10, excluded=everything)
    assert answer == {**dict.fromkeys(METRICS, pytest.approx(0.5)), "n_evaluated": 2, "n_skipped": 1}


def test_a_perfect_ranking_is_exactly_1() -> None:
    answer = evaluate_ranking(descending(12), torch.ones(1, 1), Jagged.from_lists([[1, 0]]), k=10)
    assert answer == {**dict.fromkeys(METRICS, 1.0), "n_evaluated": 1, "n_skipped": 0}


@pytest.mark.parametrize("users", [0, 2])
def test_nobody_to_judge_is_nan_with_a_warning(users: int) -> None:
    with pytest.warns(UndefinedMetricWarning) as caught:
        answer = evaluate_ranking(descending(3), torch.ones(users, 1), Jagged.from_lists([[]] * users))
    message = "evaluate_ranking: expected a user with relevant items, got none. The answer is NaN."
    assert [str(warning.message) for warning in caught] == [message]
    assert all(math.isnan(answer[name]) for name in METRICS)
    assert (answer["n_evaluated"], answer["n_skipped"]) == (0, users)


def test_relevant_items_that_no_list_can_hold_count_against_recall() -> None:
    # 0 is excluded, 1 is no candidate, 99 and -5 are no items at all; only 2 can be found.
    catalogue = Catalogue(-torch.arange(4.0)[:, None], None, candidates=torch.tensor([0, 2, 3]))
    relevant, excluded = Jagged.from_lists([[0, 1, 2, 99, -5]]), Jagged.from_lists([[0]])
    answer = evaluate_ranking(catalogue, torch.ones(1, 1), relevant, k=3, excluded=excluded)
    assert (answer["recall"], answer["mrr"]) == (pytest.approx(1 / 5), 1.0)


def test_relevant_items_count_once() -> None:
    answer = evaluate_ranking(descending(3), torch.ones(1, 1), Jagged.from_lists([[0, 2, 0, 2, 0]]), k=1)
    assert answer["recall"] == 0.5


def test_an_empty_catalogue_finds_nothing() -> None:
    answer = evaluate_ranking(Catalogue(torch.ones(0, 1), None), torch.ones(1, 1), Jagged.from_lists([[0]]))
    assert answer == {**dict.fromkeys(METRICS, 0.0), "n_evaluated": 1, "n_skipped": 0}


def test_a_model_that_cannot_tell_items_apart_scores_chance() -> None:
    # Popular items come first in the vocabulary, and are the relevant ones; a constant model must not profit.
    users, items, k = 300, 1000, 50
    generator = torch.Generator().manual_seed(0)
    popular = (torch.rand(users, generator=generator) ** 3 * items).long()[:, None]
    relevant = Jagged(popular[:, 0], torch.arange(users + 1))
    answer = evaluate_ranking(Catalogue(torch.zeros(items, 2), None), torch.zeros(users, 2), relevant, k=k)
    assert answer["recall"] == pytest.approx(k / items, abs=0.03)


def test_rankings_of_any_origin_are_judged_user_by_user() -> None:
    ranking = top_k(torch.tensor([[1.0], [-1.0]]), -torch.arange(4.0)[:, None], None, 2)
    values = judge(ranking, Jagged.from_lists([[1], [3, 0]]), 2)
    assert {name: column.tolist() for name, column in values.items()} == {
        "recall": [1.0, 0.5],
        "ndcg": [pytest.approx(1 / math.log2(3)), pytest.approx(1 / (1 + 1 / math.log2(3)))],
        "mrr": [0.5, 1.0],
        "hit_rate": [1.0, 1.0],
    }


def test_another_number_of_lists_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        evaluate_ranking(descending(3), torch.ones(2, 1), Jagged.from_lists([[1]]))
    assert str(caught.value) == (
        "evaluate_ranking: expected one list of relevant items per user, got 1 list for 2 users. "
        "Give an empty list for none."
    )
