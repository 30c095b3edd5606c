"""Which examples threads may learn at the same time, so that no two of them write one row.

Users and items are dealt out to B groups each, which makes B · B blocks of examples. Blocks (a, a + s), with a the
worker and s the stratum, have no user and no item in common, and any number of threads may take a stratum's blocks with
the same result, bit for bit. With B = 1 there is one block, and one worker.

What several workers name at the same time (features, context, positions, what users had) is shared: each has a copy of
its own, and after every round the rows become the average of their copies, weighted by how often each was named.

References
----------
Gemulla, R., Nijkamp, E., Haas, P. J. and Sismanis, Y. "Large-scale matrix factorization with distributed stochastic
gradient descent." KDD 2011. McDonald, R., Hall, K. and Mann, G. "Distributed training strategies for the structured
perceptron." NAACL 2010.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recsys_emb import kernels
from recsys_emb.training.plan import with_rows

if TYPE_CHECKING:
    from recsys_emb.kernels.row_copies import Copies
    from recsys_emb.kernels.sequential import Examples, Lists, Tables

Integers: TypeAlias = npt.NDArray[np.integer[Any]]
Round: TypeAlias = tuple[tuple[int, int], ...]  # by worker, the examples from … to

# Enough rounds that their order mixes users; few enough that each user's rows stay together.
_ROUNDS = 50
# Neighbouring rows go to one group: their biases lie in one line of the cache, for which threads would fight.
_STRIPE = 16


def rounds_of(users: Integers, items: Integers, *, blocks: int, seed: int) -> tuple[Integers, list[Round]]:
    """Deal examples out, about 50 rounds: the order in which to store them, stable within a block, and the rounds.

    Parameters
    ----------
    users, items
        ``(N,)``, the rows of the examples' users and items.
    blocks
        B; a round has as many workers.
    seed
        Of the groups.
    """
    rng = np.random.default_rng([seed, blocks])
    block = _dealt(users, blocks, rng) * blocks + _dealt(items, blocks, rng)
    sizes = np.bincount(block, minlength=blocks**2)
    starts = np.concatenate([[0], sizes.cumsum()]).tolist()
    parts = min(max(1, _ROUNDS // blocks), int(sizes.max()))
    rounds: list[Round] = []
    for stratum in range(blocks):
        places = [worker * blocks + (worker + stratum) % blocks for worker in range(blocks)]
        cuts = [np.linspace(starts[place], starts[place + 1], parts + 1).astype(int).tolist() for place in places]
        rounds += [tuple((cut[part], cut[part + 1]) for cut in cuts) for part in range(parts)]
    return np.argsort(block.astype(np.min_scalar_type(blocks**2)), kind="stable"), rounds


def _dealt(rows: Integers, groups: int, rng: np.random.Generator) -> Integers:
    """Give each example the group of its row, ``(N,)``: stripes of rows in random order, cut by number of examples."""
    counts = np.bincount(rows // _STRIPE)
    order = rng.permutation(len(counts))
    middles = counts[order].cumsum() - counts[order] / 2
    group = np.empty(len(counts), np.int16)
    group[order] = np.minimum(middles * groups / len(rows), groups - 1)
    return group[rows // _STRIPE]


class Shared(NamedTuple):
    """Rows of which every worker has a copy, and how the copies become one row again."""

    copies: Copies
    touched: Sequence[Integers]  # per round (R,), which of the copied rows are named in it
    shares: Sequence[npt.NDArray[np.float32]]  # per round (R, B), how much each worker's copy counts

    @property
    def size(self) -> int:
        """Copies of all workers."""
        return len(self.copies.originals) * self.copies.workers

    def hand_out(self, tables: Tables) -> None:
        """Make all copies what the rows are."""
        copies = slice(self.copies.first, None)
        for array in (tables.vectors, tables.biases):
            own = array[self.copies.originals]
            array[copies] = np.concatenate([own] * self.copies.workers)

    def merge(self, number: int, tables: Tables) -> None:
        """Move rows to the average of their copies, and the copies with them, after a round."""
        kernels.row_copies.merge(self.copies, self.touched[number], self.shares[number], tables)


def with_copies(examples: Examples, rounds: Sequence[Round], num_rows: int) -> tuple[Examples, Shared]:
    """Let every worker's examples name its own copies, which lie behind the rows: worker after worker.

    Parameters
    ----------
    examples
        In the order of `rounds_of`; a history belongs to one worker's examples.
    rounds
        Of `rounds_of`.
    num_rows
        V; the tables get ``V + workers · copied rows``.
    """
    workers = len(rounds[0])
    originals = _shared(examples, rounds, num_rows)
    place = np.full(num_rows, -1)
    place[originals] = np.arange(len(originals))
    touched, shares = [], []
    for spans in rounds:
        counts = np.stack([_times(examples, span, place, len(originals)) for span in spans], axis=1)
        named = np.flatnonzero(counts.any(1))
        touched.append(named)
        shares.append((counts[named] / counts[named].sum(1, keepdims=True)).astype(np.float32))
    copied = [_renamed(lists, owners, place, num_rows) for lists, owners in _owned(examples, rounds)]
    users, items, past = copied
    mine = examples._replace(users=users, items=items, histories=examples.histories._replace(lists=past))
    return mine, Shared(kernels.row_copies.Copies(originals, num_rows, workers), touched, shares)


def _shared(examples: Examples, rounds: Sequence[Round], num_rows: int) -> Integers:
    """Give the rows that several workers of a round name."""
    shared = np.zeros(num_rows, bool)
    for spans in rounds:
        workers = np.zeros(num_rows, np.int16)
        for span in spans:
            named = np.zeros(num_rows, bool)
            for rows, _ in _named(examples, span):
                named[rows] = True
            workers += named
        shared |= workers > 1
    return np.flatnonzero(shared)


def _times(examples: Examples, span: tuple[int, int], place: Integers, count: int) -> npt.NDArray[np.float64]:
    """Count how often a span names each copied row."""
    times = np.zeros(count)
    for rows, often in _named(examples, span):
        copied = place[rows]
        times += np.bincount(copied[copied >= 0], often[copied >= 0], minlength=count)
    return times


def _named(examples: Examples, span: tuple[int, int]) -> Iterator[tuple[Integers, npt.NDArray[np.float64]]]:
    """Give the rows that a span names, and how often."""
    for lists in (examples.users, examples.items):
        rows = lists.rows[lists.offsets[span[0]] : lists.offsets[span[1]]]
        yield rows, np.ones(len(rows))
    past = examples.histories
    users, often = np.unique(past.users[span[0] : span[1]], return_counts=True)
    lengths = np.diff(past.lists.offsets)[users]
    starts = np.repeat(past.lists.offsets[users] - lengths.cumsum() + lengths, lengths)
    yield past.lists.rows[starts + np.arange(lengths.sum())], np.repeat(often, lengths).astype(np.float64)


def _owned(examples: Examples, rounds: Sequence[Round]) -> Iterator[tuple[Lists, Integers]]:
    """Give all lists, and which worker reads each list."""
    owners = np.zeros(len(examples.targets), np.int64)
    for spans in rounds:
        for worker, (start, stop) in enumerate(spans):
            owners[start:stop] = worker
    yield examples.users, owners
    yield examples.items, owners
    past = np.zeros(len(examples.histories.lists.offsets) - 1, np.int64)
    past[examples.histories.users] = owners
    yield examples.histories.lists, past


def _renamed(lists: Lists, owners: Integers, place: Integers, first: int) -> Lists:
    """Replace copied rows by their owners' copies."""
    copied, owner = place[lists.rows], np.repeat(owners, np.diff(lists.offsets))
    count = int(place.max(initial=-1)) + 1
    return with_rows(lists, np.where(copied >= 0, first + owner * count + copied, lists.rows))
