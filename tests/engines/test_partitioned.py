"""A vocabulary that stays in files answers as the same one in memory."""

from __future__ import annotations

import datetime
import decimal
import itertools
import json
import pickle
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.engines.local import Local
from recsys_emb.errors import DataError, IndexRangeError, KeyTypeError, LineageError, UnknownValueError
from recsys_emb.schema import Categorical, MultiCategorical, RefuseUnknown, Schema, UnknownBuckets
from recsys_emb.sources.locations import Location
from recsys_emb.sources.writing import read_table
from recsys_emb.vocabulary import partitioned, spilling
from recsys_emb.vocabulary.partitioned import PartitionedVocabulary
from recsys_emb.vocabulary.spilling import Spill
from recsys_emb.vocabulary.vocabulary import Vocabulary


def uuids(numbers: Iterable[int]) -> pa.Array:
    stored = pa.array([uuid.UUID(int=one).bytes for one in numbers], pa.binary(16))
    return pa.ExtensionArray.from_storage(pa.uuid(), stored)


RNG = np.random.default_rng(0)
# By name: values to fit on, and some that were not there.
COLUMNS: dict[str, tuple[pa.Array, pa.Array]] = {
    "integers": (pa.array([*RNG.integers(-(2**62), 2**62, 300).tolist(), 5, 5, None]), pa.array([6, None])),
    "text": (pa.array([f"w{one}" for one in RNG.zipf(1.3, 300)] + ["", None]), pa.array(["new", None])),
    "fractions": (pa.array([one / 4 for one in range(40)] * 2 + [None, np.nan]), pa.array([0.3, 99.0])),
    "unsigned": (pa.array([2**63 + one for one in range(9)] + [1, 2], pa.uint64()), pa.array([3, 2**63], pa.uint64())),
    "decimals": (pa.array([decimal.Decimal(one) / 8 for one in range(40)]), pa.array([decimal.Decimal("0.3")])),
    "moments": (pa.array(range(50), pa.timestamp("ns")), pa.array([datetime.datetime(2020, 1, 1)])),
    "uuids": (uuids(range(9)), uuids([99])),
    "one": (pa.array([7]), pa.array([7, 8])),
}


def fitted(column: pa.Array, spill: Spill | None = None, **options: Any) -> Vocabulary:
    schema = Schema(context_features=[Categorical("column", **options)])
    with Local(2) as engine:
        encoder = FeatureEncoder(schema).fit(pa.table({"column": column}), engine=engine, spill=spill)
    return encoder.vocabularies["column"]


def parted(folder: Path, column: pa.Array, **options: Any) -> tuple[Vocabulary, PartitionedVocabulary]:
    spilled = fitted(column, Spill(str(folder), above=0), **options)
    assert isinstance(spilled, PartitionedVocabulary)
    return fitted(column, **options), spilled


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("unknown", [None, UnknownBuckets(5)])
def test_it_is_the_vocabulary_that_memory_holds(name: str, unknown: UnknownBuckets | None, tmp_path: Path) -> None:
    column, others = COLUMNS[name]
    expected, spilled = parted(tmp_path, column, **({} if unknown is None else {"unknown": unknown}))
    assert (len(spilled), spilled.num_embeddings) == (len(expected), expected.num_embeddings)
    assert spilled.fingerprint == expected.fingerprint
    for values in (column, others, column.dictionary_encode() if name != "uuids" else column, column[:0], column[3:7]):
        assert torch.equal(spilled.encode(values), expected.encode(values))
    indices = torch.from_numpy(RNG.permutation(expected.num_embeddings))
    for some in (indices, indices[:3], indices[:0]):
        assert spilled.take(some).equals(expected.take(some))
    assert spilled.to_table().equals(expected.to_table())
    assert spilled.fingerprint_of(1) == expected.fingerprint_of(1)


def test_numpy_integers_and_single_values_are_found(tmp_path: Path) -> None:
    expected, spilled = parted(tmp_path, COLUMNS["integers"][0])
    keys = np.array([5, 6, int(expected.values[3].as_py())])
    assert spilled.encode(keys).tolist() == expected.encode(keys).tolist()
    for one in (5, 6, 5.0, None, "5"):
        assert spilled.encode_one(one) == expected.encode_one(one)
    assert [5 in spilled, 6 in spilled, "5" in spilled] == [True, False, False]


def test_few_shards_are_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioned, "HELD", 1)
    expected, spilled = parted(tmp_path, COLUMNS["text"][0])
    column = COLUMNS["text"][0]
    assert torch.equal(spilled.encode(column), expected.encode(column))
    with pytest.warns(UserWarning, match="are read again") as caught:
        found = [spilled.encode(column) for _ in range(3)]
    assert all(torch.equal(one, expected.encode(column)) for one in found)
    assert [(str(one.message), one.filename) for one in caught] == [
        (
            "column: of 2 files of values, 1 stay in memory at a time, and others are read again for every batch. "
            "Encode many rows with FeatureEncoder.transform_to, which reads each file once.",
            __file__,
        )
    ]


def test_values_are_decoded_from_their_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, spilled = parted(tmp_path, COLUMNS["integers"][0])
    read: list[tuple[str, Any]] = []

    def watched(place: Location, name: str, columns: Any = None) -> pa.Table:
        read.append((name, columns))
        return read_table(place, name, columns)

    monkeypatch.setattr(partitioned, "read_table", watched)
    assert spilled.take([0, 1, 2]).equals(expected.take([0, 1, 2]))
    last = expected.num_embeddings - 1
    assert spilled.decode([last, 1]) == expected.decode([last, 1])
    assert read == [("ranked-00001.parquet", ["value"])]


def test_a_pickle_holds_the_place_alone(tmp_path: Path) -> None:
    expected, spilled = parted(tmp_path, COLUMNS["text"][0])
    content = pickle.dumps(spilled)
    assert len(content) < 500
    assert torch.equal(pickle.loads(content).encode(["w1", "w2"]), expected.encode(["w1", "w2"]))
    assert repr(spilled) == f"PartitionedVocabulary('column', {len(expected)} values in {tmp_path}/000)"


def test_limits_cut_it_as_they_cut_one_in_memory(tmp_path: Path) -> None:
    for number, limits in enumerate(({"min_count": 2}, {"max_size": 7}, {"min_count": 2, "max_size": 3})):
        expected, spilled = parted(tmp_path / str(number), COLUMNS["text"][0], **limits)
        assert spilled.to_table().equals(expected.to_table())
        assert spilled.fingerprint == expected.fingerprint
        assert torch.equal(spilled.encode(COLUMNS["text"][0]), expected.encode(COLUMNS["text"][0]))


def test_what_memory_refuses_is_refused(tmp_path: Path) -> None:
    _, spilled = parted(tmp_path, COLUMNS["text"][0], unknown=RefuseUnknown())
    with pytest.raises(UnknownValueError) as caught:
        spilled.encode(["w1", "new"])
    assert str(caught.value) == (
        "column: expected values of the vocabulary, got 'new'. Fit on them, or declare unknown=UnknownRow()."
    )
    with pytest.raises(KeyTypeError, match=r"^column: expected text keys, got integer \(7\)"):
        spilled.encode([7])
    with pytest.raises(IndexRangeError, match=r"^column: expected indices in"):
        spilled.take([10**9])


def test_it_grows_into_one_in_memory(tmp_path: Path) -> None:
    schema = Schema(user=Categorical("user"))
    old, new = pa.table({"user": ["b", "a", "b"]}), pa.table({"user": ["c", "a"]})
    with Local(1) as engine:
        spilled = FeatureEncoder(schema).fit(old, engine=engine, spill=Spill(str(tmp_path), above=0))
    grown = spilled.partial_fit(new).vocabularies["user"]
    assert grown.to_table().to_pydict() == {"value": ["b", "a", "c"], "count": [2, 2, 1]}


def test_small_vocabularies_stay_in_memory(tmp_path: Path) -> None:
    schema = Schema(user=Categorical("user"), context_features=[Categorical("country")])
    rows = pa.table({"user": list(range(20)), "country": ["a", "b"] * 10})
    encoder = FeatureEncoder(schema).fit(rows, spill=Spill(str(tmp_path), above=10))
    kinds = {name: type(one) for name, one in encoder.vocabularies.items()}
    assert kinds == {"user": PartitionedVocabulary, "country": Vocabulary}
    assert [path.name for path in tmp_path.iterdir()] == ["000"]
    assert encoder.fingerprint == FeatureEncoder(schema).fit(rows).fingerprint


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(DataError) as caught:
        fitted(pa.array([1]), Spill(str(tmp_path)))
    assert str(caught.value) == f"{tmp_path}: expected an empty folder, got 'mine.txt'. Give another one."
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_fit_that_is_refused_leaves_an_empty_folder_and_can_be_tried_again(tmp_path: Path) -> None:
    spill = Spill(str(tmp_path), above=0)
    encoder = FeatureEncoder(Schema(user=Categorical("user"))).fit({"user": ["a", "b", "b"]})
    before = encoder.fingerprint
    with pytest.raises(LineageError):
        encoder.fit({"user": ["a", "b", "a"]}, spill=spill)
    assert (list(tmp_path.iterdir()), encoder.fingerprint) == ([], before)
    encoder.fit({"user": ["a", "b", "a"]}, spill=spill, renumber=True)
    assert encoder.vocabularies["user"].decode([3, 4]) == ["a", "b"]


def test_a_spill_that_breaks_off_leaves_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise DataError("full")

    monkeypatch.setattr(spilling, "write_bytes", refuse)  # the last file
    with pytest.raises(DataError, match=r"^full$"):
        fitted(pa.array([1, 2]), Spill(str(tmp_path), above=0))
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_named_when_it_is_needed(tmp_path: Path) -> None:
    _, spilled = parted(tmp_path, COLUMNS["text"][0])
    for path in (tmp_path / "000").glob("hashed-*"):
        path.unlink()
    with pytest.raises(DataError, match=r"/000/hashed-0000\d.parquet: expected a whole Parquet file, got an error: "):
        spilled.encode(["w1"])
    with pytest.raises(DataError, match=r"^\S+/001/vocabulary.json: expected a vocabulary, got an error: "):
        PartitionedVocabulary(str(tmp_path / "001"))
    (tmp_path / "000" / "vocabulary.json").write_text("{")
    with pytest.raises(DataError, match=r"^\S+/000/vocabulary.json: expected a vocabulary, got an error: "):
        PartitionedVocabulary(str(tmp_path / "000"))


# --- rows that are encoded by a join -----------------------------------------------------------------------------

SCHEMA = Schema(
    user=Categorical("user", unknown=UnknownBuckets(3)),
    item=Categorical("item"),
    user_features=[MultiCategorical("recent", vocabulary="item", max_length=2)],
    context_features=[Categorical("size")],
)


def content(batch: Batch) -> Any:
    columns = {
        name: (one.values, one.offsets) if isinstance(one, Jagged) else (one,) for name, one in batch.columns.items()
    }
    return [(name, one.tolist()) for name, own in columns.items() for one in own], dict(batch.limits)


@pytest.mark.parametrize("rows", [0, 1, 200])
def test_rows_are_encoded_by_a_join_as_in_memory(rows: int, tmp_path: Path, pickling: Local) -> None:
    items = [f"i{one}" for one in RNG.zipf(1.3, 201)]
    whole = pa.table(
        {
            "user": pa.array(RNG.integers(0, 90, 200)),
            "item": items[:200],
            "recent": [[one, None, other] for one, other in itertools.pairwise(items)],
            "size": pa.array(RNG.integers(0, 9, 200) / 2),
        }
    )
    known = whole.slice(0, 120)
    encoder = FeatureEncoder(SCHEMA).fit(known)
    spilled = FeatureEncoder(SCHEMA).fit(known, engine=pickling, spill=Spill(str(tmp_path / "spilled"), above=0))
    source = whole.slice(0, rows)
    expected = content(encoder.transform(source))
    assert spilled.fingerprint == encoder.fingerprint
    assert content(spilled.transform(source)) == expected
    for number, engine in enumerate((None, pickling)):
        for place, given in enumerate((source, source.to_reader(max_chunksize=60))):
            written = spilled.transform_to(given, tmp_path / f"{number}{place}", engine=engine)
            assert content(written.read(encoder)) == expected


def test_keys_of_another_kind_are_refused_by_the_join_too(tmp_path: Path, pickling: Local) -> None:
    schema = Schema(user=Categorical("user"))
    encoder = FeatureEncoder(schema).fit({"user": ["a", "b"]}, spill=Spill(str(tmp_path / "spilled"), above=0))
    with pytest.raises(KeyTypeError, match=r"^user: expected text keys, got integer \(1, 2\)"):
        encoder.transform_to({"user": [1, 2]}, tmp_path / "out", engine=pickling)


def test_another_vocabulary_in_its_place_is_refused(tmp_path: Path) -> None:
    _, spilled = parted(tmp_path / "one", pa.array([50, 60, 70]))
    travelled = pickle.dumps(spilled)
    parted(tmp_path / "two", pa.array([70, 80, 90]))
    shutil.rmtree(tmp_path / "one")
    (tmp_path / "two").rename(tmp_path / "one")
    for use in (
        lambda: spilled.encode(pa.array([70])),
        lambda: spilled.take(torch.tensor([3])),
        lambda: pickle.loads(travelled),
    ):
        with pytest.raises(DataError) as caught:
            use()
        assert str(caught.value) == (
            f"{tmp_path}/one/000: expected the vocabulary that was opened, got another. The folder has changed. "
            "Fit again with spill= to a folder of its own."
        )


@pytest.mark.parametrize(
    ("change", "got"),
    [
        ({"ranges": None}, "a TypeError: 'NoneType' object is not iterable"),
        ({"ranges": ["x"]}, "a TypeError: 'str' object cannot be interpreted as an integer"),
        ({"kinds": ["colour"]}, "a KeyError: 'colour'"),
        ({"unknown": {"kind": "odd", "rows": 1}}, "a KeyError: 'odd'"),
    ],
)
def test_a_description_that_is_not_whole_is_refused(change: dict[str, Any], got: str, tmp_path: Path) -> None:
    parted(tmp_path, pa.array([50]))
    file = tmp_path / "000" / "vocabulary.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(DataError) as caught:
        PartitionedVocabulary(tmp_path / "000")
    assert str(caught.value) == f"{file}: expected a whole description, got {got}. Fit again with spill=."


def test_a_description_without_a_key_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    parted(tmp_path, pa.array([50]))
    file = tmp_path / "000" / "vocabulary.json"
    for content, got in (({"format_version": 1}, "KeyError: 'name'"), ([], "list"), (None, "NoneType")):
        file.write_text(json.dumps(content))
        with pytest.raises(DataError) as caught:
            PartitionedVocabulary(tmp_path / "000")
        assert str(caught.value) == f"{file}: expected a whole description, got a {got}. Fit again with spill=."


@pytest.mark.parametrize("above", ["x", None, -1, 1.5, True])
def test_a_spill_is_told_a_whole_number(above: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        Spill(tmp_path, above=above)
    assert str(caught.value) == (
        f"Spill: expected above to be an integer of at least 0, got {above!r}. Give above=0 or more."
    )


def test_a_spill_is_told_a_path(tmp_path: Path) -> None:
    assert isinstance(fitted(pa.array([50, 60]), Spill(tmp_path / "v", above=0)), PartitionedVocabulary)
    with pytest.raises(DataError) as caught:
        Spill(None)
    assert str(caught.value) == "Spill: folder: expected a path, got None. Give a text or a Path."
    with pytest.raises(DataError) as caught:
        fitted(pa.array([50]), "folder")
    assert str(caught.value) == ("FeatureEncoder.fit: expected spill to be a Spill, got 'folder'. Pass Spill(folder).")
