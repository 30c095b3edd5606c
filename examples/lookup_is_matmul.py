"""A lookup is one-hot × matrix: the same numbers, forward and backward.

Run:    python examples/lookup_is_matmul.py
Needs:  matplotlib; seconds.
Prints: values ↔ indices, how far three spellings of a lookup differ, which rows of the table have a gradient, and how
        an index that does not exist and one that is no integer are refused.
Draws:  out/lookup_is_matmul.png, the equation and the gradient of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from data_folder import ROOT
from pictures import Block, draw_equation
from torch import Tensor

from recsys_emb import PADDING_INDEX, CategoryEmbedding, OneHotProjection, Vocabulary, one_hot

SOLD = ["tea"] * 4 + ["coffee"] * 3 + ["milk", "milk", "juice", "cocoa", "water"]
BATCH = ["tea", "cocoa", "tea", "milk", "tea", "cola", None]
RESERVED = ["padding", "missing", "unknown"]


def spellings(embedding: CategoryEmbedding) -> dict[str, tuple[Callable[[Tensor], Tensor], Tensor]]:
    """Spell ``E[i]`` three ways, each with its own copy of the table; give the function and that copy."""
    matrix = embedding.table().detach().clone().requires_grad_()
    projection = OneHotProjection.from_embedding(embedding)  # weight (D, V): the table, transposed
    return {
        "lookup E[i]": (embedding, embedding.weight),
        "one_hot(i) @ E": (lambda indices: one_hot(indices, len(matrix)) @ matrix, matrix),
        "linear layer without bias": (projection, projection.weight),
    }


def label_encode() -> tuple[Vocabulary, Tensor]:
    """Turn values into indices and back: an integer names a value and says nothing about order."""
    vocabulary = Vocabulary.from_values(SOLD, name="drink")
    indices = vocabulary.encode(BATCH)
    print(f"values  {BATCH}\nindices {indices.tolist()}\nvalues  {vocabulary.decode(indices)}")
    return vocabulary, indices


def picture(names: list[str], indices: Tensor, table: Tensor, gradient: Tensor, path: Path) -> None:
    """Draw one-hot × table = vectors, and the gradient of the table beside it."""
    hot = one_hot(indices, len(table))
    rows = [f"{value}  {index}" for value, index in zip(map(str, BATCH), indices.tolist(), strict=True)]
    labels = [f"{name}  {row}" for row, name in enumerate(names)]
    parts = [
        Block(hot.numpy(), "one-hot", "B × V", rows),
        "×",
        Block(table.numpy(), "table E", "V × D", labels),
        "=",
        Block((hot @ table).numpy(), "vectors", "B × D"),
        "⟶",
        Block(gradient.numpy(), "gradient of E", "rows that were looked up,\nonce per occurrence"),
    ]
    path.parent.mkdir(exist_ok=True)
    draw_equation(parts).savefig(path)


def refusal(embedding: CategoryEmbedding, indices: Tensor) -> str:
    """Say why these indices cannot be looked up."""
    try:
        embedding(indices)
    except (IndexError, TypeError) as error:
        return str(error)
    return "not at all"


def largest(difference: Tensor) -> float:
    """Largest absolute entry."""
    return difference.detach().abs().max().item()


def main(out: Path = ROOT / "out") -> dict[str, object]:
    """Compare the three spellings, forward and gradient."""
    vocabulary, indices = label_encode()
    generator = torch.Generator().manual_seed(8)
    embedding = CategoryEmbedding(
        vocabulary.num_embeddings, 6, padding_index=PADDING_INDEX, init_std=1.0, generator=generator, name="drink"
    )
    vectors, gradients, differences = {}, {}, {}
    for name, (look_up, weight) in spellings(embedding).items():
        vectors[name] = look_up(indices)
        (vectors[name].square().sum() / 2).backward()  # so the gradient of a row is the row, once per occurrence
        gradients[name] = weight.grad.T if isinstance(look_up, OneHotProjection) else weight.grad
        pairs = [(found[name], found["lookup E[i]"]) for found in (vectors, gradients)]
        differences[name] = tuple(largest(one - other) for one, other in pairs)
        print("{:<25}  differs by {:.0e} forward, {:.0e} in the gradient".format(name, *differences[name]))
    touched = gradients["lookup E[i]"].abs().sum(1).nonzero().flatten().tolist()
    print(f"rows with a gradient {touched}, rows looked up {indices.unique().tolist()}")
    names = [*RESERVED, *map(str, vocabulary.values)]
    picture(names, indices, embedding.table().detach(), gradients["lookup E[i]"], out / "lookup_is_matmul.png")
    refused = [refusal(embedding, wrong) for wrong in (torch.tensor([0, len(names)]), torch.tensor([0.0]))]
    print(*(f"refused: {reason}" for reason in refused), sep="\n")
    decoded = vocabulary.decode(indices)
    return {
        "differences": differences,
        "touched": touched,
        "decoded": decoded,
        "vectors": vectors,
        "gradients": gradients,
    }


if __name__ == "__main__":
    main()
