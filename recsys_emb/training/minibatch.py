"""`Minibatch`: autograd on shuffled batches, with any optimizer, on any device."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from recsys_emb.encoding.batch import Batch
from recsys_emb.errors import FitError
from recsys_emb.lookup.base import IndexLookup
from recsys_emb.lookup.history import HistoryEmbedding
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.training.checkpoints import Snapshot
from recsys_emb.training.compiled_batches import CompiledBatches, is_compiled
from recsys_emb.training.contrast import contrast_of
from recsys_emb.training.objective import Defaults, Objective, Units, check_settings, whole
from recsys_emb.training.optim import LazyAdam, RowWiseAdagrad
from recsys_emb.training.optimizer_state import optimizer_state, restore_optimizer
from recsys_emb.training.past import Past
from recsys_emb.training.rows import check_ranges, with_pooling_weights, with_unknown
from recsys_emb.training.scoring import Scorer

# Their cost follows the touched rows only if the gradients are sparse.
ROW_SPARSE = (RowWiseAdagrad, LazyAdam)


@dataclass(frozen=True, kw_only=True)
class Minibatch:
    """Shuffled batches, autograd and an optimizer: any tables and any objective, on any device.

    A step follows the mean over the batch of ``weight · loss`` and of L2 per occurrence, so that with batches of one
    and plain `torch.optim.SGD` it equals a step of `SequentialSGD`. `RowWiseAdagrad` and `LazyAdam` get sparse
    gradients, and a step costs what it touches. On the CPU they need no autograd for labels where scores are sums of
    table rows, which changes rounding alone; ``compiled=False`` of the optimizers always takes it. Other optimizers
    get dense gradients, unless the model was made with ``sparse=True``. Every epoch visits all rows once in a new
    order; the last batch may be smaller.

    Parameters
    ----------
    optimizer
        Called with the model's parameters (and ``lr=learning_rate`` if one is given): an optimizer class, or any
        callable that gives an optimizer.
    learning_rate
        None leaves it to the optimizer.
    batch_size
        Rows per step.
    l2, bias_l2
        L2 per occurrence of vectors and of biases; the objective's defaults unless given.
    device
        Where to train; the model moves there and stays. None trains it where it is.

    Examples
    --------
    >>> Minibatch(optimizer=RowWiseAdagrad, learning_rate=0.05, batch_size=4096).batch_size
    4096
    """

    optimizer: Callable[..., Optimizer] = LazyAdam
    learning_rate: float | None = None
    batch_size: int = 1024
    l2: float | None = None
    bias_l2: float | None = None
    device: torch.device | str | None = None

    def __post_init__(self) -> None:
        check_settings("Minibatch", learning_rate=self.learning_rate, l2=self.l2, bias_l2=self.bias_l2)
        number = whole("Minibatch", "batch_size", self.batch_size, least=1, remedy="It counts rows.")
        object.__setattr__(self, "batch_size", number)
        if not callable(self.optimizer):
            raise FitError(
                f"Minibatch: expected optimizer to be a class or a function that makes one, got {self.optimizer!r}. "
                "Give it uncalled: optimizer=LazyAdam."
            )

    def settings(self, objective: Objective) -> Defaults:
        """Give the settings in use: these, and the objective's where none are given."""
        return objective.defaults.replacing(learning_rate=self.learning_rate, l2=self.l2, bias_l2=self.bias_l2)

    def why_not(self, model: MatrixFactorization, objective: Objective) -> str | None:
        """Say why this solver cannot train the model, as a clause; None when it can."""
        example = self.made_for([nn.Parameter(torch.zeros(2, 1))])
        if isinstance(example, ROW_SPARSE):
            return None
        name = type(example).__name__
        tables = [isinstance(table, IndexLookup) and table.sparse for table in _tables(model)]
        if any(tables) and any(group.get("weight_decay") for group in example.param_groups):
            return (
                f"{name} has a weight_decay and the model sparse gradients, which would decay touched rows alone; "
                "set weight_decay=0 and give Minibatch(l2=...)"
            )
        if any(tables) and not self._takes(sparse=True):
            return f"{name} takes no sparse gradients; make the model with sparse=False, or use LazyAdam"
        if not all(tables) and not self._takes(sparse=False):
            return f"{name} takes sparse gradients only; make the model with sparse=True, or use LazyAdam"
        return None

    def start(
        self, model: MatrixFactorization, batch: Batch, objective: Objective, *, seed: int, past: Past | None = None
    ) -> MinibatchRun:
        """Move model and rows to the device; `MinibatchRun.epoch` then trains.

        Raises
        ------
        FitError
            When the optimizer and the gradients do not fit each other.
        """
        reason = self.why_not(model, objective)
        if reason is not None:
            raise FitError(f"Minibatch: expected an optimizer that fits the gradients, but {reason}.")
        device = model.scale.device if self.device is None else torch.device(self.device)
        model.to(device)
        past = None if past is None else past.to(device)
        return MinibatchRun(model, batch.to(device), objective, self, seed=seed, past=past)

    def made_for(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """Make the optimizer of these parameters."""
        given = {} if self.learning_rate is None else {"lr": self.learning_rate}
        return self.optimizer(list(parameters), **given)

    def _takes(self, *, sparse: bool) -> bool:
        """Try a step, twice because some keep state, on a table of two rows."""
        table = nn.Parameter(torch.zeros(2, 1))
        optimizer = self.made_for([table])
        table.grad = torch.ones(2, 1).to_sparse(1) if sparse else torch.ones(2, 1)
        try:
            optimizer.step()
            optimizer.step()
        except RuntimeError:
            return False
        return True


class MinibatchRun:
    """A run of `Minibatch`; after every step the model's tensors are up to date."""

    def __init__(
        self,
        model: MatrixFactorization,
        batch: Batch,
        objective: Objective,
        solver: Minibatch,
        *,
        seed: int,
        past: Past | None = None,
    ) -> None:
        check_ranges(batch, model.biases)
        self._model, self._objective, self._batch_size = model, objective, solver.batch_size
        self.after_part: Callable[[], None] = _nothing
        self._seed, self._epoch, self._done = seed, 0, 0
        self._total = torch.zeros((), dtype=torch.float64, device=model.scale.device)
        self._generator = torch.Generator(model.scale.device)
        self._optimizer = solver.made_for(model.parameters())
        self.learning_rate = float(self._optimizer.param_groups[0]["lr"])
        self._scorer = Scorer(model, solver.settings(objective))
        rows = with_pooling_weights(batch, model.schema)
        self._contrast = contrast_of(objective, rows, self._scorer, past)
        self._learned = self._contrast.rows
        self._rows = with_unknown(rows, model.schema, seed=seed)
        units = Units(float(model.offset), float(model.scale))
        label = torch.ones(len(rows), device=model.scale.device) if rows.label is None else rows.label
        self._targets, self._constant = objective.targets(label, units), objective.constant(units)
        self._compiled: CompiledBatches | None = None
        if isinstance(self._optimizer, ROW_SPARSE) and is_compiled(model, objective, self._optimizer):
            settings, size = solver.settings(objective), self._batch_size
            self._compiled = CompiledBatches(
                model, self._rows, objective, self._optimizer, settings=settings, batch_size=size
            )

    def epoch(self) -> float:
        """Learn every row once; give the mean loss over the rows learned, L2 apart."""
        rng = np.random.default_rng([self._seed, self._epoch])
        drawn = int(rng.integers(2**63))
        if not self._done:
            self._generator.manual_seed(drawn)
        order = self._learned[torch.from_numpy(rng.permutation(len(self._learned))).to(self._learned.device)]
        with _gradients(self._model, sparse=isinstance(self._optimizer, ROW_SPARSE)):
            for rows in torch.split(order, self._batch_size)[self._done :]:
                self._total += self._step(rows, self._generator)
                self._done += 1
                self.after_part()
        mean = float(self._total) / len(order)
        self._epoch, self._done = self._epoch + 1, 0
        self._total.zero_()
        return mean

    def state(self) -> Snapshot:
        """Say where the run is: epoch, batches done, the optimizer's state, and that of the generator of negatives."""
        tensors = {"total": self._total, "generator": self._generator.get_state()}
        mine = Snapshot({"epoch": self._epoch, "done": self._done}, tensors)
        return mine.adding("optimizer", optimizer_state(self._optimizer))

    def restore(self, snapshot: Snapshot) -> None:
        """Go to where `state` was called."""
        self._epoch, self._done = snapshot.numbers["epoch"], snapshot.numbers["done"]
        self._total.copy_(snapshot.tensors["total"])
        self._generator.set_state(snapshot.tensors["generator"].cpu())
        restore_optimizer(self._optimizer, snapshot.part("optimizer"))
        if self._compiled is not None:
            self._compiled.take_over()

    def _step(self, chosen: Tensor, generator: torch.Generator) -> Tensor | float:
        if self._compiled is not None:
            return self._compiled.step(chosen)
        rows = self._rows.select(chosen)
        sides = self._scorer.sides(rows)
        scores, penalty = self._contrast.scores(sides, chosen, generator)
        losses = self._objective.loss(self._constant + scores, self._targets[chosen])
        losses = losses if rows.weight is None else losses * rows.weight
        self._optimizer.zero_grad()
        torch.autograd.backward(losses.mean() + sides.penalty.mean() + penalty)
        self._optimizer.step()
        return losses.detach().sum()


def _nothing() -> None:
    pass


def _tables(model: MatrixFactorization) -> Iterator[nn.Module]:
    for table in (*model.vectors.tables, *model.biases.tables):
        yield table.items if isinstance(table, HistoryEmbedding) else table


@contextlib.contextmanager
def _gradients(model: MatrixFactorization, *, sparse: bool) -> Iterator[None]:
    """Let tables that can give sparse gradients for a while, if ``sparse``."""
    tables = [table for table in _tables(model) if isinstance(table, IndexLookup)]
    before = [table.sparse for table in tables]
    for table in tables:
        table.sparse = table.sparse or sparse
    try:
        yield
    finally:
        for table, was_sparse in zip(tables, before, strict=True):
            table.sparse = was_sparse
