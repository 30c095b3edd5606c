"""Known faults of other libraries, kind "key types and identity": none of them here."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import KeyTypeError
from recsys_emb.schema import Categorical, Schema, UnknownRow
from recsys_emb.vocabulary.reserved import UNKNOWN_INDEX
from recsys_emb.vocabulary.vocabulary import Vocabulary, VocabularyBuilder

MIXED = [1, "1", True, 1.0, 2, "a"]

# The keys, an equal column in another form, and the text that looks like the first key.
RARE: dict[str, tuple[list[Any], Any, str]] = {
    "bytes": ([b"A", b"\xff"], pa.array([b"A", b"\xff"], pa.large_binary()), "A"),
    "decimal": (
        [Decimal("1.10"), Decimal("2.5")],
        pa.array([Decimal("1.1000"), Decimal("2.5000")], pa.decimal128(9, 4)),
        "1.1",
    ),
    "uuid": ([UUID(int=1), UUID(int=2)], pa.array([UUID(int=1), UUID(int=2)], pa.uuid()), str(UUID(int=1))),
    "date": (
        [datetime.date(2024, 3, 1), datetime.date(2024, 3, 2)],
        np.array(["2024-03-01", "2024-03-02"], "M8[D]"),
        "2024-03-01",
    ),
}


def saved_and_loaded(vocabulary: Vocabulary, folder: Path) -> Vocabulary:
    pq.write_table(vocabulary.to_table(), folder / "vocabulary.parquet")
    table = pq.read_table(folder / "vocabulary.parquet")
    return Vocabulary.from_table(table, name=vocabulary.name, unknown=UnknownRow())


@pytest.mark.parametrize("rows", [MIXED, MIXED[::-1]], ids=["forward", "reversed"])
def test_kt_01_python_types_mixed_in_one_column_are_refused_by_name(rows: list[Any]) -> None:
    frame = pd.DataFrame({"item_id": pd.Series(rows, dtype=object)})
    with pytest.raises(KeyTypeError) as caught:
        Vocabulary.from_values(frame["item_id"], name="item_id")
    expected = "item_id: expected values of one type, got bool, float, int, str. Convert the column to one type."
    assert str(caught.value) == expected
    with pytest.raises(KeyTypeError, match=r"item_id.*bool, float, int, str"):
        FeatureEncoder(Schema(item=Categorical("item_id"))).fit(frame)


def test_kt_01_a_whole_float_is_the_integer_and_a_flag_is_not() -> None:
    vocabulary = Vocabulary.from_values([1, 2, 1.0])
    assert vocabulary.counts.tolist() == [2, 1]
    with pytest.raises(KeyTypeError):
        vocabulary.encode([True])


@pytest.mark.parametrize(("keys", "other_form", "text"), RARE.values(), ids=RARE)
def test_kt_03_rare_key_types_keep_their_identity_in_memory_and_on_disk(
    keys: list[Any], other_form: Any, text: str, tmp_path: Path
) -> None:
    fitted = Vocabulary.from_values(keys, name="key")
    for vocabulary in (fitted, saved_and_loaded(fitted, tmp_path)):
        assert vocabulary.decode(vocabulary.encode(keys)) == keys
        assert [type(value) for value in vocabulary.decode([3, 4])] == [type(key) for key in keys]
        assert vocabulary.encode(other_form).tolist() == vocabulary.encode(keys).tolist() == [3, 4]


@pytest.mark.parametrize(("keys", "text"), [(keys, text) for keys, _, text in RARE.values()], ids=RARE)
def test_kt_03_the_text_of_a_rare_key_is_refused_on_every_route(keys: list[Any], text: str, tmp_path: Path) -> None:
    encoder = FeatureEncoder(Schema(item=Categorical("key"))).fit(pa.table({"key": keys}))
    pd.DataFrame({"key": [text]}).to_parquet(tmp_path / "text.parquet")
    for source in (pd.DataFrame({"key": [text]}), pa.table({"key": [text]}), tmp_path / "text.parquet"):
        with pytest.raises(KeyTypeError, match=r"key: expected \w+ keys, got text"):
            encoder.transform(source)


@pytest.mark.parametrize(
    "ids",
    [
        np.array([-1, 0, 2147483648, 1099511627777]),
        np.array([0, 2147483648, 9223372036854775808, 18446744073709551615], np.uint64),
    ],
    ids=["int64", "uint64"],
)
def test_kt_05_ids_fill_the_whole_64_bit_range(ids: np.ndarray) -> None:
    vocabulary = Vocabulary.from_values(ids)
    indices = vocabulary.encode(ids)
    assert sorted(indices.tolist()) == [3, 4, 5, 6]
    assert vocabulary.decode(indices) == [int(number) for number in ids]
    assert vocabulary.num_embeddings == 7


def test_kt_05_the_same_number_is_one_key_signed_or_unsigned() -> None:
    unsigned = pa.array([0, 2147483648, 2**63, 2**64 - 1], pa.uint64())
    signed = pa.array([0, 2147483648, -1, -(2**63)])
    vocabulary = Vocabulary.from_values(unsigned)
    assert vocabulary.encode(signed).tolist() == [3, 4, UNKNOWN_INDEX, UNKNOWN_INDEX]
    builder = VocabularyBuilder("id")
    builder.add(unsigned)
    builder.add(signed[:2])
    assert builder.build().counts.tolist() == [2, 2, 1, 1]


def test_kt_06_text_that_only_looks_equal_is_another_key(tmp_path: Path) -> None:
    fitted = ["se\u00f1or", "x", "y "]
    served = ["sen\u0303or", "x\u00a0", "x\u200b", "y"]
    vocabulary = Vocabulary.from_values(fitted)
    for one in (vocabulary, saved_and_loaded(vocabulary, tmp_path)):
        assert one.encode(served).tolist() == [UNKNOWN_INDEX] * 4
        assert one.decode(one.encode(fitted)) == fitted
