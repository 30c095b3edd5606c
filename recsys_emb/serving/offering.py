"""`Offer`: the items that a request may be answered with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
from recsys_emb.serving.requests import read_candidates
from recsys_emb.serving.scoring import sides
from recsys_emb.serving.strangers import own_values

_WHERE = "Recommender.recommend"


@dataclass(frozen=True, eq=False)
class Offer:
    """Items laid out to be ranked: the known ones of the catalogue first, then those of the caller's that are not.

    Parameters
    ----------
    batch
        The item side of every row, at the position of serving.
    indices
        int64 ``(I,)``, the item index of every row.
    num_known
        How many rows are known items.
    rows
        int64 ``(C,)``, the candidates among the rows; None for all.
    values
        The caller's values of ``rows``; None for the whole catalogue, whose values the vocabulary knows.
    described
        Whether the caller said what describes the items.
    """

    batch: Batch
    indices: Tensor
    num_known: int
    rows: Tensor | None = None
    values: pd.Series | None = None
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
            return cls(fitted.memory.item_rows(known, fitted.encoder), known, len(known))
        vocabulary = fitted.encoder.vocabularies[fitted.item.name]
        request = read_candidates(candidates, vocabulary, where=f"{_WHERE}: candidates")
        rows, indices = _placed(fitted, request.indices)
        return cls(fitted.memory.item_rows(indices, fitted.encoder), indices, len(known), rows, request.values)

    @classmethod
    def _of_frame(cls, fitted: Fitted, items: Any) -> Offer:
        """Offer the items of a frame with what it says of them; the last row of each counts."""
        source = open_again(items, fitted.schema, where=f"{_WHERE}: items")
        own, numbers = own_values(fitted.item, source)
        names = [one.name for one in fitted.schema.item_side if not isinstance(one, Position)]
        batch = fitted.encoder.row_encoder.keeping(names).encode_all(source, Answers())
        last = torch.full((len(own) + 1,), -1).scatter_reduce_(0, numbers, torch.arange(len(numbers)), "amax")[:-1]
        described = batch.select(last)
        rows, indices = _placed(fitted, described.indices(fitted.item.name))
        # The frame's word stands beside that of the training rows, row by row.
        order = torch.cat([torch.arange(len(indices)), len(indices) + torch.arange(len(rows))])
        order[rows] = len(indices) + torch.arange(len(rows))
        base = fitted.memory.item_rows(indices, fitted.encoder)
        stacked = _stacked(base, described, names).select(order[: len(indices)])
        values = to_series(own.values, fitted.item.name)
        return cls(base.replacing(stacked.columns), indices, len(fitted.memory.items), rows, values, described=True)
