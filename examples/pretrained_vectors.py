"""Pretrained word vectors for tags: what they are worth where training saw the tags, and where it never did.

Run:    python examples/pretrained_vectors.py
Needs:  matplotlib; seconds.
Prints: how many tags have a GloVe vector; how many other chapters the right one outscores, for new verses, with a
        table that starts at random, from GloVe frozen and from GloVe fine-tuned; neighbours in the last two.
Draws:  out/pretrained_vectors.png.

Chapters stand for users, verses for items, words for tags. Every verse that is judged is new, so its tags are all that
is known of it. A third of the words that have a vector is taken out of the training verses: the tags it never saw.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from bible_words import keep, neighbours, read_words
from curves import draw_starts
from data_folder import DATA, ROOT
from torch import Tensor, nn

from recsys_emb import (
    Batch,
    Categorical,
    FeatureEmbedding,
    FeatureEncoder,
    MultiCategorical,
    PretrainedVectors,
    Schema,
    split_random,
)

WORDS = MultiCategorical("words")
SCHEMA = Schema(user=Categorical("chapter"), item=Categorical("id"), item_features=[WORDS], embedding_dim=50)
COMMON = 50  # the most frequent words tell no chapter from another
STARTS = RANDOM, FROZEN, TUNED = "random", "GloVe, frozen", "GloVe, fine-tuned"


def scores(embed: FeatureEmbedding, batch: Batch) -> Tensor:
    """Score the row of every chapter for every verse, ``(B, V)``: both sides are lookups."""
    return embed.vectors_of("words", batch) @ embed.lookup("chapter").table().T


@torch.no_grad()
def placed(embed: FeatureEmbedding, batch: Batch, first: int) -> float:
    """Share of the other chapters that score below the right one; chapters begin at row ``first``."""
    every = scores(embed, batch)[:, first:]
    below = every < every.gather(1, batch["chapter"].unsqueeze(1) - first)
    return (below.sum(1) / (every.shape[1] - 1)).mean().item()


def learn(embed: FeatureEmbedding, batch: Batch, judged: dict[str, Batch], first: int, steps: int) -> pd.DataFrame:
    """Train what is not frozen by a softmax over the chapters, and judge every few steps."""
    free = [parameter for parameter in embed.parameters() if parameter.requires_grad]
    optimizer, generator = torch.optim.Adam(free, lr=0.01), torch.Generator().manual_seed(0)
    found = {}
    for step in range(steps + 1):
        if step % 20 == 0:
            found[step] = {name: placed(embed, verses, first) for name, verses in judged.items()}
        rows = batch.select(torch.randint(len(batch), (512,), generator=generator))
        loss = nn.functional.cross_entropy(scores(embed, rows), rows["chapter"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return pd.DataFrame(found).T


def main(out: Path = ROOT / "out", *, steps: int = 300) -> dict[str, object]:
    """Train from three starts, and judge each by tags that training saw and by tags that it did not."""
    verses = read_words("[a-z]+").reset_index(names="id")
    verses["chapter"] = verses["book"] + " " + verses["chapter"].astype(str)
    encoder = FeatureEncoder(SCHEMA).fit(verses)
    vocabulary, first = encoder.vocabularies["words"], encoder.vocabularies["chapter"].first_index
    glove = PretrainedVectors.from_parquet(DATA / "glove_50d/vectors.parquet", key="word")
    coverage = glove.coverage(vocabulary)
    print(coverage)

    words = vocabulary.values.to_pylist()  # most frequent first
    with_vector = sorted(set(words[COMMON:]).difference(coverage.absent))
    unseen = set(np.random.default_rng(0).permutation(with_vector)[: len(with_vector) // 3])
    seen = set(words) - unseen
    train, test = split_random(verses, 0.3, seed=0)
    batch = encoder.transform(keep(train, seen))
    judged = {"seen": encoder.transform(keep(test, seen)), "unseen": encoder.transform(keep(test, unseen))}

    tables, curves = {}, {}
    for start in STARTS:
        embed = FeatureEmbedding(encoder, features=["chapter", "words"], init_std=0.3)
        if start != RANDOM:
            glove.fill(embed.lookup("words"), vocabulary, freeze=start == FROZEN)
        curves[start] = learn(embed, batch, judged, first, steps)
        tables[start] = embed.lookup("words").table().detach()
        by_seen, by_unseen = curves[start].iloc[-1]
        print(f"{start:<18} outscores {by_seen:.1%} of the other chapters by seen tags, {by_unseen:.1%} by unseen ones")
    for word in ("king", "fish", "sea", "gold", "house"):
        print(f"{word:<6}", *(f"{start}: {neighbours(tables[start], vocabulary, word):<34}" for start in STARTS[1:]))
    out.mkdir(exist_ok=True)
    draw_starts(curves).savefig(out / "pretrained_vectors.png")
    return {"coverage": coverage, "curves": curves}


if __name__ == "__main__":
    main()
