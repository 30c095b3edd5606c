"""Figures of `Recommender.evaluate`: predictions against labels, rankings against what users turned to."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import DataError, RepeatedPairsWarning
from recsys_emb.evaluation.evaluate import evaluate_binary, evaluate_ranking, evaluate_ratings
from recsys_emb.evaluation.metrics import auc
from recsys_emb.schema.columns import Categorical
from recsys_emb.schema.schema import Schema
from recsys_emb.serving.fitted import Fitted
from recsys_emb.serving.learning import open_again, read_rows
from recsys_emb.serving.requests import check_k
from recsys_emb.training.losses import Logistic
from recsys_emb.training.objective import is_number


def evaluate(fitted: Fitted, frame: Any, k: int, *, relevant_at: float | None, exclude_seen: bool) -> dict[str, float]:
    """Answer `Recommender.evaluate`."""
    check_k(k, where="Recommender.evaluate")
    _check_threshold(relevant_at)
    frame = open_again(frame, fitted.schema, where="Recommender.evaluate")
    batch = read_rows(fitted.encoder, frame, where="Recommender.evaluate", needed=(fitted.schema.label,))
    relevant = _relevant_rows(fitted, batch, relevant_at)
    rankings = _judge_rankings(fitted, frame, relevant, k, exclude_seen=exclude_seen)
    return {**_judge_rows(fitted, batch), **rankings, "n_rows": len(batch)}


def _check_threshold(relevant_at: Any) -> None:
    if relevant_at is None or (is_number(relevant_at) and not math.isnan(relevant_at)):
        return
    raise DataError(
        f"Recommender.evaluate: expected relevant_at to be a number, got {relevant_at!r}. "
        "It is the least label of a relevant row."
    )


def _judge_rows(fitted: Fitted, batch: Batch) -> dict[str, float]:
    """Judge predictions row by row, as the objective means them; nothing without a label."""
    label = batch.label
    if label is None:
        return {}
    answers = fitted.answer(batch)
    if fitted.objective.contrast is not None:
        return {"auc": auc(label > 0, answers)} if fitted.label.binary else {}
    return (evaluate_binary if isinstance(fitted.objective, Logistic) else evaluate_ratings)(label, answers)


def _relevant_rows(fitted: Fitted, batch: Batch, relevant_at: float | None) -> Tensor:
    """Tell which rows show something relevant: bool ``(B,)``."""
    label = batch.label
    if relevant_at is not None:
        if label is None:
            raise DataError(
                f"Recommender.evaluate: expected a schema with a label beside relevant_at={relevant_at!r}, got none. "
                "Leave it out: every row is relevant."
            )
        return label >= relevant_at
    positives = fitted.label.binary or fitted.objective.contrast is not None
    return label > 0 if positives and label is not None else torch.ones(len(batch), dtype=torch.bool)


def _judge_rankings(fitted: Fitted, frame: Any, relevant: Tensor, k: int, *, exclude_seen: bool) -> dict[str, float]:
    """Rank the whole catalogue for every user of a frame, and judge it by the relevant rows."""
    users, lists = _relevant_items(fitted, frame, relevant)
    excluded = fitted.seen_rows(users) if exclude_seen else None
    if excluded is not None:
        _warn_of_seen(lists, excluded)
    return evaluate_ranking(fitted.catalogue, fitted.user_vectors(users), lists, k=k, excluded=excluded)


def _warn_of_seen(relevant: Jagged, excluded: Jagged) -> None:
    """Say so when most of what is relevant cannot be recommended, as training saw it."""
    stride = 1 + max((int(one.values.max()) for one in (relevant, excluded) if len(one.values)), default=0)
    wanted, barred = (torch.unique(one.owners * stride + one.values) for one in (relevant, excluded))
    missed = int(torch.isin(wanted, barred, assume_unique=True).sum())
    if 2 * missed > len(wanted):
        warnings.warn(
            f"Recommender.evaluate: expected relevant pairs that training did not see, got {missed} of {len(wanted)} "
            "among the training rows, which are not recommended and count as missed. Judge by held-out rows, or say "
            "exclude_seen=False.",
            RepeatedPairsWarning,
            stacklevel=5,
        )


def _relevant_items(fitted: Fitted, frame: Any, relevant: Tensor) -> tuple[Tensor, Jagged]:
    """Give the distinct users of a frame, as indices, and rows of the catalogue that are relevant to each.

    Users and items are told apart by value, so that two unknown ones stay two. An unknown item has a row beyond
    the catalogue, which no list holds.
    """
    user, item = fitted.user.name, fitted.item.name
    if not len(relevant):
        return torch.empty(0, dtype=torch.int64), Jagged.from_lists([])
    pair = Schema(user=Categorical(user, dtype=fitted.user.dtype), item=Categorical(item, dtype=fitted.item.dtype))
    own = FeatureEncoder(pair).fit(frame)
    batch, first = own.transform(frame), own.vocabularies[user].first_index
    users, items = batch.indices(user) - first, batch.indices(item) - first
    kept = (users >= 0) & (items >= 0) & relevant
    known = fitted.memory.items.rows_of(_translated(fitted, own, item))
    rows = torch.where(known < len(fitted.memory.items), known, len(fitted.memory.items) + torch.arange(len(known)))
    order = users[kept].argsort(stable=True)
    lengths = torch.bincount(users[kept], minlength=len(own.vocabularies[user]))
    lists = Jagged(rows[items[kept][order]], torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]))
    return _translated(fitted, own, user), lists


def _translated(fitted: Fitted, own: FeatureEncoder, name: str) -> Tensor:
    """Give the model's index of every value of a vocabulary of the frame's own."""
    return fitted.encoder.vocabularies[name].encode(own.vocabularies[name].values)
