"""Longer tables in place: old rows, their gradients and their optimizer state stay bit for bit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

Optimizers: TypeAlias = Optimizer | Iterable[Optimizer] | None


def grow_parameter(parameter: nn.Parameter, fresh: Tensor, *, dim: int = 0, optimizers: Optimizers = None) -> None:
    """Append rows to a parameter in place, so that whoever holds it keeps holding it.

    Parameters
    ----------
    parameter
        Any shape; grows along ``dim``.
    fresh
        The new rows, of the parameter's shape except along ``dim``.
    dim
        The dimension that the rows are counted in.
    optimizers
        Those that train the parameter. Every state tensor with one entry per row grows with it; the new entries
        start where the optimizer starts (``initial_accumulator_value``, else 0). Scalars such as a step count stay.

    Examples
    --------
    >>> table = nn.Parameter(torch.ones(2, 1))
    >>> grow_parameter(table, torch.zeros(1, 1))
    >>> table.tolist()
    [[1.0], [1.0], [0.0]]
    """
    old = parameter.shape
    gradient, grown = parameter.grad, torch.cat([parameter.data, fresh.to(parameter)], dim)
    parameter.grad = None
    # A change of dtype makes autograd forget the shape that a graph still alive has recorded for this leaf.
    other = torch.float32 if parameter.dtype == torch.float16 else torch.float16
    parameter.data = torch.empty(0, dtype=other, device=parameter.device)
    parameter.data = grown
    parameter.grad = None if gradient is None else _lengthened(gradient, old, grown.shape, dim, 0.0)
    for group, state in _states(parameter, optimizers):
        start = float(group.get("initial_accumulator_value", 0.0))
        for key, value in state.items():
            if isinstance(value, Tensor) and _has_rows(value, old, dim):
                state[key] = _lengthened(value, old, grown.shape, dim, start)


def _states(parameter: nn.Parameter, optimizers: Optimizers) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    several = (optimizers,) if isinstance(optimizers, Optimizer) else optimizers or ()
    for optimizer in several:
        for group in optimizer.param_groups:
            if any(held is parameter for held in group["params"]) and parameter in optimizer.state:
                yield group, optimizer.state[parameter]


def _has_rows(value: Tensor, old: torch.Size, dim: int) -> bool:
    """Whether a state tensor has one entry per row: as large as the parameter, or, row-wise, as long as it."""
    return value.shape == old or (dim == 0 and value.ndim > 0 and len(value) == old[0])


def _lengthened(value: Tensor, old: torch.Size, new: torch.Size, dim: int, start: float) -> Tensor:
    if value.is_sparse:
        # Left uncoalesced where it is: adding duplicates up now would round otherwise than later.
        entries, coalesced = (value._indices(), value._values()), value.is_coalesced()
        return torch.sparse_coo_tensor(*entries, new, is_coalesced=coalesced, check_invariants=False)
    shape = list(value.shape)
    shape[dim] = new[dim] - old[dim]
    return torch.cat([value, value.new_full(shape, start)], dim)
