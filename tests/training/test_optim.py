"""The row-sparse optimizers against float64 references, and what they leave alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from recsys_emb.errors import FitError
from recsys_emb.lookup.growth import grow_parameter
from recsys_emb.training.optim import LazyAdam, RowWiseAdagrad

V, D = 12, 3
OPTIMIZERS = [RowWiseAdagrad, LazyAdam]


def steps(count: int = 6, size: int = 8) -> list[tuple[Tensor, Tensor]]:
    """Indices with repeats, and a gradient for each."""
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randint(1, V, (size,), generator=generator), torch.randn(size, D, generator=generator))
        for _ in range(count)
    ]


def start() -> Tensor:
    return torch.randn(V, D, generator=torch.Generator().manual_seed(1))


def trained(make: Callable[..., Optimizer], *, sparse: bool, like: Tensor) -> Tensor:
    table = nn.Embedding.from_pretrained(like.clone(), freeze=False, sparse=sparse)
    optimizer = make(table.parameters(), lr=0.05)
    for indices, gradient in steps():
        optimizer.zero_grad()
        table(indices).backward(gradient)
        optimizer.step()
    return table.weight.detach()


def added_up(indices: Tensor, gradient: Tensor) -> Tensor:
    return torch.zeros(V, D, dtype=torch.float64).index_add(0, indices, gradient.double())


def adagrad_reference() -> Tensor:
    weight, state = start().double(), torch.zeros(V, dtype=torch.float64)
    for indices, gradient in steps():
        total = added_up(indices, gradient)
        for row in indices.unique().tolist():
            state[row] += total[row].square().mean()
            weight[row] -= 0.05 * total[row] / (state[row].sqrt() + 1e-8)
    return weight


def adam_reference() -> Tensor:
    weight, mean, square = start().double(), torch.zeros(V, D).double(), torch.zeros(V, D).double()
    for step, (indices, gradient) in enumerate(steps(), start=1):
        total = added_up(indices, gradient)
        for row in indices.unique().tolist():
            mean[row] = 0.9 * mean[row] + 0.1 * total[row]
            square[row] = 0.999 * square[row] + 0.001 * total[row].square()
            spread = (square[row] / (1 - 0.999**step)).sqrt() + 1e-8
            weight[row] -= 0.05 * mean[row] / (1 - 0.9**step) / spread
    return weight


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize(
    ("make", "reference"), [(RowWiseAdagrad, adagrad_reference), (LazyAdam, adam_reference)], ids=str
)
def test_steps_equal_a_float64_reference(make: type, reference: object, sparse: bool, compiled: bool) -> None:
    weights = trained(partial(make, compiled=compiled), sparse=sparse, like=start())
    torch.testing.assert_close(weights.double(), reference(), atol=1e-6, rtol=0)


def test_lazy_adam_equals_sparse_adam() -> None:
    torch.testing.assert_close(
        trained(LazyAdam, sparse=True, like=start()), trained(torch.optim.SparseAdam, sparse=True, like=start())
    )


def test_lazy_adam_is_adam_where_every_row_is_touched() -> None:
    ours, theirs = nn.Parameter(start()), nn.Parameter(start())
    optimizers = LazyAdam([ours], lr=0.05), torch.optim.Adam([theirs], lr=0.05)
    for _, gradient in steps(size=V):
        for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
    torch.testing.assert_close(ours.detach(), theirs.detach(), atol=1e-6, rtol=1e-5)


def test_rowwise_adagrad_is_adagrad_for_one_column() -> None:
    ours, theirs = nn.Parameter(start()[:, :1].clone()), nn.Parameter(start()[:, :1].clone())
    optimizers = RowWiseAdagrad([ours], lr=0.05), torch.optim.Adagrad([theirs], lr=0.05, eps=1e-8)
    for _, gradient in steps(size=V):
        for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
            parameter.grad = gradient[:, :1].clone()
            optimizer.step()
    torch.testing.assert_close(ours.detach(), theirs.detach())


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("sparse", [True, False])
def test_rows_outside_the_batch_keep_weight_and_state_bit_for_bit(make: type, sparse: bool) -> None:
    table = nn.Embedding.from_pretrained(start(), freeze=False, sparse=sparse)
    optimizer = make(table.parameters(), lr=0.05)
    table(torch.tensor([3, 4])).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    before = table.weight.detach().clone()
    states = {key: value.clone() for key, value in optimizer.state[table.weight].items() if torch.is_tensor(value)}
    table(torch.tensor([4])).sum().backward()
    optimizer.step()
    others = [row for row in range(V) if row != 4]
    assert torch.equal(table.weight[others], before[others])
    assert all(torch.equal(optimizer.state[table.weight][key][others], value[others]) for key, value in states.items())
    assert not torch.equal(table.weight[4], before[4])


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("sparse", [True, False])
def test_a_padding_row_stays_bit_for_bit_even_when_it_is_not_zero(make: type, sparse: bool) -> None:
    table = nn.Embedding.from_pretrained(start(), freeze=False, sparse=sparse, padding_idx=0)
    optimizer = make(table.parameters(), lr=0.05)
    before = table.weight.detach().clone()
    for indices in ([0, 0], [0, 5], [0]):
        optimizer.zero_grad()
        table(torch.tensor(indices)).sum().backward()
        optimizer.step()
    assert torch.equal(table.weight[0], before[0])


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_state_is_one_number_per_row_or_two_per_weight(make: type) -> None:
    parameter = nn.Parameter(torch.zeros(V, D))
    optimizer = make([parameter], lr=0.1)
    parameter.grad = torch.ones(V, D)
    optimizer.step()
    sizes = sum(value.numel() for value in optimizer.state[parameter].values() if torch.is_tensor(value))
    assert sizes == (V if make is RowWiseAdagrad else 2 * V * D)


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_a_state_that_was_saved_goes_on_bit_for_bit(make: type) -> None:
    first, second = nn.Parameter(start()), nn.Parameter(start())
    one, other = make([first], lr=0.05), make([second], lr=0.05)
    gradients = [gradient for _, gradient in steps(size=V)]
    for gradient in gradients[:3]:
        first.grad = gradient.clone()
        one.step()
    second.data.copy_(first.data)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for gradient in gradients[3:]:
        first.grad, second.grad = gradient.clone(), gradient.clone()
        one.step()
        other.step()
    assert torch.equal(first, second)


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_state_grows_with_its_table(make: type) -> None:
    parameter = nn.Parameter(start())
    optimizer = make([parameter], lr=0.05)
    parameter.grad = torch.ones(V, D)
    optimizer.step()
    before = parameter.detach().clone()
    grow_parameter(parameter, torch.zeros(2, D), optimizers=optimizer)
    parameter.grad = torch.zeros(V + 2, D)
    parameter.grad[-1] = 1
    optimizer.step()
    assert torch.equal(parameter[:V], before)
    assert parameter[-1].ne(0).all()


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("shape", [(), (4,), (2, 3, 4), (0, 3)])
def test_any_shape_learns(make: type, shape: tuple[int, ...]) -> None:
    parameter = nn.Parameter(torch.zeros(shape))
    optimizer = make([parameter], lr=0.05)
    parameter.grad = torch.ones(shape)
    optimizer.step()
    assert parameter.lt(0).all()


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_a_closure_gives_its_loss(make: type) -> None:
    parameter = nn.Parameter(torch.ones(1, 1))
    optimizer = make([parameter], lr=0.05)

    def closure() -> float:
        loss = parameter.sum()
        loss.backward()
        return loss.item()

    assert optimizer.step(closure) == 1.0
    assert parameter.item() < 1


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("lr", [-1, float("nan"), float("inf"), "x", True])
def test_a_learning_rate_is_a_number_of_at_least_0(make: type, lr: object) -> None:
    with pytest.raises(FitError) as error:
        make([nn.Parameter(torch.zeros(1, 1))], lr=lr)
    assert str(error.value) == f"{make.__name__}: expected lr of at least 0, got {lr!r}. 0.01 is a usual one."


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("eps", [-1e-8, float("nan"), "x"])
def test_eps_is_a_number_of_at_least_0(make: type, eps: object) -> None:
    with pytest.raises(FitError) as error:
        make([nn.Parameter(torch.zeros(1, 1))], eps=eps)
    assert str(error.value) == f"{make.__name__}: expected eps of at least 0, got {eps!r}. 1e-8 is a usual one."


@pytest.mark.parametrize("betas", [0.9, (0.9,), (0.9, 1), (-0.1, 0.9), ("a", "b"), None])
def test_betas_are_two_numbers_below_1(betas: object) -> None:
    with pytest.raises(FitError) as error:
        LazyAdam([nn.Parameter(torch.zeros(1, 1))], betas=betas)
    assert str(error.value) == (
        f"LazyAdam: expected betas to be two of at least 0 and below 1, got {betas!r}. Try (0.9, 0.999)."
    )


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("row", [V, 10**8, -1])
def test_a_gradient_of_a_row_that_is_not_there_moves_nothing(make: type, row: int) -> None:
    parameter = nn.Parameter(start())
    optimizer = make([parameter], lr=0.05)
    indices = torch.tensor([[0, row]])
    with torch.sparse.check_sparse_tensor_invariants(enable=False):
        parameter.grad = torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.ones(2, D), (V, D))
    parameter.grad._indices().copy_(indices)
    with pytest.raises(IndexError) as error:
        optimizer.step()
    assert str(error.value) == f"gradient: expected rows in [0, {V}), got {row}. Look up what the table has."
    assert torch.equal(parameter.detach(), start())
    assert not optimizer.state[parameter]


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("own", [True, False])
def test_a_state_that_is_loaded_leaves_the_choice_of_kernels(make: type, own: bool) -> None:
    one, other = (make([nn.Parameter(start())], compiled=compiled) for compiled in (own, not own))
    one.load_state_dict(other.state_dict())
    assert one.param_groups[0]["compiled"] is own


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_weight_decay_is_refused(make: type) -> None:
    with pytest.raises(FitError) as error:
        make([nn.Parameter(torch.zeros(1, 1))], weight_decay=0.1)
    assert str(error.value) == (
        f"{make.__name__}: expected weight_decay=0, got 0.1. Rows outside the batch must not move; "
        "use L2 per occurrence, Minibatch(l2=...)."
    )
