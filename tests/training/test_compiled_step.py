"""Compiled steps of the row-sparse optimizers are their steps in plain torch, up to rounding."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from recsys_emb.training.optim import LazyAdam, RowWiseAdagrad

OPTIMIZERS = {
    "row_wise_adagrad": partial(RowWiseAdagrad, lr=0.1, initial_accumulator_value=0.2),
    "lazy_adam": partial(LazyAdam, lr=0.1, betas=(0.8, 0.99), eps=1e-6),
}


def gradient_of(rows: list[int], seed: int, *, D: int = 3, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    values = torch.randn(len(rows), D, generator=torch.Generator().manual_seed(seed))
    indices = torch.tensor(rows, dtype=torch.int64).view(1, -1)
    return torch.sparse_coo_tensor(indices, values.to(dtype), (8, D), check_invariants=True)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_moves_as_the_optimizer_does_in_double_precision(name: str) -> None:
    @settings(max_examples=25, deadline=None)
    @given(batches=st.lists(st.lists(st.integers(0, 7), max_size=12), min_size=1, max_size=4))
    def check(batches: list[list[int]]) -> None:
        start = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
        table, exact = nn.Parameter(start.clone()), nn.Parameter(start.double())
        optimizers = [OPTIMIZERS[name]([one]) for one in (table, exact)]
        for seed, rows in enumerate(batches):
            table.grad, exact.grad = gradient_of(rows, seed), gradient_of(rows, seed, dtype=torch.float64)
            gradient = table.grad
            for optimizer in optimizers:
                optimizer.step()
            assert table.grad is gradient
        assert_close(table.double(), exact, rtol=0, atol=1e-6)
        states = [optimizer.state[one] for optimizer, one in zip(optimizers, (table, exact), strict=True)]
        assert states[0].keys() == states[1].keys()
        for key, one in states[0].items():
            other = states[1][key]
            assert_close(one, other.float() if isinstance(other, torch.Tensor) else other, rtol=1e-5, atol=1e-6)

    check()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_compiled_and_plain_steps_can_follow_each_other(name: str) -> None:
    tables = [nn.Parameter(torch.ones(8, 3)) for _ in range(2)]
    for table, way in zip(tables, ([True, False, True], [False, True, False]), strict=True):
        optimizer = OPTIMIZERS[name]([table])
        for seed, compiled in enumerate(way):
            optimizer.param_groups[0]["compiled"] = compiled
            table.grad = gradient_of([3, 5, 3], seed)
            optimizer.step()
    assert_close(tables[0], tables[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("case", ["dense", "double", "vector", "transposed", "lr"])
def test_what_the_kernels_do_not_take_moves_in_plain_torch_bit_for_bit(case: str) -> None:
    start = torch.arange(24.0).view(8, 3) / 10
    start = {"double": start.double(), "vector": start[:, 0], "transposed": start.T.contiguous().T}.get(case, start)
    tables = [nn.Parameter(start.clone()) for _ in range(2)]
    for table, compiled in zip(tables, (True, False), strict=True):
        optimizer = RowWiseAdagrad([table], lr=0.0 if case == "lr" else 0.1, compiled=compiled)
        gradient = gradient_of([3, 5, 3], 0, dtype=start.dtype)
        table.grad = gradient.to_dense()[:, 0] if case == "vector" else gradient
        table.grad = table.grad.to_dense() if case == "dense" else table.grad
        optimizer.step()
    assert torch.equal(*tables)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_state_of_before_there_was_a_choice_goes_on(name: str) -> None:
    table = nn.Parameter(torch.ones(8, 3))
    optimizer = OPTIMIZERS[name]([table])
    saved = optimizer.state_dict()
    del saved["param_groups"][0]["compiled"]
    optimizer.load_state_dict(saved)
    table.grad = gradient_of([3], 0)
    optimizer.step()
    assert table[3].ne(1).all()
