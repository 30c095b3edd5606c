"""What callers ask for, checked and in indices, with their own values kept for the answer."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from recsys_emb.encoding.columns import to_series
from recsys_emb.errors import DataError
from recsys_emb.sources.keys import to_arrow
from recsys_emb.sources.sources import Source
from recsys_emb.vocabulary.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class Request:
    """Values that a caller asked about.

    Parameters
    ----------
    values
        As they came, ``(N,)``, numbered from 0.
    indices
        int64 ``(N,)``, what they are to the model.
    """

    values: pd.Series
    indices: Tensor

    def __len__(self) -> int:
        """Count the values, N."""
        return len(self.values)


def read_values(values: Any, vocabulary: Vocabulary, *, where: str) -> Request:
    """Encode a list of values.

    Parameters
    ----------
    values
        A list, tuple, pandas Series or Index, numpy array, Arrow array, Polars Series or integer tensor. Repeats
        and unknown values are fine.
    vocabulary
        Of the feature that they belong to.
    where
        Name of the argument, for messages.

    Raises
    ------
    DataError
        When it is a single value, or has no order or more than one dimension.
    KeyTypeError
        When the values are of another type than the vocabulary's.
    """
    _check_list(values, where)
    # A list of nothing has no type of its own.
    untyped = isinstance(values, (list, tuple)) and not len(values)
    kept = to_series(vocabulary.values[:0], vocabulary.name) if untyped else _as_series(values, vocabulary.name)
    return Request(kept, vocabulary.encode(values, where=where))


def read_candidates(values: Any, vocabulary: Vocabulary, *, where: str) -> Request:
    """Encode a list of candidates: each distinct value once, missing values left out."""
    _check_list(values, where)
    if not len(values):
        return read_values(values, vocabulary, where=where)
    vocabulary.encode(values, where=where)
    distinct = Vocabulary.from_values(values, name=vocabulary.name).values
    return Request(to_series(distinct, vocabulary.name), vocabulary.encode(distinct, where=where))


def called(source: Source, name: str) -> Source:
    """Let messages call tables in memory by the argument that they were given as; files keep their own names."""
    return Source(tuple(part if part.is_file else replace(part, name=name) for part in source.parts))


def check_k(k: object, *, where: str) -> None:
    """Refuse a ``k`` that is no integer of at least 1."""
    if not isinstance(k, (int, np.integer)) or isinstance(k, bool) or k < 1:
        raise DataError(f"{where}: expected k to be an integer of at least 1, got {k!r}. Ask for one row or more.")


def _check_list(values: Any, where: str) -> None:
    listlike = hasattr(values, "__len__") and not isinstance(values, (str, bytes, Mapping, Set))
    if listlike and getattr(values, "ndim", 1) == 1:
        return
    got = type(values).__name__ if listlike or isinstance(values, (Mapping, Set)) else repr(values)
    remedy = "Give one column." if listlike else "Put it into a list."
    raise DataError(f"{where}: expected a list of values, got {got}. {remedy}")


def _as_series(values: Any, name: str) -> pd.Series:
    """Keep the values and their types; beside a missing one, integers must not turn into floats."""
    if isinstance(values, (list, tuple)):
        kinds = set(map(type, values))
        if kinds == {str} or (kinds == {int} and max(map(abs, values)) < 2**63):
            return pd.Series(values, name=name)
        objects = pd.Series(list(values), dtype=object, name=name)
        return objects if objects.isna().any() else objects.infer_objects()
    if isinstance(values, torch.Tensor):
        values = values.cpu().numpy()
    if isinstance(values, pd.Series):
        return values.reset_index(drop=True).rename(name)
    if hasattr(values, "to_arrow") or type(values).__module__.partition(".")[0] == "pyarrow":
        return to_series(to_arrow(values, name), name)
    return pd.Series(values, name=name)
