"""How often rows of tables are looked up."""

from __future__ import annotations

import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.lookup.pooling import filled_lists


def row_counts(batch: Batch) -> dict[str, Tensor]:
    """Count how often a batch looks up each row of each feature's table.

    Parameters
    ----------
    batch
        Encoded rows.

    Returns
    -------
    dict
        int64 ``(V,)`` by feature, on the batch's device. A list without values, or whose weights are all zero, looks
        up the missing row; padding is no lookup. Of a `Numeric`, how many numbers were there and how many missing.
        V is what the batch was encoded for (`Batch.limits`), or as much as its largest index asks for; counts of
        batches of one encoder add up.

    Examples
    --------
    >>> batch = Batch({"user_id": torch.tensor([3, 4, 3]), "tags": Jagged.from_lists([[3, 1], [], [3]])})
    >>> {name: counts.tolist() for name, counts in row_counts(batch).items()}
    {'user_id': [0, 0, 0, 2, 1], 'tags': [0, 2, 0, 2]}
    """
    return {name: _counts(batch, name) for name in batch}


def _counts(batch: Batch, name: str) -> Tensor:
    column = batch[name]
    if isinstance(column, Jagged):
        column = filled_lists(column, "sum").values
    elif column.is_floating_point():
        missing = (column[:, 1] != 0).sum()
        return torch.stack([len(column) - missing, missing])
    counts = torch.bincount(column, minlength=batch.limits.get(name, 1))
    counts[0] = 0
    return counts
