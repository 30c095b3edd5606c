"""Two processes learn together over the loopback interface, and end where one process ends."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from recsys_emb.encoding.batch import Batch
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema import Schema
from recsys_emb.training.optim import LazyAdam, RowWiseAdagrad
from recsys_emb.training.ranks import mean_over_ranks

OPTIMIZERS = {
    "SGD": partial(torch.optim.SGD, lr=0.1),
    "Adagrad": partial(torch.optim.Adagrad, lr=0.1),
    "RowWiseAdagrad": partial(RowWiseAdagrad, lr=0.1),
    "LazyAdam": partial(LazyAdam, lr=0.1),
}
# Rows of either process in each step: as many, more, fewer, and none.
ROWS = [(8, 8), (8, 5), (3, 8), (4, 0)]


@pytest.fixture
def steps(rows_of: Callable[..., Batch]) -> list[tuple[Batch, Batch]]:
    rows = rows_of(sum(map(sum, ROWS)))
    dealt = iter(torch.arange(len(rows)).split([count for pair in ROWS for count in pair]))
    return [(rows.select(next(dealt)), rows.select(next(dealt))) for _ in ROWS]


def alone(model: MatrixFactorization, make: Callable[..., Any], steps: list[tuple[Batch, Batch]]) -> None:
    """Learn the rows of both, in float64."""
    model.double()
    optimizer = make(model.parameters())
    for pair in steps:
        optimizer.zero_grad()
        torch.cat([(model(batch) - batch.label).square() for batch in pair if len(batch)]).mean().backward()
        optimizer.step()


def started(rank: int, folder: Path) -> subprocess.Popen[str]:
    script = Path(__file__).with_name("ddp_rank.py")
    command = [sys.executable, str(script), str(rank), str(folder / "meeting"), str(folder / "results")]
    loopback = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=loopback, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_two_processes_end_where_one_process_does_with_dense_and_with_sparse_gradients(
    rich: Schema, model_of: Callable[..., MatrixFactorization], steps: list[tuple[Batch, Batch]], tmp_path: Path
) -> None:
    models = {(name, sparse): model_of(rich, sparse=sparse) for name in OPTIMIZERS for sparse in (False, True)}
    biases = models["SGD", True].biases
    sizes = {name: table.num_embeddings for name, table in zip(biases.names, biases.lookups, strict=True)}
    encoder = SimpleNamespace(schema=rich, num_embeddings=sizes.__getitem__)
    runs = {case: (copy.deepcopy(model), OPTIMIZERS[case[0]]) for case, model in models.items()}
    torch.save({"runs": runs, "steps": steps, "encoder": encoder}, tmp_path / "results")

    both = [started(rank, tmp_path) for rank in range(2)]
    try:
        said = [one.communicate(timeout=90)[0] for one in both]
    finally:
        for one in both:
            one.kill()
    assert [one.returncode for one in both] == [0, 0], "\n".join(said)

    found = [torch.load(tmp_path / f"results.{rank}") for rank in range(2)]
    for case, model in models.items():
        begun = copy.deepcopy(model.state_dict())
        alone(model, OPTIMIZERS[case[0]], steps)
        for key, expected in model.state_dict().items():
            assert torch.equal(found[0][case][key], found[1][case][key])
            assert (found[0][case][key].double() - expected).abs().max() < 1e-6, (case, key)
        assert any((begun[key] - expected).abs().max() > 0.05 for key, expected in model.state_dict().items())
    expected = (
        "FusedEmbedding: expected to learn in one process, got torch.distributed. Its tables move in the backward of "
        "each process and would drift apart; under DistributedDataParallel, use FeatureEmbedding with RowWiseAdagrad "
        "or LazyAdam."
    )
    assert [one["refused"] for one in found] == [expected, expected]
    expected = (
        "average_gradients: expected each gradient to be sparse on all processes or on none, got both for parameters "
        "number 1. Make the tables with the same sparse= everywhere."
    )
    assert [(one["mixed"][0], one["mixed"][1].tolist()) for one in found] == [(expected, [[1.0, 1.0]] * 3)] * 2


def test_without_processes_the_mean_over_ranks_is_the_mean() -> None:
    losses = torch.tensor([1.0, 4.0], requires_grad=True)
    mean_over_ranks(losses).backward()
    assert losses.grad is not None
    assert losses.grad.tolist() == [0.5, 0.5]
    assert mean_over_ranks(torch.empty(0)).tolist() == 0.0
