"""Known faults of other libraries, kind "vocabulary and unknowns": none of them here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.testing import assert_close

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import IndexRangeError, UnknownValueError
from recsys_emb.lookup.category import CategoryEmbedding
from recsys_emb.lookup.one_hot import one_hot
from recsys_emb.schema import Categorical, RefuseUnknown, Schema, UnknownBuckets, UnknownRow
from recsys_emb.vocabulary.reserved import MISSING_INDEX, UNKNOWN_INDEX
from recsys_emb.vocabulary.vocabulary import Vocabulary

RULES = [UnknownRow(), UnknownBuckets(1), UnknownBuckets(5), RefuseUnknown()]
ROWS = ["a", "a", "a", "b", "b", "c", "c", "d", "d"]

FIT_AND_PRINT = """
import json, sys
from recsys_emb.vocabulary.vocabulary import Vocabulary
from recsys_emb.schema import UnknownBuckets
vocabulary = Vocabulary.from_values(sys.argv[1].split(), unknown=UnknownBuckets(64))
print(json.dumps([vocabulary.values.to_pylist(), vocabulary.encode(["x", "y", "z"]).tolist()]))
"""


def test_vo_01_an_unseen_value_is_unknown_and_never_its_neighbour() -> None:
    ids = Vocabulary.from_values([10, 20, 30, 50, 60])
    assert ids.encode([10, 20, 40, 70, 999, -5]).tolist() == [3, 4] + [UNKNOWN_INDEX] * 4
    labels = Vocabulary.from_values(["k", "t", "m", "n", "p"])
    assert labels.encode(["k", "l", "m", "z", ""]).tolist() == [3, UNKNOWN_INDEX, 4, UNKNOWN_INDEX, UNKNOWN_INDEX]
    flag = Vocabulary.from_values([False, False])
    assert flag.encode([False, True]).tolist() == [3, UNKNOWN_INDEX]


def test_vo_01_through_the_encoder_every_index_has_a_row() -> None:
    schema = Schema(user=Categorical("id"), item=Categorical("label"), item_features=[Categorical("flag")])
    train = pd.DataFrame({"id": [10, 20, 30, 50, 60], "label": list("ktmnp"), "flag": False})
    encoder = FeatureEncoder(schema).fit(train)
    served = pd.DataFrame({"id": [40, 999], "label": ["l", ""], "flag": [True, True]})
    batch = encoder.transform(served)
    for name in schema.names:
        assert batch.indices(name).tolist() == [UNKNOWN_INDEX, UNKNOWN_INDEX]
        assert encoder.num_embeddings(name) > UNKNOWN_INDEX


def test_vo_01_strict_mode_lists_the_offending_values() -> None:
    vocabulary = Vocabulary.from_values([10, 20, 30], name="id", unknown=RefuseUnknown())
    with pytest.raises(UnknownValueError) as caught:
        vocabulary.encode([10, 40, 999, 40])
    assert str(caught.value) == (
        "id: expected values of the vocabulary, got 40, 999. Fit on them, or declare unknown=UnknownRow()."
    )


@pytest.mark.parametrize("unknown", RULES, ids=repr)
def test_vo_02_the_published_index_of_a_value_is_the_one_that_encode_gives(unknown: Any) -> None:
    vocabulary = Vocabulary.from_values([10, 30, 20, 30], unknown=unknown)
    frame = vocabulary.to_frame()
    assert vocabulary.encode(frame["value"]).tolist() == frame["index"].tolist()
    assert len(frame) + vocabulary.first_index == vocabulary.num_embeddings
    assert vocabulary.decode(frame["index"]) == frame["value"].tolist() == [30, 10, 20]
    assert frame["count"].tolist() == [2, 1, 1]


@pytest.mark.parametrize("unknown", RULES, ids=repr)
def test_vo_02_reserved_indices_decode_to_nothing_and_others_are_refused(unknown: Any) -> None:
    vocabulary = Vocabulary.from_values([10, 30, 20, 30], unknown=unknown)
    assert vocabulary.decode(range(vocabulary.first_index)) == [None] * vocabulary.first_index
    for index in (-1, -2, vocabulary.num_embeddings):
        with pytest.raises(IndexRangeError):
            vocabulary.decode([index])


def test_vo_03_the_map_does_not_depend_on_the_hash_seed_of_the_process() -> None:
    command = [sys.executable, "-c", FIT_AND_PRINT, " ".join(ROWS[::-1])]
    here = Vocabulary.from_values(ROWS, unknown=UnknownBuckets(64))
    answer = json.dumps([list("abcd"), here.encode(["x", "y", "z"]).tolist()]) + "\n"
    # 0 switches Python's hash seed off, which is hardly what this process drew.
    there = subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=True
    )
    assert there.stdout == answer


def test_vo_03_the_map_does_not_depend_on_the_order_of_rows_or_files(tmp_path: Path) -> None:
    files = [tmp_path / "one.parquet", tmp_path / "two.parquet"]
    for file, rows in zip(files, (ROWS[:4], ROWS[4:]), strict=True):
        pq.write_table(pa.table({"id": rows}), file)
    schema = Schema(user=Categorical("id"))
    sources = [files, files[::-1], pd.DataFrame({"id": ROWS}), pd.DataFrame({"id": ROWS[::-1]})]
    tables = [FeatureEncoder(schema).fit(source).vocabularies["id"].to_table() for source in sources]
    assert all(table.equals(tables[0]) for table in tables)


def test_vo_03_ties_at_the_cut_are_broken_by_value() -> None:
    for rows in (ROWS, ROWS[::-1], np.random.default_rng(0).permutation(ROWS)):
        assert Vocabulary.from_values(rows, max_size=2).values.to_pylist() == ["a", "b"]


def test_vo_06_one_hot_rows_have_one_width_and_meaning() -> None:
    vocabulary = Vocabulary.from_values(["a", "b", "c"])
    table = CategoryEmbedding(vocabulary.num_embeddings, 4, init_std=1.0, generator=torch.Generator().manual_seed(0))
    rows: dict[str, torch.Tensor] = {}
    for served in (["b"], ["zzz"], [None], ["a", "b", "c", "zzz"]):
        indices = vocabulary.encode(served)
        dense = one_hot(indices, vocabulary.num_embeddings)
        sparse = one_hot(indices, vocabulary.num_embeddings, sparse=True)
        assert dense.shape == (len(served), 6)
        assert_close(sparse.to_dense(), dense)
        assert_close(dense @ table.weight, table(indices))
        rows.update({str(value): row for value, row in zip(served, dense, strict=True)})
    assert [int(rows[value].argmax()) for value in ("a", "b", "c", "zzz", "None")] == [3, 4, 5, 2, MISSING_INDEX]
