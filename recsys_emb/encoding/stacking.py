"""Put batches on top of each other."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch, Column, Jagged
from recsys_emb.errors import DataError


def stack_rows(batches: Sequence[Batch]) -> Batch:
    """Join batches of the same columns into one, row after row.

    Parameters
    ----------
    batches
        At least one. All have the same features, and either all or none have labels, weights and list weights.

    Returns
    -------
    Batch
        ``sum(len(batch) for batch in batches)`` rows. Its limits are the largest of each feature, which every
        index respects.

    Raises
    ------
    DataError
        When there is no batch, or when labels or weights are there in some batches only.

    Examples
    --------
    >>> first = Batch({"tags": Jagged.from_lists([[5], []])}, limits={"tags": 9})
    >>> both = stack_rows([first, Batch({"tags": Jagged.from_lists([[6, 7]])}, limits={"tags": 8})])
    >>> both.lists("tags").to_lists(), dict(both.limits)
    ([[5], [], [6, 7]], {'tags': 9})
    """
    if not batches:
        raise DataError("stack_rows: expected at least one batch, got none. Encode an empty frame instead.")
    if len(batches) == 1:
        return batches[0]
    first = batches[0]
    columns = {name: _stack_columns([batch[name] for batch in batches], name) for name in first.names}
    label = _stack_optional([batch.label for batch in batches], "a label")
    weight = _stack_optional([batch.weight for batch in batches], "a weight")
    return Batch(columns, label, weight, _largest_limits(batches))


def _stack_columns(columns: Sequence[Column], name: str) -> Column:
    lists = [column for column in columns if isinstance(column, Jagged)]
    if not lists:
        return torch.cat([column for column in columns if isinstance(column, Tensor)])
    values = torch.cat([one.values for one in lists])
    lengths = torch.cat([one.lengths for one in lists])
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    return Jagged(values, offsets, _stack_optional([one.weights for one in lists], f"weights of {name!r}"))


def _stack_optional(tensors: Sequence[Tensor | None], what: str) -> Tensor | None:
    there = [tensor for tensor in tensors if tensor is not None]
    if not there:
        return None
    if len(there) < len(tensors):
        raise DataError(
            f"stack_rows: expected {what} in all {len(tensors)} batches, got {len(there)}. Encode them alike."
        )
    return torch.cat(there)


def _largest_limits(batches: Sequence[Batch]) -> dict[str, int]:
    """Keep the limits that all batches state: an unchecked batch makes the whole unchecked."""
    common = set.intersection(*(set(batch.limits) for batch in batches))
    return {name: max(batch.limits[name] for batch in batches) for name in batches[0].limits if name in common}
