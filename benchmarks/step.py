"""One training step: look up 26 features of 4,096 rows, go through a small model, go back, update the tables.

Run:    python benchmarks/step.py [--full | --tiny]
Needs:  nothing more; FBGEMM takes part where fbgemm-gpu-cpu is installed

Tables have the sizes of the 26 features of Criteo's display-advertising challenge, capped so that they come to 10
thousand, 1 million or 10 million rows together, and D = 16. Indices follow Zipf's law, each feature in an order of its
own. The model is one linear unit on the vectors side by side, trained by plain SGD, the same for all.

- **row-wise Adagrad**, **Adagrad**, **SGD**, **lazy Adam**: `FusedEmbedding` with each rule, against others with the
  same rule; their first losses must agree.
- **dense Adam**, the tutorial's way, is other maths: it moves every row in every step. Most of that ratio is open to
  anyone who knows of ``sparse=True``; see its rows under SGD and lazy Adam.
- **lookup and update alone**: without the model, against the floor, which copies the same random rows and then moves
  each by a gradient of its own, as many times as it occurs: the least that reading and writing these rows takes here.
- **growth**: the same batch size with ten times the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from harness import Bench, Entry
from step_peers import START, Fbgemm, Fused, Ordinary, Tutorial
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, SparseAdam

from recsys_emb.kernels.jit import kernel
from recsys_emb.kernels.row_gather import AHEAD, ask_for_row
from recsys_emb.lookup.huge_pages import ask_for_huge_pages
from recsys_emb.lookup.row_rules import AdagradUpdate, LazyAdamUpdate, RowWiseAdagradUpdate, SGDUpdate
from recsys_emb.training.optim import LazyAdam, RowWiseAdagrad

CRITEO = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652,
    2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
LR, ADAM_LR = 0.01, 0.001
BATCHES, FIRST_LOSSES = 8, 3


class Way(Protocol):
    """A way to train tables; see `step_peers`."""

    def prepared(self, indices: Tensor) -> Any: ...  # noqa: D102

    def vectors(self, prepared: Any) -> Tensor: ...  # noqa: D102

    def after(self) -> None: ...  # noqa: D102


class Log:
    """Sizes of tables that come to ``total`` rows, and batches of indices that follow Zipf's law."""

    def __init__(self, total: int, B: int, D: int = 16) -> None:
        caps = np.unique(np.geomspace(3, max(CRITEO), 2000).astype(int))
        cap = caps[np.argmin([abs(np.minimum(CRITEO, cap).sum() - total) for cap in caps])]
        self.sizes = np.minimum(CRITEO, cap).tolist()
        self.D, rng = D, np.random.default_rng(0)
        self.batches = [
            torch.from_numpy(np.stack([_zipf(size, B, rng) for size in self.sizes], 1)) for _ in range(BATCHES)
        ]
        self.labels = torch.from_numpy(rng.random(B) < 0.3).float()

    @property
    def about(self) -> str:
        """Sizes in words."""
        return f"{sum(self.sizes):,} rows in 26 tables, D = {self.D}, B = {len(self.labels):,}"


def _zipf(size: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw indices from 1 on (0 is padding) with frequencies 1/rank; neighbours in rank lie far apart."""
    rank = np.minimum(np.exp(rng.random(count) * np.log(size)).astype(np.int64) - 1, size - 2)
    return 1 + rank * 2654435761 % (size - 1)


class Trainer:
    """The model around a way to train tables; gives the first losses."""

    def __init__(self, make: Callable[..., Way], log: Log) -> None:
        self.way, self.labels = make(log.sizes, log.D), log.labels
        self.batches = [self.way.prepared(indices) for indices in log.batches]
        self.head = nn.Linear(len(log.sizes) * log.D, 1)
        nn.init.constant_(self.head.weight, START)
        nn.init.zeros_(self.head.bias)
        self.optimizer = SGD(self.head.parameters(), lr=LR)
        self.turn = 0
        self.losses = [self.step() for _ in range(FIRST_LOSSES)]

    def step(self) -> float:
        """Learn the next batch."""
        scores = self.head(self.way.vectors(self.batches[self.turn % BATCHES])).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(scores, self.labels)
        torch.autograd.backward(loss)
        self.way.after()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.turn += 1
        return float(loss.detach())

    def __call__(self) -> list[float]:
        """Take a step."""
        self.step()
        return self.losses


def same_losses(ours: list[float], theirs: list[float]) -> None:
    np.testing.assert_allclose(theirs, ours, rtol=1e-4)


def same_first_loss(ours: list[float], theirs: list[float]) -> None:
    np.testing.assert_allclose(theirs[:1], ours[:1], rtol=1e-4)


# --- whole steps -------------------------------------------------------------------------------------------------


def whole_steps(bench: Bench, log: Log, where: str, *, large: bool) -> None:
    """Race all rules on one log; goals for dense optimizers are those of ten million rows."""

    def entry(name: str, way: Callable[..., Way], *, other_maths: str = "", **fields: Any) -> Entry:
        agrees = same_first_loss if other_maths else same_losses
        return Entry(name, partial(Trainer, way, log), agrees=agrees, note=other_maths, **fields)

    def fbgemm(rule: str, goal: float) -> Entry:
        way = partial(Fbgemm, rule=rule, lr=LR)
        return entry("FBGEMM table-batched", way, package="fbgemm-gpu-cpu", goal=goal)

    tutorial, dense = partial(entry, package="torch"), "dense Adam moves every row in every step"
    adam, eps = partial(Adam, lr=ADAM_LR), "adds eps before the bias correction"
    bench.race(
        f"row-wise Adagrad, {where}",
        log.about,
        entry("recsys_emb", partial(Fused, update=RowWiseAdagradUpdate(lr=LR))),
        entry("recsys_emb, plain torch", partial(Fused, update=RowWiseAdagradUpdate(lr=LR), compiled=False)),
        entry("recsys_emb, sparse gradients", partial(Ordinary, optimizer=partial(RowWiseAdagrad, lr=LR))),
        fbgemm("EXACT_ROWWISE_ADAGRAD", 1.0),
    )
    bench.race(
        f"dense Adam, {where}",
        log.about,
        entry("recsys_emb, row-wise Adagrad", partial(Fused, update=RowWiseAdagradUpdate(lr=LR))),
        tutorial(
            "nn.Embedding, Adam", partial(Tutorial, optimizer=adam), other_maths=dense, goal=100 if large else None
        ),
        tutorial(
            "nn.Embedding, Adam(fused=True)",
            partial(Tutorial, optimizer=partial(adam, fused=True)),
            other_maths=dense,
            goal=12 if large else None,
        ),
    )
    bench.race(
        f"Adagrad, {where}",
        log.about,
        entry("recsys_emb", partial(Fused, update=AdagradUpdate(lr=LR))),
        fbgemm("EXACT_ADAGRAD", 1.6),
        tutorial(
            "nn.Embedding(sparse=True), Adagrad",
            partial(Tutorial, optimizer=partial(Adagrad, lr=LR, eps=1e-8), sparse=True),
        ),
    )
    bench.race(
        f"SGD, {where}",
        log.about,
        entry("recsys_emb", partial(Fused, update=SGDUpdate(lr=LR))),
        fbgemm("EXACT_SGD", 1.3),
        tutorial("nn.Embedding(sparse=True), SGD", partial(Tutorial, optimizer=partial(SGD, lr=LR), sparse=True)),
    )
    stock = partial(Tutorial, optimizer=lambda tables: SparseAdam(list(tables), lr=ADAM_LR), sparse=True)
    bench.race(
        f"lazy Adam, {where}",
        log.about,
        entry("recsys_emb", partial(Fused, update=LazyAdamUpdate(lr=ADAM_LR))),
        entry("recsys_emb, sparse gradients", partial(Ordinary, optimizer=partial(LazyAdam, lr=ADAM_LR))),
        tutorial("nn.Embedding(sparse=True), SparseAdam", stock, goal=3.5, other_maths=eps),
    )
    bench.race(
        f"lazy Adam without kernels, {where}",
        log.about,
        entry("recsys_emb, plain torch", partial(Fused, update=LazyAdamUpdate(lr=ADAM_LR), compiled=False)),
        tutorial("nn.Embedding(sparse=True), SparseAdam", stock, goal=1.4, other_maths=eps),
    )


# --- lookup and update alone -------------------------------------------------------------------------------------


@kernel
def copy_rows(weights: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    """Read rows, in any order."""
    for n in range(len(rows)):
        ask_for_row(weights, rows[min(n + AHEAD, len(rows) - 1)])
        row, place = np.uintp(rows[n]), np.uintp(n)
        for c in range(weights.shape[1]):
            out[place, np.uintp(c)] = weights[row, np.uintp(c)]


@kernel
def move_rows(weights: np.ndarray, rows: np.ndarray, gradients: np.ndarray) -> None:
    """Move rows, in any order, by gradients that lie in that order."""
    for n in range(len(rows)):
        ask_for_row(weights, rows[min(n + AHEAD, len(rows) - 1)])
        row, place = np.uintp(rows[n]), np.uintp(n)
        for c in range(weights.shape[1]):
            weights[row, np.uintp(c)] -= np.float32(0.01) * gradients[place, np.uintp(c)]


class Floor:
    """The same rows read and moved, with nothing to find out."""

    def __init__(self, log: Log) -> None:
        weights = torch.empty(sum(log.sizes), log.D)
        ask_for_huge_pages(weights)
        self.weights = weights.fill_(START).numpy()
        firsts = torch.tensor([0, *np.cumsum(log.sizes)[:-1]])
        self.batches = [(indices + firsts).flatten().numpy() for indices in log.batches]
        self.vectors = np.zeros((log.batches[0].numel(), log.D), np.float32)
        self.turn = 0

    def __call__(self) -> None:
        """Read and move."""
        rows = self.batches[self.turn % BATCHES]
        copy_rows(self.weights, rows, self.vectors)
        move_rows(self.weights, rows, self.vectors)
        self.turn += 1


class Alone:
    """Look up, and go back with a given gradient."""

    def __init__(self, log: Log, way: Callable[..., Way]) -> None:
        self.way = way(log.sizes, log.D)
        self.batches = [self.way.prepared(indices) for indices in log.batches]
        self.gradient = torch.full((len(log.labels), len(log.sizes) * log.D), 1e-4)
        self.turn = 0

    def __call__(self) -> None:
        """Read and move."""
        self.way.vectors(self.batches[self.turn % BATCHES]).backward(self.gradient)
        self.way.after()
        self.turn += 1


def alone(bench: Bench, log: Log, where: str) -> None:
    """Race against the floor: its time ÷ ours."""
    floor = Entry("floor: rows read, each moved", partial(Floor, log), goal=1 / 3)
    for name, update in {"row-wise Adagrad": RowWiseAdagradUpdate(lr=LR), "SGD": SGDUpdate(lr=LR)}.items():
        ours = Entry("recsys_emb", partial(Alone, log, partial(Fused, update=update)))
        bench.race(f"lookup and update alone, {name}, {where}", log.about, ours, floor)


def growth(bench: Bench, small: Log, large: Log) -> None:
    """Compare steps on tables of different length."""
    rules = {
        "row-wise Adagrad": RowWiseAdagradUpdate(lr=LR),
        "Adagrad": AdagradUpdate(lr=LR),
        "SGD": SGDUpdate(lr=LR),
        "lazy Adam": LazyAdamUpdate(lr=ADAM_LR),
    }
    change = f"{sum(small.sizes):,} to {sum(large.sizes):,} rows"
    for name, update in rules.items():
        works = (Trainer(partial(Fused, update=update), log) for log in (small, large))
        bench.growth(f"growth, {name}", large.about, change=change, small=next(works), large=next(works), goal=1.3)


def main() -> None:
    bench = Bench("step", __doc__)
    B = bench.size(64, 4096, 4096)
    totals: Sequence[int] = [bench.size(400, 10_000, 10_000), bench.size(4000, 10**6, 10**6)]
    totals = [*totals, bench.size(9000, 10**7, 10**7)]
    logs = [Log(total, B) for total in totals]
    for place, log in enumerate(logs):
        whole_steps(bench, log, f"{totals[place]:,} rows", large=totals[place] >= 10**7)
        alone(bench, log, f"{totals[place]:,} rows")
    growth(bench, logs[1], logs[2])


if __name__ == "__main__":
    main()
