"""The bundled slice of GloVe."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

FOLDER = Path(__file__).parents[2] / "data/glove_50d"


def test_the_file_holds_finite_vectors_of_width_50_for_5000_different_words():
    table = pd.read_parquet(FOLDER / "vectors.parquet")
    vectors = np.stack(table["vector"])
    assert vectors.shape == (5000, 50)
    assert vectors.dtype == np.float32
    assert np.isfinite(vectors).all()
    assert table["word"].is_unique


def test_the_most_frequent_word_comes_first():
    assert pd.read_parquet(FOLDER / "vectors.parquet")["word"].iloc[0] == "the"


def test_the_licence_goes_along_with_the_vectors():
    assert "Public Domain Dedication" in (FOLDER / "LICENSE").read_text()
