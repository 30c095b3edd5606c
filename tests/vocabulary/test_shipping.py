from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
import torch

from recsys_emb.schema.tables import RefuseUnknown, UnknownBuckets, UnknownRow
from recsys_emb.vocabulary.lazy_index import LARGE
from recsys_emb.vocabulary.shipping import Shipped
from recsys_emb.vocabulary.vocabulary import Vocabulary


@pytest.mark.parametrize("unknown", [UnknownRow(), UnknownBuckets(3), RefuseUnknown()])
@pytest.mark.parametrize("values", [[7, 5, 7, None], ["b", "a", "b", None], [0.5, 2.0, 0.5, None], [None, None]])
def test_a_shipped_vocabulary_is_the_same(values: list[object], unknown: UnknownRow) -> None:
    own = Vocabulary.from_values(values, name="column", unknown=unknown)
    arrived = pickle.loads(pickle.dumps(Shipped(own), protocol=5)).vocabulary
    assert torch.equal(arrived.encode(values), own.encode(values))
    assert (arrived.fingerprint, arrived.name, arrived.unknown) == (own.fingerprint, "column", unknown)
    assert arrived.to_table().equals(own.to_table())


def test_one_that_was_loaded_lazily_arrives_with_its_tables() -> None:
    table = pa.table({"value": range(LARGE), "count": [1] * LARGE})
    lazy = Vocabulary.from_table(table, name="column", unknown=UnknownRow(), lazily=True)
    assert lazy.index.is_lazy
    arrived = pickle.loads(pickle.dumps(Shipped(lazy), protocol=5)).vocabulary
    assert not arrived.index.is_lazy
    assert arrived.encode([5, LARGE]).tolist() == [8, 2]


def test_the_tables_travel_as_buffers_that_can_be_shared() -> None:
    own = Vocabulary.from_values(range(0, 10**9, 10**4), name="column")
    buffers: list[pickle.PickleBuffer] = []
    stream = pickle.dumps(Shipped(own), protocol=5, buffer_callback=buffers.append)
    assert len(stream) < 3000
    shared = [memoryview(bytes(buffer.raw())) for buffer in buffers]
    assert pickle.loads(stream, buffers=shared).vocabulary.encode([10**4, 7]).tolist() == [4, 2]
