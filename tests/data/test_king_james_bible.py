"""The bundled verses."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parents[2] / "data/king_james_bible"


def test_the_file_holds_five_whole_books_in_order():
    verses = pd.read_parquet(FOLDER / "verses.parquet")
    counts = verses.groupby("book", sort=False).size()
    assert counts.to_dict() == {"Genesis": 1533, "Matthew": 1071, "Mark": 678, "Luke": 1151, "John": 879}
    assert verses["text"].iloc[0] == "In the beginning God created the heaven and the earth."


def test_every_verse_has_text_and_stands_there_once():
    verses = pd.read_parquet(FOLDER / "verses.parquet")
    assert verses["text"].str.strip().str.len().gt(0).all()
    assert not verses.duplicated(["book", "chapter", "verse"]).any()


def test_the_notice_of_the_package_goes_along_with_the_text():
    assert "King James Version text of the Bible is expired" in (FOLDER / "COPYRIGHT").read_text()
