"""Judge scores and rankings: the metrics that belong together, in one dictionary."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor

from recsys_emb.encoding.batch import Jagged
from recsys_emb.errors import DataError, counted
from recsys_emb.evaluation.catalogue import Catalogue
from recsys_emb.evaluation.metrics import (
    Numbers,
    auc,
    hit_rate_at_k,
    log_loss,
    mae,
    mrr_at_k,
    ndcg_at_k,
    recall_at_k,
    rmse,
    undefined,
)
from recsys_emb.evaluation.ranking import Ranking, rank

Metric: TypeAlias = Callable[[Tensor, Tensor, int], Tensor]

RANKING_METRICS: Mapping[str, Metric] = {
    "recall": recall_at_k,
    "ndcg": ndcg_at_k,
    "mrr": mrr_at_k,
    "hit_rate": hit_rate_at_k,
}
# Users judged together; only their figures are kept.
BLOCK = 8192


def evaluate_ratings(label: Numbers, predicted: Numbers) -> dict[str, float]:
    """Judge predicted ratings over all rows at once.

    >>> evaluate_ratings([1.0, 3.0], [1.0, 2.0])
    {'rmse': 0.7071067811865476, 'mae': 0.5, 'n_rows': 2}
    """
    return {"rmse": rmse(label, predicted), "mae": mae(label, predicted), "n_rows": len(label)}


def evaluate_binary(label: Numbers, probability: Numbers) -> dict[str, float]:
    """Judge predicted probabilities of label 1 over all rows at once.

    >>> evaluate_binary([0, 1], [0.5, 0.5])
    {'auc': 0.5, 'log_loss': 0.6931471805599453, 'n_rows': 2}
    """
    return {"auc": auc(label, probability), "log_loss": log_loss(label, probability), "n_rows": len(label)}


def evaluate_ranking(
    catalogue: Catalogue, user_vectors: Tensor, relevant: Jagged, *, k: int = 10, excluded: Jagged | None = None
) -> dict[str, float]:
    """Judge the best k of the whole catalogue for every user.

    Parameters
    ----------
    catalogue
        The candidates.
    user_vectors
        ``(U, D)``.
    relevant
        Item rows that are relevant to each user, in any order, repeats counting once. A relevant item that no
        list can hold (excluded, not a candidate, or no row of the item table at all) counts against recall.
    k
        How many items each user gets.
    excluded
        Item rows that each user must not get: the items of the training rows.

    Returns
    -------
    dict
        Means over the users to whom something is relevant, ``recall``, ``ndcg``, ``mrr``, ``hit_rate``; their
        number ``n_evaluated``; and ``n_skipped``, the number of users to whom nothing is. A user who gets no items
        counts as 0. The means are NaN, with scikit-learn's `UndefinedMetricWarning`, when nobody is left.

    Raises
    ------
    DataError, IndexRangeError
        As `top_k`; and when ``relevant`` is not one list per user.

    Examples
    --------
    >>> catalogue = Catalogue(torch.tensor([[1.0], [3.0], [2.0]]), None)
    >>> relevant = Jagged.from_lists([[1, 0], []])
    >>> evaluate_ranking(catalogue, torch.ones(2, 1), relevant, k=2)
    {'recall': 0.5, 'ndcg': 0.6131..., 'mrr': 1.0, 'hit_rate': 1.0, 'n_evaluated': 1, 'n_skipped': 1}
    """
    if len(relevant) != len(user_vectors):
        got = f"{counted(len(relevant), 'list')} for {counted(len(user_vectors), 'user')}"
        raise DataError(
            f"evaluate_ranking: expected one list of relevant items per user, got {got}. Give an empty list for none."
        )
    judged = relevant.lengths.nonzero()[:, 0]
    parts = []
    for users in torch.split(judged, BLOCK):
        barred = None if excluded is None else excluded.select(users)
        ranking = rank(catalogue, user_vectors[users], k, excluded=barred)
        parts.append(judge(ranking, relevant.select(users), k))
    values = {name: torch.cat([part[name] for part in parts]).tolist() for name in RANKING_METRICS}
    counts = {"n_evaluated": len(judged), "n_skipped": len(relevant) - len(judged)}
    # Summed exactly, so that the order of the users cannot matter.
    means = {name: math.fsum(column) / len(column) if column else math.nan for name, column in values.items()}
    if not len(judged):
        undefined("evaluate_ranking", "a user with relevant items")
    return {**means, **counts}


def judge(ranking: Ranking, relevant: Jagged, k: int) -> dict[str, Tensor]:
    """Judge given rankings: for each metric float64 ``(U,)``, NaN for users to whom nothing is relevant.

    >>> ranking = rank(Catalogue(torch.tensor([[1.0], [2.0]]), None), torch.ones(1, 1), 1)
    >>> judge(ranking, Jagged.from_lists([[1]]), 1)["recall"]
    tensor([1.], dtype=torch.float64)
    """
    lists = _distinct(relevant.to(ranking.items.device))
    hits = _found(ranking.items, lists)
    return {name: metric(hits, lists.lengths, k) for name, metric in RANKING_METRICS.items()}


def _distinct(lists: Jagged) -> Jagged:
    """Drop repeats within each list, and sort it."""
    values, order = lists.values.sort(stable=True)
    owners, by_owner = lists.owners[order].sort(stable=True)
    values = values[by_owner]
    new = torch.ones_like(values, dtype=torch.bool)
    new[1:] = (values[1:] != values[:-1]) | (owners[1:] != owners[:-1])
    counts = torch.bincount(owners[new], minlength=len(lists))
    return Jagged(values[new], torch.cat([counts.new_zeros(1), counts.cumsum(0)]))


def _found(items: Tensor, lists: Jagged) -> Tensor:
    """Tell which of ``(U, K)`` items stand in their user's list; items below 0 stand in none."""
    span = int(items.max()) + 1 if items.numel() else 0
    findable = (lists.values >= 0) & (lists.values < span)
    wanted = lists.owners[findable] * span + lists.values[findable]
    users = torch.arange(len(items), device=items.device)[:, None]
    return torch.isin(users * span + items, wanted) & (items >= 0)
