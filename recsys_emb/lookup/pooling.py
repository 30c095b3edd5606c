"""Many vectors per row into one: weighted sums over lists, in one place for every solver."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from recsys_emb.encoding.batch import Jagged
from recsys_emb.schema.columns import Pooling
from recsys_emb.vocabulary.reserved import MISSING_INDEX, PADDING_INDEX


def pooled_weights(lists: Jagged, pooling: Pooling) -> Jagged:
    """Write pooling as a weighted sum: the vector of a list is Σ weight · vector over its entries.

    Parameters
    ----------
    lists
        Indices, with or without a non-negative weight each.
    pooling
        With weights w (1 where there are none): ``"mean"`` gives w/Σw, ``"sqrtn"`` w/√Σw², ``"sum"`` w. ``"max"``
        and ``"none"`` are no sums; their weights stay w.

    Returns
    -------
    Jagged
        int64 ``(N',)`` indices and float32 ``(N',)`` weights, in the order given. Padding and entries of weight 0
        are gone; a list with nothing left is one entry `MISSING_INDEX` of weight 1. No list is empty.

    Examples
    --------
    >>> pooled = pooled_weights(Jagged.from_lists([[5, 6], [], [7, 0]]), "mean")
    >>> pooled.to_lists(), pooled.weights.tolist()
    ([[5, 6], [1], [7]], [0.5, 0.5, 1.0, 1.0])
    """
    filled = filled_lists(lists, pooling)
    kept = filled.values != PADDING_INDEX
    before = torch.cat([filled.offsets.new_zeros(1), kept.cumsum(0)])
    weights = None if filled.weights is None else filled.weights[kept]
    return Jagged(filled.values[kept], before[filled.offsets], weights)


def filled_lists(lists: Jagged, pooling: Pooling) -> Jagged:
    """Do what `pooled_weights` does in shapes that no value decides: no wait for a device, one compiled graph.

    Every list gets one entry more at its end. Of an empty list that is the missing row; of any other it is padding of
    weight 0, which every entry that weighs nothing becomes too. The result has ``N + B`` entries.

    >>> filled = filled_lists(Jagged.from_lists([[5, 0], []]), "sum")
    >>> filled.to_lists(), filled.weights.tolist()
    ([[5, 0, 0], [1]], [1.0, 0.0, 0.0, 1.0])
    """
    given = torch.ones_like(lists.values, dtype=torch.float32) if lists.weights is None else lists.weights
    alive = (lists.values != PADDING_INDEX) & (given > 0)
    empty = torch.segment_reduce(alive.to(given.dtype), "sum", offsets=lists.offsets) == 0
    offsets = lists.offsets + torch.arange(lists.offsets.shape[0], device=lists.offsets.device)
    places = torch.arange(lists.values.shape[0], device=offsets.device) + lists.owners
    fillers = torch.where(empty, MISSING_INDEX, PADDING_INDEX).to(lists.values.dtype)
    values = _merged(places, lists.values.where(alive, PADDING_INDEX), offsets[1:] - 1, fillers)
    weights = _merged(places, given.where(alive, 0.0), offsets[1:] - 1, empty.to(given.dtype))
    filled = Jagged(values, offsets)
    return Jagged(values, offsets, weights / _norms(weights, filled, pooling))


def _merged(places: Tensor, entries: Tensor, ends: Tensor, fillers: Tensor) -> Tensor:
    """Lay entries and the filler of each list out in one tensor."""
    merged = entries.new_empty(entries.shape[0] + fillers.shape[0])
    return merged.index_put((places,), entries).index_put((ends,), fillers)


def _norms(weights: Tensor, lists: Jagged, pooling: Pooling) -> Tensor:
    """Give what the weights of each list are divided by, per entry; summed in a fixed order on every device."""
    if pooling == "mean":
        return torch.segment_reduce(weights, "sum", offsets=lists.offsets)[lists.owners]
    if pooling == "sqrtn":
        return torch.segment_reduce(weights.square(), "sum", offsets=lists.offsets).sqrt()[lists.owners]
    return torch.ones_like(weights)


def pool(vectors: Tensor, lists: Jagged, pooling: Pooling) -> Tensor:
    """Pool the vectors of lists into one vector per list: ``(N, D)`` to ``(B, D)``.

    Parameters
    ----------
    vectors
        ``(N, D)``, one per entry of ``lists``.
    lists
        What `pooled_weights` or `filled_lists` gave for the same pooling: no list is without an entry that counts.
    pooling
        ``"none"`` gives ``(B, L, D)`` instead, padded at the end with zeros to the longest list; `list_mask` tells
        entries from padding.

    Notes
    -----
    Entries are summed in their order, list by list, so a list's vector does not depend on the other lists.

    Examples
    --------
    >>> lists = pooled_weights(Jagged.from_lists([[5, 6], [7]]), "mean")
    >>> pool(torch.tensor([[1.0], [3.0], [5.0]]), lists, "mean")
    tensor([[2.],
            [5.]])
    """
    if pooling == "none":
        mask = list_mask(lists)
        zeros = vectors.new_zeros(*mask.shape, vectors.shape[-1])
        return zeros.masked_scatter(mask.unsqueeze(-1), vectors)
    rows = torch.arange(vectors.shape[0], device=vectors.device)
    if pooling == "max":
        counting = vectors.masked_fill((lists.values == PADDING_INDEX).unsqueeze(-1), -torch.inf)
        return F.embedding_bag(rows, counting, lists.offsets, mode="max", include_last_offset=True)
    weights = None if lists.weights is None else lists.weights.to(vectors.dtype)
    return F.embedding_bag(
        rows, vectors, lists.offsets, mode="sum", per_sample_weights=weights, include_last_offset=True
    )


def list_mask(lists: Jagged) -> Tensor:
    """Tell entries from padding in what `pool` gives for ``"none"``: bool ``(B, L)``, True for an entry.

    >>> list_mask(Jagged.from_lists([[5, 6], [7]]))
    tensor([[ True,  True],
            [ True, False]])
    """
    lengths = lists.lengths
    longest = int(lengths.max()) if len(lists) else 0
    return torch.arange(longest, device=lengths.device) < lengths.unsqueeze(1)
