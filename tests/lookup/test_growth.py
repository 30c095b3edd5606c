import copy

import pytest
import torch
from torch import nn

from recsys_emb.lookup.category import CategoryEmbedding
from recsys_emb.lookup.growth import grow_parameter
from recsys_emb.lookup.one_hot import OneHotProjection


class RowWise(torch.optim.Optimizer):
    """One number of state per row, as row-wise Adagrad and lazy optimizers keep it."""

    def __init__(self, params, lr=0.1, initial_accumulator_value=0.5):
        super().__init__(params, {"lr": lr, "initial_accumulator_value": initial_accumulator_value})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                start = parameter.new_full((len(parameter),), group["initial_accumulator_value"])
                state["sum"] = state.get("sum", start) + parameter.grad.square().mean(1)
                parameter.sub_(group["lr"] * parameter.grad / state["sum"].sqrt().unsqueeze(1))


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.3),
    "row-wise": RowWise,
    "sparse SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "SparseAdam": lambda p: torch.optim.SparseAdam(p, lr=0.1),
}


def step(embedding: CategoryEmbedding, optimizer: torch.optim.Optimizer, rows: list[int]) -> None:
    optimizer.zero_grad()
    embedding(torch.tensor(rows)).sin().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_grown_table_trains_on_as_if_it_had_always_been_long(name):
    sparse = name.lower().startswith("sparse")
    short = CategoryEmbedding(5, 3, sparse=sparse, init_std=1.0)
    long = CategoryEmbedding(8, 3, sparse=sparse, init_std=1.0)
    long.weight.data[:5] = short.weight.data
    ours, theirs = OPTIMIZERS[name](list(short.parameters())), OPTIMIZERS[name](list(long.parameters()))
    for embedding, optimizer in ((short, ours), (long, theirs)):
        step(embedding, optimizer, [1, 3, 3])
        step(embedding, optimizer, [2, 3])
    before = short.weight.detach().clone()

    short.grow(8, optimizer=ours)
    assert torch.equal(short.weight[:5], before)
    short.weight.data[5:] = long.weight.data[5:]
    for embedding, optimizer in ((short, ours), (long, theirs)):
        step(embedding, optimizer, [1, 6])
        step(embedding, optimizer, [7, 6, 4])

    assert torch.equal(short.weight, long.weight)
    for key, value in theirs.state[long.weight].items():
        mine = ours.state[short.weight][key]
        assert torch.equal(torch.as_tensor(mine).to_dense(), torch.as_tensor(value).to_dense())


def test_growth_along_columns_keeps_a_projection_and_its_state():
    short, long = OneHotProjection(5, 3), OneHotProjection(7, 3)
    long.weight.data[:, :5] = short.weight.data
    pairs = [(one, torch.optim.Adam(one.parameters(), lr=0.1)) for one in (short, long)]
    for projection, optimizer in pairs:
        step(projection, optimizer, [1, 4])
    short.grow(7, optimizer=pairs[0][1])
    short.weight.data[:, 5:] = long.weight.data[:, 5:]
    for projection, optimizer in pairs:
        step(projection, optimizer, [6, 4])
    assert torch.equal(short.weight, long.weight)


def test_the_parameter_stays_the_same_object_and_keeps_its_gradient():
    parameter = nn.Parameter(torch.ones(2, 1))
    parameter.sum().backward()
    grow_parameter(parameter, torch.zeros(2, 1))
    assert parameter.tolist() == [[1.0], [1.0], [0.0], [0.0]]
    assert parameter.grad.tolist() == [[1.0], [1.0], [0.0], [0.0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_graph_from_before_may_stay_alive(dtype):
    parameter = nn.Parameter(torch.ones(2, 1, dtype=dtype))
    kept = parameter.sum()
    grow_parameter(parameter, torch.zeros(1, 1))
    parameter[2].sum().backward()
    assert parameter.grad.tolist() == [[0.0], [0.0], [1.0]]
    assert parameter.dtype == dtype
    assert kept.item() == 2.0


def test_an_optimizer_that_was_not_told_refuses_its_next_step():
    embedding = CategoryEmbedding(5, 3)
    optimizer = torch.optim.Adam(embedding.parameters())
    step(embedding, optimizer, [1])
    embedding.grow(6)
    with pytest.raises(RuntimeError, match="size"):
        step(embedding, optimizer, [5])


def test_several_optimizers_grow_together():
    embedding = CategoryEmbedding(5, 3)
    optimizers = [torch.optim.Adam(embedding.parameters()), torch.optim.Adagrad(embedding.parameters())]
    for optimizer in optimizers:
        step(embedding, optimizer, [1])
    embedding.grow(6, optimizer=optimizers)
    for optimizer in optimizers:
        step(embedding, optimizer, [5])


def test_no_new_rows_change_nothing():
    embedding = CategoryEmbedding(5, 3)
    before = copy.deepcopy(embedding.weight)
    embedding.grow(5)
    assert torch.equal(embedding.weight, before)
