"""Vocabularies counted in pieces, merged and ranked on an engine: the same values in the same order as in one process.

    count (one task a piece)  → keys split by a hash that never changes, so that equal keys meet in one shard
    merge (one task a shard)  → all counts of a key added up
    rank  (one task a shard)  → sorted by count, then value; some rows as samples
    cut   (one task a shard)  → ranges between bounds that the samples suggest: the k-th range of every shard
    join  (one task a range)  → sorted; the ranges one after another are the vocabulary

No task holds more than its share of the keys of a large column. Who calls holds samples, and the values in the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_emb.engines.engine import Engine, Handle
from recsys_emb.vocabulary.deciding import deciding
from recsys_emb.vocabulary.key_counts import Counted, KeyCounts, ranked, take_sorted
from recsys_emb.vocabulary.kinds import Part, join, restore
from recsys_emb.vocabulary.storage import Indices

_SAMPLES = 64  # of a shard; the shares differ by some percent then

Shard: TypeAlias = dict[str, list[Counted]]
"""Counted keys, by the name of their vocabulary."""


class Limits(NamedTuple):
    """Which values a vocabulary keeps."""

    min_count: int = 1
    max_size: int | None = None


class Ranked(NamedTuple):
    """Values by count descending, then value ascending, and their counts int64 ``(N,)``."""

    values: pa.Array
    counts: Indices

    @classmethod
    def end_to_end(cls, pieces: Sequence[Ranked]) -> Ranked:
        """Lay pieces of one type end to end, of which there is at least one."""
        return cls(pa.concat_arrays([one.values for one in pieces]), np.concatenate([one.counts for one in pieces]))

    def slice(self, first: int, last: int) -> Ranked:
        """Values ``first`` to ``last - 1``, in memory of their own."""
        return Ranked(pa.concat_arrays([self.values.slice(first, last - first)]), self.counts[first:last].copy())


def shards_of(counts: Mapping[str, KeyCounts], number: int) -> list[Shard]:
    """Split counted keys into ``number`` shards; a key comes into the same one wherever it was counted."""
    shards: list[Shard] = [{} for _ in range(number)]
    for name, own in counts.items():
        for one in own.totals():
            places = (one.kind.storage.stable_hash(one.keys) % np.uint64(number)).astype(np.int64)
            order = np.argsort(places, kind="stable")
            bounds = np.searchsorted(places[order], np.arange(number + 1))
            for shard, first, last in zip(shards, bounds, bounds[1:], strict=False):
                rows = order[first:last]
                shard.setdefault(name, []).append(Counted(one.kind, one.keys.take(pa.array(rows)), one.counts[rows]))
    return shards


def rank_on(
    engine: Engine, counted: list[list[Handle]], limits: Mapping[str, Limits]
) -> tuple[list[Handle], list[dict[str, int]]]:
    """Merge the shards of all pieces, and rank them.

    Parameters
    ----------
    engine
        Does it.
    counted
        By piece, the handles of its shards, two or more. Emptied, so that the engine lets go of them once they are
        merged.
    limits
        By vocabulary.

    Returns
    -------
    list
        Handles of ranges, dictionaries of `Ranked` by vocabulary, which follow one another; ``max_size`` is not
        applied over all of them.
    list
        How many values each has.

    Raises
    ------
    KeyTypeError
        When no type holds all the values of a vocabulary exactly.
    """
    number = len(counted[0])
    merged = [engine.submit(_merge, *(own[place] for own in counted), returns=2) for place in range(number)]
    deciders = _joined(list(engine.gather([own[1] for own in merged])), limits)
    counted.clear()
    ranks = [engine.submit(_rank, own[0], deciders, dict(limits), returns=2) for own in merged]
    del merged
    samples = list(engine.gather([own[1] for own in ranks]))
    bounds = {name: _bounds([one[name] for one in samples], number) for name in limits}
    cuts = [engine.submit(_cut, own[0], bounds, number, returns=number) for own in ranks]
    del ranks
    joined = [engine.submit(_join, *(own[place] for own in cuts), returns=2) for place in range(number)]
    return [own[0] for own in joined], list(engine.gather([own[1] for own in joined]))


def _joined(found: Sequence[dict[str, list[Part]]], limits: Mapping[str, Limits]) -> dict[str, list[Part]]:
    """Put together what each shard says decides; refuse at once what no type holds."""
    deciders: dict[str, list[Part]] = {}
    for name in limits:
        for one in found:
            deciders[name] = join(deciders.get(name, []), one.get(name, []))
        restore(deciders.get(name, []), name)
    return deciders


def _bounds(samples: Sequence[Ranked], number: int) -> Ranked:
    """Choose the first rows of all ranges but one, of about the same size."""
    drawn = _sorted(samples)
    places = len(drawn.values) * np.arange(1, number) // number if len(drawn.values) else np.empty(0, np.int64)
    return Ranked(drawn.values.take(pa.array(places)), drawn.counts[places])


def _sorted(pieces: Sequence[Ranked]) -> Ranked:
    """Sort distinct values of one type."""
    values, counts = Ranked.end_to_end(pieces)
    order = np.argsort(-counts)
    groups = np.concatenate([[0], np.flatnonzero(np.diff(counts[order])) + 1, [len(counts)]])
    return Ranked(take_sorted(values, order, groups), counts[order])


# --- tasks -------------------------------------------------------------------------------------------------------


def _merge(*shards: Shard) -> tuple[Shard, dict[str, list[Part]]]:
    sums: dict[str, KeyCounts] = {}
    for shard in shards:
        for name, own in shard.items():
            for one in own:
                sums.setdefault(name, KeyCounts(name)).add_counted(one)
    merged = {name: counts.totals() for name, counts in sums.items()}
    deciders: dict[str, list[Part]] = {}
    for name, totals in merged.items():
        for one in totals:
            deciders[name] = join(deciders.get(name, []), [deciding(Part(one.kind, one.keys))])
    return merged, deciders


def _rank(
    shard: Shard, deciders: Mapping[str, list[Part]], limits: Mapping[str, Limits]
) -> tuple[dict[str, Ranked], dict[str, Ranked]]:
    ranks, samples = {}, {}
    for name, (min_count, max_size) in limits.items():
        own = Ranked(
            *ranked(shard.get(name, []), name, beside=deciders.get(name, []), min_count=min_count, max_size=max_size)
        )
        size = len(own.values)
        drawn = np.unique(np.linspace(0, size - 1, min(size, _SAMPLES)).astype(np.int64)) if size else np.arange(0)
        ranks[name], samples[name] = own, Ranked(own.values.take(pa.array(drawn)), own.counts[drawn])
    return ranks, samples


def _cut(ranks: Mapping[str, Ranked], bounds: Mapping[str, Ranked], number: int) -> list[dict[str, Ranked]]:
    pieces: list[dict[str, Ranked]] = [{} for _ in range(number)]
    for name, own in ranks.items():
        places = [_place(own, value, count) for value, count in zip(*bounds[name], strict=True)]
        places += [len(own.values)] * (number - 1 - len(places))
        for piece, first, last in zip(pieces, [0, *places], [*places, len(own.values)], strict=True):
            piece[name] = own.slice(first, last)
    return pieces


def _place(own: Ranked, value: pa.Scalar, count: int) -> int:
    """Say how many values come before one of this count."""
    first, last = (int(np.searchsorted(-own.counts, -count, side)) for side in ("left", "right"))
    tied = own.values.slice(first, last - first)
    if isinstance(tied, pa.ExtensionArray):
        tied, value = tied.storage, value.value
    return first + (pc.sum(pc.less(tied, value)).as_py() or 0)


def _join(*pieces: Mapping[str, Ranked]) -> tuple[dict[str, Ranked], dict[str, int]]:
    joined = {name: _sorted([piece[name] for piece in pieces]) for name in pieces[0]}
    return joined, {name: len(own.values) for name, own in joined.items()}
