"""The state of any torch optimizer as numbers and tensors, and back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from recsys_emb.errors import FitError
from recsys_emb.training.checkpoints import Snapshot

_PLAIN = (bool, int, float, str, type(None))


def optimizer_state(optimizer: Optimizer) -> Snapshot:
    """Describe what an optimizer holds per parameter; its settings are the caller's.

    Raises
    ------
    FitError
        When it holds something else than numbers and dense tensors.
    """
    numbers: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    for number, parameter in enumerate(_parameters(optimizer)):
        for key, value in optimizer.state.get(parameter, {}).items():
            name = f"{number}.{key}"
            if isinstance(value, Tensor) and value.layout == torch.strided:
                # Step counts of torch stay on the CPU, wherever the weights are.
                numbers[name], tensors[name] = {"beside": value.device == parameter.device}, value
            elif isinstance(value, _PLAIN):
                numbers[name] = value
            else:
                raise FitError(
                    f"checkpoint: expected an optimizer that holds numbers and dense tensors, got a "
                    f"{type(value).__name__} as {key!r} of {type(optimizer).__name__}. Train without checkpoints, or "
                    "with LazyAdam or RowWiseAdagrad."
                )
    return Snapshot(numbers, tensors)


def restore_optimizer(optimizer: Optimizer, snapshot: Snapshot) -> None:
    """Put back what `optimizer_state` described, bit for bit."""
    parameters = _parameters(optimizer)
    for name, value in snapshot.numbers.items():
        number, key = name.split(".", 1)
        parameter = parameters[int(number)]
        tensor = snapshot.tensors.get(name)
        if tensor is None:
            optimizer.state[parameter][key] = value
        else:
            optimizer.state[parameter][key] = tensor.to(parameter.device) if value["beside"] else tensor


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
