"""Growth appends: old indices never move."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.errors import KeyTypeError
from recsys_emb.schema import UnknownBuckets
from recsys_emb.sources.keys import to_arrow
from recsys_emb.vocabulary.vocabulary import Vocabulary, VocabularyBuilder

keys = st.lists(st.none() | st.integers(-3, 12), max_size=60)


def content(vocabulary: Vocabulary) -> list[tuple[Any, int]]:
    return list(zip(vocabulary.values.to_pylist(), vocabulary.counts.tolist(), strict=True))


def ranked(values: list[int | None]) -> list[tuple[int, int]]:
    counts = Counter(value for value in values if value is not None)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def grown(fitted: list[Any], more: list[Any], **options: Any) -> Vocabulary:
    builder = VocabularyBuilder("id")
    builder.add(to_arrow(more, "id"))
    return Vocabulary.from_values(fitted, name="id").extended(builder, **options)


@settings(max_examples=40, deadline=None)
@given(fitted=keys, more=keys)
def test_growth_appends_new_values_and_adds_up_counts(fitted: list[int | None], more: list[int | None]) -> None:
    old, counts = ranked(fitted), Counter(more)
    fresh = [item for item in ranked(more) if item[0] not in dict(old)]
    expected = [(value, count + counts[value]) for value, count in old] + fresh
    assert content(grown(fitted, more)) == expected


def test_growth_leaves_the_old_vocabulary_as_it_was() -> None:
    builder = VocabularyBuilder("id")
    builder.add(pa.array(["b", "b", "a"]))
    old = Vocabulary.from_values(["a"], unknown=UnknownBuckets(3))
    new = old.extended(builder)
    assert content(old) == [("a", 1)]
    assert content(new) == [("a", 2), ("b", 2)]
    assert new.unknown == UnknownBuckets(3)
    assert new.encode(["a", "b"]).tolist() == [5, 6]


def test_growth_obeys_min_count_and_max_size() -> None:
    assert content(grown(["a"], ["b", "b", "c"], min_count=2)) == [("a", 1), ("b", 2)]
    assert content(grown(["a"], ["c", "b", "b"], max_size=2)) == [("a", 1), ("b", 2)]
    assert content(grown(["a", "b"], ["c"], max_size=1)) == [("a", 1), ("b", 1)]


def test_growth_widens_the_type_where_numbers_need_it() -> None:
    assert grown([1, 2], [2.5]).values.equals(pa.array([1.0, 2.0, 2.5]))
    assert grown([1, 2], [2**63]).values.equals(pa.array([1, 2, 2**63], pa.uint64()))
    assert grown([1], [Decimal("2.5")]).decode([3, 4]) == [Decimal(1), Decimal("2.5")]
    assert content(grown([], ["a"])) == [("a", 1)]
    assert content(grown(["a"], [])) == [("a", 1)]


def test_growth_by_another_kind_is_refused() -> None:
    with pytest.raises(KeyTypeError) as caught:
        grown([1], ["a"])
    assert str(caught.value) == (
        "id: expected integer keys, got text ('a'). Convert the column to integers before encoding."
    )
