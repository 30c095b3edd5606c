"""`Offer`: the items that a request may be answered with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch
from recsys_emb.encoding.columns import to_series
from recsys_emb.encoding.row_encoder import Answers
from recsys_emb.errors import DataError
from recsys_emb.evaluation.catalogue import Catalogue
from recsys_emb.schema.columns import Position
from recsys_emb.serving.fitted import Fitted
from recsys_emb.serving.learning import open_again
from recsys_emb.serving.requests import called, read_candidates
from recsys_emb.serving.scoring import Part, part
from recsys_emb.serving.strangers import own_values

_WHERE = "Recommender.recommend"


@dataclass(frozen=True, eq=False)
class Offer:
    """Items to be ranked: rows for the known ones of the catalogue first, then for those of the caller's that are not.

    Parameters
    ----------
    indices
        int64 ``(I,)``, the item index of every row.
    num_known
        How many rows are known items.
    rows
        int64 ``(C,)``, the candidates among the rows; None for all.
    values
        The caller's values of ``rows``; None for the whole catalogue, whose values the vocabulary knows.
    said
        What the caller says of each of ``rows``; None where all is remembered.
    described
        Whether the caller said what describes the items.
    """

    indices: Tensor
    num_known: int
    rows: Tensor | None = None
    values: pd.Series | None = None
    said: Batch | None = None
    described: bool = False

    @classmethod
    def of(cls, fitted: Fitted, candidates: Any, items: Any) -> Offer:
        """Offer the whole catalogue, a caller's list of values, or the items of a caller's frame.

        Raises
        ------
        DataError
            When both are given.
        """
        if items is not None:
            if candidates is not None:
                raise DataError(f"{_WHERE}: expected candidates or items, got both. The items are the candidates.")
            return cls._of_frame(fitted, items)
        known = fitted.memory.items.indices
        if candidates is None:
            return cls(known, len(known))
        vocabulary = fitted.encoder.vocabularies[fitted.item.name]
        request = read_candidates(candidates, vocabulary, where=f"{_WHERE}: candidates")
        rows, indices = _placed(fitted, request.indices)
        return cls(indices, len(known), rows, request.values)

    @classmethod
    def _of_frame(cls, fitted: Fitted, items: Any) -> Offer:
        """Offer the items of a frame with what it says of them; the last row of each counts."""
        source = called(open_again(items, fitted.schema, where=f"{_WHERE}: items"), "items")
        own, numbers = own_values(fitted.item, source)
        names = [one.name for one in fitted.schema.item_side if not isinstance(one, Position)]
        rows_said = fitted.encoder.row_encoder.keeping(names).encode_all(source, Answers())
        last = torch.zeros(len(own), dtype=torch.int64)
        told = (numbers >= 0).nonzero()[:, 0]
        last.scatter_reduce_(0, numbers[told], told, "amax")
        described = rows_said.select(last)
        rows, indices = _placed(fitted, described.indices(fitted.item.name))
        values = to_series(own.values, fitted.item.name)
        return cls(indices, len(fitted.memory.items), rows, values, described, described=len(names) > 1)

    @property
    def strangers(self) -> Tensor:
        """Places among `values` of the items that training did not know, int64."""
        return torch.empty(0, dtype=torch.int64) if self.rows is None else (self.rows >= self.num_known).nonzero()[:, 0]

    def side(self, fitted: Fitted, rows: Tensor) -> Part:
        """Item side of some rows, at the position of serving."""
        items = fitted.memory.item_rows(self.indices[rows], fitted.encoder)
        if self.said is not None:
            items = items.replacing(self.said.select(self._places_of(rows)).columns)
        return part(fitted.model, items, fitted.model.item_names)

    def catalogue(self, fitted: Fitted) -> Catalogue:
        """Lay the items out to be ranked."""
        if self.rows is None:
            return fitted.catalogue
        side = self.side(fitted, self.rows)
        return Catalogue(side.vectors, side.bias, numbers=self.rows, num_items=len(self.indices))

    def values_of(self, rows: Tensor, fitted: Fitted) -> pd.Series:
        """Raw values of some rows."""
        if self.rows is None or self.values is None:
            vocabulary = fitted.encoder.vocabularies[fitted.item.name]
            return to_series(vocabulary.take(self.indices[rows]), fitted.item.name)
        return self.values.iloc[self._places_of(rows).numpy()]

    def routes(self, rows: Tensor) -> npt.NDArray[np.object_]:
        """Say of some rows what their items are scored by: ``"trained"``, ``"features"`` or ``"unknown"``."""
        other = "features" if self.described else "unknown"
        return np.where((rows < self.num_known).numpy(), "trained", other).astype(object)

    def _places_of(self, rows: Tensor) -> Tensor:
        """Find where some rows stand among the candidates."""
        place = torch.empty(len(self.indices), dtype=torch.int64)
        place[self.rows] = torch.arange(0 if self.rows is None else len(self.rows))
        return place[rows]


def _placed(fitted: Fitted, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Place items beside the known ones: the row of each, and the item index of all rows that there are."""
    known = fitted.memory.items.indices
    rows = fitted.memory.items.rows_of(indices)
    stranger = rows == len(known)
    rows = torch.where(stranger, len(known) + stranger.cumsum(0) - 1, rows)
    return rows, torch.cat([known, indices[stranger]])
