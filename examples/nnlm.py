"""A neural language model (Bengio et al., 2003) on five books of the King James Bible: its projection is a lookup.

Run:    python examples/nnlm.py
Needs:  matplotlib; a minute.
Prints: how far one-hot × matrix and lookup differ while they train, the perplexity on held-out verses of a full softmax
        and of negative sampling, and the neighbours of some words before and after.
Draws:  out/nnlm_training.png, out/nnlm_weights.png and out/nnlm_words.png.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import torch
import torch.nn.functional as F
from data_folder import DATA, ROOT
from pictures import draw_training
from torch import Tensor, nn

from recsys_emb import PADDING_INDEX, CategoryEmbedding, OneHotProjection, Vocabulary
from recsys_emb.reporting.plots import item_map, weight_histogram

CONTEXT, D, NEGATIVES = 4, 64, 32
GROUPS = {
    "kin": "father mother son daughter brother sister wife husband sons daughters children brethren",
    "numbers": "two three four five six seven eight ten twelve thirty forty hundred",
    "places": "egypt canaan jerusalem galilee judaea israel bethlehem sodom samaria heaven",
    "men": "abraham isaac jacob joseph esau laban noah lot moses david pharaoh peter",
    "saying": "said saith spake answered asked cried commanded told called saying",
    "going": "went came departed goeth cometh entered returned fled passed rose",
    "food": "bread water wine meat fruit fish corn oil milk",
}
Loss = Callable[["LanguageModel", Tensor, Tensor], Tensor]


class LanguageModel(nn.Module):
    """Guess a word from the ones before it; the table serves at the input and, transposed, at the output."""

    def __init__(self, projection: CategoryEmbedding | OneHotProjection) -> None:
        super().__init__()
        self.projection = projection
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.hidden = nn.Linear(CONTEXT * D, D)
        self.bias = nn.Parameter(torch.zeros(projection.num_embeddings))

    def forward(self, contexts: Tensor) -> Tensor:
        """Turn contexts ``(B, CONTEXT)`` into what the next word should look like, ``(B, D)``."""
        return torch.tanh(self.hidden(self.projection(contexts).flatten(1)))

    def scores(self, contexts: Tensor) -> Tensor:
        """Score every word, ``(B, V)``."""
        return self(contexts) @ self.projection.table().T + self.bias


def full_softmax(model: LanguageModel, contexts: Tensor, words: Tensor) -> Tensor:
    """Compare the word with all V words."""
    return F.cross_entropy(model.scores(contexts), words)


def negative_sampling(noise: Tensor) -> Loss:
    """Compare the word with a few drawn from ``noise``, as Mikolov et al. (2013), shared by the batch."""
    generator = torch.Generator().manual_seed(2)

    def loss(model: LanguageModel, contexts: Tensor, words: Tensor) -> Tensor:
        drawn = torch.multinomial(noise, NEGATIVES, replacement=True, generator=generator)
        guess = model(contexts)
        right = (guess * model.projection(words)).sum(1) + model.bias[words]
        wrong = guess @ model.projection(drawn).T + model.bias[drawn]
        return F.softplus(-right).mean() + F.softplus(wrong).sum(1).mean()

    return loss


def windows(verses: pd.Series, vocabulary: Vocabulary) -> Tensor:
    """Give each word behind its context, int64 ``(N, CONTEXT + 1)``; a verse begins with padding."""
    start = torch.full((CONTEXT,), PADDING_INDEX)
    indices = vocabulary.encode(verses.explode()).split(verses.str.len().tolist())
    return torch.cat([torch.cat([start, verse]).unfold(0, CONTEXT + 1, 1) for verse in indices])


def losses(model: LanguageModel, loss: Loss, rows: Tensor, *, seed: int) -> Iterator[float]:
    """Train for one epoch, and tell the loss of each batch."""
    generator = torch.Generator().manual_seed(seed)
