"""Whole steps of `Minibatch` by compiled kernels: scores, gradients and the optimizer's rule, without autograd.

They take what most models are: labels, and scores that are sums of table rows, learned by `RowWiseAdagrad` or
`LazyAdam` in float32 on the CPU. Autograd is their twin and differs by rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.optim import Optimizer

from recsys_emb import kernels
from recsys_emb.encoding.batch import Batch
from recsys_emb.lookup.one_hot import OneHotProjection
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.training.compiled_step import move_rows
from recsys_emb.training.examples import examples_of, task_of
from recsys_emb.training.losses import Logistic, SquaredError
from recsys_emb.training.objective import Defaults, Objective
from recsys_emb.training.optim import LazyAdam, RowWiseAdagrad
from recsys_emb.training.stack import Stack

if TYPE_CHECKING:
    from recsys_emb.kernels.batch_pass import Entries
    from recsys_emb.kernels.sequential import Examples


def is_compiled(model: MatrixFactorization, objective: Objective, optimizer: Optimizer) -> bool:
    """Whether `CompiledBatches` takes the steps that autograd and this optimizer would."""
    if type(objective) not in (SquaredError, Logistic) or objective.contrast is not None:
        return False
    group, parameters = optimizer.param_groups[0], list(model.parameters())
    if type(optimizer) not in (RowWiseAdagrad, LazyAdam) or {*map(id, group["params"])} != {*map(id, parameters)}:
        return False
    tables = [*model.vectors.lookups, *model.biases.lookups]
    if model.why_not_linear() is not None or model.vectors.histories:
        return False
    rows = not any(isinstance(table, OneHotProjection) for table in tables)  # whose columns are the rows
    plain = all(one.device.type == "cpu" and one.dtype == torch.float32 for one in parameters)
    return bool(rows and plain and group["compiled"] and group["lr"] > 0 and group["eps"] > 0)


class CompiledBatches:
    """Steps of one model over some training rows; its tensors and the optimizer's state are always up to date.

    Parameters
    ----------
    model
        What learns.
    rows
        The training rows, with pooling weights.
    objective, optimizer
        For which `is_compiled`.
    settings
        Strength of L2.
    batch_size
        B at most.
    """

    def __init__(
        self,
        model: MatrixFactorization,
        rows: Batch,
        objective: Objective,
        optimizer: RowWiseAdagrad | LazyAdam,
        *,
        settings: Defaults,
        batch_size: int,
    ) -> None:
        stack = Stack(model)
        self._task, self._examples = task_of(model, objective), examples_of(model, rows, objective, stack)
        pace = stack.pace(settings, np.zeros(stack.num_rows))
        self._tables = kernels.sequential.Tables(stack.vectors, stack.biases, pace)
        self._optimizer, self._group = optimizer, optimizer.param_groups[0]
        self._learning = [part for part in stack.parameters() if part[0].requires_grad]
        start, wide = optimizer.rule(self._group).start, optimizer.rule(self._group).state.values()
        self._matrices = stack.biases[:, np.newaxis], stack.vectors
        self._state = [
            tuple(np.full(matrix.shape if full else len(matrix), start, np.float32) for full in wide)
            for matrix in self._matrices
        ]
        self._entries = _room_for(_most(self._examples, batch_size), stack.vectors.shape[1])
        self.take_over()

    def take_over(self) -> None:
        """Copy the optimizer's state, which from then on views what the kernels move."""
        for parameter, rows, has_vectors in self._learning:
            state = self._optimizer.state[parameter]
            if isinstance(self._optimizer, LazyAdam):
                state.setdefault("step", 0)
            for name, array in zip(self._optimizer.rule(self._group).state, self._state[has_vectors], strict=True):
                memory = torch.from_numpy(array[rows])
                if name in state:
                    memory.copy_(state[name])
                state[name] = memory

    def step(self, chosen: Tensor) -> float:
        """Learn the rows ``chosen``, ``(B,)``; give the sum of their weighted losses."""
        loss, found = kernels.batch_pass.batch_pass(
            self._task, chosen.numpy(), self._examples, self._tables, self._entries
        )
        self._move(*found)
        return loss

    def _move(self, vectors: int, biases: int) -> None:
        states = [self._optimizer.state[parameter] for parameter, _, _ in self._learning]
        for state in states:
            if "step" in state:
                state["step"] += 1
        rule, entries = self._optimizer.rule(self._group), self._entries
        settings = rule.settings(states[0].get("step", 1)) if states else rule.settings(1)
        named = (biases, entries.bias_rows, entries.biases), (vectors, entries.vector_rows, entries.vectors)
        for matrix, state, (count, rows, gradients) in zip(self._matrices, self._state, named, strict=True):
            where = (rows.ctypes.data, rows.strides[0], gradients.ctypes.data, gradients.strides[0])
            move_rows(matrix, state, settings, rule, (count, *where))
        increment_version([parameter for parameter, _, _ in self._learning])


def _most(examples: Examples, batch_size: int) -> int:
    """Give how many rows a batch can name at most."""
    lengths = np.diff(examples.users.offsets + examples.items.offsets)
    first = max(len(lengths) - batch_size, 0)
    lengths.partition(first)
    return int(lengths[first:].sum())


def _room_for(count: int, D: int) -> Entries:
    rows, other_rows = np.empty(count, np.int64), np.empty(count, np.int64)
    vectors, biases = np.empty((count, D), np.float32), np.empty((count, 1), np.float32)
    return kernels.batch_pass.Entries(rows, vectors, other_rows, biases)
