"""One epoch of factorization as others do it. Each class is made from users, items and labels, and times an epoch.

A library that offers no epoch by itself is fitted with one epoch and with several, and the difference counts: what it
prepares once is left out, as it is for this library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import harness
import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.sparse as sp
import torch
from harness import Timed
from timing import seconds
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

SEVERAL = 4


class Log(NamedTuple):
    """Ratings: users int64 ``(N,)`` from 0 on, items alike, labels float32 ``(N,)``; and how many there are."""

    users: npt.NDArray[np.int64]
    items: npt.NDArray[np.int64]
    labels: npt.NDArray[np.float32]
    num_users: int
    num_items: int

    def part(self, rows: slice) -> Log:
        """Take some of the ratings; users and items stay as many."""
        return self._replace(users=self.users[rows], items=self.items[rows], labels=self.labels[rows])

    def frame(self) -> pd.DataFrame:
        """Columns ``user``, ``item``, ``label``."""
        return pd.DataFrame({"user": self.users, "item": self.items, "label": self.labels})


class Settings(NamedTuple):
    """What all who can are given alike."""

    width: int
    learning_rate: float = 0.01
    l2: float = 0.02


def per_epoch(fit: Callable[[int], Any]) -> Timed:
    """Seconds that one more epoch takes."""
    one, more = seconds(lambda: fit(1)), seconds(lambda: fit(1 + SEVERAL))
    return Timed(max(more - one, 1e-9) / SEVERAL)


class Cornac:
    """`cornac.models.MF`: our model and our steps on squared error, in the order of the rows."""

    def __init__(self, log: Log, settings: Settings) -> None:
        made = harness.needs("cornac.data").Dataset
        self.rows = made.build(zip(log.users.tolist(), log.items.tolist(), log.labels.tolist(), strict=True), seed=0)
        self.settings, self.made = settings, harness.needs("cornac.models").MF

    def fit(self, epochs: int, threads: int = 1) -> Any:
        """Fit from the start."""
        width, learning_rate, l2 = self.settings
        options = {"k": width, "learning_rate": learning_rate, "lambda_reg": l2, "max_iter": epochs}
        return self.made(**options, use_bias=True, num_threads=threads, seed=0, verbose=False).fit(self.rows)

    def __call__(self) -> Timed:
        """Time an epoch."""
        return per_epoch(self.fit)

    def predict(self, log: Log, epochs: int) -> npt.NDArray[np.float64]:
        """Fit, then score the pairs of a log."""
        model = self.fit(epochs)
        users = np.array([self.rows.uid_map[one] for one in log.users.tolist()])
        items = np.array([self.rows.iid_map[one] for one in log.items.tolist()])
        product = np.einsum("nk,nk->n", model.u_factors[users], model.i_factors[items])
        return np.asarray(model.global_mean + model.u_biases[users] + model.i_biases[items] + product)


class Surprise:
    """`surprise.SVD`: the same steps, user by user, in float64."""

    def __init__(self, log: Log, settings: Settings) -> None:
        surprise = harness.needs("surprise")
        reader = surprise.Reader(rating_scale=(float(log.labels.min()), float(log.labels.max())))
        self.rows = surprise.Dataset.load_from_df(log.frame(), reader).build_full_trainset()
        self.settings, self.made = settings, surprise.SVD

    def fit(self, epochs: int) -> Any:
        """Fit from the start."""
        width, learning_rate, l2 = self.settings
        options = {"n_factors": width, "lr_all": learning_rate, "reg_all": l2, "init_std_dev": 0.01}
        return self.made(**options, n_epochs=epochs, random_state=0).fit(self.rows)

    def __call__(self) -> Timed:
        """Time an epoch."""
        return per_epoch(self.fit)


class LightFM:
    """`LightFM` with three features on either side: Adagrad, no L2, rows in an order drawn for each epoch."""

    def __init__(self, log: Log, settings: Settings, loss: str, sides: tuple[sp.csr_matrix, sp.csr_matrix]) -> None:
        made = harness.needs("lightfm").LightFM
        self.model = made(no_components=settings.width, loss=loss, random_state=0)
        signs = np.where(log.labels > 0, 1, -1) if loss == "logistic" else np.ones(len(log.labels))
        shape = (log.num_users, log.num_items)
        self.rows = sp.coo_matrix((signs.astype(np.int32), (log.users, log.items)), shape=shape)
        self.sides = {"user_features": sides[0], "item_features": sides[1]}
        self.fit(1)

    def fit(self, epochs: int) -> None:
        """Go on."""
        self.model.fit_partial(self.rows, **self.sides, epochs=epochs, num_threads=1)

    def __call__(self) -> Timed:
        """Time an epoch."""
        return per_epoch(self.fit)


class ImplicitBPR:
    """`implicit.cpu.bpr`: BPR with uniform negatives that the user does not have; item biases, no user biases."""

    def __init__(self, log: Log, settings: Settings) -> None:
        self.made = harness.needs("implicit.cpu.bpr").BayesianPersonalizedRanking
        shape = (log.num_users, log.num_items)
        self.rows = sp.csr_matrix((np.ones(len(log.users), np.float32), (log.users, log.items)), shape=shape)
        self.settings = settings

    def fit(self, epochs: int) -> None:
        """Fit from the start."""
        width, learning_rate, l2 = self.settings
        options = {"factors": width, "learning_rate": learning_rate, "regularization": l2, "iterations": epochs}
        self.made(**options, num_threads=1, random_state=0).fit(self.rows, show_progress=False)

    def __call__(self) -> Timed:
        """Time an epoch."""
        return per_epoch(self.fit)


class Tutorial:
    """Two `nn.Embedding`s and biases, Adam with weight decay: what most tutorials train."""

    def __init__(self, log: Log, settings: Settings, *, loader: bool, batch_size: int = 1024) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.tables = nn.ModuleList(
                nn.Embedding(rows, width)
                for rows, width in (
                    (log.num_users, settings.width),
                    (log.num_items, settings.width),
                    (log.num_users, 1),
                    (log.num_items, 1),
                )
            )
        self.optimizer = torch.optim.Adam(self.tables.parameters(), lr=1e-3, weight_decay=1e-5)
        self.columns = [torch.from_numpy(column) for column in (log.users, log.items, log.labels)]
        self.batch_size, self.generator = batch_size, torch.Generator().manual_seed(0)
        self.batches: Callable[[], Iterable[Any]] = self._loaded if loader else self._sliced

    def __call__(self) -> None:
        """Train an epoch."""
        for users, items, labels in self.batches():
            left, right, left_bias, right_bias = (
                table(rows) for table, rows in zip(self.tables, (users, items, users, items), strict=True)
            )
            scores = (left * right).sum(1) + left_bias[:, 0] + right_bias[:, 0]
            self.optimizer.zero_grad()
            nn.functional.mse_loss(scores, labels).backward()
            self.optimizer.step()

    def _loaded(self) -> DataLoader[Any]:
        rows = TensorDataset(*self.columns)
        return DataLoader(rows, batch_size=self.batch_size, shuffle=True, generator=self.generator)

    def _sliced(self) -> Iterable[list[Tensor]]:
        order = torch.randperm(len(self.columns[0]), generator=self.generator)
        return ([column[rows] for column in self.columns] for rows in order.split(self.batch_size))
