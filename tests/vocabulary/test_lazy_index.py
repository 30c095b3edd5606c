"""A large vocabulary answers few questions without its table, and many with it, and always the same."""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow as pa
import pytest

import recsys_emb.vocabulary.key_index as key_index_module
from recsys_emb.errors import DataError, UnknownValueError
from recsys_emb.schema.tables import RefuseUnknown, UnknownBuckets, UnknownRow
from recsys_emb.vocabulary.lazy_index import LazyIndex
from recsys_emb.vocabulary.vocabulary import Vocabulary

VALUES = [
    [7, -5, 0, 2**62, 11],
    ["b", "a", "", "é\n", "nan"],
    [b"b", b"", b"\x00"],
    [1.5, 2.0, -3.25, 7.0],
    [2**63 + 1, 5, 2**64 - 1],
    [True, False],
    [uuid.UUID(int=5), uuid.UUID(int=7)],
]


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index_module, "LARGE", 1)


def both(values: list[object], unknown=UnknownRow()) -> tuple[Vocabulary, Vocabulary]:
    eager = Vocabulary.from_values(values, name="x", unknown=unknown)
    return eager, Vocabulary.from_table(eager.to_table(), name="x", unknown=unknown, lazily=True)


def tables(vocabulary: Vocabulary) -> list[LazyIndex]:
    return list(vocabulary._index._tables.values())


@pytest.mark.parametrize("values", VALUES, ids=lambda values: type(values[0]).__name__)
@pytest.mark.parametrize("unknown", [UnknownRow(), UnknownBuckets(3)], ids=repr)
def test_few_and_many_keys_have_the_indices_of_an_eager_vocabulary(values: list[object], unknown) -> None:
    eager, lazy = both(values, unknown)
    stranger = {str: "zz", bytes: b"zz", uuid.UUID: uuid.UUID(int=9)}.get(type(values[0]), values[0])
    for asked in ([values[-1]], [None], [stranger, values[0], None], values):
        assert lazy.encode(asked).tolist() == eager.encode(asked).tolist()
    assert not any(table.is_built for table in tables(lazy))
    many = [*values, stranger, None] * 5
    assert lazy.encode(many).tolist() == eager.encode(many).tolist()
    assert any(table.is_built for table in tables(lazy))
    assert lazy.decode(lazy.encode(values)) == eager.decode(eager.encode(values))


def test_slices_and_nulls_are_read_where_they_are() -> None:
    eager, lazy = both([7, 5, 3])
    asked = pa.array([None, 3, None, 7, 9]).slice(1, 4)
    assert lazy.encode(asked).tolist() == eager.encode(asked).tolist()
    eager, lazy = both(["c", "b", "a"])
    asked = pa.array([None, "a", None, "c", "z"]).slice(1, 4)
    assert lazy.encode(asked).tolist() == eager.encode(asked).tolist()


def test_enough_questions_build_the_table() -> None:
    _, lazy = both(["a", "b"])
    for _ in range(100):
        assert lazy.encode(["b"]).tolist() == [4]
    assert all(table.is_built for table in tables(lazy))


def test_refused_values_are_refused_either_way() -> None:
    _, lazy = both(["a", "b"], RefuseUnknown())
    with pytest.raises(UnknownValueError):
        lazy.encode(["zz"])


def test_it_grows_like_any_other() -> None:
    from recsys_emb.vocabulary.vocabulary import VocabularyBuilder

    eager, lazy = both(["a", "b"])
    builder = VocabularyBuilder("x")
    builder.add(pa.array(["b", "c"]))
    assert lazy.extended(builder).fingerprint == eager.extended(builder).fingerprint
    assert lazy.fingerprint == eager.fingerprint


def test_repeats_are_found_when_the_table_is_built() -> None:
    table = pa.table({"value": ["a", "b", "a"], "count": np.ones(3, np.int64)})
    lazy = Vocabulary.from_table(table, name="x", unknown=UnknownRow(), lazily=True)
    with pytest.raises(DataError) as caught:
        lazy.encode(["a"] * 9)
    assert str(caught.value) == "vocabulary: expected distinct values, got 1 repeated. Save it again."
