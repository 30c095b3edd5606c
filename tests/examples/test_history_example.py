"""What the example on histories claims, on planted data where what a user watches says more than its few ratings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

RATINGS = Path(__file__).parents[2] / "data/movielens_100k/ratings.parquet"


def planted(users: int = 600, items: int = 60, each: int = 8) -> pd.DataFrame:
    """Two tastes: a user watches mostly one kind of film, likes that kind better, and rates with much noise."""
    rng = np.random.default_rng(0)
    rows = []
    for user in range(users):
        weights = np.where(np.arange(items) % 2 == user % 2, 4.0, 1.0)
        chosen = rng.choice(items, each, replace=False, p=weights / weights.sum())
        rating = 3 + np.where(chosen % 2 == user % 2, 1, -1) + rng.normal(0, 1, each)
        rows.append(pd.DataFrame({"user_id": user, "movie_id": chosen, "rating": rating}))
    return pd.concat(rows, ignore_index=True)


def test_what_a_user_watched_helps_where_ratings_are_few_and_noisy(example, capsys):
    figures = example("history").main(planted())
    assert figures["with history"] < figures["ids alone"] - 0.1
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == ["RMSE", "ids", "alone", "with", "history"]
    assert printed[1] == f"{'all ratings':<24}{figures['ids alone']:>14.4f}{figures['with history']:>14.4f}"


@pytest.mark.skipif(not RATINGS.exists(), reason="python data/movielens_100k/prepare.py was not run")
def test_a_history_predicts_movielens_better_than_ids_alone(example):
    figures = example("history").main()
    assert figures["with history"] < figures["ids alone"] - 0.003
    assert figures["with history"] < 0.905
