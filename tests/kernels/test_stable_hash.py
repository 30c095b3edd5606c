"""The hash that routes unknown values is written down for ever."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.kernels.bytes_search import BytesColumn
from recsys_emb.kernels.integer_table import IntegerColumn
from recsys_emb.kernels.stable_hash import (
    hash_byte_strings,
    hash_bytes_reference,
    hash_integer_reference,
    hash_integers,
)


def integers(keys: list[int]) -> list[int]:
    out = np.empty(len(keys), np.uint64)
    hash_integers(IntegerColumn(np.array(keys, np.int64)), out)
    return out.tolist()


def byte_strings(keys: list[bytes]) -> list[int]:
    out = np.empty(len(keys), np.uint64)
    hash_byte_strings(BytesColumn.of(keys), out)
    return out.tolist()


@settings(max_examples=50, deadline=None)
@given(keys=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_integers_hash_as_the_twin_says(keys: list[int]) -> None:
    assert integers(keys) == [hash_integer_reference(key) for key in keys]


@settings(max_examples=50, deadline=None)
@given(keys=st.lists(st.binary(max_size=30), max_size=20))
def test_byte_strings_hash_as_the_twin_says(keys: list[bytes]) -> None:
    assert byte_strings(keys) == [hash_bytes_reference(key) for key in keys]


def test_integer_hashes_are_those_of_splitmix64() -> None:
    # First outputs of SplitMix64 from seed 0: the finaliser of 1, 2 and 3 times the golden ratio.
    golden = 0x9E3779B97F4A7C15
    states = [(golden * step) % 2**64 for step in (1, 2, 3)]
    signed = [state - 2**64 if state >= 2**63 else state for state in states]
    assert integers(signed) == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_byte_hashes_are_those_of_fnv_1a_finalised() -> None:
    fnv_of_a, fnv_of_foobar = 0xAF63DC4C8601EC8C, 0x85944171F73967E8
    assert byte_strings([b"a", b"foobar"]) == [hash_integer_reference(fnv_of_a), hash_integer_reference(fnv_of_foobar)]
