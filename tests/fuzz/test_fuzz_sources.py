"""Whatever a Parquet file holds, its rows are read right or refused in words."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.inference import infer_schema
from recsys_emb.errors import RecsysEmbError
from recsys_emb.schema import Categorical, MultiCategorical, Numeric, Schema

SCHEMA = Schema(
    user=Categorical("user"),
    item=Categorical("item"),
    user_features=[Numeric("age")],
    item_features=[MultiCategorical("tags")],
    label="stars",
    embedding_dim=2,
)


def whole() -> bytes:
    sink = io.BytesIO()
    rows = {
        "user": [1, 2, None, 2],
        "item": ["a", "bé", "a", None],
        "age": [1.0, None, 3.0, 4.0],
        "tags": [["x", "y"], [], None, ["x"]],
        "stars": [1.0, 2.0, 3.0, 4.0],
    }
    pq.write_table(pa.table(rows), sink, row_group_size=3)
    return sink.getvalue()


CONTENT = whole()
# Not the footer: Arrow ends the process when it is asked about columns that a damaged one lacks.
FOOTER = len(CONTENT) - 8 - int.from_bytes(CONTENT[-8:-4], "little")
BYTES = st.lists(st.tuples(st.integers(0, FOOTER - 1), st.integers(0, 255)), min_size=1, max_size=4)


def test_a_damaged_parquet_file_is_read_or_refused(tmp_path: Path, fuzz) -> None:
    def check(drawn: tuple[list[tuple[int, int]], float]) -> None:
        changes, kept = drawn
        damaged = bytearray(CONTENT)
        for place, byte in changes:
            damaged[place] = byte
        (tmp_path / "rows.parquet").write_bytes(damaged[: int(kept * len(damaged))])
        with contextlib.suppress(RecsysEmbError):
            infer_schema(tmp_path / "rows.parquet", show=lambda _: None)
        with contextlib.suppress(RecsysEmbError):
            encoder = FeatureEncoder(SCHEMA).fit(tmp_path / "rows.parquet")
            batch = encoder.transform(tmp_path / "rows.parquet")
            assert len(batch) <= len(CONTENT)
            assert int(batch.indices("item").max()) < encoder.num_embeddings("item")
            assert batch.label is None or np.isfinite(batch.label.numpy()).all()
            encoder.inverse_transform(batch)

    fuzz(st.tuples(BYTES, st.just(1.0) | st.floats(0, 1)), check)
