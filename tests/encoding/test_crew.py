from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
import torch

from recsys_emb.encoding.crew import crew
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import DataError
from recsys_emb.schema import Categorical, Numeric, Schema


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(threads: int) -> None:
    with crew(None, threads) as hands:
        assert hands.map(lambda item: item * 2, range(100)) == list(range(0, 200, 2))
        assert list(hands.ahead(iter(range(100)))) == list(range(100))
        assert list(hands.ahead([])) == []
        assert list(hands.ahead([None, None])) == [None, None]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_error_of_the_first_item_is_raised(threads: int) -> None:
    def fail(item: int) -> None:
        raise ValueError(item)

    with crew(None, threads) as hands, pytest.raises(ValueError, match=r"^1$"):
        hands.map(fail, [1, 2, 3])


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_while_reading_ahead_arrives_after_the_items_before_it(threads: int) -> None:
    def items() -> Iterator[int]:
        yield 1
        raise DataError("broken")

    with crew(None, threads) as hands:
        stream = hands.ahead(items())
        assert next(stream) == 1
        with pytest.raises(DataError, match="broken"):
            next(stream)


def test_few_rows_hire_nobody() -> None:
    before = threading.active_count()
    with crew(1000, 4) as hands:
        assert hands.map(abs, [-1]) == [1]
        assert threading.active_count() == before


def test_threads_change_no_bit() -> None:
    rng = np.random.default_rng(0)
    rows = 300_000
    frame = pd.DataFrame({"user": rng.integers(0, 999, rows), "item": rng.integers(0, 99, rows).astype(str)})
    frame["age"] = rng.normal(size=rows)
    schema = Schema(user=Categorical("user"), item=Categorical("item"), context_features=[Numeric("age")])
    threads = torch.get_num_threads()
    fitted = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            fitted.append(FeatureEncoder(schema).fit(frame))
    finally:
        torch.set_num_threads(threads)
    assert fitted[0].fingerprint == fitted[1].fingerprint
