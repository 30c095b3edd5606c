"""Steps of the row-sparse optimizers by compiled kernels: the same rows move by the same amounts, several times sooner.

An optimizer in plain torch sorts the rows of a sparse gradient, adds repeated ones up, and makes a copy of them for
every term of its rule. The kernels of `recsys_emb.kernels.row_update` read the gradient as it comes and move each row
once, in place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from recsys_emb import kernels
from recsys_emb.lookup.row_rules import LazyAdamUpdate, RowRule, RowWiseAdagradUpdate
from recsys_emb.training.optim import LazyAdam, RowWiseAdagrad

if TYPE_CHECKING:
    from recsys_emb.kernels.row_gather import Integers

# No row is padding to an optimizer: padding has no gradient.
_NO_PADDING = -1


def step(optimizer: Optimizer) -> None:
    """Take a step of any optimizer.

    `RowWiseAdagrad` and `LazyAdam` move tables on the CPU by compiled kernels where gradients are sparse and all is
    float32; that changes results by rounding alone. Everything else is the optimizer's own step.
    """
    moved: list[tuple[Tensor, Tensor]] = []
    if type(optimizer) in (RowWiseAdagrad, LazyAdam):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is not None and _fits(parameter, gradient) and group["lr"] > 0 and group["eps"] > 0:
                    _move(parameter, gradient, optimizer.state[parameter], _rule(optimizer, group))
                    moved.append((parameter, gradient))
                    parameter.grad = None  # has had its step
    optimizer.step()
    for parameter, gradient in moved:
        parameter.grad = gradient


def _fits(parameter: Tensor, gradient: Tensor) -> bool:
    if not gradient.is_sparse or gradient.sparse_dim() != 1 or parameter.ndim != 2 or not parameter.is_contiguous():
        return False
    return parameter.device.type == "cpu" and parameter.dtype == gradient.dtype == torch.float32


def _rule(optimizer: Optimizer, group: dict[str, Any]) -> RowRule:
    if isinstance(optimizer, LazyAdam):
        return LazyAdamUpdate(lr=group["lr"], betas=group["betas"], eps=group["eps"])
    start = group["initial_accumulator_value"]
    return RowWiseAdagradUpdate(lr=group["lr"], eps=group["eps"], initial_accumulator_value=start)


def _move(parameter: Tensor, gradient: Tensor, state: dict[str, Any], rule: RowRule) -> None:
    if not state:
        shapes = {name: parameter.shape if wide else parameter.shape[:1] for name, wide in rule.state.items()}
        state |= {"step": 0} if isinstance(rule, LazyAdamUpdate) else {}
        state |= {name: parameter.new_full(shape, rule.start) for name, shape in shapes.items()}
    if "step" in state:
        state["step"] += 1
    weights, values, rows = parameter.detach().numpy(), gradient._values().contiguous(), gradient._indices()[0]
    stack = kernels.row_update.Stack(weights, np.zeros(1, np.int64), np.array([len(weights)]), _NO_PADDING)
    numbers = np.array([rule.settings(state.get("step", 1))], np.float32)
    rule.run(stack, tuple(state[name].numpy() for name in rule.state), _lookup(rows, values), numbers)


def _lookup(rows: Tensor, values: Tensor) -> Integers:
    """Say where the rows and their gradients are, as the kernels want it."""
    where = (rows.data_ptr(), rows.stride(0) * 8, values.data_ptr(), values.stride(0) * 4)
    return np.array([(0, rows.shape[0], *where)], np.int64)
