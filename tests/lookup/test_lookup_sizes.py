"""Sizes that make no table are refused where they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from recsys_emb.errors import DataError
from recsys_emb.lookup.category import CategoryEmbedding
from recsys_emb.lookup.hashed import HashedEmbedding
from recsys_emb.lookup.numeric import NumericProjection
from recsys_emb.lookup.one_hot import OneHotProjection, one_hot
from recsys_emb.lookup.position import LearnedPosition, SinusoidalPosition
from recsys_emb.lookup.quotient_remainder import QuotientRemainderEmbedding
from recsys_emb.lookup.widths import suggested_dim

MAKERS: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
    ("CategoryEmbedding('category')", CategoryEmbedding, {"num_categories": 5, "embedding_dim": 3}),
    ("OneHotProjection('category')", OneHotProjection, {"num_categories": 5, "embedding_dim": 3}),
    (
        "HashedEmbedding('category')",
        HashedEmbedding,
        {"num_categories": 5, "embedding_dim": 3, "num_embeddings": 2, "num_hashes": 2},
    ),
    (
        "QuotientRemainderEmbedding('category')",
        QuotientRemainderEmbedding,
        {"num_categories": 5, "embedding_dim": 3, "buckets": 2},
    ),
    ("NumericProjection('numeric')", NumericProjection, {"embedding_dim": 3}),
    ("LearnedPosition('position')", LearnedPosition, {"max_position": 5, "embedding_dim": 3}),
    ("SinusoidalPosition('position')", SinusoidalPosition, {"max_position": 5, "embedding_dim": 3}),
]
CASES = [(where, make, sizes, name) for where, make, sizes in MAKERS for name in sizes]


@pytest.mark.parametrize(("where", "make", "sizes", "name"), CASES)
@pytest.mark.parametrize("bad", [-1, 1.5, True, "3", None])
def test_a_size_is_an_integer_that_makes_a_table(
    where: str, make: Callable[..., Any], sizes: dict[str, Any], name: str, bad: Any
) -> None:
    least = 0 if name == "max_position" else 1
    with pytest.raises(DataError) as caught:
        make(**{**sizes, name: bad})
    assert str(caught.value) == (
        f"{where}: expected {name} to be an integer of at least {least}, got {bad!r}. Give {name}={least} or more."
    )


@pytest.mark.parametrize(("where", "make", "sizes", "name"), [case for case in CASES if case[3] != "max_position"])
def test_a_table_without_rows_or_columns_is_none(
    where: str, make: Callable[..., Any], sizes: dict[str, Any], name: str
) -> None:
    with pytest.raises(DataError) as caught:
        make(**{**sizes, name: 0})
    assert str(caught.value) == (
        f"{where}: expected {name} to be an integer of at least 1, got 0. Give {name}=1 or more."
    )


def test_sizes_may_be_integers_of_numpy() -> None:
    embedding = CategoryEmbedding(np.int32(5), np.int64(1))
    assert (embedding.num_embeddings, embedding.embedding_dim) == (5, 1)
    assert embedding.weight.shape == (5, 1)


def test_one_position_is_enough() -> None:
    assert LearnedPosition(0, 1)(torch.tensor([0])).shape == (1, 1)


def test_the_number_of_classes_is_at_least_1() -> None:
    with pytest.raises(DataError) as caught:
        one_hot(torch.zeros(0, dtype=torch.int64), 0)
    assert (
        str(caught.value)
        == "one_hot: expected num_classes to be an integer of at least 1, got 0. Give num_classes=1 or more."
    )


@pytest.mark.parametrize("bad", [-5, 2.5])
def test_widths_are_suggested_for_whole_numbers_of_categories(bad: Any) -> None:
    with pytest.raises(DataError) as caught:
        suggested_dim(bad)
    assert str(caught.value) == (
        f"suggested_dim: expected num_categories to be an integer of at least 0, got {bad}. "
        "Give num_categories=0 or more."
    )
