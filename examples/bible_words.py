"""Five books of the King James Bible as lists of words, and the neighbours of a word in a table.

Needs:  nothing that is not in the repository.
"""

from __future__ import annotations

import pandas as pd
import torch
from data_folder import DATA
from torch import Tensor
from torch.nn import functional

from recsys_emb import Vocabulary


def read_words(pattern: str, rows: int | None = None) -> pd.DataFrame:
    """Read the verses, or the first few, with what matches ``pattern`` in lower case as a list called ``words``."""
    verses = pd.read_parquet(DATA / "king_james_bible/verses.parquet")[:rows]
    return verses.assign(words=verses["text"].str.lower().str.findall(pattern))


def keep(verses: pd.DataFrame, words: set[str]) -> pd.DataFrame:
    """Keep only these words of each verse, and the verses that have any."""
    kept = [[word for word in one if word in words] for one in verses["words"]]
    return verses.assign(words=kept)[[bool(one) for one in kept]]


def neighbours(table: Tensor, vocabulary: Vocabulary, word: str, *, count: int = 4, seen: int = 20) -> str:
    """Name the words nearest by angle among those seen so often; the vocabulary is sorted by that."""
    often = vocabulary.first_index + torch.arange(int((vocabulary.counts >= seen).sum()))
    index = vocabulary.encode([word])
    cosines = functional.cosine_similarity(table[index], table[often]).masked_fill(often == index, -1.0)
    return " ".join(map(str, vocabulary.decode(often[cosines.topk(count).indices])))
