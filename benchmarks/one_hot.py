"""A lookup beside the one-hot × matrix product that it computes: equal numbers, another cost.

Run:    python benchmarks/one_hot.py [--full | --tiny]
Needs:  nothing more

One thread. Batches of indices become vectors of width 64, and the sum of the squares goes back to the table: forward
and backward, with dense gradients in all of them. Vectors must be equal bit for bit, as one product with 1 and many
with 0 leave no room for rounding; gradients are sums over the batch and may differ in the last bits.

- `nn.Embedding` is the same lookup without our checks.
- Written out: `one_hot(indices, V).float() @ weight`, which is also what a linear layer on one-hot input does.
- Sparse: `one_hot(..., sparse=True) @ weight`, a CSR matrix, forward alone; scikit-learn's `OneHotEncoder` makes the
  same matrix in SciPy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import harness
import numpy as np
import torch
import torch.nn.functional as F
from harness import Bench, Entry
from torch import Tensor, nn

from recsys_emb.lookup.category import CategoryEmbedding
from recsys_emb.lookup.one_hot import OneHotProjection, one_hot

WIDTH = 64
Step = Callable[[], tuple[Tensor, Tensor]]


def step(vectors: Callable[[Tensor], Tensor], weight: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Go forward and back; give the vectors and the gradient of the table."""
    weight.grad = None
    looked_up = vectors(indices)
    looked_up.square().sum().backward()
    assert weight.grad is not None
    return looked_up.detach(), weight.grad


def same_step(ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor]) -> None:
    assert torch.equal(ours[0], theirs[0]), "other vectors"
    gradient = theirs[1] if theirs[1].shape == ours[1].shape else theirs[1].T
    assert torch.allclose(ours[1], gradient, rtol=1e-4, atol=1e-5), "another gradient"


def on_size(bench: Bench, num_categories: int, batch_size: int, goal: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    ours = CategoryEmbedding(num_categories, WIDTH, generator=generator)
    indices = torch.randint(num_categories, (batch_size,), generator=generator)
    plain = nn.Embedding.from_pretrained(ours.weight.detach().clone(), freeze=False)
    written = ours.weight.detach().clone().requires_grad_()
    projection = OneHotProjection.from_embedding(ours, dense_limit=2**40)
    product = partial(lambda rows: F.one_hot(rows, num_categories).float() @ written)
    bench.race(
        f"forward, backward, V = {num_categories:,}",
        f"{batch_size:,} indices below {num_categories:,} → vectors of width {WIDTH}, and back",
        _stepping("recsys_emb CategoryEmbedding", ours, ours.weight, indices),
        _stepping("nn.Embedding", plain, plain.weight, indices, goal=0.9),
        _stepping("recsys_emb OneHotProjection, dense", projection, projection.weight, indices),
        _stepping("one_hot(...).float() @ weight", product, written, indices, goal=goal),
    )
    on_sparse(bench, ours, indices)


def _stepping(
    name: str, vectors: Callable[[Tensor], Tensor], weight: Tensor, indices: Tensor, goal: float | None = None
) -> Entry:
    return Entry(name, lambda: partial(step, vectors, weight, indices), "torch", goal=goal, agrees=same_step)


def on_sparse(bench: Bench, ours: CategoryEmbedding, indices: Tensor) -> None:
    weight, num_categories = ours.weight.detach(), ours.num_embeddings

    @torch.no_grad()
    def looked_up() -> Tensor:
        return ours(indices)

    bench.race(
        f"forward, V = {num_categories:,}",
        f"{len(indices):,} indices below {num_categories:,} → vectors of width {WIDTH}",
        Entry("recsys_emb CategoryEmbedding", lambda: looked_up),
        Entry(
            "recsys_emb one_hot, sparse",
            lambda: lambda: one_hot(indices, num_categories, sparse=True) @ weight,
            agrees=same_vectors,
        ),
        Entry(
            "scikit-learn OneHotEncoder, SciPy",
            partial(_scikit_learn, weight, indices),
            "scikit-learn",
            agrees=same_vectors,
        ),
    )


def _scikit_learn(weight: Tensor, indices: Tensor) -> Callable[[], Any]:
    made = harness.needs("sklearn.preprocessing").OneHotEncoder
    known, column, table = np.arange(len(weight)), indices.numpy()[:, None], weight.numpy()
    encoder = made(categories=[known], dtype=np.float32).fit(known[:, None])
    return lambda: encoder.transform(column) @ table


def same_vectors(ours: Tensor, theirs: Any) -> None:
    assert torch.equal(ours, torch.as_tensor(theirs)), "other vectors"


if __name__ == "__main__":
    bench = Bench("one_hot", __doc__)
    batch_size = bench.size(64, 4096, 8192)
    for size, wanted in ((100, 2), (1_000, 25), (10_000, 600)):
        on_size(bench, size, batch_size, wanted)
