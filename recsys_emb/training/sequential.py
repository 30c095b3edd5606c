"""`SequentialSGD`: stochastic gradient descent row by row, in a kernel, on the model's own tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch.autograd.graph import increment_version

from recsys_emb import kernels
from recsys_emb.encoding.batch import Batch
from recsys_emb.encoding.crew import crew
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema.schema import Schema
from recsys_emb.training.checkpoints import Snapshot
from recsys_emb.training.examples import are_pairs, contrast_of, examples_of, task_of
from recsys_emb.training.losses import BPR, Logistic, SquaredError
from recsys_emb.training.objective import Defaults, Objective, check_settings, whole
from recsys_emb.training.past import Past
from recsys_emb.training.plan import occurrences, user_order
from recsys_emb.training.rows import check_ranges, with_pooling_weights, with_unknown
from recsys_emb.training.sampling import Interactions
from recsys_emb.training.stack import Stack
from recsys_emb.training.strata import Round, Shared, rounds_of, with_copies

if TYPE_CHECKING:
    from recsys_emb.kernels.sequential import Task

_MOST_BLOCKS = 64
_REMEDY = "Give one per thread that shall learn at the same time."


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
    blocks
        Groups that users and items are dealt out to, so that as many threads (`torch.set_num_threads`) can learn at
        the same time; for labels, not for negatives. See the notes.

    Notes
    -----
    With ``blocks=B`` the result is the same bit for bit for any number of threads, on one machine, but not that of
    another B. With a user and an item alone, each with a table of its own, it is that of one thread that visits the
    examples in another order. Rows that several threads name at the same time (features, context, positions,
    histories) are learned in copies, and become the average of their copies about 50 times per epoch: no order of
    single steps leads there. More blocks than threads bring nothing, and few rows are left to one thread.

    References
    ----------
    Gemulla, R., Nijkamp, E., Haas, P. J. and Sismanis, Y. "Large-scale matrix factorization with distributed stochastic
    gradient descent." KDD 2011.

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
    blocks: int = 1

    def __post_init__(self) -> None:
        check_settings("SequentialSGD", learning_rate=self.learning_rate, l2=self.l2, bias_l2=self.bias_l2)
        number = whole("SequentialSGD", "blocks", self.blocks, least=1, most=_MOST_BLOCKS, remedy=_REMEDY)
        object.__setattr__(self, "blocks", number)

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
        return model.why_not_linear() or (None if self.blocks == 1 else self._why_no_blocks(model, objective))

    def start(
        self, model: MatrixFactorization, batch: Batch, objective: Objective, *, seed: int, past: Past | None = None
    ) -> SequentialRun:
        """Lay the rows out and take over the model's tensors; `SequentialRun.epoch` then trains them."""
        return SequentialRun(model, batch, objective, self.settings(objective), self.blocks, seed=seed, past=past)

    def _why_no_blocks(self, model: MatrixFactorization, objective: Objective) -> str | None:
        if objective.contrast is not None:
            return f"{objective!r} draws negatives from all items, and blocks={self.blocks} gives threads their own"
        if model.schema.user is None or model.schema.item is None:
            missing = "user" if model.schema.user is None else "item"
            return f"the schema has no {missing}, and blocks={self.blocks} deals users and items out"
        return None


class SequentialRun:
    """A run of `SequentialSGD`; after every epoch the model's tensors are up to date."""

    def __init__(
        self,
        model: MatrixFactorization,
        batch: Batch,
        objective: Objective,
        settings: Defaults,
        blocks: int = 1,
        *,
        seed: int,
        past: Past | None = None,
    ) -> None:
        self.learning_rate = settings.learning_rate
        self.after_part: Callable[[], None] = _nothing
        self._seed, self._size = seed, len(batch)
        self._epoch, self._done, self._learned, self._total = 0, 0, 0, 0.0
        check_ranges(batch, model.biases)
        stack, self._written = Stack(model), list(model.parameters())
        rows, interactions = _prepared(batch, model.schema, objective, seed=seed, past=past)
        rows, self._rounds = _dealt(rows, model.schema, blocks, seed=seed)
        self._task = task_of(model, objective)
        self._contrast = None if interactions is None else contrast_of(model, rows, interactions, stack)
        self._examples = examples_of(model, rows, objective, stack)
        del rows  # the examples are all that is needed of them
        places = [self._contrast.places] if self._contrast else []
        pace = stack.pace(settings, occurrences([self._examples.users, self._examples.items, *places], stack.num_rows))
        self._are_pairs = interactions is None and are_pairs(self._examples, pace)
        self._shared: Shared | None = None
        if blocks > 1:
            self._examples, self._shared = with_copies(self._examples, self._rounds, stack.num_rows)
            stack.extend(self._shared.size)
            pace = np.concatenate([pace, *[pace[self._shared.copies.originals]] * blocks])
        self._tables = kernels.sequential.Tables(stack.vectors, stack.biases, pace)

    def epoch(self) -> float:
        """Learn every example once; give the mean loss over the examples learned."""
        rng = np.random.default_rng([self._seed, self._epoch])
        task = self._task._replace(seed=int(rng.integers(2**63)))
        if self._shared is not None:
            self._shared.hand_out(self._tables)
        with crew(self._size if len(self._rounds[0]) > 1 else 0) as hands:
            for number in rng.permutation(len(self._rounds))[self._done :]:
                for loss, count in hands.map(partial(self._learn, task), self._rounds[number]):
                    self._total, self._learned = self._total + loss, self._learned + count
                if self._shared is not None:
                    self._shared.merge(number, self._tables)
                increment_version(self._written)
                self._done += 1
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
        if span[0] == span[1]:
            return 0.0, 0
        if self._contrast is not None:
            return room.ranking_pass(task, span, self._examples, self._contrast, self._tables)
        one_pass = room.pair_pass if self._are_pairs else room.list_pass
        return one_pass(task, span, self._examples, self._tables), span[1] - span[0]


def _nothing() -> None:
    pass


def _prepared(
    batch: Batch, schema: Schema, objective: Objective, *, seed: int, past: Past | None
) -> tuple[Batch, Interactions | None]:
    """Order rows by user and make them ready; with negatives, give who has what too."""
    users = np.zeros(len(batch), np.int64) if schema.user is None else batch.indices(schema.user.name).numpy()
    rows = with_pooling_weights(batch.select(torch.from_numpy(user_order(users, seed))), schema)
    interactions = None
    if objective.contrast is not None:
        interactions = Interactions.from_batch(rows, schema, past)
        interactions.contrasted()
    return with_unknown(rows, schema, seed=seed), interactions


def _dealt(rows: Batch, schema: Schema, blocks: int, *, seed: int) -> tuple[Batch, list[Round]]:
    """Order rows by round."""
    order, rounds = rounds_of(*_pairs(rows, schema), blocks=blocks, seed=seed)
    return rows if blocks == 1 else rows.select(torch.from_numpy(order)), rounds


def _pairs(rows: Batch, schema: Schema) -> list[npt.NDArray[np.int64]]:
    """Give the rows that the users and items have in their tables; one for all where there are none."""
    features = (schema.user, schema.item)
    return [np.zeros(len(rows), np.int64) if one is None else rows.indices(one.name).numpy() for one in features]
