"""The ten best of a catalogue for many users, without what they have seen.

Run:    python benchmarks/rank.py [--full | --tiny]
Needs:  nothing more; implicit and faiss take part where they are installed

One thread. Vectors of width 64 around 500 centres, about 100 seen items per user, no biases. All but HNSW search
exactly: the ten best must be the same sets as ours, but for users whose tenth and eleventh item differ by less than
float32 can tell. Ours also scores the candidates again in float64, which the others do not.

- **matmul alone** computes all scores, tile by tile, and looks at none: no exact search by scores can be faster.
- faiss cannot leave items out by user: it is asked for the ten best and as many as the user with most has seen, and
  these are taken out afterwards, in numpy.
- HNSW is approximate: its recall against the exact answer is stated, and its graph is built before. `ApproximateIndex`
  is ours, which faiss builds and searches; it asks for as many as each user has seen, leaves these out exactly and
  scores again in float64.
- **one user**: the same, asked for one user after another, of a catalogue that is laid out before.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import harness
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from harness import Bench, Entry
from torch import Tensor

from recsys_emb.encoding.batch import Jagged
from recsys_emb.evaluation.catalogue import Catalogue
from recsys_emb.evaluation.ranking import Finder, rank
from recsys_emb.integrations.ann import ApproximateIndex

K, WIDTH, SEEN = 10, 64, 100
Rows = npt.NDArray[np.int64]


class Task(NamedTuple):
    """Whom to rank for, what to rank, and what each user has seen (ascending)."""

    users: Tensor
    items: Tensor
    seen: Jagged

    @property
    def matrix(self) -> sp.csr_matrix:
        """What was seen, as users × items."""
        data = np.ones(len(self.seen.values), np.float32)
        shape = (len(self.users), len(self.items))
        return sp.csr_matrix((data, self.seen.values.numpy(), self.seen.offsets.numpy()), shape=shape)


def make_task(num_users: int, num_items: int) -> Task:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(500, WIDTH))
    users, items = (
        torch.from_numpy((centres[rng.integers(0, 500, n)] + 0.7 * rng.normal(size=(n, WIDTH))).astype(np.float32) / 8)
        for n in (num_users, num_items)
    )
    seen = [np.unique(rng.integers(0, num_items, SEEN)) for _ in range(num_users)]
    offsets = np.cumsum([0, *map(len, seen)])
    return Task(users, items, Jagged(torch.from_numpy(np.concatenate(seen)), torch.from_numpy(offsets)))


# --- contestants -------------------------------------------------------------------------------------------------


def ours(task: Task) -> Rows:
    return rank(Catalogue(task.items, None), task.users, K, excluded=task.seen).items.numpy()


def naive(task: Task, block: int = 256) -> Rows:
    """Multiply, hide what was seen, `topk`: a block of users against all items at once."""
    best = []
    owners = task.seen.owners
    for first in range(0, len(task.users), block):
        scores = task.users[first : first + block] @ task.items.T
        start, end = (int(task.seen.offsets[min(one, len(task.users))]) for one in (first, first + block))
        scores[owners[start:end] - first, task.seen.values[start:end]] = -torch.inf
        best.append(scores.topk(K, dim=1).indices)
    return torch.cat(best).numpy()


def tiled(task: Task, block: int = 256, width: int = 8192) -> Rows:
    """`topk` of each tile of items, and `topk` of these."""
    best = []
    owners = task.seen.owners
    for first in range(0, len(task.users), block):
        start, end = (int(task.seen.offsets[min(one, len(task.users))]) for one in (first, first + block))
        rows, columns = owners[start:end] - first, task.seen.values[start:end]
        parts = []
        for left in range(0, len(task.items), width):
            scores = task.users[first : first + block] @ task.items[left : left + width].T
            inside = (columns >= left) & (columns < left + width)
            scores[rows[inside], columns[inside] - left] = -torch.inf
            top = scores.topk(min(K, scores.shape[1]), dim=1)
            parts.append((top.values, top.indices + left))
        values, places = (torch.cat(one, dim=1) for one in zip(*parts, strict=True))
        best.append(places.gather(1, values.topk(K, dim=1).indices))
    return torch.cat(best).numpy()


def matmul_alone(task: Task, block: int = 1024, width: int = 512) -> None:
    buffer = torch.empty(block, width)
    for first in range(0, len(task.users), block):
        users = task.users[first : first + block]
        for left in range(0, len(task.items), width):
            items = task.items[left : left + width]
            torch.mm(users, items.T, out=buffer[: len(users), : len(items)])


def with_implicit(task: Task) -> Callable[[], Rows]:
    topk, matrix = harness.needs("implicit.cpu.topk").topk, task.matrix
    items, users = task.items.numpy(), task.users.numpy()
    return lambda: topk(items, users, K, filter_query_items=matrix, num_threads=1)[0]


def with_faiss(task: Task, make_index: Callable[[Any], Any], asked: int) -> Callable[[], Rows]:
    faiss = harness.needs("faiss")
    faiss.omp_set_num_threads(1)
    index, users = make_index(faiss), task.users.numpy()
    index.add(task.items.numpy())
    keys = task.seen.owners.numpy() * len(task.items) + task.seen.values.numpy()

    def search() -> Rows:
        found = np.concatenate(
            [index.search(block, asked)[1] for block in np.array_split(users, len(users) // 512 + 1)]
        )
        barred = np.isin(found + np.arange(len(users))[:, None] * len(task.items), keys)
        order = np.argsort(barred | (found < 0), axis=1, kind="stable")[:, :K]
        return np.take_along_axis(found, order, axis=1)

    return search


def with_index(task: Task, catalogue: Catalogue, index: Callable[[], Finder]) -> Callable[[], Rows]:
    harness.needs("faiss").omp_set_num_threads(1)
    return partial(_ranked, task, catalogue, index())


def _ranked(task: Task, catalogue: Catalogue, finder: Finder | None) -> Rows:
    return rank(catalogue, task.users, K, excluded=task.seen, finder=finder).items.numpy()


def one_by_one(task: Task, catalogue: Catalogue, finder: Finder | None = None) -> Callable[[], Rows]:
    users = itertools.cycle(torch.arange(len(task.users)).split(1))

    def search() -> Rows:
        user = next(users)
        return _ranked(Task(task.users[user], task.items, task.seen.select(user)), catalogue, finder)

    return search


def hnsw(faiss: Any) -> Any:
    index = faiss.IndexHNSWFlat(WIDTH, 32, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction, index.hnsw.efSearch = 100, 128
    return index


# --- equal answers -----------------------------------------------------------------------------------------------


def same_sets(task: Task, mine: Rows, other: Rows) -> None:
    """Check that the sets are equal, or as good to a rounding of float32."""
    mine, other = np.sort(mine, axis=1), np.sort(other, axis=1)
    different = (mine != other).any(axis=1)
    assert different.mean() < 0.001, f"{different.sum()} users get another set"
    for user in np.flatnonzero(different):
        vector = task.users[user].double()
        scores = [float((task.items[torch.from_numpy(rows[user])].double() @ vector).min()) for rows in (mine, other)]
        assert abs(scores[0] - scores[1]) < 1e-5 * (1 + abs(scores[0])), "a worse item was taken"


def recall(mine: Rows, other: Rows) -> float:
    return float(np.mean([len(set(a) & set(b)) / K for a, b in zip(mine.tolist(), other.tolist(), strict=True)]))


# --- races -------------------------------------------------------------------------------------------------------


def on_catalogue(bench: Bench) -> None:
    users, items = bench.size(300, 2048, 4096), bench.size(5_000, 100_000, 1_000_000)
    task = make_task(users, items)
    agrees = partial(same_sets, task)
    most = K + int(task.seen.lengths.max())
    flat = partial(with_faiss, task, lambda faiss: faiss.IndexFlatIP(WIDTH), most)
    entries = [
        Entry("matmul alone", lambda: partial(matmul_alone, task), "torch", goal=0.7),
        Entry("torch: matmul, topk", lambda: partial(naive, task), "torch", goal=2, agrees=agrees),
        Entry("torch: tiles, topk", lambda: partial(tiled, task), "torch", agrees=agrees),
        Entry("implicit topk", partial(with_implicit, task), "implicit", goal=1.3, agrees=agrees),
        Entry("faiss flat", flat, "faiss-cpu", agrees=agrees),
    ]
    about = f"10 best of {items:,} items for {users:,} users, width {WIDTH}, {SEEN} seen"
    # One index for both races: its graph is built once for a catalogue.
    catalogue, index = Catalogue(task.items, None), functools.cache(ApproximateIndex)
    near = {
        "faiss HNSW": partial(with_faiss, task, hnsw, 2 * K),
        "recsys_emb ApproximateIndex": partial(with_index, task, catalogue, index),
    }
    approximate = [entry for name, start in near.items() for entry in _approximate(bench, task, name, start)]
    bench.race("top 10", about, Entry("recsys_emb", lambda: partial(ours, task)), *entries, *approximate)
    bench.race(
        "one user",
        f"10 best of {items:,} items for one user, width {WIDTH}, {SEEN} seen",
        Entry("recsys_emb", lambda: one_by_one(task, catalogue)),
        Entry("recsys_emb ApproximateIndex", lambda: one_by_one(task, catalogue, index()), "faiss-cpu"),
    )


def _approximate(bench: Bench, task: Task, name: str, start: Callable[[], Callable[[], Rows]]) -> list[Entry]:
    try:
        search = start()
    except harness.MissingPeerError as reason:
        bench.skip("top 10", name, reason)
        return []
    note = f"approximate: recall {recall(ours(task), search()):.4f}, graph built before"
    return [Entry(name, lambda: search, "faiss-cpu", note=note)]


def on_growth(bench: Bench) -> None:
    users, items = bench.size(100, 1024, 2048), bench.size(2_000, 20_000, 100_000)
    small, large, crowd = (make_task(*size) for size in ((users, items), (users, 10 * items), (10 * users, items)))

    about = f"10 best of {items:,} items for {users:,} users"
    work = partial(ours, small)
    bench.growth("top 10", about, change="items × 10", small=work, large=partial(ours, large), goal=11)
    bench.growth("top 10", about, change="users × 10", small=work, large=partial(ours, crowd), goal=11)
    about = f"10 best of {10 * items:,} items for {users:,} users"
    bench.second_thread("top 10", about, partial(ours, large), goal=0.7)
    few, many = (users, 10 * items), (10 * users, 10 * items)
    bench.memory("top 10", about, change="users × 10", job=_rank_new, small=few, large=many, goal=1.2)


def _rank_new(num_users: int, num_items: int) -> None:
    ours(make_task(num_users, num_items))


if __name__ == "__main__":
    bench = Bench("rank", __doc__)
    on_catalogue(bench)
    on_growth(bench)
