import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_emb.errors import ColumnError, DataError
from recsys_emb.lookup.vector_files import read_binary, read_parquet, read_text


def written(path: Path, content: bytes) -> Path:
    file = path / "words.txt"
    file.write_bytes(content)
    return file


def text(path: Path, content: str, *, embedding_dim: int | None = None, header: bool = False, skip: bool = False):
    file = written(path, content.encode())
    return read_text(file, embedding_dim=embedding_dim, header=header, skip_bad_lines=skip)


@pytest.mark.parametrize(
    "key", ["the", ". . .", "new york", "a\u00a0b", "0.2", "7 3", "\u2028", "日本", "nan", " a", "<pad>"]
)
def test_a_key_is_everything_before_the_last_numbers(key, tmp_path):
    read = text(tmp_path, f"first 1 2 3\n{key} 4 5 6\n")
    assert read.keys.to_pylist() == ["first", key]
    assert read.vectors.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


@pytest.mark.parametrize("content", ["a 1 2\nb 3 4\n", "a 1 2\r\nb 3 4\r\n", "a 1 2 \nb 3 4 ", "\na 1 2\n\nb 3 4\n\n"])
def test_line_ends_trailing_spaces_and_blank_lines_do_not_matter(content, tmp_path):
    read = text(tmp_path, content)
    assert read.keys.to_pylist() == ["a", "b"]
    assert read.vectors.tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("header", [True, False])
def test_a_header_is_passed_over(header, tmp_path):
    assert text(tmp_path, "1 2\na 1 2\n", header=header).keys.to_pylist() == ["a"]


def test_of_width_one_two_integers_are_a_key_and_its_number(tmp_path):
    read = text(tmp_path, "7 3\n8 4\n", embedding_dim=1)
    assert (read.keys.to_pylist(), read.vectors.tolist()) == (["7", "8"], [[3.0], [4.0]])


def test_numbers_are_read_as_float32(tmp_path):
    assert text(tmp_path, "a 0.1 -1e-3 1E+2\n").vectors.tolist()[0] == pytest.approx([0.1, -0.001, 100.0], rel=1e-7)


@pytest.mark.parametrize("content", ["", "\n\n", "0 3\n"])
def test_a_file_without_vectors_gives_none(content, tmp_path):
    assert len(text(tmp_path, content, embedding_dim=3).keys) == 0


@pytest.mark.parametrize(("content", "message"), [
    (
        "a 1 2\nb 3\n",
        "words.txt, line 2: expected a key and 2 numbers, got 'b 3'. "
        "Repair the line, or pass skip_bad_lines=True.",
    ),
    (
        "a 1 2\n\nb 3 x\n",
        "words.txt, line 3: expected 2 finite numbers after the key, got 'b 3 x'. "
        "Repair the line, or pass skip_bad_lines=True.",
    ),
    (
        "a 1 2\nb 3 inf\n",
        "words.txt, line 2: expected 2 finite numbers after the key, got 'b 3 inf'. "
        "Repair the line, or pass skip_bad_lines=True.",
    ),
    ("9 2\na 1 2\n", "words.txt: expected 9 vectors, got 1. The file is cut; fetch it again."),
    (
        "a 1_0\n",
        "words.txt, line 1: expected 1 finite number after the key, got 'a 1_0'. "
        "Repair the line, or pass skip_bad_lines=True.",
    ),
    (
        "a 1e39\n",
        "words.txt, line 1: expected 1 finite number after the key, got 'a 1e39'. "
        "Repair the line, or pass skip_bad_lines=True.",
    ),
    ("word\n", "words.txt, line 1: expected a key and its numbers, got 'word'. Repair the line."),
])  # fmt: skip
def test_what_cannot_be_read_is_named(content, message, tmp_path):
    with pytest.raises(DataError) as caught:
        text(tmp_path, content)
    assert str(caught.value) == message


def test_a_key_that_is_not_utf8_is_named(tmp_path):
    with pytest.raises(DataError) as caught:
        read_text(written(tmp_path, b"caf\xe9 1 2\n"), embedding_dim=None, header=False, skip_bad_lines=False)
    assert str(caught.value) == ("words.txt, line 1: expected a UTF-8 key, got b'caf\\xe9'. Convert the file to UTF-8.")


def test_long_lines_are_shown_shortened(tmp_path):
    with pytest.raises(DataError) as caught:
        text(tmp_path, "a 1\n" + "x" * 100 + "\n")
    assert f"got '{'x' * 40}…'." in str(caught.value)


def test_bad_lines_are_counted_when_asked(tmp_path):
    read = text(tmp_path, "a 1 2\nb 3\nc x 4\nd 5 6\n", skip=True)
    assert (read.keys.to_pylist(), read.skipped) == (["a", "d"], 2)


def test_a_header_is_demanded_of_word2vec(tmp_path):
    with pytest.raises(DataError) as caught:
        text(tmp_path, "a 1 2\n", header=True)
    assert str(caught.value) == ("words.txt: expected a header 'N D' in line 1, got 'a 1 2'. Read it as GloVe text.")


@pytest.mark.parametrize("header", ["2 0", "0 2306000000000000000", "1 " + "9" * 30, "9" * 5000 + " 2", "1 -2", "² 2"])
def test_a_header_of_no_width_or_of_any_is_none(header, tmp_path):
    with pytest.raises(DataError) as caught:
        text(tmp_path, f"{header}\na 1 2\n", header=True)
    shown = header if len(header) <= 40 else header[:40] + "…"
    assert str(caught.value) == f"words.txt: expected a header 'N D' in line 1, got '{shown}'. Read it as GloVe text."
    with pytest.raises(DataError, match="expected a header 'N D', got none"):
        read_binary(written(tmp_path, f"{header}\na 1 2\n".encode()))


@pytest.mark.parametrize("width", [0, -1, 2**40])
def test_a_width_that_is_none_is_refused(width, tmp_path):
    with pytest.raises(DataError) as caught:
        text(tmp_path, "a 1 2\n", embedding_dim=width)
    assert str(caught.value) == f"words.txt: expected embedding_dim in [1, 1048576], got {width}. Count the numbers."


def test_a_width_other_than_the_header_says_is_refused(tmp_path):
    with pytest.raises(DataError) as caught:
        text(tmp_path, "1 2\na 1 2\n", embedding_dim=3)
    assert str(caught.value) == "words.txt: expected vectors of width 3, got 2 by the header. Give that."


def vector(key: bytes, *numbers: float) -> bytes:
    return key + b" " + struct.pack(f"<{len(numbers)}f", *numbers)


@pytest.mark.parametrize("between", [b"\n", b""])
def test_binary_vectors_are_read_with_and_without_newlines_between(between, tmp_path):
    # 0x0a and 0x20, a newline and a space, stand among the bytes of the first vector.
    tricky = struct.unpack("<f", b"\n \n ")[0]
    body = between.join([vector(b"a", tricky, 2.0), vector("日本".encode(), 3.0, 4.0)])
    read = read_binary(written(tmp_path, b"2 2\n" + body))
    assert read.keys.to_pylist() == ["a", "日本"]
    assert read.vectors.tolist() == [[tricky, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("promised", [3, 10**15])
def test_a_binary_file_that_is_cut_is_refused(promised, tmp_path):
    body = vector(b"a", 1.0, 2.0) + vector(b"b", 3.0, 4.0)
    with pytest.raises(DataError) as caught:
        read_binary(written(tmp_path, f"{promised} 2\n".encode() + body[:-1]))
    assert str(caught.value) == (f"words.txt: expected {promised} vectors, got 1. The file is cut; fetch it again.")


def test_a_binary_file_of_more_vectors_than_promised_is_refused(tmp_path):
    body = vector(b"a", 1.0, 2.0) + vector(b"b", 3.0, 4.0)
    with pytest.raises(DataError) as caught:
        read_binary(written(tmp_path, b"1 2\n" + body))
    assert str(caught.value) == "words.txt: expected 1 vector, got more. Repair the header."


@pytest.mark.parametrize("header", [False, True])
def test_the_mark_of_utf8_at_the_beginning_is_no_part_of_a_key(header, tmp_path):
    content = "\ufeff1 2\na 1 2\n" if header else "\ufeffa 1 2\n"
    assert text(tmp_path, content, header=header).keys.to_pylist() == ["a"]


@pytest.mark.parametrize("content", [b"", b"a 1 2\n", b"\x00\xff"])
def test_a_file_that_is_not_word2vec_binary_is_refused(content, tmp_path):
    with pytest.raises(DataError) as caught:
        read_binary(written(tmp_path, content))
    assert str(caught.value) == "words.txt: expected a header 'N D', got none. Is it word2vec's binary format?"


LIST_TYPES = [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 2), pa.list_(pa.int16())]


@pytest.mark.parametrize("kind", LIST_TYPES, ids=str)
def test_parquet_lists_of_every_type_are_stacked(kind, tmp_path):
    table = pa.table({"id": [7, 8], "v": pa.array([[1, 2], [3, 4]], kind)})
    pq.write_table(table, tmp_path / "v.parquet")
    read = read_parquet(tmp_path / "v.parquet", key="id", vector="v")
    assert (read.keys.to_pylist(), read.vectors.tolist()) == ([7, 8], [[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize(("vectors", "message"), [
    ([[1.0, 2.0], [3.0]], "v.parquet, row 1: expected 2 numbers, got 1 number. Repair or drop the row."),
    ([[1.0, 2.0], None], "v.parquet, row 1: expected 2 numbers, got no vector. Repair or drop the row."),
    ([1.0, 2.0], "v.parquet: expected lists of numbers as vectors, got double. Name the column of vectors."),
    (
        [["1"], ["2"]],
        "v.parquet: expected lists of numbers as vectors, got list<element: string>. Name the column of vectors.",
    ),
])  # fmt: skip
def test_parquet_vectors_that_are_no_matrix_are_refused(vectors, message, tmp_path):
    pq.write_table(pa.table({"key": [7, 8], "vector": vectors}), tmp_path / "v.parquet")
    with pytest.raises(DataError) as caught:
        read_parquet(tmp_path / "v.parquet", key="key", vector="vector")
    assert str(caught.value) == message


def test_a_missing_parquet_column_is_named_with_a_suggestion(tmp_path):
    pq.write_table(pa.table({"item_id": [7], "vectors": [[1.0]]}), tmp_path / "v.parquet")
    with pytest.raises(ColumnError) as caught:
        read_parquet(tmp_path / "v.parquet", key="item_id", vector="vector")
    assert str(caught.value) == (
        "v.parquet: expected a column 'vector', got 'item_id', 'vectors'. Did you mean 'vectors'?"
    )


@pytest.mark.parametrize("content", [b"", b"PAR1", b"a 1 2\n", b"PAR1" * 100])
def test_what_is_no_parquet_file_is_refused(content, tmp_path):
    with pytest.raises(DataError) as caught:
        read_parquet(written(tmp_path, content), key="key", vector="vector")
    assert str(caught.value).startswith("words.txt: expected a Parquet file, got ")


@pytest.mark.parametrize("read", [read_binary, lambda path: read_parquet(path, key="key", vector="vector")])
def test_a_path_that_leads_to_nothing_is_not_found(read, tmp_path):
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "absent")
