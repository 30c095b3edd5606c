"""A neural language model on five books of the King James Bible: its projection layer is a lookup.

Run:    python examples/nnlm.py
Needs:  matplotlib; a minute.
Prints: how far one-hot × matrix and lookup differ while both train, the perplexity on held-out verses of a full softmax
        and of negative sampling, and the neighbours of some words before and after training.
Draws:  out/nnlm_training.png, out/nnlm_weights.png and out/nnlm_words.png.
"""

from __future__ import annotations

import copy
import itertools
from pathlib import Path

import torch
from bible_words import neighbours, read_words
from curves import draw_training
from data_folder import ROOT
from nnlm_model import LanguageModel, full_softmax, learn, negative_sampling, steps, windows
from torch import Tensor
from torch.nn import functional

from recsys_emb import PADDING_INDEX, CategoryEmbedding, OneHotProjection, Vocabulary
from recsys_emb.reporting.maps import item_map
from recsys_emb.reporting.plots import weight_histogram

D = 64
KINDS = {
    "kin": "father mother son daughter brother sister wife husband sons daughters children brethren",
    "numbers": "two three four five six seven eight ten twelve thirty forty hundred",
    "places": "egypt canaan jerusalem galilee judaea israel bethlehem sodom samaria heaven",
    "men": "abraham isaac jacob joseph esau laban noah lot moses david pharaoh peter",
    "saying": "said saith spake answered asked cried commanded told called saying",
    "going": "went came departed goeth cometh entered returned fled passed rose",
    "food": "bread water wine meat fruit fish corn oil",
}
KIND = {word: kind for kind, words in KINDS.items() for word in words.split()}


def closeness(vectors: Tensor) -> tuple[float, float]:
    """Give the mean cosine of two words of one kind, and of two words of different kinds."""
    kinds = torch.tensor([list(KINDS).index(kind) for kind in KIND.values()])
    alike = kinds == kinds.unsqueeze(1)
    cosines = vectors @ vectors.T
    others = alike & ~torch.eye(len(kinds), dtype=torch.bool)
    return cosines[others].mean().item(), cosines[~alike].mean().item()


def main(out: Path = ROOT / "out", *, verses: int | None = None, epochs: int = 6, both: int = 100) -> dict[str, object]:
    """Check that both projections are one for some steps, train both ways, and look at the table."""
    text = read_words(r"[a-z]+|[.?!]", verses)["words"]
    tenth = text.index % 10 == 9
    vocabulary = Vocabulary.from_values(text[~tenth].explode(), name="word", min_count=3)
    rows, held_out = windows(text[~tenth], vocabulary), windows(text[tenth], vocabulary)
    counts = torch.bincount(rows[:, -1], minlength=vocabulary.num_embeddings) + 0.5
    frequencies = (counts / counts.sum()).log()
    generator, size = torch.Generator().manual_seed(0), (vocabulary.num_embeddings, D)
    embedding = CategoryEmbedding(*size, padding_index=PADDING_INDEX, init_std=0.1, generator=generator, name="word")
    print(f"{len(rows):,} words to learn from, {len(held_out):,} to judge, (V, D) = {size}")

    projections = copy.deepcopy(embedding), OneHotProjection.from_embedding(embedding)
    models = [LanguageModel(projection, frequencies) for projection in projections]
    traces = [list(itertools.islice(steps(model, full_softmax, rows), both)) for model in models]
    gap = max(abs(one - other) for one, other in zip(*traces, strict=True))
    print(f"over {len(traces[0])} steps the losses of lookup and one-hot × matrix differ by {gap:.0e} at most")

    losses = {"full softmax": full_softmax, "negative sampling": negative_sampling(frequencies)}
    trained = {name: LanguageModel(copy.deepcopy(embedding), frequencies) for name in losses}
    curves = {name: learn(trained[name], loss, rows, held_out, epochs) for name, loss in losses.items()}
    for name, curve in curves.items():
        print(f"{name}: perplexity {curve[0][1]:.1f} before, {curve[-1][1]:.1f} after {curve[-1][0]:.1f} seconds")

    tables = [embedding.table().detach(), trained["full softmax"].projection.table().detach()]
    for word in ("father", "seven", "egypt", "abraham", "said", "bread"):
        before, after = (neighbours(table, vocabulary, word) for table in tables)
        print(f"{word:<8} {before:<36} → {after}")
    directions = [functional.normalize(table[vocabulary.encode(list(KIND))]) for table in tables]
    close = dict(zip(("before", "after"), map(closeness, directions), strict=True))
    for when, (alike, different) in close.items():
        print(f"mean cosine {when}: {alike:.2f} within a kind of word, {different:.2f} across kinds")
    out.mkdir(exist_ok=True)
    draw_training(traces, curves).savefig(out / "nnlm_training.png")
    weight_histogram(*tables, title="Weights of the table").savefig(out / "nnlm_weights.png")
    picture = item_map(directions[1], list(KIND), groups=list(KIND.values()), title="Words after training")
    picture.savefig(out / "nnlm_words.png")
    return {"gap": gap, "curves": curves, "closeness": close}


if __name__ == "__main__":
    main()
