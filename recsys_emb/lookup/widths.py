"""How wide vectors are: one width for all features, or each its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from recsys_emb.errors import SchemaError, at_least, listed
from recsys_emb.lookup.tables import TableSizes, real_values
from recsys_emb.schema.columns import Feature, Numeric

Width: TypeAlias = int | Literal["auto"] | Mapping[str, int]
"""One width, `suggested_dim` of each feature, or widths by feature name."""


def suggested_dim(num_categories: int) -> int:
    """Suggest how wide a table should be, by fastai's rule of thumb: ``min(600, round(1.6 * n ** 0.56))``.

    It knows neither the task nor the rows; try wider and narrower where it matters.

    Parameters
    ----------
    num_categories
        Real values, n; reserved rows do not count.

    Returns
    -------
    int
        At least 1.

    References
    ----------
    Howard, J. and Gugger, S. "fastai: A layered API for deep learning." Information 11(2), 2020; ``emb_sz_rule``.

    Examples
    --------
    >>> [suggested_dim(n) for n in (2, 10, 1_000, 27_000, 1_000_000_000)]
    [2, 6, 77, 485, 600]
    """
    count = at_least("suggested_dim", "num_categories", num_categories, 0)
    return max(1, min(600, round(1.6 * math.pow(count, 0.56))))


def widths_of(features: Iterable[Feature], sizes: TableSizes, width: Width) -> dict[str, int]:
    """Say how wide the table of each feature is, by name. A number is no category: with ``"auto"`` its width is 1.

    Raises
    ------
    SchemaError
        When ``width`` is another text, or lacks a feature.
    """
    if isinstance(width, str) and width != "auto":
        raise SchemaError(
            f"FeatureEmbedding: expected embedding_dim to be an integer, 'auto' or widths by feature, got {width!r}. "
            "Say 'auto' for suggested_dim of every feature."
        )
    if not isinstance(width, Mapping):
        return {one.name: _suggested(one, sizes) if isinstance(width, str) else width for one in features}
    names = [one.name for one in features]
    missing = [name for name in names if name not in width]
    if missing:
        raise SchemaError(
            f"FeatureEmbedding: expected embedding_dim to name every feature, got none for {listed(missing)}. "
            "Give each a width."
        )
    return {name: width[name] for name in names}


def _suggested(feature: Feature, sizes: TableSizes) -> int:
    return 1 if isinstance(feature, Numeric) else suggested_dim(real_values(feature, sizes))
