"""From a `Batch` to lists of table rows: what the row-by-row solver reads instead of tensors.

All tables of a model are stacked: feature after feature, row i of a table that starts at row f is row f + i. An
example names rows with weights (1 for an index, the pooling weight for an entry of a list, the value for a number),
so that any schema becomes two lists of weighted rows per example, one per side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from recsys_emb import kernels
from recsys_emb.encoding.batch import Batch, Column, Jagged
from recsys_emb.encoding.filling import Growing
from recsys_emb.vocabulary.reserved import PADDING_INDEX

if TYPE_CHECKING:
    from recsys_emb.kernels.sequential import Lists

# Examples that are taken at a time: steps between a batch and its lists take several times what the lists do.
_BLOCK = 2**16


def row_lists(batch: Batch, names: Sequence[str], first_rows: Mapping[str, int]) -> Lists:
    """List the stacked rows that each example names in the features called ``names``.

    Parameters
    ----------
    batch
        With pooling weights.
    names
        Features, in the order in which their rows follow each other; none give empty lists.
    first_rows
        By feature name, the stacked row at which its table starts.
    """
    size, mine = len(batch), batch.keeping(names)
    largest = max((first_rows[name] + _largest(batch[name]) for name in names), default=0)
    offsets = np.zeros(size + 1, np.int64)
    rows, weights = Growing(_narrowest(largest), size), Growing(np.float32, size)
    for first in range(0, size, _BLOCK):
        last = min(first + _BLOCK, size)
        block = mine.slice(first, last)
        part = _side_by_side([_feature_lists(block[name], first_rows[name]) for name in names], last - first)
        offsets[first + 1 : last + 1] = offsets[first] + part.offsets[1:]
        rows.append(part.rows, rows=last)
        weights.append(part.weights, rows=last)
    return kernels.sequential.Lists(offsets, rows.array, weights.array)


def occurrences(lists: Sequence[Lists], num_rows: int) -> npt.NDArray[np.float64]:
    """Count how often each row occurs, an occurrence of weight w counting w²: float64 ``(num_rows,)``."""
    totals = np.zeros(num_rows)
    for one in lists:
        counts = np.zeros(num_rows)
        for first in range(0, len(one.rows), _BLOCK):
            block = slice(first, first + _BLOCK)
            np.add.at(counts, one.rows[block], np.square(one.weights[block], dtype=np.float64))
        totals += counts
    return totals


def user_order(users: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.int64]:
    """Order rows by user, shuffled within a user: the user's row stays in the cache while it learns."""
    shuffled = np.random.default_rng(seed).permutation(len(users))
    return shuffled[np.argsort(users[shuffled], kind="stable")]


def with_rows(lists: Lists, rows: npt.NDArray[np.integer[Any]]) -> Lists:
    """Copy of lists with other rows in the same places."""
    return lists._replace(rows=_narrow(rows))


# --- columns ---------------------------------------------------------------------------------------------------


def _feature_lists(column: Column, first: int) -> Lists:
    if isinstance(column, Jagged):
        weights = None if column.weights is None else _numpy(column.weights)
        return _lists(_numpy(column.offsets), _numpy(column.values) + first, weights)
    if column.is_floating_point():
        return _number_lists(_numpy(column), first)
    named = _numpy(column != PADDING_INDEX)
    offsets = np.concatenate([[0], named.cumsum()])
    return _lists(offsets, _numpy(column)[named] + first, None)


def _number_lists(numbers: npt.NDArray[np.float32], first: int) -> Lists:
    """Name the row of the number's direction, weighted by the value, or the missing row; not those of weight 0."""
    named = numbers != 0
    offsets = np.concatenate([[0], named.sum(1).cumsum()])
    rows = np.broadcast_to(np.array([first, first + 1]), numbers.shape)
    return _lists(offsets, rows[named], numbers[named])


def _lists(
    offsets: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], weights: npt.NDArray[np.float32] | None
) -> Lists:
    weights = np.ones(len(rows), np.float32) if weights is None else weights
    return kernels.sequential.Lists(offsets.astype(np.int64), _narrow(rows), weights.astype(np.float32))


def _narrow(rows: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.integer[Any]]:
    return rows.astype(_narrowest(int(rows.max(initial=0))))


def _narrowest(largest: int) -> type[np.integer[Any]]:
    return np.int32 if largest < np.iinfo(np.int32).max else np.int64


def _largest(column: Column) -> int:
    """Give the largest row that a column names, where its table starts at 0."""
    indices = column.values if isinstance(column, Jagged) else column
    if indices.is_floating_point():
        return 1
    return int(indices.max()) if len(indices) else 0


def _side_by_side(parts: Sequence[Lists], length: int) -> Lists:
    """Join lists example by example, in order."""
    lengths = [np.diff(part.offsets) for part in parts]
    offsets = np.concatenate([[0], np.sum([np.zeros(length, np.int64), *lengths], axis=0).cumsum()])
    rows, weights = np.empty(offsets[-1], np.int64), np.empty(offsets[-1], np.float32)
    starts = offsets[:-1].copy()
    for part, count in zip(parts, lengths, strict=True):
        places = np.arange(len(part.rows)) + np.repeat(starts - part.offsets[:-1], count)
        rows[places], weights[places] = part.rows, part.weights
        starts += count
    return _lists(offsets, rows, weights)


def _numpy(tensor: Tensor) -> npt.NDArray[Any]:
    return tensor.detach().cpu().numpy()
