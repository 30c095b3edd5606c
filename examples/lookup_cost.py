"""What one-hot × matrix costs beside a lookup: time and memory against the rows V and the width D of the table.

Run:    python examples/lookup_cost.py
Needs:  matplotlib; half a minute, and memory up to the limit that `main` is given (1 GiB).
Prints: microseconds and bytes allocated to look up 64 vectors, forward alone and with the gradient.
Draws:  out/lookup_cost.png.

One-hot × matrix multiplies V rows per index, O(V·D); a lookup reads one, O(D). A sparse one-hot matrix is quick
forward, but its gradient is a whole table, zeros but for a few rows; `CategoryEmbedding(sparse=True)` makes only those.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from curves import draw_costs
from data_folder import ROOT
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.benchmark import Timer

from recsys_emb import CategoryEmbedding, one_hot

B = 64
WAYS: dict[str, Callable[[CategoryEmbedding, Tensor], Tensor]] = {
    "dense one-hot": lambda table, i: one_hot(i, table.num_embeddings) @ table.weight,
    "sparse one-hot": lambda table, i: torch.sparse.mm(one_hot(i, table.num_embeddings, sparse=True), table.weight),
    "lookup": lambda table, i: table(i),
}
CASES = [(10**n, 64) for n in range(2, 7)] + [(10_000, width) for width in (8, 16, 32, 128, 256, 512)]


class Allocated(TorchDispatchMode):
    """Adds up the bytes of all tensors that torch makes while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        given = {part.data_ptr() for part in dense_parts((args, kwargs))}
        self.bytes += sum(part.nbytes for part in dense_parts(made) if part.data_ptr() not in given)
        return made


def dense_parts(tree: Any) -> Iterator[Tensor]:
    """Walk over the tensors in nested arguments; a sparse tensor is two of them."""
    for leaf in tree_leaves(tree):
        if isinstance(leaf, Tensor):
            yield from (leaf._indices(), leaf._values()) if leaf.is_sparse else (leaf,)


def step(way: str, table: CategoryEmbedding, indices: Tensor, *, gradient: bool) -> None:
    """Look up once, and go back if asked."""
    table.weight.grad = None
    vectors = WAYS[way](table, indices)
    if gradient:
        vectors.sum().backward()


def measure(rows: int, width: int, patience: float) -> Iterator[dict[str, object]]:
    """Time every way on one table, for so many seconds each, and count what it allocates."""
    generator = torch.Generator().manual_seed(0)
    table = CategoryEmbedding(rows, width, sparse=True, generator=generator)
    indices = torch.randint(rows, (B,), generator=generator)
    for way, gradient in itertools.product(WAYS, (False, True)):
        with Allocated() as allocated:
            step(way, table, indices, gradient=gradient)
        names = {"step": step, "case": (way, table, indices), "gradient": gradient}
        timer = Timer("step(*case, gradient=gradient)", globals=names)
        seconds = min(timer.blocked_autorange(min_run_time=patience).times)  # others may use the machine
        found = {"seconds": seconds, "microseconds": seconds * 1e6, "bytes": allocated.bytes}
        yield {"V": rows, "D": width, "way": way, "gradient": gradient, **found}


def main(
    out: Path = ROOT / "out", *, cases: Sequence[tuple[int, int]] = CASES, patience: float = 0.2, limit: int = 2**30
) -> pd.DataFrame:
    """Measure the sizes (V, D) at which the one-hot matrix, the table and its gradient stay within ``limit`` bytes."""
    fits = [(rows, width) for rows, width in cases if 4 * rows * (2 * B + 2 * width) <= limit]
    print(f"{B} vectors per step; {len(cases) - len(fits)} of {len(cases)} sizes skipped for memory")
    costs = pd.DataFrame([row for rows, width in fits for row in measure(rows, width, patience)])
    for figure in ("microseconds", "bytes"):
        table = costs.pivot_table(figure, ["V", "D"], ["gradient", "way"])
        print(f"\n{figure}\n{table.to_string(float_format='{:,.0f}'.format)}")
    out.mkdir(exist_ok=True)
    draw_costs(costs).savefig(out / "lookup_cost.png")
    return costs


if __name__ == "__main__":
    main()
