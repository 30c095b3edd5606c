"""Matrix factorization: what an epoch and a whole fit cost, and how an epoch grows.

Run:    python benchmarks/factorize.py [--full | --tiny]
Needs:  nothing more; Cornac, Surprise, LightFM and implicit take part where they are installed

One thread, but where two are said. An epoch is one pass over the ratings, without what is prepared once.

- **small epoch**: as many ratings, users and items as MovieLens 100K. Cornac and Surprise take the same steps as
  `SequentialSGD`, with the same rates and L2, in other orders (Surprise in float64); ours and Cornac's must reach the
  same error on held-out ratings. The tutorial's Adam and our `Minibatch` are other optimizers: they are there for what
  an epoch costs, not for what it brings. No rating repeats, and labels have mean 0 and deviation 1, so that the
  standard units of this library are the label's own.
- **small fit**: from a data frame of raw values to a fitted model, 20 epochs, with all that is prepared.
- **large epoch**: the same steps; here the order matters, ours visits users one after another. `Minibatch` steps by
  row-wise Adagrad. Two threads share the blocks of ``SequentialSGD(blocks=2)``, which gives the same bits with one.
- **features**: three features on either side. LightFM takes Adagrad steps without L2; its time includes its shuffling.
- **pairs, BPR**: one negative per rating, from the items that the user does not have. LightFM does not look whether the
  user has it, and implicit stops at positives it draws.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import factorize_peers as peers
import harness
import logs
import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from factorize_peers import Log, Settings
from harness import Bench, Entry, Work

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, Schema
from recsys_emb.training.losses import BPR, Logistic, SquaredError
from recsys_emb.training.minibatch import Minibatch
from recsys_emb.training.objective import Objective
from recsys_emb.training.optim import RowWiseAdagrad
from recsys_emb.training.sequential import SequentialSGD

EPOCHS = 20
PAIR = Schema(user=Categorical("user"), item=Categorical("item"), label="label")
USER_VALUES, ITEM_VALUES = (10, 20), (500, 5000)


def started(frame: pd.DataFrame, schema: Schema, objective: Objective, solver: Any, width: int) -> Work:
    """Encode, make a model, lay the rows out; what is left is an epoch."""
    encoder = FeatureEncoder(schema).fit(frame)
    model = MatrixFactorization(encoder, embedding_dim=width)
    return solver.start(model, encoder.transform(frame), objective, seed=0).epoch


def ours(log: Log, settings: Settings, objective: Objective | None = None, *, blocks: int = 1) -> Entry:
    width, learning_rate, l2 = settings
    solver = SequentialSGD(learning_rate=learning_rate, l2=l2, bias_l2=l2, blocks=blocks)
    made = partial(started, log.frame(), PAIR, objective or SquaredError(), solver, width)
    return Entry("recsys_emb SequentialSGD", made)


def cornac(log: Log, settings: Settings, goal: float) -> Entry:
    return Entry("Cornac MF", lambda: peers.Cornac(log, settings), "cornac", goal=goal)


# --- as large as MovieLens 100K ----------------------------------------------------------------------------------


def on_small(bench: Bench) -> None:
    rows, users, items = (bench.size(one // 5, one, one) for one in (100_000, 943, 1682))
    log = Log(*logs.ratings(rows, users=users, items=items), users, items)
    settings = Settings(width=bench.size(16, 100, 100))
    minibatch = partial(started, log.frame(), PAIR, SquaredError(), Minibatch(batch_size=1024), settings.width)
    loaded, sliced = (partial(peers.Tutorial, log, settings, loader=loader) for loader in (True, False))
    about = f"{rows:,} ratings of {users:,} users and {items:,} items, width {settings.width}"
    bench.race(
        "small epoch",
        f"{about}, one epoch",
        ours(log, settings),
        cornac(log, settings, 0.9),
        Entry("Surprise SVD", lambda: peers.Surprise(log, settings), "scikit-surprise", goal=6),
        Entry("recsys_emb Minibatch", minibatch, note="LazyAdam, batches of 1,024"),
        Entry("tutorial: Adam, DataLoader", loaded, "torch", goal=50, note="another optimizer, batches of 1,024"),
        Entry("tutorial: Adam, slices", sliced, "torch", note="another optimizer, batches of 1,024"),
    )
    check_error(bench, log, settings)
    bench.race("small fit", f"{about}, {EPOCHS} epochs, from a data frame", *_fits(log.frame(), settings))


def check_error(bench: Bench, log: Log, settings: Settings) -> None:
    """Check that ours and Cornac's learn the same from the same."""
    held_out = len(log.users) // 10
    apart, kept = log.part(slice(held_out)), log.part(slice(held_out, None))
    known = np.isin(apart.users, kept.users) & np.isin(apart.items, kept.items)
    asked = apart._replace(users=apart.users[known], items=apart.items[known], labels=apart.labels[known])
    predicted = _fitted(kept.frame(), settings).predict(asked.frame())
    errors = {"recsys_emb": _rmse(predicted.to_numpy(), asked.labels)}
    try:
        errors["Cornac"] = _rmse(peers.Cornac(kept, settings).predict(asked, EPOCHS), asked.labels)
    except harness.MissingPeerError as reason:
        bench.skip("small epoch, error", "Cornac MF", reason)
    print(f"  held-out RMSE after {EPOCHS} epochs: {', '.join(f'{one} {rmse:.4f}' for one, rmse in errors.items())}")
    assert max(errors.values()) - min(errors.values()) < 0.01, "the errors differ"


def _rmse(predicted: Any, labels: Any) -> float:
    return float(np.sqrt(np.mean((predicted - labels) ** 2)))


def _fitted(frame: pd.DataFrame, settings: Settings) -> Recommender:
    schema = Schema(user=PAIR.user, item=PAIR.item, label="label", embedding_dim=settings.width)
    solver = SequentialSGD(learning_rate=settings.learning_rate, l2=settings.l2, bias_l2=settings.l2)
    return Recommender(schema, solver=solver, epochs=EPOCHS, progress=False).fit(frame)


def _fits(frame: pd.DataFrame, settings: Settings) -> list[Entry]:
    log = Log(*(frame[name].to_numpy() for name in frame), 0, 0)
    return [
        Entry("recsys_emb Recommender", lambda: partial(_fitted, frame, settings)),
        Entry("Cornac MF", lambda: lambda: peers.Cornac(log, settings).fit(EPOCHS), "cornac"),
        Entry("Surprise SVD", lambda: lambda: peers.Surprise(log, settings).fit(EPOCHS), "scikit-surprise", goal=6),
    ]


# --- larger ------------------------------------------------------------------------------------------------------


def on_large(bench: Bench) -> None:
    rows = bench.size(50_000, 2_000_000, 10_000_000)
    log = _large(rows, rows // 20, rows // 100)
    for width, goal in ((16, 4 if rows >= 10_000_000 else 0.9), (64, 2.5)):
        settings = Settings(width)
        about = f"{rows:,} ratings of {log.num_users:,} users and {log.num_items:,} items, width {width}, one epoch"
        few = log.part(slice(rows // 20))
        bench.race(
            f"large epoch, width {width}",
            about,
            ours(log, settings),
            cornac(log, settings, goal),
            Entry("Surprise SVD", lambda few=few, s=settings: peers.Surprise(few, s), "scikit-surprise", 1 / 20),
            Entry("recsys_emb Minibatch", by_batches(log, width), note="RowWiseAdagrad, batches of 4,096"),
        )
    on_growth(bench, rows)


def by_batches(log: Log, width: int) -> Callable[[], Work]:
    solver = Minibatch(optimizer=RowWiseAdagrad, batch_size=4096)
    return partial(started, log.frame(), PAIR, SquaredError(), solver, width)


def _large(rows: int, users: int, items: int) -> Log:
    return Log(*logs.ratings(rows, users=users, items=items), users, items)


def on_growth(bench: Bench, rows: int) -> None:
    few, users, items, settings = rows // 10, rows // 40, rows // 200, Settings(16)
    many = _large(10 * few, users, items)
    small, longer, wider = (
        ours(log, settings).start()
        for log in (_large(few, users, items), many, _large(few, min(10 * users, few), 10 * items))
    )

    about = f"{few:,} ratings of {users:,} users and {items:,} items, width 16, one epoch"
    bench.growth("epoch", about, change="rows × 10", small=small, large=longer, goal=12)
    bench.growth("epoch", about, change="V × 10", small=small, large=wider, goal=3)
    in_blocks = ours(many, settings, blocks=2).start()
    bench.second_thread("epoch in 2 blocks", f"10 times {about}", in_blocks, goal=0.7)


# --- features and rankings ---------------------------------------------------------------------------------------


def on_features(bench: Bench) -> None:
    rows = bench.size(20_000, 500_000, 2_000_000)
    log, settings = _large(rows, rows // 20, rows // 100), Settings(16)
    rng = np.random.default_rng(0)
    of_users = [rng.integers(0, values, log.num_users) for values in USER_VALUES]
    of_items = [rng.integers(0, values, log.num_items) for values in ITEM_VALUES]
    sides = _incidence(of_users, USER_VALUES), _incidence(of_items, ITEM_VALUES)
    frame = log.frame().assign(
        label=(log.labels > 0).astype(np.float32),
        **{f"u{place}": values[log.users] for place, values in enumerate(of_users)},
        **{f"i{place}": values[log.items] for place, values in enumerate(of_items)},
    )
    schema = Schema(
        user=PAIR.user,
        item=PAIR.item,
        user_features=[Categorical("u0"), Categorical("u1")],
        item_features=[Categorical("i0"), Categorical("i1")],
        label="label",
    )
    about = f"{rows:,} rows of {log.num_users:,} users and {log.num_items:,} items, 3 + 3 features, width 16, one epoch"
    few = log.part(slice(rows // 5))
    positive = frame.assign(label=1.0)
    for case, loss, objective, data, goal in (
        ("features, log loss", "logistic", Logistic(), frame, 8),
        ("features, BPR", "bpr", BPR(), positive, 5),
    ):
        made = partial(started, data, schema, objective, SequentialSGD(), settings.width)
        peer = partial(peers.LightFM, few, settings, loss, sides)
        theirs = Entry("LightFM", peer, "lightfm-next", 1 / 5, goal, note="Adagrad, no L2")
        bench.race(case, about, Entry("recsys_emb SequentialSGD", made), theirs)
    bench.race(
        "pairs, BPR",
        f"{rows:,} rows of {log.num_users:,} users and {log.num_items:,} items, width 16, one epoch",
        ours(log._replace(labels=np.ones(rows, np.float32)), settings, BPR()),
        Entry("implicit BPR", lambda: peers.ImplicitBPR(log, settings), "implicit"),
    )


def _incidence(values: list[Any], sizes: tuple[int, ...]) -> sp.csr_matrix:
    """Row per entity: a column of its own, and one per value of its features."""
    count = len(values[0])
    starts = np.cumsum([count, *sizes])
    columns = np.stack([np.arange(count), *(own + start for own, start in zip(values, starts, strict=False))], axis=1)
    offsets = np.arange(count + 1) * columns.shape[1]
    data = np.ones(columns.size, np.float32)
    return sp.csr_matrix((data, columns.ravel(), offsets), shape=(count, int(starts[-1])))


if __name__ == "__main__":
    torch.manual_seed(0)
    bench = Bench("factorize", __doc__)
    on_small(bench)
    on_large(bench)
    on_features(bench)
