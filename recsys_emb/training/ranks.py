"""Several processes that learn one model, each from rows of its own: their losses and their gradients.

`torch.nn.parallel.DistributedDataParallel` takes models with dense gradients. It takes sparse ones from
`torch.nn.Embedding` alone; where tables are made with ``sparse=True``, `average_gradients` is its part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, distributed

from recsys_emb.errors import FitError, listed

_ABSENT, _DENSE, _SPARSE = range(3)


def mean_over_ranks(losses: Tensor, group: distributed.ProcessGroup | None = None) -> Tensor:
    """Give what each process goes backward from, so that all together follow the mean over all rows.

    Averaging gradients over processes follows the mean over rows only where all have as many rows. This is
    Σ losses · (processes / rows of all), whose average over processes is the mean over rows, however they are dealt
    out; a process without rows adds nothing, rather than NaN. Every process calls it, once per step.

    Parameters
    ----------
    losses
        One per row of this process, ``(B,)``.
    group
        The processes; all of them unless given. Without `torch.distributed` it is one process, and the mean.

    Returns
    -------
    Tensor
        0-dim. Its average over processes is the loss.

    Examples
    --------
    >>> mean_over_ranks(torch.tensor([1.0, 2.0]))
    tensor(1.5000)
    >>> mean_over_ranks(torch.empty(0))
    tensor(0.)
    """
    rows, size = torch.tensor(len(losses), device=losses.device), _size(group)
    if size > 1:
        distributed.all_reduce(rows, group=group)
    return losses.sum() * (size / rows.clamp(min=1))


@torch.no_grad()
def average_gradients(parameters: Iterable[Tensor], group: distributed.ProcessGroup | None = None) -> None:
    """Replace gradients by their averages over processes, between ``backward()`` and ``step()``.

    Sparse gradients stay sparse: what travels are the rows that some process touched. A process without a gradient
    counts as zero. All processes end with the same bits, so that models which began alike stay alike. Every process
    calls it, once per step, with the same parameters in the same order.

    Parameters
    ----------
    parameters
        As for an optimizer.
    group
        The processes; all of them unless given. Without `torch.distributed` nothing is done.

    Raises
    ------
    FitError
        When a gradient is sparse on one process and dense on another: on all of them, before any gradient changes.
    """
    size = _size(group)
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if size == 1 or not trained:
        return
    described = torch.tensor([_described(one.grad) for one in trained], device=trained[0].device)
    everywhere = described.new_empty(size, *described.shape)
    distributed.all_gather(list(everywhere), described, group=group)
    by_parameter = everywhere.permute(1, 2, 0).tolist()
    _refuse_mixed([kinds for kinds, _ in by_parameter])
    for parameter, (kinds, counts) in zip(trained, by_parameter, strict=True):
        if _SPARSE in kinds:
            parameter.grad = _gathered(parameter, counts, group) / size
        elif _DENSE in kinds:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            distributed.all_reduce(parameter.grad, group=group)
            parameter.grad /= size


def _size(group: distributed.ProcessGroup | None) -> int:
    running = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size(group) if running else 1


def _described(gradient: Tensor | None) -> tuple[int, int]:
    """Say what kind of gradient it is, and how many rows it names."""
    if gradient is None:
        return _ABSENT, 0
    return (_SPARSE, gradient._nnz()) if gradient.is_sparse else (_DENSE, 0)


def _refuse_mixed(kinds: Sequence[Sequence[int]]) -> None:
    """Refuse parameters by what is known everywhere, so that no process waits for one that has stopped."""
    mixed = [place for place, own in enumerate(kinds) if {_DENSE, _SPARSE} <= {*own}]
    if mixed:
        raise FitError(
            f"average_gradients: expected each gradient to be sparse on all processes or on none, got both for "
            f"parameters number {listed(mixed)}. Make the tables with the same sparse= everywhere."
        )


def _gathered(parameter: Tensor, counts: list[int], group: distributed.ProcessGroup | None) -> Tensor:
    """Add up the sparse gradients of all processes, which name ``counts`` rows each."""
    gradient, most = parameter.grad, max(counts)
    rows = torch.zeros(most, dtype=torch.int64, device=parameter.device)
    values = parameter.new_zeros(most, *parameter.shape[1:])
    if gradient is not None:
        rows[: gradient._nnz()], values[: gradient._nnz()] = gradient._indices()[0], gradient._values()
    parts = []
    for mine in (rows, values):
        # Collectives take equal sizes; what fills them up is cut off again.
        padded = [torch.empty_like(mine) for _ in counts]
        distributed.all_gather(padded, mine, group=group)
        parts.append(torch.cat([one[:count] for one, count in zip(padded, counts, strict=True)]))
    return torch.sparse_coo_tensor(parts[0].unsqueeze(0), parts[1], parameter.shape, check_invariants=False)
