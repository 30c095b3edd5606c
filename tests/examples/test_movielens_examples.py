"""What the demo on MovieLens 100K claims, where the data set is."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
README, RATINGS = ROOT / "README.md", ROOT / "data/movielens_100k/ratings.parquet"
pytestmark = pytest.mark.skipif(not RATINGS.exists(), reason="python data/movielens_100k/prepare.py was not run")
OURS = "user x movie x position, all features"


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("out")


@pytest.fixture(scope="module")
def figures(example, out):
    return example("movielens").main(out)


@pytest.mark.parametrize(
    ("split", "baseline", "gain"),
    [
        ("latest fifth", "mean rating", 0.09),
        ("latest fifth", "user and movie biases", 0.005),
        ("latest fifth", "one-hot linear, all features", 0.005),
        ("five folds", "mean rating", 0.2),
        ("five folds", "user and movie biases", 0.04),
        ("five folds", "one-hot linear, all features", 0.04),
    ],
)
def test_ratings_are_predicted_better_than_by_the_baselines(figures, split, baseline, gain):
    rmse = figures["ratings"][split]
    assert rmse[baseline] - rmse[OURS] > gain


def test_rmse_over_five_folds_is_what_this_kind_of_model_reaches(figures):
    assert figures["ratings"]["five folds"][OURS] < 0.901


def test_the_last_movie_is_found_more_often_than_by_popularity(figures):
    ours, popular = figures["ranking"]["factorization"], figures["ranking"]["popularity"]
    assert ours["recall"] > 1.3 * popular["recall"]
    assert ours["ndcg"] > 1.3 * popular["ndcg"]
    assert ours["n_evaluated"] == popular["n_evaluated"] == 943


def test_the_reasons_add_up_to_the_score(figures):
    table = figures["recommended"]
    total = table[["mean", "user", "movie", "taste"]].sum(axis=1)
    assert len(table) == 5
    assert table["score"].is_monotonic_decreasing
    assert (total - table["score"]).abs().max() < 1e-9


def test_films_of_one_series_are_alike(figures):
    assert {"Empire Strikes Back, The", "Return of the Jedi"} <= set(figures["similar"])


def test_a_fresh_process_answers_the_same(figures):
    assert figures["same_after_reload"] is True


def test_pictures_are_drawn(figures, out):
    assert [name for name in figures["pictures"] if (out / name).stat().st_size > 10_000] == figures["pictures"]


def test_a_movie_is_coloured_by_the_rarest_of_the_genres_that_are_told_apart(example):
    genre_of = example("movielens_pictures").genre_of
    chosen = [genre_of(genres) for genres in (["Action", "Crime", "Drama"], ["Drama"], ["Horror"])]
    assert chosen == ["Crime", "Drama", None]


def test_the_step_counts_the_ratings_before_in_doublings(example):
    rows = pd.DataFrame({"user_id": [7] * 8 + [9]})
    assert example("movielens_data").step_of(rows).tolist() == [0, 1, 1, 2, 2, 2, 2, 3, 0]


def test_the_figures_in_the_readme_are_those_that_the_demo_prints(figures):
    rmse, ranking = figures["ratings"], figures["ranking"]
    printed = {
        "latest fifth": list(rmse["latest fifth"].values()),
        "five folds, mean": list(rmse["five folds"].values()),
        "recall@10": [ranking[name]["recall"] for name in ("popularity", "factorization")],
        "NDCG@10": [ranking[name]["ndcg"] for name in ("popularity", "factorization")],
    }
    rows = [line.strip("| ").split(" | ") for line in README.read_text().splitlines() if line.startswith("| ")]
    shown = {row[0]: [float(cell) for cell in row[1:]] for row in rows if row[0] in printed}
    assert shown == {name: pytest.approx(values, abs=0.003) for name, values in printed.items()}
