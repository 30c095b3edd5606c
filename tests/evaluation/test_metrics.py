"""Metrics against scikit-learn, against loops, and against answers known by heart."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import UndefinedMetricWarning
from torch import Tensor

from recsys_emb.errors import DataError
from recsys_emb.evaluation.metrics import (
    auc,
    hit_rate_at_k,
    log_loss,
    mae,
    mrr_at_k,
    ndcg_at_k,
    recall_at_k,
    rmse,
)

LABEL, SCORE = [0, 1, 0, 1, 0, 0, 0], [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]


# --- rows ------------------------------------------------------------------------------------------------------


def test_known_answers() -> None:
    assert rmse([1.0, 2.0], [4.0, 6.0]) == math.sqrt(12.5)
    assert mae([1.0, 2.0], [4.0, 6.0]) == 3.5
    assert auc(LABEL, SCORE) == 0.7
    assert log_loss([1, 0], [0.25, 0.5]) == pytest.approx((math.log(4) + math.log(2)) / 2)


@pytest.mark.parametrize("metric", [rmse, mae, auc, log_loss])
def test_the_order_of_rows_does_not_matter(metric: Callable[..., float]) -> None:
    label, score = np.array(LABEL * 30), np.linspace(0.01, 0.99, 210) ** 2
    order = np.random.default_rng(0).permutation(210)
    assert metric(label, score) == pytest.approx(metric(label[order], score[order]), abs=1e-12)


@pytest.mark.parametrize(
    "wrap", [list, np.array, torch.tensor, pd.Series, lambda v: torch.tensor(v, requires_grad=True)]
)
def test_any_kind_of_column_is_taken(wrap: Callable[[list[float]], object]) -> None:
    assert rmse(wrap([1.0, 3.0]), wrap([1.0, 1.0])) == math.sqrt(2)


def test_sums_are_kept_in_float64() -> None:
    label = torch.full((3_000_000,), 0.1, dtype=torch.float64)
    assert mae(label, torch.zeros(3_000_000)) == pytest.approx(0.1, abs=1e-12)


def test_a_certainty_that_was_wrong_is_finite() -> None:
    assert 30 < log_loss([1], [0.0]) < math.inf


def test_log_loss_is_defined_for_one_label() -> None:
    assert log_loss([0, 0], [0.5, 0.5]) == pytest.approx(math.log(2))


@pytest.mark.parametrize(("labels", "got"), [([0, 0], "0 alone"), ([1, 1], "1 alone"), ([], "none")])
def test_auc_needs_both_labels(labels: list[int], got: str) -> None:
    with pytest.warns(UndefinedMetricWarning) as caught:
        assert math.isnan(auc(labels, [0.5] * len(labels)))
    assert str(caught[0].message) == f"auc: expected both labels, 0 and 1, got {got}. The answer is NaN."


@pytest.mark.parametrize("metric", [rmse, mae, log_loss])
def test_no_rows_have_no_mean(metric: Callable[..., float]) -> None:
    with pytest.warns(UndefinedMetricWarning) as caught:
        assert math.isnan(metric([], []))
    assert str(caught[0].message) == f"{metric.__name__}: expected a row, got none. The answer is NaN."
    assert caught[0].filename == __file__


@pytest.mark.parametrize("metric", [rmse, mae, auc, log_loss])
def test_columns_of_different_length_are_refused(metric: Callable[..., float]) -> None:
    with pytest.raises(DataError) as caught:
        metric([0, 1], [0.5])
    assert str(caught.value) == (
        f"{metric.__name__}: expected one label and one score per row, got shapes (2,) and (1,). "
        "Score the rows you judge."
    )


@pytest.mark.parametrize("metric", [rmse, mae, auc, log_loss])
def test_nan_and_infinity_are_counted_and_refused(metric: Callable[..., float]) -> None:
    with pytest.raises(DataError) as caught:
        metric([0, 1, math.nan], [0.5, math.inf, 0.5])
    assert str(caught.value) == (
        f"{metric.__name__}: expected finite numbers, got 2 rows without. Drop or repair them."
    )


@pytest.mark.parametrize("metric", [auc, log_loss])
def test_labels_other_than_0_and_1_are_refused(metric: Callable[..., float]) -> None:
    with pytest.raises(DataError) as caught:
        metric([0, 1, 2, 0.5], [0.5] * 4)
    assert str(caught.value) == (
        f"{metric.__name__}: expected labels 0 and 1, got 2 rows with another. Say which labels count as 1."
    )


def test_scores_that_are_no_probabilities_are_refused() -> None:
    with pytest.raises(DataError) as caught:
        log_loss([0, 1], [0.5, 1.5])
    assert str(caught.value) == (
        "log_loss: expected probabilities in [0, 1], got 1 row outside. Use a probabilistic objective."
    )


# --- rankings --------------------------------------------------------------------------------------------------

RANKING = [recall_at_k, ndcg_at_k, mrr_at_k, hit_rate_at_k]


def slowly(hits: list[bool], relevant: int, k: int) -> list[float]:
    """Recall, NDCG, MRR and hit rate of one user, from their definitions."""
    ranks = [rank for rank, hit in enumerate(hits[:k], start=1) if hit]
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(k, relevant) + 1))
    gained = sum(1 / math.log2(rank + 1) for rank in ranks)
    return [len(ranks) / relevant, gained / ideal, 1 / ranks[0] if ranks else 0.0, float(bool(ranks))]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), max_size=12), st.integers(0, 5), st.integers(1, 15))
def test_every_metric_is_its_definition(hits: list[bool], unfound: int, k: int) -> None:
    relevant = sum(hits) + unfound
    if not relevant:
        return
    matrix = torch.tensor(hits, dtype=torch.bool)[None, :]
    answers = [metric(matrix, torch.tensor([relevant]), k).item() for metric in RANKING]
    assert answers == pytest.approx(slowly(hits, relevant, k), abs=1e-12)


def test_ndcg_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    score, truth = rng.random((20, 30)), rng.random((20, 30)) < 0.2
    truth[:, 0] = True
    hits = torch.from_numpy(np.take_along_axis(truth, np.argsort(-score, axis=1), axis=1))
    ours = ndcg_at_k(hits[:, :7], torch.from_numpy(truth.sum(axis=1)), 7)
    assert ours.mean().item() == pytest.approx(sklearn.metrics.ndcg_score(truth, score, k=7), abs=1e-12)


@pytest.mark.parametrize("k", [1, 2, 10, 100])
def test_a_perfect_list_is_exactly_1_however_few_are_relevant(k: int) -> None:
    relevant = torch.arange(1, k + 1)
    hits = torch.arange(k)[None, :] < relevant[:, None]
    for metric in RANKING:
        assert metric(hits, relevant, k).tolist() == [1.0] * k


def test_more_relevant_items_than_k_can_still_be_a_perfect_ndcg() -> None:
    assert ndcg_at_k(torch.ones(1, 3, dtype=torch.bool), torch.tensor([50]), 3).item() == 1.0


def test_an_empty_list_is_0_on_every_metric() -> None:
    for metric in RANKING:
        assert metric(torch.zeros(1, 0, dtype=torch.bool), torch.tensor([3]), 10).tolist() == [0.0]


def test_a_user_to_whom_nothing_is_relevant_is_nan() -> None:
    for metric in RANKING:
        assert metric(torch.zeros(2, 3, dtype=torch.bool), torch.tensor([0, 1]), 3).isnan().tolist() == [True, False]


def test_hits_beyond_k_do_not_count() -> None:
    hits: Tensor = torch.tensor([[False, False, True]])
    for metric in RANKING:
        assert metric(hits, torch.tensor([1]), 2).tolist() == [0.0]


def test_nobody_gives_nothing() -> None:
    for metric in RANKING:
        answer = metric(torch.zeros(0, 3, dtype=torch.bool), torch.zeros(0, dtype=torch.int64), 3)
        assert (answer.shape, answer.dtype) == ((0,), torch.float64)
