"""A vocabulary survives files, pickles, processes and threads unchanged."""

from __future__ import annotations

import copy
import datetime
import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from recsys_emb.errors import DataError
from recsys_emb.schema import RefuseUnknown, UnknownBuckets, UnknownRow
from recsys_emb.vocabulary.vocabulary import Vocabulary

NOON = datetime.datetime(2024, 3, 1, 12)
UTC = datetime.timezone.utc

COLUMNS: dict[str, list[Any]] = {
    "integers": [30, 10, 30, -(2**63), 2**63 - 1],
    "unsigned": [2**64 - 1, 2**63, 0, 7],
    "floats": [0.5, 2.0, -1.25, 7.0],
    "decimals": [Decimal("1.10"), Decimal("2.5"), Decimal(7), Decimal(10) ** 30],
    "text": ["b", "a", "", "é", "naïve ", "x" * 100],
    "bytes": [b"A", b"\xff", b""],
    "booleans": [True, False, True],
    "dates": [datetime.date(2024, 3, 1), datetime.date(1969, 12, 31)],
    "times": [datetime.time(1, 2, 3), datetime.time(0)],
    "timestamps": [NOON, datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31)],
    "moments": [NOON.replace(tzinfo=UTC)],
    "durations": [datetime.timedelta(1), datetime.timedelta(microseconds=-1)],
    "uuids": [UUID(int=1), UUID(int=2**127)],
}


def content(vocabulary: Vocabulary) -> list[tuple[Any, int]]:
    return list(zip(vocabulary.values.to_pylist(), vocabulary.counts.tolist(), strict=True))


def test_the_fingerprint_is_of_values_and_rule_and_not_of_counts() -> None:
    one = Vocabulary.from_values(["a", "b"])
    assert one.fingerprint == Vocabulary.from_values(["a", "a", "b", "b"], name="other").fingerprint
    assert one.fingerprint == Vocabulary.from_values(pa.array(["a", "b"]).dictionary_encode()).fingerprint
    others = [
        Vocabulary.from_values(["b", "a", "b"]),
        Vocabulary.from_values(["ab"]),
        Vocabulary.from_values([b"a", b"b"]),
        Vocabulary.from_values(["a", "b"], unknown=UnknownBuckets(1)),
        Vocabulary.from_values(["a", "b"], unknown=UnknownBuckets(2)),
        Vocabulary.from_values(["a", "b"], unknown=RefuseUnknown()),
        Vocabulary.from_values([-1]),
        Vocabulary.from_values([2**64 - 1]),
        Vocabulary.from_values([0.5, 1]),
        Vocabulary.from_values([1, 0.5, 1]),
        Vocabulary.from_values([]),
    ]
    assert len({vocabulary.fingerprint for vocabulary in [one, *others]}) == 12


def test_a_fingerprint_never_changes() -> None:
    vocabulary = Vocabulary.from_values(["b", "a", "b"])
    assert vocabulary.fingerprint == "d2ebd2584450db2914a18d1c22cbb0f27328ffed6e9437abd7df167bc035e860"


@pytest.mark.parametrize("values", COLUMNS.values(), ids=COLUMNS)
def test_parquet_keeps_a_vocabulary_whole(values: list[Any], tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_values([*values, values[0]], name="key", unknown=UnknownBuckets(2))
    pq.write_table(vocabulary.to_table(), tmp_path / "key.parquet")
    loaded = Vocabulary.from_table(pq.read_table(tmp_path / "key.parquet"), name="key", unknown=UnknownBuckets(2))
    assert loaded.values.equals(vocabulary.values)
    assert loaded.values.type == vocabulary.values.type
    assert content(loaded) == content(vocabulary)
    assert loaded.fingerprint == vocabulary.fingerprint
    assert loaded.encode(values).tolist() == vocabulary.encode(values).tolist()


def test_an_empty_vocabulary_survives_parquet(tmp_path: Path) -> None:
    pq.write_table(Vocabulary.from_values([]).to_table(), tmp_path / "none.parquet")
    loaded = Vocabulary.from_table(pq.read_table(tmp_path / "none.parquet"), name="none", unknown=UnknownRow())
    assert len(loaded) == 0


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"value": ["a"]}), "key: expected columns 'value', 'count', got 'value'. Use to_table()."),
        *[
            (
                pa.table({"value": values, "count": counts}),
                "key: expected distinct values and their counts, got gaps or repeats. Use to_table().",
            )
            for values, counts in (
                (["a", "a"], [1, 1]),
                (["a", None], [1, 1]),
                (["a"], pa.array([None], pa.int64())),
                ([1.0, float("nan")], [1, 1]),
            )
        ],
    ],
)
def test_a_damaged_table_is_refused(table: pa.Table, message: str) -> None:
    with pytest.raises(DataError) as caught:
        Vocabulary.from_table(table, name="key", unknown=UnknownRow())
    assert str(caught.value) == message


# --- threads and processes -------------------------------------------------------------------------------------


def test_copies_and_pickles_encode_the_same() -> None:
    vocabulary = Vocabulary.from_values(["a", "b", "b"], name="id", unknown=UnknownBuckets(5))
    for twin in (pickle.loads(pickle.dumps(vocabulary)), copy.copy(vocabulary), copy.deepcopy(vocabulary)):
        assert twin.encode(["a", "b", "z", None]).tolist() == vocabulary.encode(["a", "b", "z", None]).tolist()
        assert (twin.name, twin.fingerprint, content(twin)) == (
            vocabulary.name,
            vocabulary.fingerprint,
            content(vocabulary),
        )


def encode_rows(vocabulary: Vocabulary) -> list[int]:
    return vocabulary.encode([f"item {number}" for number in range(50)]).tolist()


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_another_process_encodes_the_same(method: str) -> None:
    vocabulary = Vocabulary.from_values([f"item {number}" for number in range(40)], unknown=UnknownBuckets(9))
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(encode_rows, (vocabulary,)) == encode_rows(vocabulary)


def test_eight_threads_read_one_vocabulary() -> None:
    numbers = np.random.default_rng(0).integers(0, 50_000, 200_000)
    text = Vocabulary.from_values([f"item {number}" for number in range(0, 50_000, 2)])
    integers = Vocabulary.from_values(numbers[::2])
    columns = [(text, pa.array([f"item {number}" for number in numbers[:20_000]])), (integers, numbers)] * 8
    expected = [vocabulary.encode(column) for vocabulary, column in columns[:2]] * 8
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda pair: pair[0].encode(pair[1]), columns))
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
