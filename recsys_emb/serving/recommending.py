"""The best items of users and the most similar ones of items, as frames of raw values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from recsys_emb.encoding.batch import Jagged
from recsys_emb.encoding.columns import to_series
from recsys_emb.errors import UnknownValueError, listed
from recsys_emb.evaluation.catalogue import Catalogue
from recsys_emb.evaluation.ranking import Ranking, rank
from recsys_emb.serving.fitted import Fitted
from recsys_emb.serving.requests import check_k, read_candidates, read_values
from recsys_emb.serving.scoring import sides


@dataclass(frozen=True, eq=False)
class Offer:
    """Items that may be recommended: rows of the catalogue, then the unknown ones of a caller's list.

    Parameters
    ----------
    rows
        int64 ``(C,)``, candidates; None for the whole catalogue.
    indices
        int64, the item index of every row that there is.
    num_known
        How many of these rows are known items; the others follow them.
    values
        The caller's values of ``rows``; None for the whole catalogue, whose values the vocabulary knows.
    """

    rows: Tensor | None
    indices: Tensor
    num_known: int
    values: pd.Series | None

    @classmethod
    def of(cls, fitted: Fitted, candidates: Any) -> Offer:
        """Offer the whole catalogue, or a caller's list."""
        known = fitted.memory.items.indices
        if candidates is None:
            return cls(None, known, len(known), None)
        vocabulary = fitted.encoder.vocabularies[fitted.item.name]
        request = read_candidates(candidates, vocabulary, where="Recommender.recommend: candidates")
        rows = fitted.memory.items.rows_of(request.indices)
        stranger = rows == len(known)
        rows = torch.where(stranger, len(known) + stranger.cumsum(0) - 1, rows)
        return cls(rows, torch.cat([known, request.indices[stranger]]), len(known), request.values)

    def values_of(self, rows: Tensor, fitted: Fitted) -> pd.Series:
        """Raw values of some rows."""
        if self.rows is None or self.values is None:
            vocabulary = fitted.encoder.vocabularies[fitted.item.name]
            return to_series(vocabulary.take(self.indices[rows]), fitted.item.name)
        place = torch.empty(len(self.indices), dtype=torch.int64)
        place[self.rows] = torch.arange(len(self.rows))
        return self.values.iloc[place[rows].numpy()]


def recommend(fitted: Fitted, users: Any, k: int, *, exclude_seen: bool, candidates: Any) -> pd.DataFrame:
    """Answer `Recommender.recommend`."""
    check_k(k, where="Recommender.recommend")
    vocabulary = fitted.encoder.vocabularies[fitted.user.name]
    asked = read_values(users, vocabulary, where="Recommender.recommend: users")
    offer = Offer.of(fitted, candidates)
    distinct, places = torch.unique(asked.indices, return_inverse=True)
    ranking = rank(
        fitted.catalogue(offer.indices[offer.num_known :], offer.rows),
        fitted.user_vectors(distinct),
        k,
        excluded=fitted.seen_rows(distinct) if exclude_seen else None,
    )
    scores = _scores(fitted, distinct, offer, ranking)
    found = ranking.mask[places]
    owners, ranks = found.nonzero().unbind(1)
    rows = ranking.items[places][found]
    known_user = fitted.memory.users.rows_of(asked.indices) < len(fitted.memory.users)
    return pd.DataFrame(
        {
            fitted.user.name: asked.values.iloc[owners.numpy()].reset_index(drop=True),
            fitted.item.name: offer.values_of(rows, fitted).reset_index(drop=True),
            "score": scores[places][found].numpy(),
            "rank": (ranks + 1).numpy(),
            "known": (known_user[owners] & (rows < offer.num_known)).numpy(),
        }
    )


def _scores(fitted: Fitted, users: Tensor, offer: Offer, ranking: Ranking) -> Tensor:
    """Predict the ranked pairs: float64 ``(U, K)``, the very numbers that `Recommender.predict` gives."""
    scores = torch.full(ranking.items.shape, torch.inf, dtype=torch.float64)
    owners, items = users[ranking.mask.nonzero()[:, 0]], offer.indices[ranking.items[ranking.mask]]
    scores[ranking.mask] = fitted.answer(fitted.pairs(owners, items))
    # Where two scores differ by a rounding only, the order of the ranking decides.
    return scores.cummin(dim=1).values


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
