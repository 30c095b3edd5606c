"""Codes of a dictionary column are counted and translated row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.kernels.dictionary_codes import tally, tally_reference, translate, translate_reference
from recsys_emb.kernels.integer_table import IntegerColumn

codes = st.lists(st.none() | st.integers(0, 6), max_size=40)


def column(rows: list[int | None], bit_offset: int, dtype: type = np.int32, hidden: int = 0) -> IntegerColumn:
    bits = np.array([True] * bit_offset + [code is not None for code in rows], bool)
    keys = np.array([hidden if code is None else code for code in rows], dtype)
    return IntegerColumn(keys, np.packbits(bits, bitorder="little"), bit_offset)


@settings(max_examples=50, deadline=None)
@given(rows=codes, bit_offset=st.integers(0, 9))
def test_tally_agrees_with_its_twin(rows: list[int | None], bit_offset: int) -> None:
    counts = np.zeros(7, np.int64)
    tally(column(rows, bit_offset), counts)
    assert counts.tolist() == tally_reference(rows, 7)


@settings(max_examples=50, deadline=None)
@given(rows=codes, bit_offset=st.integers(0, 9))
def test_translate_agrees_with_its_twin(rows: list[int | None], bit_offset: int) -> None:
    indices, out = np.array([9, 8, 7, 6, 5, 4, 3]), np.empty(len(rows), np.int64)
    translate(column(rows, bit_offset), indices, 1, out)
    assert out.tolist() == translate_reference(rows, indices.tolist(), 1)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.uint32, np.int64])
def test_codes_of_any_width_mean_the_same(dtype: type) -> None:
    out = np.empty(3, np.int64)
    translate(column([1, None, 0], 3, dtype), np.array([40, 41]), 1, out)
    assert out.tolist() == [41, 1, 40]


def test_what_lies_under_a_null_is_never_read_as_a_code() -> None:
    counts, out = np.zeros(2, np.int64), np.empty(2, np.int64)
    tally(column([None, 1], 0, hidden=2_000_000_000), counts)
    translate(column([None, 1], 0, hidden=2_000_000_000), np.array([40, 41]), 1, out)
    assert counts.tolist() == [0, 1]
    assert out.tolist() == [1, 41]
