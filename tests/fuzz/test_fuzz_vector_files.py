"""Whatever a file of vectors holds, it is read right or refused in words; nothing else comes out."""

from __future__ import annotations

import contextlib
import io
import struct
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from recsys_emb.errors import RecsysEmbError
from recsys_emb.lookup.pretrained import PretrainedVectors

NUMBERS = st.sampled_from(
    [b"0.5", b"-1", b"1e3", b"nan", b"inf", b"1e999", b"0x1p3", b"1_0", b"", b"word", "٣".encode(), b"9" * 50]
)
KEYS = st.sampled_from([b"the", b"new york", b"0.2", b"", b" ", b"\xff", "é".encode(), b"a\x00b", b"\t", b"7"])
COUNTS = st.sampled_from([b"0", b"1", b"2", b"3", b"-1", b"2.0", b"9" * 18, b"9" * 30, b"9" * 5000, "²".encode()])
GARBAGE = st.binary(max_size=60)


def lines(*parts: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(st.one_of(*parts), max_size=6).map(b"\n".join)


ROW = st.builds(lambda key, numbers: b" ".join([key, *numbers]), KEYS, st.lists(NUMBERS, max_size=4))
HEADER = st.builds(lambda count, width: count + b" " + width, COUNTS, COUNTS)
TEXT = st.one_of(GARBAGE, st.builds(lambda head, body: head + b"\n" + body, HEADER, lines(ROW, GARBAGE)), lines(ROW))
FLOATS = st.lists(st.floats(width=32), max_size=4).map(lambda numbers: struct.pack(f"<{len(numbers)}f", *numbers))
WORD = st.builds(lambda key, floats: key + b" " + floats, KEYS, FLOATS)
BINARY = st.one_of(
    GARBAGE, st.builds(lambda head, words: head + b"\n" + b"".join(words), HEADER, st.lists(WORD | GARBAGE, max_size=4))
)


def parquet(keys: pa.Array, vectors: pa.Array) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"key": keys, "vector": vectors}), sink)
    return sink.getvalue()


TYPES = [
    pa.list_(pa.float32()),
    pa.large_list(pa.float64()),
    pa.list_(pa.int8()),
    pa.list_(pa.float32(), 2),
    pa.list_(pa.string()),
    pa.list_(pa.list_(pa.float32())),
    pa.list_(pa.bool_()),
    pa.float32(),
    pa.string(),
    pa.map_(pa.string(), pa.float32()),
    pa.list_(pa.struct([("a", pa.float32())])),
    pa.list_(pa.decimal128(5, 2)),
    pa.list_(pa.timestamp("us")),
    pa.list_(pa.dictionary(pa.int32(), pa.float32())),
    pa.list_(pa.null()),
]
KEY_TYPES = [pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.binary(), pa.null(), pa.list_(pa.int8())]


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    rows, kind, key = draw(st.integers(0, 4)), draw(st.sampled_from(TYPES)), draw(st.sampled_from(KEY_TYPES))
    plain = draw(st.lists(st.lists(st.floats(width=32), min_size=2, max_size=2), min_size=rows, max_size=rows))
    try:
        vectors = pa.array(plain, kind) if draw(st.booleans()) else pa.nulls(rows, kind)
        return parquet(pa.array(range(rows), pa.int64()).cast(key), vectors)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return parquet(pa.nulls(rows, key), pa.nulls(rows, kind))


WHOLE = parquet(pa.array(["tea", "milk", "rum"]), pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))


@st.composite
def damaged(draw: st.DrawFn, whole: bytes = WHOLE) -> bytes:
    content = bytearray(whole)
    for place, byte in draw(st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), max_size=4)):
        content[place] = byte
    return bytes(content[: draw(st.integers(0, len(whole)) | st.just(len(whole)))])


READERS: dict[str, tuple[Callable[[Path], PretrainedVectors], st.SearchStrategy]] = {
    "word2vec text": (PretrainedVectors.from_word2vec, TEXT),
    "word2vec text, skipping": (lambda path: PretrainedVectors.from_word2vec(path, skip_bad_lines=True), TEXT),
    "word2vec binary": (lambda path: PretrainedVectors.from_word2vec(path, binary=True), BINARY),
    "GloVe": (PretrainedVectors.from_glove, TEXT),
    "GloVe, two numbers": (lambda path: PretrainedVectors.from_glove(path, embedding_dim=2), TEXT),
    "GloVe, skipping": (lambda path: PretrainedVectors.from_glove(path, skip_bad_lines=True), TEXT),
    "Parquet": (PretrainedVectors.from_parquet, st.one_of(tables(), damaged(), GARBAGE)),
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_of_vectors_is_read_or_refused(name: str, tmp_path: Path, fuzz) -> None:
    read, contents = READERS[name]

    def check(content: bytes) -> None:
        (tmp_path / "vectors").write_bytes(content)
        with contextlib.suppress(RecsysEmbError), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".* more than once")
            found = read(tmp_path / "vectors")
            assert len(found) <= len(content)
            assert found.vectors.shape == (len(found), found.embedding_dim)
            assert found.embedding_dim > 0 or not len(found)
            assert np.isfinite(found.vectors.numpy()).all()

    fuzz(contents, check)
