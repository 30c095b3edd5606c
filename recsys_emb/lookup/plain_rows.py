"""Rows of a stack of tables read and moved in plain torch: the path of every device, and the twin of the kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from recsys_emb.lookup.row_rules import RowRule, Settings
from recsys_emb.vocabulary.reserved import PADDING_INDEX


def named_rows(firsts: Sequence[int], places: Sequence[int], columns: Sequence[Tensor], *, together: bool) -> Tensor:
    """Give the rows of a stack that columns name, int64 ``(ΣN,)``; together, one of each column in turn.

    >>> named_rows([0, 10], [0, 1], [torch.tensor([3, 4]), torch.tensor([5, 6])], together=True)
    tensor([ 3, 15,  4, 16])
    """
    rows = [column + firsts[place] for place, column in zip(places, columns, strict=True)]
    return torch.stack(rows, 1).flatten() if together else torch.cat(rows)


def is_padding(rows: Tensor, firsts: Sequence[int]) -> Tensor:
    """Tell which rows are the padding of a table: bool ``(N,)``."""
    return torch.isin(rows, torch.tensor(firsts, device=rows.device) + PADDING_INDEX)


def read_rows(weights: Tensor, rows: Tensor, firsts: Sequence[int]) -> Tensor:
    """Read rows, and zeros for padding: ``(N, D)``."""
    return weights.index_select(0, rows).masked_fill_(is_padding(rows, firsts).unsqueeze(1), 0.0)


def move_rows(
    weights: Tensor,
    state: Mapping[str, Tensor],
    rule: RowRule,
    rows: Tensor,
    gradients: Tensor,
    *,
    firsts: Sequence[int],
    settings: Sequence[Settings],
) -> None:
    """Move each row once, in place, by its gradients ``(N, D)`` added up; ``settings`` are those of each table."""
    rows, owners, times = torch.unique(rows, return_inverse=True, return_counts=True)
    gradient = gradients.new_zeros(rows.shape[0], gradients.shape[1]).index_add_(0, owners, gradients)
    before = weights.index_select(0, rows)
    if rule.l2:
        gradient += rule.l2 * times.unsqueeze(1) * before
    moving = (gradient.abs().sum(1) != 0) & ~is_padding(rows, firsts)
    if not bool(moving.all()):
        rows, before, gradient = rows[moving], before[moving], gradient[moving]
    chosen = {name: one.index_select(0, rows) for name, one in state.items()}
    change = rule.moved(gradient, chosen, _settings_of(rows, firsts, settings, like=weights))
    for name, one in state.items():
        one.index_copy_(0, rows, chosen[name])
    # Not index_add_, which takes ten times as long on the CPU.
    weights.index_copy_(0, rows, before - change)


def _settings_of(rows: Tensor, firsts: Sequence[int], settings: Sequence[Settings], *, like: Tensor) -> Settings:
    """Give the numbers of this step: the same for all rows, unless their tables have learned more or less often."""
    if len(set(settings)) == 1:
        return settings[0]
    tables = torch.searchsorted(torch.tensor(firsts, device=rows.device), rows, right=True) - 1
    return Settings(*like.new_tensor(settings)[tables].unsqueeze(2).unbind(1))
