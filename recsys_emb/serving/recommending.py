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
from recsys_emb.evaluation.ranking import Finder, Ranking, rank
from recsys_emb.serving.asking import Askers
from recsys_emb.serving.fitted import Fitted
from recsys_emb.serving.offering import Offer
from recsys_emb.serving.requests import check_k, read_values
from recsys_emb.serving.scoring import BLOCK, Part, at_rest, terms_of, total

_ROUTES = ("user_route", "item_route")


def recommend(
    fitted: Fitted,
    users: Any,
    k: int,
    *,
    exclude_seen: bool,
    candidates: Any,
    history: Any,
    items: Any,
    index: Finder | None,
) -> pd.DataFrame:
    """Answer `Recommender.recommend`."""
    check_k(k, where="Recommender.recommend")
    _check_index(index, where="Recommender.recommend")
    with at_rest(fitted.model):
        askers, offer = Askers.of(fitted, users, history), Offer.of(fitted, candidates, items)
        excluded = askers.seen(fitted, offer) if exclude_seen else None
        ranking, scores = _ranked(fitted, askers, offer, k, excluded=excluded, finder=index)
    found = ranking.mask[askers.places]
    owners, ranks = found.nonzero().unbind(1)
    rows = ranking.items[askers.places][found]
    columns = {
        fitted.user.name: askers.values.array.take(owners.numpy()),
        fitted.item.name: offer.values_of(rows, fitted).array,
        "score": scores[askers.places][found].numpy(),
        "rank": (ranks + 1).numpy(),
        "known": (askers.known(fitted)[owners] & (rows < offer.num_known)).numpy(),
    }
    if history is not None or items is not None:
        _check_names(fitted)
        columns |= dict(zip(_ROUTES, (askers.routes(fitted)[owners.numpy()], offer.routes(rows)), strict=True))
    return pd.DataFrame(columns, copy=False)


def _ranked(
    fitted: Fitted, askers: Askers, offer: Offer, k: int, *, excluded: Jagged | None, finder: Finder | None
) -> tuple[Ranking, Tensor]:
    """Rank for all P, and predict what they get: float64 ``(P, K)``."""
    finder = finder if offer.rows is None else None
    for _ in range(2):
        catalogue = offer.catalogue(fitted)
        ranking = rank(catalogue, askers.vectors, k, excluded=excluded, finder=finder)
        scores, as_laid_out = _scores(fitted, askers, offer, catalogue, ranking)
        if as_laid_out:
            break
        fitted.forget()
    return ranking, scores


def _scores(
    fitted: Fitted, askers: Askers, offer: Offer, catalogue: Catalogue, ranking: Ranking
) -> tuple[Tensor, bool]:
    """Predict what was found, and tell whether all of it still is what the catalogue holds.

    It may not be where somebody wrote into the weights behind torch's back.
    """
    scores = torch.full(ranking.items.shape, torch.inf, dtype=torch.float64)
    owners, rows = ranking.mask.nonzero()[:, 0], ranking.items[ranking.mask]
    raw, as_laid_out = torch.empty(len(rows), dtype=torch.float64), True
    for start in range(0, len(rows), BLOCK):
        block = slice(start, start + BLOCK)
        side = offer.side(fitted, rows[block])
        # Elsewhere a lookup may round otherwise in other company.
        if fitted.model.offset.is_cpu:
            as_laid_out &= catalogue.holds(rows[block], side.vectors, side.bias)
        raw[block] = _raw_scores(fitted, askers, owners[block], side)
    scores[ranking.mask] = fitted.meant(raw)
    # Where two scores differ by a rounding only, the order of the ranking decides.
    return scores.cummin(dim=1).values, as_laid_out


def _raw_scores(fitted: Fitted, askers: Askers, owners: Tensor, items: Part) -> Tensor:
    """Score pairs ``(N,)``: for users with an index the very numbers of `predict`."""
    count = len(askers.indices)
    if not len(askers.folded.biases):
        return total(terms_of(fitted.model, askers.own.select(owners), items))
    own = owners < count
    raw = torch.empty(len(owners), dtype=torch.float64)
    raw[own] = total(terms_of(fitted.model, askers.own.select(owners[own]), items.select(own)))
    raw[~own] = _folded_scores(fitted, askers, owners[~own] - count, items.select(~own))
    return raw


def _folded_scores(fitted: Fitted, askers: Askers, owners: Tensor, items: Part) -> Tensor:
    """Score pairs of strangers and items, ``(N,)`` each."""
    product = (askers.folded.vectors[owners] * items.vectors.double()).sum(-1)
    raw = askers.folded.biases[owners] + items.bias + product
    units = fitted.model.offset.cpu().double(), fitted.model.scale.cpu().double()
    return units[0] + units[1] * raw


def _check_index(index: object, *, where: str) -> None:
    """Refuse what finds nothing."""
    if index is not None and not (hasattr(index, "find") and not isinstance(index, (type, str))):
        raise DataError(
            f"{where}: expected an index such as ApproximateIndex(), got {index!r}. Leave it out to scan all items."
        )


def _check_names(fitted: Fitted) -> None:
    """Refuse a user or an item whose name an answer needs for itself."""
    for name in _ROUTES:
        if name in (fitted.user.name, fitted.item.name):
            raise DataError(
                f"Recommender.recommend: expected a user and an item not called {listed(_ROUTES)}, got {name!r}. "
                "The answer has columns of these names; rename the column."
            )


def similar(fitted: Fitted, items: Any, k: int, *, index: Finder | None) -> pd.DataFrame:
    """Answer `Recommender.similar`."""
    check_k(k, where="Recommender.similar")
    _check_index(index, where="Recommender.similar")
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
    catalogue = fitted.directions
    itself = Jagged(rows, torch.arange(len(rows) + 1))
    ranking = rank(catalogue, catalogue.vectors_of(rows), k, excluded=itself, finder=index)
    places, ranks = ranking.mask.nonzero().unbind(1)
    return pd.DataFrame(
        {
            name: asked.values.array.take(places.numpy()),
            f"similar_{name}": to_series(vocabulary.take(known.indices[ranking.items[ranking.mask]]), name).array,
            "score": ranking.scores[ranking.mask].clamp(-1, 1).numpy(),
            "rank": (ranks + 1).numpy(),
        },
        copy=False,
    )
