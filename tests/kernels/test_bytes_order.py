"""Byte strings are ordered as Python orders bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.kernels.bytes_order import sort_groups, sort_groups_reference
from recsys_emb.kernels.bytes_search import BytesColumn

strings = st.binary(max_size=20) | st.text("ab\0", max_size=20).map(str.encode)


def in_order(keys: list[bytes], bounds: list[int]) -> list[int]:
    rows = np.arange(len(keys))
    sort_groups(BytesColumn.of(keys), rows, np.array(bounds))
    return rows.tolist()


@settings(max_examples=80, deadline=None)
@given(keys=st.lists(strings, unique=True, max_size=150), cut=st.integers(0, 150))
def test_sorting_agrees_with_the_twin(keys: list[bytes], cut: int) -> None:
    bounds = [0, min(cut, len(keys)), len(keys)]
    assert in_order(keys, bounds) == sort_groups_reference(keys, range(len(keys)), bounds)


def test_many_strings_with_a_long_common_beginning_are_sorted() -> None:
    numbers = np.random.default_rng(0).permutation(3000).tolist()
    keys = [f"https://example.org/items/{number:09d}".encode() for number in numbers]
    assert in_order(keys, [0, 3000]) == np.argsort(numbers).tolist()


def test_a_string_stands_before_itself_with_zeros_behind_it() -> None:
    assert in_order([b"a\0\0", b"a", b"b", b"a\0", b""], [0, 5]) == [4, 1, 3, 0, 2]


def test_no_strings_and_one_string_are_in_order() -> None:
    assert in_order([], [0, 0]) == []
    assert in_order([b"x"], [0, 1]) == [0]
