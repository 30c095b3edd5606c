"""Rebuild five books of the King James Bible as one Parquet file.

Run:    python data/king_james_bible/prepare.py
Needs:  pandas, pyarrow and Debian's packages bible-kjv and bible-kjv-text (apt-get install bible-kjv); a second.
        Only needed to check the file that is here.
Writes: verses.parquet beside this file, and prints its row count.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
VERSES = {
    "Genesis": "ge1:1-50:26",
    "Matthew": "mt1:1-28:20",
    "Mark": "mr1:1-16:20",
    "Luke": "lk1:1-24:53",
    "John": "jn1:1-21:25",
}
LINE = r"^[A-Za-z]+(?P<chapter>\d+):(?P<verse>\d+) (?P<text>.+)$"
TYPES = pa.schema({"book": pa.string(), "chapter": pa.int16(), "verse": pa.int16(), "text": pa.string()})


def read(book: str) -> pd.DataFrame:
    """Ask Debian's ``bible`` for a book; it prints one verse a line, as ``Ge1:1 In the beginning ...``."""
    printed = subprocess.run(["bible", "-f", VERSES[book]], check=True, capture_output=True, text=True).stdout
    verses = pd.Series(printed.splitlines()).str.extract(LINE)
    return verses.assign(book=book).astype({"chapter": "int16", "verse": "int16"})[TYPES.names]


def main(out: Path = HERE) -> int:
    """Write the file into ``out`` and return its row count."""
    frame = pd.concat([read(book) for book in VERSES], ignore_index=True)
    table = pa.Table.from_pandas(frame, schema=TYPES, preserve_index=False)
    pq.write_table(table, out / "verses.parquet", compression="zstd", compression_level=19)
    print(f"verses.parquet has {table.num_rows:,} rows")
    return table.num_rows


if __name__ == "__main__":
    main()
