"""Optimizers whose cost follows the touched rows: a row without gradient keeps its weights and its state.

Both take sparse gradients (`torch.nn.Embedding` with ``sparse=True``, `CategoryEmbedding` alike) and dense ones, on any
device. A row is one entry along the first dimension; it is touched when its gradient is not all zero. Gradients of a
row that was looked up several times are added before anything else. There is no weight decay: decay that moves rows
outside the batch costs O(V), and decay of the touched rows alone is L2 per occurrence, which belongs into the loss.

On the CPU, tables of float32 with sparse gradients move by compiled kernels, in a fraction of the time; everything else
moves in plain torch, which is their twin and differs by rounding.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias, cast, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

from recsys_emb.errors import FitError
from recsys_emb.lookup.row_rules import LazyAdamUpdate, RowRule, RowWiseAdagradUpdate
from recsys_emb.training.compiled_step import fits, move
from recsys_emb.training.objective import is_number

Parameters: TypeAlias = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]


class _Touched(NamedTuple):
    """The rows that a gradient names, and which of them it moves."""

    rows: Tensor | None  # int64 (R,), None for all
    gradient: Tensor  # (R, D)
    moved: Tensor  # bool (R, 1)

    def of(self, state: Tensor) -> Tensor:
        """Read these rows of a state tensor."""
        return state if self.rows is None else state[self.rows]

    def write(self, state: Tensor, new: Tensor, old: Tensor) -> None:
        """Write the moved ones of these rows back."""
        chosen = torch.where(self.moved.view(-1, *[1] * (new.ndim - 1)), new, old)
        if self.rows is None:
            state.copy_(chosen)
        else:
            state.index_copy_(0, self.rows, chosen)


class _RowOptimizer(Optimizer):
    """The loop over parameters; subclasses say how one parameter's touched rows move."""

    def __init__(self, params: Parameters, *, weight_decay: float, **defaults: float | tuple[float, float]) -> None:
        if weight_decay:
            raise FitError(
                f"{type(self).__name__}: expected weight_decay=0, got {weight_decay!r}. "
                "Rows outside the batch must not move; use L2 per occurrence, Minibatch(l2=...)."
            )
        remedies = {"lr": "0.01 is a usual one.", "eps": "1e-8 is a usual one.", "initial_accumulator_value": "Try 0."}
        for name, remedy in remedies.items():
            value = defaults.get(name, 0)
            if not is_number(value) or not 0 <= cast("float", value) < math.inf:
                raise FitError(f"{type(self).__name__}: expected {name} of at least 0, got {value!r}. {remedy}")
        super().__init__(params, defaults)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Stand where another one stood; whether kernels are used stays this one's own setting."""
        own = [group["compiled"] for group in self.param_groups]
        super().load_state_dict(state_dict)
        for group, compiled in zip(self.param_groups, own, strict=True):
            group["compiled"] = compiled

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Move the touched rows of all parameters once."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            # The kernels divide by what these are not; groups of older states say nothing of kernels.
            compiled = group.get("compiled", True) and group["lr"] > 0 and group["eps"] > 0
            for parameter in group["params"]:
                if parameter.grad is None or not parameter.numel():
                    continue
                if compiled and fits(parameter, parameter.grad):
                    move(parameter, parameter.grad, self.state[parameter], self.rule(group))
                else:
                    self._move(parameter, _touched(parameter.grad), group)
        return loss

    @abstractmethod
    def rule(self, group: dict[str, Any]) -> RowRule:
        """Give what the kernels are told."""

    @abstractmethod
    def _move(self, parameter: Tensor, touched: _Touched, group: dict[str, Any]) -> None:
        """Move the touched rows of one parameter."""


class RowWiseAdagrad(_RowOptimizer):
    """Adagrad with one accumulator per row: V numbers of state instead of V·D.

    With g the added-up gradient of a touched row::

        s ← s + mean(g²)
        w ← w − lr · g / (√s + eps)

    Parameters
    ----------
    params
        As for any `torch.optim.Optimizer`.
    lr
        Length of a row's first step, as root mean square over its entries.
    eps
        Keeps a row without any history from dividing by zero.
    initial_accumulator_value
        s at the start.
    weight_decay
        Must be 0; see above.
    compiled
        False moves rows in plain torch wherever they are.

    References
    ----------
    Duchi, J., Hazan, E. and Singer, Y. "Adaptive subgradient methods." JMLR 12, 2011; one accumulator per row as in
    FBGEMM's table-batched embeddings (Khudia et al., 2021).

    Examples
    --------
    >>> table = torch.nn.Parameter(torch.zeros(3, 2))
    >>> optimizer = RowWiseAdagrad([table], lr=0.1)
    >>> table[[1, 1]].sum().backward()
    >>> optimizer.step()
    >>> table.data
    tensor([[ 0.0000,  0.0000],
            [-0.1000, -0.1000],
            [ 0.0000,  0.0000]])
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.02,
        *,
        eps: float = 1e-8,
        initial_accumulator_value: float = 0.0,
        weight_decay: float = 0.0,
        compiled: bool = True,
    ) -> None:
        defaults = {"lr": lr, "eps": eps, "initial_accumulator_value": initial_accumulator_value, "compiled": compiled}
        super().__init__(params, weight_decay=weight_decay, **defaults)

    def rule(self, group: dict[str, Any]) -> RowRule:
        """Give what the kernels are told."""
        start = group["initial_accumulator_value"]
        return RowWiseAdagradUpdate(lr=group["lr"], eps=group["eps"], initial_accumulator_value=start)

    def _move(self, parameter: Tensor, touched: _Touched, group: dict[str, Any]) -> None:
        state, weights = self.state[parameter], _rows(parameter)
        if not state:
            state["sum"] = parameter.new_full((len(weights),), group["initial_accumulator_value"])
        old = touched.of(state["sum"])
        new = old + touched.gradient.square().mean(1)
        touched.write(state["sum"], new, old)
        before = touched.of(weights)
        step = touched.gradient / (new.sqrt() + group["eps"]).unsqueeze(1)
        touched.write(weights, before - group["lr"] * step, before)


class LazyAdam(_RowOptimizer):
    """Adam that moves, and decays the moments of, touched rows only.

    With g the added-up gradient of a touched row, and t the number of steps of the optimizer (not of the row), as in
    `torch.optim.SparseAdam`::

        m ← β₁ m + (1 − β₁) g          v ← β₂ v + (1 − β₂) g²
        w ← w − lr · (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + eps)

    Where every row is touched in every step this is Adam (Kingma & Ba, 2015).

    Parameters
    ----------
    params
        As for any `torch.optim.Optimizer`.
    lr
        Learning rate.
    betas
        Decay of the two moments, β₁ and β₂.
    eps
        Keeps the step finite.
    weight_decay
        Must be 0; see above.
    compiled
        False moves rows in plain torch wherever they are.

    Examples
    --------
    >>> table = torch.nn.Parameter(torch.zeros(3, 1))
    >>> optimizer = LazyAdam([table], lr=0.1)
    >>> table[[2]].sum().backward()
    >>> optimizer.step()
    >>> table.data.T
    tensor([[ 0.0000,  0.0000, -0.1000]])
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.001,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        compiled: bool = True,
    ) -> None:
        pair = isinstance(betas, (tuple, list)) and len(betas) == 2
        if not (pair and all(is_number(beta) and 0 <= beta < 1 for beta in betas)):
            raise FitError(
                f"LazyAdam: expected betas to be two of at least 0 and below 1, got {betas!r}. Try (0.9, 0.999)."
            )
        super().__init__(params, weight_decay=weight_decay, lr=lr, betas=betas, eps=eps, compiled=compiled)

    def rule(self, group: dict[str, Any]) -> RowRule:
        """Give what the kernels are told."""
        return LazyAdamUpdate(lr=group["lr"], betas=group["betas"], eps=group["eps"])

    def _move(self, parameter: Tensor, touched: _Touched, group: dict[str, Any]) -> None:
        state, weights = self.state[parameter], _rows(parameter)
        if not state:
            state |= {"step": 0, "exp_avg": torch.zeros_like(weights), "exp_avg_sq": torch.zeros_like(weights)}
        state["step"] += 1
        (first, second), step = cast("tuple[float, float]", group["betas"]), state["step"]
        before, mean, square = (touched.of(of) for of in (weights, state["exp_avg"], state["exp_avg_sq"]))
        new_mean = mean + (touched.gradient - mean) * (1 - first)
        new_square = square + (touched.gradient.square() - square) * (1 - second)
        touched.write(state["exp_avg"], new_mean, mean)
        touched.write(state["exp_avg_sq"], new_square, square)
        spread = (new_square / (1 - second**step)).sqrt() + group["eps"]
        touched.write(weights, before - group["lr"] / (1 - first**step) * new_mean / spread, before)


def _rows(values: Tensor) -> Tensor:
    """View as ``(V, D)``, an entry per row where there is one dimension; writing to it writes to ``values``."""
    return values.view(values.shape[:1].numel(), values.shape[1:].numel())


def _touched(gradient: Tensor) -> _Touched:
    rows = None
    if gradient.is_sparse:
        gradient = gradient.coalesce()
        rows, gradient = gradient.indices()[0], gradient.values()
    values = _rows(gradient.contiguous())
    return _Touched(rows, values, (values != 0).any(1, keepdim=True))
