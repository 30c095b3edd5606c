"""`SequentialSGD`: stochastic gradient descent row by row, in a kernel, on the model's own tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from recsys_emb import kernels
from recsys_emb.encoding.batch import Batch
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.training.checkpoints import Snapshot
from recsys_emb.training.losses import BPR, Logistic, SquaredError
from recsys_emb.training.objective import Defaults, Objective, Units, UnseenItems, check_settings
from recsys_emb.training.past import Past
from recsys_emb.training.plan import occurrences, row_lists, user_order
from recsys_emb.training.rows import check_ranges, with_pooling_weights, with_unknown
from recsys_emb.training.sampling import Interactions
from recsys_emb.training.stack import Stack

if TYPE_CHECKING:
    from recsys_emb.kernels.sequential import Contrast, Examples, Histories, Task

# Enough parts that their order mixes users; few enough that each user's rows stay together.
_CHUNKS = 50
_ONE = torch.zeros(1, dtype=torch.int64)


@dataclass(frozen=True, kw_only=True)
class SequentialSGD:
    """One example, one step, for any schema whose score is a product of two sums of table rows; on the CPU.

    Examples are stored user after user, so that a user's row stays in the cache, and visited in 50 parts whose order
    changes with every epoch. Rows that many users or items share learn more slowly (see `Stack.pace`). L2 is felt
    once per occurrence, in proportion to the squared weight. With negatives, the items drawn against an example share
    its position. A run is a function of the rows, the settings and the seed.

    Parameters
    ----------
    learning_rate
        Step of a row in standard units; the objective's default unless given.
    l2, bias_l2
        L2 per occurrence of vectors and of biases; a feature's ``l2_scale`` multiplies both.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from recsys_emb.schema.columns import Categorical
    >>> from recsys_emb.schema.schema import Schema
    >>> schema = Schema(user=Categorical("u"), item=Categorical("i"), label="y", embedding_dim=2)
    >>> model = MatrixFactorization(SimpleNamespace(schema=schema, num_embeddings=lambda name: 6))
    >>> rows = Batch({"u": torch.tensor([3, 4, 5]), "i": torch.tensor([5, 4, 3])}, torch.tensor([1.0, 2.0, 3.0]))
    >>> run = SequentialSGD(learning_rate=0.1).start(model, rows, SquaredError(), seed=0)
    >>> losses = [run.epoch() for _ in range(20)]
    >>> losses[-1] < losses[0]
    True
    """

    learning_rate: float | None = None
    l2: float | None = None
    bias_l2: float | None = None

    def __post_init__(self) -> None:
        check_settings("SequentialSGD", learning_rate=self.learning_rate, l2=self.l2, bias_l2=self.bias_l2)

    def settings(self, objective: Objective) -> Defaults:
        """Give the settings in use: these, and the objective's where none are given."""
        return objective.defaults.replacing(learning_rate=self.learning_rate, l2=self.l2, bias_l2=self.bias_l2)

    def why_not(self, model: MatrixFactorization, objective: Objective) -> str | None:
        """Say why this solver cannot train the model, as a clause; None when it can."""
        if type(objective) not in (SquaredError, Logistic, BPR):
            return f"{type(objective).__name__} is no loss of single examples, as SquaredError, Logistic and BPR are"
        for parameter in model.parameters():
            if parameter.device.type != "cpu":
                return f"the model is on {parameter.device}, and the kernels run on the CPU"
            if parameter.dtype != torch.float32:
                return f"the model has parameters of {parameter.dtype}, and the kernels take torch.float32"
        if len(model.vectors.histories) > 1:
            return f"the schema declares {len(model.vectors.histories)} histories, and the kernels take one"
        for name, table in model.vectors.histories.items():
            # A history's rows move once per run of a user, which is exact only while nothing else moves them.
            if any(table.weight is getattr(other, "weight", None) for other in model.vectors.lookups if other != table):
                return f"feature {name!r} shares its rows with another feature, and the kernels move them apart"
        return model.why_not_linear()

    def start(
        self, model: MatrixFactorization, batch: Batch, objective: Objective, *, seed: int, past: Past | None = None
    ) -> SequentialRun:
        """Lay the rows out and take over the model's tensors; `SequentialRun.epoch` then trains them."""
        return SequentialRun(model, batch, objective, self.settings(objective), seed=seed, past=past)


class SequentialRun:
    """A run of `SequentialSGD`; after every epoch the model's tensors are up to date."""

    def __init__(
        self,
        model: MatrixFactorization,
        batch: Batch,
        objective: Objective,
        settings: Defaults,
        *,
        seed: int,
        past: Past | None = None,
    ) -> None:
        self.learning_rate = settings.learning_rate
        self.after_part: Callable[[], None] = _nothing
        self._seed, self._size = seed, len(batch)
        self._epoch, self._done, self._learned, self._total = 0, 0, 0, 0.0
        check_ranges(batch, model.biases)
        schema, stack = model.schema, Stack(model)
        users = np.zeros(len(batch), np.int64) if schema.user is None else batch.indices(schema.user.name).numpy()
        rows = with_pooling_weights(batch.select(torch.from_numpy(user_order(users, seed))), schema)
        interactions = None
        if objective.contrast is not None:
            interactions = Interactions.from_batch(rows, schema, past)
            interactions.contrasted()
        rows = with_unknown(rows, schema, seed=seed)
        self._task = _task(model, objective)
        self._contrast = None if interactions is None else _contrast(model, rows, interactions, stack)
        self._examples = _examples(model, rows, objective, stack)
        places = [self._contrast.places] if self._contrast else []
        counts = occurrences([self._examples.users, self._examples.items, *places], len(stack.biases))
        pace = stack.pace(settings, counts)
        self._tables = kernels.sequential.Tables(stack.vectors, stack.biases, pace)
        self._are_pairs = interactions is None and _are_pairs(self._examples, pace)

    def epoch(self) -> float:
        """Learn every example once; give the mean loss over the examples learned."""
        rng = np.random.default_rng([self._seed, self._epoch])
        task = self._task._replace(seed=int(rng.integers(2**63)))
        bounds = np.linspace(0, self._size, min(_CHUNKS, self._size) + 1).astype(int).tolist()
        for chunk in rng.permutation(len(bounds) - 1)[self._done :]:
            loss, count = self._learn(task, (bounds[chunk], bounds[chunk + 1]))
            self._total, self._learned, self._done = self._total + loss, self._learned + count, self._done + 1
            self.after_part()
        mean = self._total / self._learned if self._learned else float("nan")
        self._epoch, self._done, self._learned, self._total = self._epoch + 1, 0, 0, 0.0
        return mean

    def state(self) -> Snapshot:
        """Say where the run is: which epoch, and how many parts of it are done."""
        numbers = {"epoch": self._epoch, "done": self._done, "learned": self._learned}
        return Snapshot(numbers, {"total": torch.tensor(self._total, dtype=torch.float64)})

    def restore(self, snapshot: Snapshot) -> None:
        """Go to where `state` was called."""
        self._epoch, self._done, self._learned = (snapshot.numbers[name] for name in ("epoch", "done", "learned"))
        self._total = float(snapshot.tensors["total"])

    def _learn(self, task: Task, span: tuple[int, int]) -> tuple[float, int]:
        room = kernels.sequential
        if self._contrast is not None:
            return room.ranking_pass(task, span, self._examples, self._contrast, self._tables)
        one_pass = room.pair_pass if self._are_pairs else room.list_pass
        return one_pass(task, span, self._examples, self._tables), span[1] - span[0]


def _nothing() -> None:
    pass


def _task(model: MatrixFactorization, objective: Objective) -> Task:
    room = kernels.sequential
    link = {SquaredError: room.SQUARED, Logistic: room.LOGISTIC, BPR: room.PAIRWISE}[type(objective)]
    constant = objective.constant(Units(float(model.offset), float(model.scale)))
    contrast = objective.contrast
    return room.Task(link, np.float32(constant), contrast.count if isinstance(contrast, UnseenItems) else 0, 0)


def _examples(model: MatrixFactorization, rows: Batch, objective: Objective, stack: Stack) -> Examples:
    label = torch.ones(len(rows)) if rows.label is None else rows.label
    weights = torch.ones(len(rows)) if rows.weight is None else rows.weight
    targets = objective.targets(label, Units(float(model.offset), float(model.scale)))
    items = [name for name in model.item_names if not (objective.contrast and _is_place(model, name))]
    users = [name for name in model.user_names if name not in model.vectors.histories]
    return kernels.sequential.Examples(
        row_lists(rows, users, stack.first_rows),
        row_lists(rows, items, stack.first_rows),
        _histories(model, rows, stack),
        targets.numpy(),
        weights.float().numpy(),
    )


def _histories(model: MatrixFactorization, rows: Batch, stack: Stack) -> Histories:
    """Give each user what it had; one empty history for all where the model has none."""
    tables, user = model.vectors.histories, model.schema.user
    if not tables or user is None:
        return kernels.sequential.Histories(np.zeros(len(rows), np.int64), row_lists(rows.select(_ONE), [], {}))
    past = Batch({name: table.lists() for name, table in tables.items()})
    return kernels.sequential.Histories(rows.indices(user.name).numpy(), row_lists(past, past.names, stack.first_rows))


def _contrast(model: MatrixFactorization, rows: Batch, interactions: Interactions, stack: Stack) -> Contrast:
    catalogue = interactions.catalogue
    known = catalogue.features.select(torch.arange(len(catalogue)))
    places = [name for name in model.item_names if _is_place(model, name)]
    return kernels.sequential.Contrast(
        interactions.users.numpy(),
        interactions.seen.offsets.numpy(),
        interactions.seen.items.numpy(),
        row_lists(known, catalogue.features.names, stack.first_rows),
        row_lists(rows, places, stack.first_rows),
    )


def _is_place(model: MatrixFactorization, name: str) -> bool:
    return model.schema.role_of(name) == "position"


def _are_pairs(examples: Examples, pace: npt.NDArray[np.float32]) -> bool:
    """Whether `pair_pass` applies: one row of weight 1 on either side, of one pace per side, none on both."""
    users, items = examples.users.rows, examples.items.rows
    if len(examples.histories.lists.rows):
        return False
    for lists in (examples.users, examples.items):
        single = len(lists.rows) == len(examples.targets) and bool((np.diff(lists.offsets) == 1).all())
        if not single or (lists.weights != 1).any() or np.ptp(pace[lists.rows], axis=0).any():
            return False
    return bool(users.max() < items.min() or items.max() < users.min())
