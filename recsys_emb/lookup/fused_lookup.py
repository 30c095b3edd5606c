"""Lookups whose backward moves the rows that they read: no gradient of a table is ever made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor, distributed
from torch._compile import _disable_dynamo

from recsys_emb.errors import FitError
from recsys_emb.lookup.row_stack import RowStack, Vectors

_ORDINARY = "use FeatureEmbedding with RowWiseAdagrad or LazyAdam"

P = ParamSpec("P")
R = TypeVar("R")
# Compiled graphs step out for a moment: what backward does to tables is no function of tensors.
_outside_graphs = cast("Callable[[Callable[P, R]], Callable[P, R]]", _disable_dynamo)


@_outside_graphs
def looked_up(
    stack: RowStack, places: Sequence[int], columns: Sequence[Tensor], *, learn: bool, together: bool = False
) -> Vectors:
    """Read rows of tables; with ``learn``, and where gradients are recorded, backward will move them.

    Parameters
    ----------
    stack
        The tables.
    places, columns
        For each lookup, which table, and int64 ``(N,)`` indices in range.
    learn
        False reads and no more.
    together
        True gives one tensor ``(N, F, D)`` instead of ``(N, D)`` for each lookup.

    Raises
    ------
    FitError
        When learning would go wrong in silence: in several processes, or with scaled gradients (float16 autocast).
    """
    if not (learn and torch.is_grad_enabled()):
        return stack.read(places, columns, together=together)
    _check_surroundings(stack.weights.device.type)
    anchor, lookup = torch.zeros((), requires_grad=True), cast("Callable[..., Vectors]", _Lookup.apply)
    return lookup(anchor, stack, tuple(places), together, *columns)


class _Lookup(torch.autograd.Function):
    """Reads forward, moves backward."""

    @staticmethod
    def forward(
        ctx: Any, _anchor: Tensor, stack: RowStack, places: tuple[int, ...], together: bool, *columns: Tensor
    ) -> Vectors:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*columns)
        ctx.stack, ctx.places, ctx.together = stack, places, together
        ctx.steps = [stack.steps[place] for place in places]
        read = stack.read(places, columns, together=together)
        return read if isinstance(read, Tensor) else tuple(read)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[None, ...]:
        nothing = (None, None, None, None, *[None] * len(ctx.places))
        if torch.is_grad_enabled():
            raise FitError(
                "FusedEmbedding: expected a first derivative, got create_graph=True. Its tables move in backward and "
                f"have no gradient to differentiate; {_ORDINARY}."
            )
        stack, places = ctx.stack, ctx.places
        if [stack.steps[place] for place in places] != ctx.steps:
            raise FitError(
                "FusedEmbedding: expected one backward per lookup of a table, got another one that has moved its rows "
                "since. Each backward is a step: look a table up once per step, in one call, and go backward once; to "
                f"add gradients up, {_ORDINARY}."
            )
        columns = ctx.saved_tensors
        if ctx.together:
            stack.move(places, columns, gradients[0])
            return nothing
        reached = [k for k, gradient in enumerate(gradients) if gradient is not None]
        if reached:
            stack.move(*([of[k] for k in reached] for of in (places, columns, gradients)))
        return nothing


def _check_surroundings(device: str) -> None:
    several = distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
    if several or getattr(torch.nn.parallel.DistributedDataParallel, "_active_ddp_module", None) is not None:
        raise FitError(
            "FusedEmbedding: expected to learn in one process, got torch.distributed. Its tables move in the backward "
            f"of each process and would drift apart; under DistributedDataParallel, {_ORDINARY}."
        )
    if torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) == torch.float16:
        raise FitError(
            "FusedEmbedding: expected gradients of the loss itself, got float16 autocast, whose GradScaler multiplies "
            f"them. Autocast to bfloat16, which needs no scaler, or {_ORDINARY}."
        )
