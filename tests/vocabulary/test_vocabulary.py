"""A vocabulary maps values to indices and back, the same way for every container, for life."""

from __future__ import annotations

import datetime
import itertools
from collections import Counter
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.errors import IndexRangeError, KeyTypeError, UnknownValueError
from recsys_emb.kernels.stable_hash import hash_bytes_reference, hash_integer_reference
from recsys_emb.schema import RefuseUnknown, UnknownBuckets
from recsys_emb.vocabulary.reserved import MISSING_INDEX, UNKNOWN_INDEX
from recsys_emb.vocabulary.vocabulary import Vocabulary, VocabularyBuilder

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

keys = st.lists(st.none() | st.integers(-3, 12), max_size=60)
texts = st.lists(st.none() | st.text("ab\0é", max_size=3), max_size=60)


def ranked(values: list[Any], *, min_count: int = 1, max_size: int | None = None) -> list[tuple[Any, int]]:
    """Order the plain way: count descending, then value ascending, text by its UTF-8 bytes."""
    counts = Counter(value for value in values if value is not None)
    order = sorted(
        counts.items(), key=lambda item: (-item[1], item[0].encode() if isinstance(item[0], str) else item[0])
    )
    return [item for item in order if item[1] >= min_count][:max_size]


def content(vocabulary: Vocabulary) -> list[tuple[Any, int]]:
    return list(zip(vocabulary.values.to_pylist(), vocabulary.counts.tolist(), strict=True))


# --- order, counts, sizes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [keys, texts], ids=["integers", "text"])
def test_values_are_ordered_by_count_then_value(columns: st.SearchStrategy[list[Any]]) -> None:
    @settings(max_examples=50, deadline=None)
    @given(values=columns, min_count=st.integers(1, 3), max_size=st.none() | st.integers(1, 9))
    def check(values: list[Any], min_count: int, max_size: int | None) -> None:
        vocabulary = Vocabulary.from_values(values, min_count=min_count, max_size=max_size)
        assert content(vocabulary) == ranked(values, min_count=min_count, max_size=max_size)

    check()


@settings(max_examples=40, deadline=None)
@given(values=keys, cuts=st.lists(st.integers(0, 60), max_size=4), seed=st.integers(0, 99))
def test_order_of_rows_and_cuts_and_containers_do_not_matter(
    values: list[int | None], cuts: list[int], seed: int
) -> None:
    shuffled = pa.array(np.random.default_rng(seed).permutation(np.array(values, object)), pa.int64())
    forms = [
        lambda array: array,
        lambda array: array.cast(pa.float64()),
        lambda array: array.dictionary_encode(),
        lambda array: array.cast(pa.decimal128(21, 2)),
    ]
    builder = VocabularyBuilder("id")
    bounds = sorted({0, *(min(cut, len(values)) for cut in cuts), len(values)})
    for number, (start, end) in enumerate(itertools.pairwise(bounds)):
        builder.add(forms[number % len(forms)](shuffled[start:end]))
    assert content(builder.build()) == ranked(values)


@pytest.mark.parametrize("values", COLUMNS.values(), ids=COLUMNS)
def test_every_kind_of_key_decodes_to_what_was_encoded(values: list[Any]) -> None:
    vocabulary = Vocabulary.from_values([*values, None])
    indices = vocabulary.encode([*values, None])
    assert vocabulary.decode(indices) == [*values, None]
    assert [type(value) for value in vocabulary.decode(indices)[:-1]] == [type(value) for value in values]
    assert indices.dtype == torch.int64
    assert indices[-1] == MISSING_INDEX
    assert set(indices[:-1].tolist()) == set(range(3, 3 + len(set(values))))


def test_sizes_count_reserved_rows() -> None:
    vocabulary = Vocabulary.from_values(["a", "b"], unknown=UnknownBuckets(4))
    assert (len(vocabulary), vocabulary.first_index, vocabulary.num_embeddings) == (2, 6, 8)
    assert repr(vocabulary) == "Vocabulary('values', 2 large_string values, UnknownBuckets(count=4))"


def test_the_frame_lists_real_values_only() -> None:
    frame = Vocabulary.from_values([10, 30, 20, 30, None], unknown=UnknownBuckets(2)).to_frame()
    expected = pd.DataFrame({"value": [30, 10, 20], "index": [4, 5, 6], "count": [2, 1, 1]})
    pd.testing.assert_frame_equal(frame, expected)


def test_counts_given_away_are_a_copy() -> None:
    vocabulary = Vocabulary.from_values(["a"])
    vocabulary.counts[0] = 99
    assert vocabulary.counts.tolist() == [1]


def test_a_dictionary_counts_only_the_entries_in_use() -> None:
    entries = pa.array(["unused", "a", None, "a", "b"])
    column = pa.DictionaryArray.from_arrays(pa.array([1, 3, 2, None, 4, 1]), entries)
    for values in (
        column,
        column.cast(pa.dictionary(pa.int8(), pa.string())),
        pa.chunked_array([column[:2], column[2:]]),
    ):
        vocabulary = Vocabulary.from_values(values)
        assert content(vocabulary) == [("a", 3), ("b", 1)]
        assert vocabulary.encode(values).tolist() == [3, 3, 1, 1, 4, 3]


def test_a_dictionary_longer_than_the_column_reads_the_same() -> None:
    entries = pa.array([f"entry {number}" for number in range(100)])
    column = pa.DictionaryArray.from_arrays(pa.array([42, None, 7, 42]), entries)
    vocabulary = Vocabulary.from_values(column)
    assert content(vocabulary) == [("entry 42", 2), ("entry 7", 1)]
    assert vocabulary.encode(column).tolist() == [3, 1, 4, 3]


def test_slices_and_chunks_of_any_size_read_the_same() -> None:
    text = pa.array(["?", "a", None, "b", "a", "?"])[1:5]
    chunks = pa.chunked_array([text[:1], text[1:1], text[1:]])
    vocabulary = Vocabulary.from_values(chunks)
    assert content(vocabulary) == [("a", 2), ("b", 1)]
    assert vocabulary.encode(text).tolist() == vocabulary.encode(chunks).tolist() == [3, 1, 4, 3]


# --- encode ----------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(fitted=keys, served=keys)
def test_encoding_agrees_with_a_dict(fitted: list[int | None], served: list[int | None]) -> None:
    vocabulary = Vocabulary.from_values(fitted)
    indices = {value: index for index, (value, _) in enumerate(ranked(fitted), 3)}
    expected = [MISSING_INDEX if key is None else indices.get(key, UNKNOWN_INDEX) for key in served]
    assert vocabulary.encode(served).tolist() == expected
    assert vocabulary.encode(pd.Series(served, dtype="Int64").astype("category")).tolist() == expected


def test_all_containers_of_one_column_encode_alike() -> None:
    vocabulary = Vocabulary.from_values([5, 7, 9])
    for values in (
        [5, 9, 7],
        (5.0, 9.0, 7.0),
        np.array([5, 9, 7], np.int8),
        np.array([5, 9, 7], ">u4"),
        np.array([7, 9, 5])[::-1],
        pd.Series([5, 9, 7], dtype="Int64"),
        pd.Series([5, 9, 7]).astype("category"),
        pd.Index([5, 9, 7]),
        pl.Series([5, 9, 7]),
        torch.tensor([5, 9, 7]),
        pa.array([Decimal(5), Decimal(9), Decimal(7)]),
        pa.array([5, 9, 7], pa.uint64()),
    ):
        assert vocabulary.encode(values).tolist() == [3, 5, 4]


def test_batches_of_no_and_one_row_keep_their_shape() -> None:
    vocabulary = Vocabulary.from_values(["a", "b"])
    assert vocabulary.encode([]).shape == (0,)
    assert vocabulary.encode(pa.array([], pa.int64())).shape == (0,)
    assert vocabulary.encode(["b"]).tolist() == [4]


def test_a_fraction_is_unknown_to_integers_and_a_whole_number_is_known_to_fractions() -> None:
    integers, fractions = Vocabulary.from_values([5, 6]), Vocabulary.from_values([5.5, 6.0])
    assert integers.encode([5.5, 5.0]).tolist() == [UNKNOWN_INDEX, 3]
    assert integers.encode([Decimal("5.5"), Decimal("5.0")]).tolist() == [UNKNOWN_INDEX, 3]
    assert fractions.encode(pa.array([6, 5])).tolist() == [4, UNKNOWN_INDEX]
    assert fractions.encode(pa.array([2**63], pa.uint64())).tolist() == [UNKNOWN_INDEX]


def test_signed_and_unsigned_twins_of_one_bit_pattern_are_two_values() -> None:
    signed, unsigned = Vocabulary.from_values([-1, 5]), Vocabulary.from_values([2**64 - 1, 5])
    assert signed.encode([2**64 - 1, 5]).tolist() == [UNKNOWN_INDEX, 4]
    assert unsigned.encode([-1, 5]).tolist() == [UNKNOWN_INDEX, 3]
    assert unsigned.encode([2**64 - 1, -1]).tolist() == [4, UNKNOWN_INDEX]


def test_an_empty_vocabulary_knows_no_value_of_any_kind() -> None:
    vocabulary = Vocabulary.from_values(pd.Series([None, float("nan")]))
    assert (len(vocabulary), vocabulary.num_embeddings) == (0, 3)
    for values in (["a", None], [5, None], pa.array([NOON, None])):
        assert vocabulary.encode(values).tolist() == [UNKNOWN_INDEX, MISSING_INDEX]


@pytest.mark.parametrize(
    ("fitted", "served", "message"),
    [
        (
            [10, 11],
            ["10", "11", "10"],
            "item_id: expected integer keys, got text ('10', '11'). Convert the column to integers before encoding.",
        ),
        (
            ["10"],
            [2**63],
            "item_id: expected text keys, got unsigned integer (9223372036854775808). "
            "Convert the column to text before encoding.",
        ),
        ([b"A"], ["A"], "item_id: expected bytes keys, got text ('A'). Convert the column to bytes before encoding."),
        (
            [True],
            [1],
            "item_id: expected boolean keys, got integer (1). Convert the column to booleans before encoding.",
        ),
        (
            [Decimal("0.5")],
            [0.5],
            "item_id: expected decimal keys, got float (0.5). Convert the column to decimals before encoding.",
        ),
        (
            [0.5, 1],
            [Decimal("0.5")],
            "item_id: expected float keys, got decimal (Decimal('0.5')). Convert the column to floats before encoding.",
        ),
        (
            [NOON],
            [NOON.date()],
            "item_id: expected timestamp keys, got date (datetime.date(2024, 3, 1)). "
            "Convert the column to timestamps before encoding.",
        ),
        (
            [UUID(int=1)],
            [str(UUID(int=1))],
            "item_id: expected uuid keys, got text ('00000000-0000-0000-0000-000000000001'). "
            "Convert the column to UUIDs before encoding.",
        ),
        (
            ["a"],
            list(range(9)),
            "item_id: expected text keys, got integer (0, 1, 2, 3, 4). Convert the column to text before encoding.",
        ),
    ],
    ids=repr,
)
def test_keys_of_another_kind_are_refused_and_never_taken_for_unknown(
    fitted: list[Any], served: list[Any], message: str
) -> None:
    vocabulary = Vocabulary.from_values(fitted, name="item_id")
    for values in (served, pd.Series(served, dtype=object), pd.Categorical(served)):
        with pytest.raises(KeyTypeError) as caught:
            vocabulary.encode(values)
        assert str(caught.value) == message


def test_messages_say_where_the_column_stands() -> None:
    with pytest.raises(KeyTypeError) as caught:
        Vocabulary.from_values([1], name="item_id").encode(["1"], where="ratings.parquet: item_id")
    assert str(caught.value).startswith("ratings.parquet: item_id: expected integer keys, got text ('1').")


def test_a_column_of_nulls_of_another_kind_is_only_missing() -> None:
    vocabulary = Vocabulary.from_values(["a"])
    assert vocabulary.encode(pd.Series([None, None], dtype="Int64")).tolist() == [1, 1]


@pytest.mark.parametrize("value", [2.0**53, -(2.0**60), float("inf")])
def test_floats_that_stand_for_several_integers_are_refused_at_fit_and_encode(value: float) -> None:
    expected = f"item_id: expected float keys below 2**53 in magnitude, got {value!r}. Store them as integers or text."
    vocabulary = Vocabulary.from_values([1], name="item_id")
    for use in (lambda: Vocabulary.from_values([1.0, value], name="item_id"), lambda: vocabulary.encode([value])):
        with pytest.raises(KeyTypeError) as caught:
            use()
        assert str(caught.value) == expected


def test_a_bare_value_is_refused() -> None:
    with pytest.raises(KeyTypeError) as caught:
        Vocabulary.from_values(["ab"], name="name").encode("ab")
    assert str(caught.value) == "name: expected a one-dimensional array, got str 'ab'. Wrap a single value in a list."


# --- fitting ---------------------------------------------------------------------------------------------------


def test_a_second_kind_of_key_is_refused_in_either_order() -> None:
    for batches, message in (
        (
            ([5], ["a", "b", "a"]),
            "id: expected integer keys as before, got text ('a', 'b'). Convert the column to one type before fitting.",
        ),
        (
            (["a"], [0.5]),
            "id: expected text keys as before, got float (0.5). Convert the column to one type before fitting.",
        ),
        (
            ([Decimal("0.5")], [0.5]),
            "id: expected decimal keys as before, got float (0.5). Convert the column to one type before fitting.",
        ),
    ):
        builder = VocabularyBuilder("id")
        with pytest.raises(KeyTypeError) as caught:
            [builder.add(pa.array(batch)) for batch in batches]
        assert str(caught.value) == message


def test_negative_integers_beside_the_largest_unsigned_ones_are_refused() -> None:
    builder = VocabularyBuilder("id")
    builder.add(pa.array([-5, 3]))
    builder.add(pa.array([2**64 - 1], pa.uint64()))
    with pytest.raises(KeyTypeError) as caught:
        builder.build()
    assert str(caught.value) == (
        "id: expected no negative integers beside 18446744073709551615, got -5. Store them as text."
    )


def test_batches_of_whole_and_of_fractional_floats_are_one_column() -> None:
    builder = VocabularyBuilder("size")
    for batch in ([1.0, 2.0], [2.5, 2.0], [1.0, None]):
        builder.add(pa.array(batch))
    assert len(builder) == 3
    assert content(builder.build()) == [(1.0, 2), (2.0, 2), (2.5, 1)]


def test_a_builder_may_build_again_after_more_values() -> None:
    builder = VocabularyBuilder("id")
    builder.add(pa.array(["a"]))
    first = builder.build()
    builder.add(pa.array(["b", "b"]))
    assert content(first) == [("a", 1)]
    assert content(builder.build()) == [("b", 2), ("a", 1)]


def test_many_distinct_values_are_counted_exactly() -> None:
    numbers = np.random.default_rng(0).integers(0, 2**62, 30_000)
    column = np.concatenate([numbers, numbers[:10_000]])
    for values in (column, [f"item {number:x}" for number in column]):
        vocabulary = Vocabulary.from_values(values)
        assert len(vocabulary) == len(set(numbers.tolist()))
        assert vocabulary.counts[:10_000].tolist() == [2] * 10_000
        assert content(vocabulary)[:3] == ranked(list(values))[:3]
        assert vocabulary.decode(vocabulary.encode(values[:500])) == list(values[:500])


# --- unknown values --------------------------------------------------------------------------------------------


def test_unknown_values_go_to_the_bucket_that_the_documented_hash_says() -> None:
    text = Vocabulary.from_values(["a"], unknown=UnknownBuckets(7))
    assert text.encode(["x", "y", "a"]).tolist() == [
        2 + hash_bytes_reference(b"x") % 7,
        2 + hash_bytes_reference(b"y") % 7,
        9,
    ]
    numbers = Vocabulary.from_values([1], unknown=UnknownBuckets(7))
    assert numbers.encode([5, -5, 1]).tolist() == [
        2 + hash_integer_reference(5) % 7,
        2 + hash_integer_reference(-5) % 7,
        9,
    ]


def test_a_bucket_belongs_to_the_value_and_not_to_its_container() -> None:
    vocabulary = Vocabulary.from_values([1, 2], unknown=UnknownBuckets(1000))
    expected = vocabulary.encode([77, 88]).tolist()
    for values in (
        [77.0, 88.0],
        pa.array([77, 88], pa.uint64()),
        pa.array([Decimal("77.0"), Decimal(88)]),
        pd.Categorical([77, 88]),
        pa.array([77, 88], pa.int8()).dictionary_encode(),
    ):
        assert vocabulary.encode(values).tolist() == expected
    assert Vocabulary.from_values([0.5], unknown=UnknownBuckets(1000)).encode([77, 88]).tolist() == expected


def test_buckets_leave_missing_and_known_values_alone() -> None:
    vocabulary = Vocabulary.from_values([1, 2], unknown=UnknownBuckets(3))
    assert vocabulary.encode([None, 1, 2]).tolist() == [1, 5, 6]
    buckets = vocabulary.encode(range(100, 400))
    assert set(buckets.tolist()) == {2, 3, 4}


def test_strict_vocabularies_refuse_unknown_values_and_list_them() -> None:
    vocabulary = Vocabulary.from_values(["a"], name="item_id", unknown=RefuseUnknown())
    served = ["a", "z", "z", None, "é", "c", "d", "e", "f"]
    for values in (served, pa.array(served).dictionary_encode(), pa.array(served, pa.string_view())):
        with pytest.raises(UnknownValueError) as caught:
            vocabulary.encode(values)
        assert str(caught.value) == (
            "item_id: expected values of the vocabulary, got 'z', 'é', 'c', 'd', 'e' and 1 more. "
            "Fit on them, or declare unknown=UnknownRow()."
        )
    assert vocabulary.encode(["a", None]).tolist() == [3, 1]
    assert vocabulary.encode(pd.Categorical(["a"], categories=["a", "z"])).tolist() == [3]


# --- decode ----------------------------------------------------------------------------------------------------


def test_reserved_indices_decode_to_nothing() -> None:
    vocabulary = Vocabulary.from_values([5], unknown=UnknownBuckets(2))
    assert vocabulary.decode([0, 1, 2, 3, 4]) == [None, None, None, None, 5]


@pytest.mark.parametrize(
    "indices",
    [
        [4, 3],
        torch.tensor([4, 3]),
        torch.tensor([[4], [3]], dtype=torch.int32),
        np.array([4, 3], np.uint8),
        pd.Series([4, 3]),
    ],
    ids=lambda indices: type(indices).__name__,
)
def test_indices_come_in_any_container(indices: Any) -> None:
    assert Vocabulary.from_values(["a", "b"]).decode(indices) == ["b", "a"]


def test_no_indices_decode_to_no_values() -> None:
    vocabulary = Vocabulary.from_values(["a"])
    assert vocabulary.decode([]) == []
    assert vocabulary.take(torch.empty(0, dtype=torch.int64)).type == pa.large_string()


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([3, -1, -1], "id: expected indices in [0, 5), got -1. Decode with the vocabulary that encoded."),
        ([5, -2], "id: expected indices in [0, 5), got 5, -2. Decode with the vocabulary that encoded."),
    ],
)
def test_indices_outside_the_table_are_refused(indices: list[int], message: str) -> None:
    with pytest.raises(IndexRangeError) as caught:
        Vocabulary.from_values(["a", "b"], name="id").decode(indices)
    assert str(caught.value) == message


@pytest.mark.parametrize("indices", [[3.0], [True], torch.tensor([3.0])])
def test_indices_are_integers(indices: Any) -> None:
    with pytest.raises(KeyTypeError, match=r"^id: expected integer indices, got (float64|float32|bool)\."):
        Vocabulary.from_values(["a"], name="id").decode(indices)


def test_nanoseconds_survive_in_arrow() -> None:
    values = pa.array([1, 1000, 10**18 + 1], pa.timestamp("ns"))
    vocabulary = Vocabulary.from_values(values)
    assert vocabulary.take(vocabulary.encode(values)).equals(values)


# --- membership ------------------------------------------------------------------------------------------------


def test_membership_is_by_value_and_never_raises() -> None:
    vocabulary = Vocabulary.from_values([5, 7], unknown=RefuseUnknown())
    assert 5 in vocabulary
    assert 7.0 in vocabulary
    for stranger in (6, 5.5, "5", None, float("nan"), [5], {}, 2.0**60, object()):
        assert stranger not in vocabulary
