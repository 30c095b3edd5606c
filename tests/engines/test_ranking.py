"""Keys that are counted in pieces, hashed to shards, and ranked in ranges, are what one process ranks."""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from recsys_emb.engines.local import Local
from recsys_emb.errors import KeyTypeError
from recsys_emb.vocabulary.key_counts import KeyCounts
from recsys_emb.vocabulary.ranking import Limits, rank_on, shards_of

SMALL = st.integers(-3, 3)
DECIMALS = st.builds(lambda digits, shift: decimal.Decimal(digits).scaleb(shift), st.integers(-999, 999), SMALL)
# Each: how values are drawn, and Arrow types that pieces of one column may have side by side.
KINDS: dict[str, tuple[st.SearchStrategy[Any], list[pa.DataType | None]]] = {
    "integers": (SMALL, [pa.int8(), pa.int64(), pa.float32()]),
    "wide integers": (st.integers(-(2**63), 2**63 - 1), [pa.int64()]),
    "unsigned integers": (st.integers(0, 2**64 - 1) | st.integers(0, 3), [pa.uint64()]),
    "integers and fractions": (st.integers(-8, 8).map(lambda number: number / 4), [pa.float64(), pa.float32()]),
    "text": (st.text(max_size=3), [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]),
    "bytes": (st.binary(max_size=2), [pa.binary()]),
    "truths": (st.booleans(), [pa.bool_()]),
    "dates": (st.dates(), [pa.date32()]),
    "times": (st.integers(0, 9000), [pa.time64("ns"), pa.time64("us")]),
    "moments": (st.integers(-(10**9), 10**9), [pa.timestamp("ns"), pa.timestamp("s")]),
    "zoned moments": (SMALL, [pa.timestamp("us", "UTC"), pa.timestamp("ns", "Europe/Rome")]),
    "durations": (SMALL, [pa.duration("ns"), pa.duration("s")]),
    "decimals": (DECIMALS, [None, pa.decimal128(9, 3)]),
    "uuids": (st.integers(0, 3).map(lambda number: uuid.UUID(int=number).bytes), [pa.uuid()]),
}


def as_array(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    if kind == pa.uuid():
        return pa.ExtensionArray.from_storage(kind, pa.array(values, pa.binary(16)))
    return pa.array(values, kind)


def counted(pieces: list[pa.Array]) -> KeyCounts:
    counts = KeyCounts("column")
    for piece in pieces:
        counts.add(piece)
    return counts


def shared_out(engine: Local, pieces: list[pa.Array], number: int, limits: Limits) -> tuple[pa.Array, list[int]]:
    shards = [[engine.put(one) for one in shards_of({"column": counted([piece])}, number)] for piece in pieces]
    handles, sizes = rank_on(engine, shards, {"column": limits})
    ranges = [one["column"] for one in engine.gather(handles)]
    assert [len(one.values) for one in ranges] == [size["column"] for size in sizes]
    values = pa.concat_arrays([one.values for one in ranges])
    return values, np.concatenate([one.counts for one in ranges]).tolist()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_ranges_are_what_one_process_ranks(kind: str, data: st.DataObject) -> None:
    drawn, types = KINDS[kind]
    piece = st.tuples(st.lists(st.none() | drawn, max_size=12), st.sampled_from(types))
    pieces = [as_array(*one) for one in data.draw(st.lists(piece, min_size=1, max_size=4))]
    number, least = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 2))
    with Local(1) as engine:
        values, counts = shared_out(engine, pieces, number, Limits(least))
    expected, expected_counts = counted(pieces).ranked(min_count=least)
    assert values.type == expected.type
    assert (values.equals(expected), counts) == (True, expected_counts.tolist())


def test_what_no_type_holds_is_refused_with_the_message_of_one_process() -> None:
    pieces = [pa.array([-5]), pa.array([2**63], pa.uint64())]
    messages = []
    with Local(1) as engine:
        for fit in (lambda: counted(pieces).ranked(), lambda: shared_out(engine, pieces, 3, Limits())):
            with pytest.raises(KeyTypeError) as caught:
                fit()
            messages.append(str(caught.value))
    assert (
        messages[0]
        == messages[1]
        == ("column: expected no negative integers beside 9223372036854775808, got -5. Store them as text.")
    )


def test_a_range_holds_about_its_share_of_values_that_all_occur_once() -> None:
    pieces = [pa.array(range(start, 40_000, 4)) for start in range(4)]
    with Local(1) as engine:
        shards = [[engine.put(one) for one in shards_of({"column": counted([piece])}, 4)] for piece in pieces]
        _, sizes = rank_on(engine, shards, {"column": Limits()})
    assert sum(size["column"] for size in sizes) == 40_000
    assert all(8_000 < size["column"] < 12_000 for size in sizes)


def test_a_shard_keeps_no_more_values_than_the_vocabulary_may_have() -> None:
    with Local(1) as engine:
        shards = [[engine.put(one) for one in shards_of({"column": counted([pa.array(range(100))])}, 2)]]
        handles, _ = rank_on(engine, shards, {"column": Limits(1, 3)})
        values = pa.concat_arrays([one["column"].values for one in engine.gather(handles)])
    assert len(values) == 6
    assert values.slice(0, 3).to_pylist() == [0, 1, 2]


def test_dates_beyond_nanoseconds_are_refused_in_whichever_shard_the_fraction_lies() -> None:
    far = pa.array([datetime.datetime(9000, 1, 1)], pa.timestamp("us"))
    fine = pa.array(range(1, 20), pa.timestamp("ns"))
    with Local(1) as engine:
        for number in (2, 3, 4):
            with pytest.raises(KeyTypeError, match=r"^timestamp\[ns\]: expected keys within"):
                shared_out(engine, [far, fine], number, Limits())
