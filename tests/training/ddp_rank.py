"""One of two processes that learn together, started by `test_ddp.py`: its rank, where they meet, where results go."""

from __future__ import annotations

import sys
import warnings
from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from recsys_emb.errors import FitError
from recsys_emb.lookup.fused_embedding import FusedEmbedding
from recsys_emb.lookup.row_rules import SGDUpdate
from recsys_emb.training.ranks import average_gradients, mean_over_ranks


def main(rank: int, meeting: str, results: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # torch's, of its own sparse gradients
    timeout = timedelta(seconds=60)
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2, timeout=timeout)
    given = torch.load(results, weights_only=False)
    found: dict[str, Any] = {}
    for name, (model, make) in given["runs"].items():
        is_sparse = model.biases.lookup("user").sparse
        learner = model if is_sparse else DistributedDataParallel(model)
        optimizer = make(model.parameters())
        for batches in given["steps"]:
            optimizer.zero_grad()
            mean_over_ranks((learner(batches[rank]) - batches[rank].label).square()).backward()
            if is_sparse:
                average_gradients(model.parameters())
            optimizer.step()
        found[name] = model.state_dict()
    try:
        FusedEmbedding(given["encoder"], update=SGDUpdate(lr=0.1))(given["steps"][0][rank])
    except FitError as error:
        found["refused"] = str(error)
    mixed = [torch.zeros(3, 2, requires_grad=True) for _ in range(2)]
    for table in mixed:
        table.grad = torch.ones(3, 2)
    if rank:
        mixed[1].grad = torch.ones(3, 2).to_sparse(1)
    try:
        average_gradients(mixed)
    except FitError as error:
        found["mixed"] = str(error), mixed[0].grad
    torch.save(found, f"{results}.{rank}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
