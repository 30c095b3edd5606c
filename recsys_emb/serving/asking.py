"""`Askers`: the users of a request, each with a vector, a bias and what it has seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from recsys_emb.encoding.batch import Jagged
from recsys_emb.serving.fitted import Fitted
from recsys_emb.serving.folding import Side, fold_in
from recsys_emb.serving.offering import Offer
from recsys_emb.serving.requests import read_values
from recsys_emb.serving.scoring import Part, part
from recsys_emb.serving.strangers import Strangers, read_history


@dataclass(frozen=True, eq=False)
class Askers:
    """The distinct users of a request: those with an index first, then those that were folded in.

    Parameters
    ----------
    values
        Raw values as they were asked for, ``(A,)``.
    places
        int64 ``(A,)``, which of the P distinct users each is.
    indices
        int64 ``(U,)``, of the first U of them.
    rows
        int64 ``(U,)``, where the memory has them.
    own
        User side of these.
    folded
        User side of the others, ``(P - U, D)`` and ``(P - U,)``.
    strangers
        What these did; None without a history.
    """

    values: pd.Series
    places: Tensor
    indices: Tensor
    rows: Tensor
    own: Part
    folded: Side
    strangers: Strangers | None

    @classmethod
    def of(cls, fitted: Fitted, users: Any, history: Any) -> Askers:
        """Read who asks: a list of users, the users of a history, or a list in which some have a history.

        Raises
        ------
        DataError
            When there is neither, or ``users`` beside a history that does not say whose it is.
        """
        strangers = None if history is None else read_history(fitted, history)
        if strangers is not None and users is None:
            return cls._of(fitted, strangers.people, torch.arange(len(strangers)), torch.empty(0).long(), strangers)
        asked = read_values(users, fitted.encoder.vocabularies[fitted.user.name], where="Recommender.recommend: users")
        indices, places = torch.unique(asked.indices, return_inverse=True)
        if strangers is not None:
            numbers = strangers.number_of(asked.values)
            places = torch.where(numbers < 0, places, len(indices) + numbers)
        return cls._of(fitted, asked.values, places, indices, strangers)

    @classmethod
    def _of(
        cls, fitted: Fitted, values: pd.Series, places: Tensor, indices: Tensor, strangers: Strangers | None
    ) -> Askers:
        own = part(fitted.model, fitted.memory.user_rows(indices, fitted.encoder), fitted.model.user_names)
        nobody = torch.empty(0, own.vectors.shape[1], dtype=torch.float64)
        folded = Side(nobody, nobody.new_empty(0)) if strangers is None else fold_in(fitted, strangers)
        return cls(values, places, indices, fitted.memory.users.rows_of(indices), own, folded, strangers)

    @property
    def vectors(self) -> Tensor:
        """User side of all P, ``(P, D)`` float64."""
        return torch.cat([self.own.vectors.double(), self.folded.vectors])

    def seen(self, fitted: Fitted, offer: Offer) -> Jagged:
        """Rows of an offer that each of the P has seen, in training or in its history."""
        seen = fitted.memory.seen.select(self.rows)
        known = Jagged(fitted.memory.items.rows_of(seen.values), seen.offsets)
        if self.strangers is None:
            return known
        owners, rows = self._had(fitted, self.strangers, offer)
        lengths = torch.bincount(owners, minlength=len(self.strangers))
        ends = known.offsets[-1] + lengths.cumsum(0)
        return Jagged(torch.cat([known.values, rows[owners.argsort(stable=True)]]), torch.cat([known.offsets, ends]))

    def known(self, fitted: Fitted) -> Tensor:
        """Tell which of the A training knew: bool ``(A,)``."""
        rows = self.rows
        if self.strangers is not None:
            rows = torch.cat([rows, fitted.memory.users.rows_of(self.strangers.indices(fitted.user.name))])
        return (rows < len(fitted.memory.users))[self.places]

    def routes(self, fitted: Fitted) -> npt.NDArray[np.object_]:
        """Say of each of the A what it is scored by: ``"trained"``, ``"history"`` or ``"unknown"``."""
        own = np.where(self.known(fitted).numpy(), "trained", "unknown")
        return np.where((self.places < len(self.indices)).numpy(), own, "history").astype(object)

    def _had(self, fitted: Fitted, strangers: Strangers, offer: Offer) -> tuple[Tensor, Tensor]:
        """Pair each stranger with the rows of an offer that stand in its history, or with it in training."""
        rows = fitted.memory.items.rows_of(strangers.rows.indices(fitted.item.name))
        rows = torch.where(rows < len(fitted.memory.items), rows, self._same(strangers, offer))
        trained = fitted.memory.seen_by(strangers.rows.indices(fitted.user.name))
        owners = torch.cat([strangers.owners, strangers.owners[trained.owners]])
        rows = torch.cat([rows, fitted.memory.items.rows_of(trained.values)])
        distinct = torch.unique(torch.stack([owners, rows])[:, rows >= 0], dim=1)
        return distinct[0], distinct[1]

    def _same(self, strangers: Strangers, offer: Offer) -> Tensor:
        """Find each row's item among the unknown ones of an offer, by value: int64 ``(N,)``, -1 where it is not."""
        places = torch.full((len(strangers.items) + 1,), -1)
        if offer.values is not None and offer.rows is not None:
            numbers = strangers.items.encode(offer.values.iloc[offer.strangers.numpy()]) - strangers.items.first_index
            places[numbers[numbers >= 0]] = offer.rows[offer.strangers][numbers >= 0]
        return places[strangers.numbers]
