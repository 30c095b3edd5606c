"""What enters a Transformer is a sum of lookups: token + position, and in BERT token + position + segment.

Run:    python examples/transformer_input.py
Needs:  matplotlib; seconds.
Prints: how far each of four laws is from exact, an odd width, and how a sequence longer than the table is refused.
Draws:  out/transformer_input.png, out/bert_input.png and out/positions.png.
"""

from __future__ import annotations

from pathlib import Path

import torch
from data_folder import ROOT
from pictures import Block, draw_equation, draw_positions
from torch import Tensor, nn

from recsys_emb import PADDING_INDEX, CategoryEmbedding, LearnedPosition, SinusoidalPosition, Vocabulary, one_hot

FIRST, SECOND = "in the beginning was the word", "and the word was with god"
WORDS = ["[CLS]", *FIRST.split(), "[SEP]", *SECOND.split(), "[SEP]"]
SEGMENTS = [0] * 8 + [1] * 7
D = 18


def transformer_input(token: CategoryEmbedding, indices: Tensor) -> tuple[Tensor, ...]:
    """Give token vectors, position vectors and their sum, ``(L, D)`` each (Vaswani et al., 2017)."""
    position = SinusoidalPosition(D, max_position=99)
    tokens = token(indices) * D**0.5  # so that a token is as loud as its place, whatever the width
    return tokens, position.table()[: len(indices)], position.add_to(tokens, indices != PADDING_INDEX)


def bert_input(token: CategoryEmbedding, indices: Tensor, segments: Tensor) -> tuple[list[Tensor], Tensor]:
    """Give the vectors of token, position and segment (Devlin et al., 2019), and their sum as one product."""
    generator = torch.Generator().manual_seed(1)
    position = LearnedPosition(99, D, init_std=D**-0.5, generator=generator)
    segment = CategoryEmbedding(2, D, init_std=D**-0.5, generator=generator, name="segment")
    places = torch.arange(len(indices))
    hot = [one_hot(indices, token.num_embeddings), one_hot(places, 100), one_hot(segments, 2)]
    three_hot, tables = torch.cat(hot, dim=1), torch.cat([token.table(), position.table(), segment.table()])
    return [token(indices), position(places), segment(segments)], three_hot @ tables


def largest(difference: Tensor) -> float:
    """Largest absolute entry."""
    return difference.abs().max().item()


@torch.no_grad()
def main(out: Path = ROOT / "out") -> dict[str, float]:
    """Build both inputs for one pair of sentences, and draw them."""
    out.mkdir(exist_ok=True)
    vocabulary = Vocabulary.from_values(WORDS, name="word")
    indices, segments = vocabulary.encode(WORDS), torch.tensor(SEGMENTS)
    token = CategoryEmbedding(
        vocabulary.num_embeddings,
        D,
        padding_index=PADDING_INDEX,
        init_std=D**-0.5,
        generator=torch.Generator().manual_seed(0),
        name="word",
    )
    tokens, waves, summed = transformer_input(token, indices)
    padded = transformer_input(token, nn.functional.pad(indices, (0, 5), value=PADDING_INDEX))[2]
    blocks = [Block(tokens.numpy(), "token", "E[i] · √D", WORDS), Block(waves.numpy(), "position", "sines and cosines")]
    equation = [blocks[0], "+", blocks[1], "=", Block(summed.numpy(), "input")]
    draw_equation(equation, deepest=2.0).savefig(out / "transformer_input.png")

    lookups, product = bert_input(token, indices, segments)
    blocks = [Block(one.numpy(), name) for one, name in zip(lookups[1:], ("position", "segment"), strict=True)]
    equation = [Block(lookups[0].numpy(), "token", rows=WORDS), "+", blocks[0], "+", blocks[1]]
    draw_equation([*equation, "=", Block(product.numpy(), "input")], deepest=0.6).savefig(out / "bert_input.png")

    table = SinusoidalPosition(128, max_position=199).table()
    draw_positions(table.numpy(), (table @ table.T).numpy()).savefig(out / "positions.png")
    diagonals = [(table @ table.T).diagonal(distance) for distance in range(len(table))]
    figures = {
        "five words of padding leave the others as they are": largest(padded[: len(indices)] - summed),
        "and are zero themselves": largest(padded[len(indices) :]),
        "a sum of three lookups is one three-hot × matrix": largest(sum(lookups) - product),
        "P[p] · P[q] depends on the distance p - q alone": max(largest(one - one[0]) for one in diagonals),
    }
    for law, error in figures.items():
        print(f"{law}: {f'to within {error:.0e}' if error else 'exactly'}")
    print(f"an odd width: {tuple(SinusoidalPosition(7, max_position=9).table().shape)}")
    try:
        SinusoidalPosition(D, max_position=9).add_to(tokens)
    except IndexError as error:
        print(f"refused: {error}")
    return figures


if __name__ == "__main__":
    main()
