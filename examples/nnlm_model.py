"""The neural language model of Bengio et al. (2003), and two ways to train it.

Needs:  nothing that is not in the repository.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pandas as pd
import torch
from torch import Tensor, nn

from recsys_emb import PADDING_INDEX, CategoryEmbedding, OneHotProjection, Vocabulary

CONTEXT, BATCH_SIZE, LEARNING_RATE = 4, 512, 0.004


class LanguageModel(nn.Module):
    """Guess a word from the few before it. The table is the projection of the input and the weights of the output.

    ``frequencies`` holds the logarithm of each word's share of the text, where its bias starts.
    """

    def __init__(self, projection: CategoryEmbedding | OneHotProjection, frequencies: Tensor) -> None:
        super().__init__()
        self.projection = projection
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.hidden = nn.Linear(CONTEXT * projection.embedding_dim, projection.embedding_dim)
        self.bias = nn.Parameter(frequencies.clone())

    def forward(self, contexts: Tensor) -> Tensor:
        """Turn contexts ``(B, CONTEXT)`` into what the vector of the next word should be, ``(B, D)``."""
        return torch.tanh(self.hidden(self.projection(contexts).flatten(1)))

    def scores(self, contexts: Tensor) -> Tensor:
        """Score all words, ``(B, V)``."""
        return self(contexts) @ self.projection.table().T + self.bias


Loss = Callable[[LanguageModel, Tensor, Tensor], Tensor]


def full_softmax(model: LanguageModel, contexts: Tensor, words: Tensor) -> Tensor:
    """Hold each word against all V words."""
    return nn.functional.cross_entropy(model.scores(contexts), words)


def negative_sampling(frequencies: Tensor, *, count: int = 64) -> Loss:
    """Hold each word against ``count`` words drawn by frequency (Mikolov et al., 2013), the same for a whole batch.

    The chance of a draw is taken off the scores, so that they remain logarithms of probabilities (Mnih and
    Kavukcuoglu, 2013) and can be judged as those of a full softmax are.
    """
    generator = torch.Generator().manual_seed(1)
    chance = frequencies + torch.tensor(count).log()

    def loss(model: LanguageModel, contexts: Tensor, words: Tensor) -> Tensor:
        drawn = torch.multinomial(frequencies.exp(), count, replacement=True, generator=generator)
        guess = model(contexts)
        right = (guess * model.projection(words)).sum(1) + model.bias[words] - chance[words]
        wrong = guess @ model.projection(drawn).T + model.bias[drawn] - chance[drawn]
        return nn.functional.softplus(-right).mean() + nn.functional.softplus(wrong).sum(1).mean()

    return loss


def windows(verses: pd.Series, vocabulary: Vocabulary) -> Tensor:
    """Put each word behind its context, int64 ``(N, CONTEXT + 1)``; a verse begins with padding."""
    start = torch.full((CONTEXT,), PADDING_INDEX)
    indices = vocabulary.encode(verses.explode()).split(verses.str.len().tolist())
    return torch.cat([torch.cat([start, verse]).unfold(0, CONTEXT + 1, 1) for verse in indices])


def steps(model: LanguageModel, loss: Loss, rows: Tensor, *, epochs: int = 1) -> Iterator[float]:
    """Train on rows ``(N, CONTEXT + 1)``, and give the loss of each batch."""
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    generator = torch.Generator().manual_seed(2)
    for _ in range(epochs):
        for batch in rows[torch.randperm(len(rows), generator=generator)].split(BATCH_SIZE):
            value = loss(model, batch[:, :-1], batch[:, -1])
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            yield value.item()


def learn(model: LanguageModel, loss: Loss, rows: Tensor, held_out: Tensor, epochs: int) -> list[tuple[float, float]]:
    """Train, and give after each epoch the seconds spent and the perplexity on rows held out.

    Perplexity is the number of words that the model hesitates between, on average.
    """
    a_batch_each, seconds = -(-len(rows) // BATCH_SIZE), 0.0
    training = steps(model, loss, rows, epochs=epochs)
    curve = []
    for epoch in range(epochs + 1):
        started = time.perf_counter()
        for _ in range(a_batch_each if epoch else 0):
            next(training)
        seconds += time.perf_counter() - started
        with torch.no_grad():
            curve.append((seconds, full_softmax(model, held_out[:, :-1], held_out[:, -1]).exp().item()))
    return curve
