"""The best items of users and the most similar ones of items, as frames of raw values."""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch
from torch import Tensor

from recsys_emb.encoding.batch import Jagged
from recsys_emb.encoding.columns import to_series
from recsys_emb.errors import DataError, UnknownValueError, listed
from recsys_emb.evaluation.catalogue import Catalogue
from recsys_emb.evaluation.ranking import Ranking, rank
from recsys_emb.serving.asking import Askers
from recsys_emb.serving.fitted import Fitted
from recsys_emb.serving.folding import Side
from recsys_emb.serving.offering import Offer
from recsys_emb.serving.requests import check_k, read_values
from recsys_emb.serving.scoring import sides

_ROUTES = ("user_route", "item_route")


def recommend(
    fitted: Fitted, users: Any, k: int, *, exclude_seen: bool, candidates: Any, history: Any, items: Any
) -> pd.DataFrame:
    """Answer `Recommender.recommend`."""
    check_k(k, where="Recommender.recommend")
    routed = history is not None or items is not None
    askers, offer = Askers.of(fitted, users, history), Offer.of(fitted, candidates, items)
    catalogue, vectors, biases = offer.catalogue(fitted)
    excluded = askers.seen(fitted, offer) if exclude_seen else None
    ranking = rank(catalogue, askers.vectors(fitted), k, excluded=excluded)
    scores = _scores(fitted, askers, offer, ranking, Side(vectors, biases))
    found = ranking.mask[askers.places]
    owners, ranks = found.nonzero().unbind(1)
    rows = ranking.items[askers.places][found]
    columns = {
        fitted.user.name: askers.values.iloc[owners.numpy()].reset_index(drop=True),
        fitted.item.name: offer.values_of(rows, fitted).reset_index(drop=True),
        "score": scores[askers.places][found].numpy(),
        "rank": (ranks + 1).numpy(),
        "known": (askers.known(fitted)[owners] & (rows < offer.num_known)).numpy(),
    }
    if routed:
        _check_names(fitted)
        columns |= dict(zip(_ROUTES, (askers.routes(fitted)[owners.numpy()], offer.routes(rows)), strict=True))
    return pd.DataFrame(columns)


def _check_names(fitted: Fitted) -> None:
    """Refuse a user or an item whose name an answer needs for itself."""
    for name in _ROUTES:
        if name in (fitted.user.name, fitted.item.name):
            raise DataError(
                f"Recommender.recommend: expected a user and an item not called {listed(_ROUTES)}, got {name!r}. "
                "The answer has columns of these names; rename the column."
            )


def _scores(fitted: Fitted, askers: Askers, offer: Offer, ranking: Ranking, items: Side) -> Tensor:
    """Predict the ranked pairs: float64 ``(P, K)``, for users with an index the very numbers of `predict`."""
    scores = torch.full(ranking.items.shape, torch.inf, dtype=torch.float64)
    count = len(askers.indices)
    owners, rows = ranking.mask.nonzero()[:, 0], ranking.items[ranking.mask]
    own = owners < count
    pairs = fitted.memory.user_rows(askers.indices[owners[own]], fitted.encoder)
    pairs = pairs.replacing(offer.batch.select(rows[own]).columns)
    found = torch.empty(len(owners), dtype=torch.float64)
    found[own] = fitted.answer(pairs)
    found[~own] = _folded_scores(fitted, askers, owners[~own] - count, items, rows[~own])
    scores[ranking.mask] = found
    # Where two scores differ by a rounding only, the order of the ranking decides.
    return scores.cummin(dim=1).values


def _folded_scores(fitted: Fitted, askers: Askers, owners: Tensor, items: Side, rows: Tensor) -> Tensor:
    """Predict pairs of strangers and rows of an offer, ``(N,)`` each."""
    product = (askers.folded.vectors[owners] * items.vectors[rows].double()).sum(-1)
    raw = askers.folded.biases[owners] + items.biases[rows] + product
    units = fitted.model.offset.cpu().double(), fitted.model.scale.cpu().double()
    return fitted.objective.answer(units[0] + units[1] * raw, fitted.label.low, fitted.label.high)


def similar(fitted: Fitted, items: Any, k: int) -> pd.DataFrame:
    """Answer `Recommender.similar`."""
    check_k(k, where="Recommender.similar")
    known, name = fitted.memory.items, fitted.item.name
    vocabulary = fitted.encoder.vocabularies[name]
    asked = read_values(items, vocabulary, where="Recommender.similar")
    rows = known.rows_of(asked.indices)
    unknown = asked.values[(rows == len(known)).numpy()]
    if len(unknown):
        raise UnknownValueError(
            "Recommender.similar: expected items of the training rows that the vocabulary holds, "
            f"got {listed(unknown)}. Ask for others, or fit without min_count and max_size."
        )
    position = fitted.schema.position
    names = tuple(one for one in fitted.model.item_names if position is None or one != position.name)
    vectors = sides(fitted.model, known.lookup(known.indices), names)[0].double()
    # A vector of zeros points nowhere: its cosine with anything is taken as 0.
    units = vectors / vectors.norm(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    itself = Jagged(rows, torch.arange(len(rows) + 1))
    ranking = rank(Catalogue(units, None), units[rows], k, excluded=itself)
    places, ranks = ranking.mask.nonzero().unbind(1)
    return pd.DataFrame(
        {
            name: asked.values.iloc[places.numpy()].reset_index(drop=True),
            f"similar_{name}": to_series(vocabulary.take(known.indices[ranking.items[ranking.mask]]), name),
            "score": ranking.scores[ranking.mask].clamp(-1, 1).numpy(),
            "rank": (ranks + 1).numpy(),
        }
    )
