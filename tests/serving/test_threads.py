"""One fitted object, asked by eight threads at once, answers each as it answers one alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
import pytest
import torch

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, History, MultiCategorical, Numeric, Schema
from recsys_emb.vocabulary.vocabulary import Vocabulary

THREADS = 8
SCHEMA = Schema(
    user=Categorical("user"),
    item=Categorical("item"),
    user_features=[Numeric("age"), History("item")],
    item_features=[MultiCategorical("tags")],
    label="stars",
    embedding_dim=4,
)

T = TypeVar("T")


def rows(seed: int, count: int = 400) -> pd.DataFrame:
    chance = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "user": [f"u{number}" for number in chance.integers(0, 60, count)],
            "item": chance.integers(0, 40, count),
            "age": chance.normal(40, 9, count),
            "tags": [[f"t{number}"] * (number % 3) for number in chance.integers(0, 9, count)],
            "stars": chance.integers(1, 6, count),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("threads") / "model"
    Recommender(SCHEMA, epochs=2, progress=False).fit(rows(0)).save(place)
    return place


def at_once(ask: Callable[[int], T]) -> list[T]:
    """Let every thread begin when all are there."""
    barrier = threading.Barrier(THREADS)

    def begin(number: int) -> T:
        barrier.wait()
        return ask(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begin, range(THREADS)))


VERBS: dict[str, Callable[[Recommender, int], object]] = {
    "predict": lambda recommender, n: recommender.predict(rows(n, 50)).tolist(),
    "recommend": lambda recommender, n: recommender.recommend([f"u{n}", "nobody"], k=5).to_dict("list"),
    "recommend to strangers": lambda recommender, n: recommender.recommend(
        history=rows(n, 3).assign(user="new"), k=5
    ).to_dict("list"),
    "similar": lambda recommender, n: recommender.similar([n], k=3).to_dict("list"),
    "explain": lambda recommender, n: recommender.explain(rows(n, 5)).to_dict("list"),
    "evaluate": lambda recommender, n: str(recommender.evaluate(rows(n, 50), k=3, exclude_seen=False)),
    "embeddings": lambda recommender, _: recommender.embeddings("item")["item"].tolist(),
    "report": lambda recommender, _: str(recommender.report()),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_recommender_that_was_just_loaded(folder: Path, verb: str) -> None:
    ask = VERBS[verb]
    alone = [ask(Recommender.load(folder), number) for number in range(THREADS)]
    together = Recommender.load(folder)
    assert at_once(lambda number: ask(together, number)) == alone


def test_all_verbs_of_a_recommender_together(folder: Path) -> None:
    verbs = list(VERBS.values())
    alone = [verbs[number](Recommender.load(folder), number) for number in range(THREADS)]
    together = Recommender.load(folder)
    assert at_once(lambda number: verbs[number](together, number)) == alone


def test_an_encoder_encodes_and_decodes() -> None:
    encoder = FeatureEncoder(SCHEMA).fit(rows(0))
    alone = [encoder.transform(rows(number)) for number in range(THREADS)]
    for mine, theirs in zip(at_once(lambda number: encoder.transform(rows(number))), alone, strict=True):
        assert encoder.inverse_transform(mine).equals(encoder.inverse_transform(theirs))
        assert torch.equal(mine.indices("item"), theirs.indices("item"))
        assert torch.equal(mine.lists("tags").values, theirs.lists("tags").values)


@pytest.mark.parametrize("text", [False, True])
def test_a_vocabulary_builds_its_table_when_it_is_asked(text: bool) -> None:
    keys = np.random.default_rng(0).permutation(200_000)
    values = pd.Series([f"key {key}" for key in keys] if text else keys)
    table = Vocabulary.from_values(values).to_table()
    eager = Vocabulary.from_values(values)
    lazy = Vocabulary.from_table(table, name="values", unknown=eager.unknown, lazily=True)
    found = at_once(lambda number: lazy.encode(values[number * 20_000 :]))
    for number, indices in enumerate(found):
        assert torch.equal(indices, eager.encode(values[number * 20_000 :]))
