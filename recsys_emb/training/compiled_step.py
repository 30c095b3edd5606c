"""Steps of the row-sparse optimizers by compiled kernels: the same rows move by the same amounts, several times sooner.

In plain torch the rows of a sparse gradient are sorted, repeated ones added up, and copied for every term of a rule.
The kernels of `recsys_emb.kernels.row_update` read the gradient as it comes and move each row once, in place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from recsys_emb import kernels
from recsys_emb.errors import IndexRangeError
from recsys_emb.lookup.row_rules import LazyAdamUpdate, RowRule, Settings

if TYPE_CHECKING:
    from recsys_emb.kernels.row_gather import Floats

# No row is padding to an optimizer: padding has no gradient.
_NO_PADDING = -1


def fits(parameter: Tensor, gradient: Tensor) -> bool:
    """Whether `move` takes them: a sparse gradient of the rows of a matrix on the CPU, both float32."""
    if not gradient.is_sparse or gradient.sparse_dim() != 1 or parameter.ndim != 2 or not parameter.is_contiguous():
        return False
    return parameter.device.type == "cpu" and parameter.dtype == gradient.dtype == torch.float32


def move(parameter: Tensor, gradient: Tensor, state: dict[str, Any], rule: RowRule) -> None:
    """Move the rows that a gradient names as a rule says; a state that is empty begins here.

    Raises
    ------
    IndexRangeError
        When it names a row that is not there; nothing is moved.
    """
    gradients, rows = gradient._values().contiguous(), gradient._indices()[0]
    _check_rows(rows, len(parameter))
    if not state:
        shapes = {name: parameter.shape if wide else parameter.shape[:1] for name, wide in rule.state.items()}
        state |= {"step": 0} if isinstance(rule, LazyAdamUpdate) else {}
        state |= {name: parameter.new_full(shape, rule.start) for name, shape in shapes.items()}
    if "step" in state:
        state["step"] += 1
    where = (rows.data_ptr(), rows.stride(0) * 8, gradients.data_ptr(), gradients.stride(0) * 4)
    arrays = tuple(state[name].numpy() for name in rule.state)
    move_rows(parameter.detach().numpy(), arrays, rule.settings(state.get("step", 1)), rule, (rows.shape[0], *where))
    increment_version(parameter)


def _check_rows(rows: Tensor, number: int) -> None:
    """Refuse rows outside the table: the kernels write where they are told."""
    if not rows.numel():
        return
    least, most = (int(one) for one in torch.aminmax(rows))
    if least < 0 or most >= number:
        raise IndexRangeError(
            f"gradient: expected rows in [0, {number}), got {least if least < 0 else most}. Look up what the table has."
        )


def move_rows(
    weights: Floats, state: tuple[Floats, ...], settings: Settings, rule: RowRule, lookup: tuple[int, ...]
) -> None:
    """Move rows of one matrix; a lookup says how many, where they and their gradients are, and bytes between them."""
    stack = kernels.row_update.Stack(weights, np.zeros(1, np.int64), np.array([len(weights)]), _NO_PADDING)
    rule.run(stack, state, np.array([(0, *lookup)], np.int64), np.array([settings], np.float32))
