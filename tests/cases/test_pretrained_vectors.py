"""Faults met in other libraries when pretrained vectors are loaded."""

import re
from pathlib import Path

import pytest
import torch

from recsys_emb.errors import DataError
from recsys_emb.lookup.category import CategoryEmbedding
from recsys_emb.lookup.pretrained import PretrainedVectors
from recsys_emb.vocabulary.vocabulary import Vocabulary

WORDS = {
    "the": [0.1, 0.2, 0.3],
    ". . .": [1.0, 2.0, 3.0],
    "new york": [-1.0, 0.5, 0.25],
    "a\u00a0b": [4.0, 5.0, 6.0],
    "0.2": [7.0, 8.0, 9.0],
}
FILE = "7 3\n" + "".join(
    f"{word} {' '.join(map(str, vector))}\n" for word, vector in [*WORDS.items(), ("the", [9.0, 9.0, 9.0])]
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "words.vec"
    path.write_text(FILE + "cut 0.1 0.2\n", encoding="utf-8")
    return path


def loaded(path: Path) -> PretrainedVectors:
    repeat = "words.vec: 'the' stand there more than once; the first vector of each counts."
    with pytest.warns(UserWarning, match=re.escape(repeat)):
        return PretrainedVectors.from_word2vec(path, skip_bad_lines=True)


@pytest.mark.parametrize("first", [*WORDS, "absent"])
def test_pv_01_every_token_gets_the_numbers_of_its_own_line_in_any_vocabulary_order(first, file):
    # The word that is repeated stands first in the vocabulary.
    vocabulary = Vocabulary.from_values([*WORDS, "absent", first], name="word")
    table = CategoryEmbedding(vocabulary.num_embeddings, 3, padding_index=0, init_std=1.0)
    before = table.weight.detach().clone()

    coverage = loaded(file).fill(table, vocabulary)

    for word, vector in WORDS.items():
        assert torch.equal(table(vocabulary.encode([word]))[0], torch.tensor(vector))
    untouched = [*range(vocabulary.first_index), int(vocabulary.encode(["absent"]))]
    assert torch.equal(table.weight[untouched], before[untouched])
    assert (coverage.found, coverage.total, coverage.absent) == (5, 6, ("absent",))
    assert (coverage.unused, coverage.repeated, coverage.skipped) == (0, 1, 1)


def test_pv_01_the_same_file_reads_as_glove_text(file):
    with pytest.warns(UserWarning, match="'the' stand there more than once"):
        made = PretrainedVectors.from_glove(file, embedding_dim=3, skip_bad_lines=True)
    assert torch.equal(made.vectors, loaded(file).vectors)


def test_pv_01_a_short_line_raises_with_its_number(file):
    with pytest.raises(DataError) as caught:
        PretrainedVectors.from_word2vec(file)
    assert str(caught.value) == (
        "words.vec, line 8: expected a key and 3 numbers, got 'cut 0.1 0.2'. "
        "Repair the line, or pass skip_bad_lines=True."
    )


def test_pv_01_a_width_that_differs_from_the_table_raises(file):
    vocabulary = Vocabulary.from_values([*WORDS], name="word")
    with pytest.raises(DataError) as caught:
        loaded(file).fill(CategoryEmbedding(vocabulary.num_embeddings, 4, name="word"), vocabulary)
    assert str(caught.value) == (
        "feature 'word': expected a table (8, 3) for 'words.vec' and its vocabulary, got (8, 4). "
        "Size it by the vocabulary; project with embedding(vocabulary, embedding_dim=...)."
    )
