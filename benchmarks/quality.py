"""Quality of the default settings: ratings by five-fold cross-validation, ranking by leaving the last item out.

Run:    python benchmarks/quality.py [FOLDER ...]
Needs:  data/movielens_100k; a FOLDER may hold eurovision_jurors and restaurant_consumer, which are left out otherwise
Prints: mean test RMSE ± standard error of ids alone, all features, biases alone, beside the goals; recall@10 and
        NDCG@10 over the full catalogue, seen items excluded, mean of five seeds

No setting is chosen here: every figure is that of ``Recommender(schema).fit(train)``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.evaluation.splitting import split_last
from recsys_emb.models.baselines import BiasModel
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, MultiCategorical, Position, Schema

MOVIELENS = Path(__file__).parents[1] / "data" / "movielens_100k"
FOLDS, SEEDS, K = 5, 5, 10


class DataSet(NamedTuple):
    """Ratings with all that is known about users and items, what it means, and the goals: RMSE of ids, of all."""

    name: str
    frame: pd.DataFrame
    schema: Schema
    goals: tuple[float | None, float | None]


def movielens(folder: Path) -> DataSet:
    ratings, users, items = (pd.read_parquet(folder / f"{name}.parquet") for name in ("ratings", "users", "items"))
    ratings = ratings.sort_values(["user_id", "timestamp"], kind="stable")
    ratings["place"] = np.log2(ratings.groupby("user_id").cumcount() + 1).astype("int64")
    frame = ratings.merge(users, on="user_id", how="left").merge(items, on="movie_id", how="left")
    frame["age_group"], frame["decade"] = frame["age"] // 10, frame["year"] // 10
    schema = Schema(
        user=Categorical("user_id"),
        item=Categorical("movie_id"),
        position=Position("place", max_position=10),
        user_features=[Categorical("age_group"), Categorical("gender"), Categorical("occupation")],
        item_features=[MultiCategorical("genres"), Categorical("decade")],
        label="rating",
    )
    return DataSet("MovieLens-100K", frame, schema, (0.907, 0.901))


def eurovision(folder: Path) -> DataSet:
    rankings, entries = pd.read_parquet(folder / "rankings.parquet"), pd.read_parquet(folder / "entries.parquet")
    own = [name for name in entries.columns if name == "item_id" or name not in rankings.columns]
    schema = Schema(
        user=Categorical("user_id"),
        item=Categorical("item_id"),
        position=Position("position", max_position=30),
        user_features=[Categorical("from_country"), Categorical("from_region")],
        item_features=[Categorical("country"), Categorical("region"), MultiCategorical("composers")],
        label="score",
    )
    return DataSet("Eurovision jurors", rankings.merge(entries[own], on="item_id", how="left"), schema, (0.248, 0.238))


def restaurant(folder: Path) -> DataSet:
    ratings, users, places = (pd.read_parquet(folder / f"{name}.parquet") for name in ("ratings", "users", "places"))
    users, places = users.rename(columns={"cuisines": "tastes"}), places.rename(columns={"name": "title"})
    about_users = [Categorical(name) for name in ("budget", "occupation", "smoker", "drink_level", "transport")]
    about_places = [Categorical(name) for name in ("price", "alcohol", "area", "city")]
    schema = Schema(
        user=Categorical("user_id"),
        item=Categorical("place_id"),
        user_features=[*about_users, MultiCategorical("tastes")],
        item_features=[*about_places, MultiCategorical("cuisines"), MultiCategorical("parking")],
        label="rating",
    )
    return DataSet("Restaurants", ratings.merge(users, on="user_id").merge(places, on="place_id"), schema, (None, None))


def rmse(schema: Schema, train: pd.DataFrame, test: pd.DataFrame) -> float:
    predicted = Recommender(schema, seed=0, progress=False).fit(train).predict(test)
    return float(np.sqrt(np.mean((predicted - test[schema.label]) ** 2)))


def rmse_of_biases(schema: Schema, train: pd.DataFrame, test: pd.DataFrame) -> float:
    encoder = FeatureEncoder(schema).fit(train)
    # This L2 is the best of a grid on the test folds of all three sets, in favour of the baseline.
    model = BiasModel((schema.user.name, schema.item.name), l2=3.0).fit(encoder.transform(train))
    return float(np.sqrt(np.mean((model.predict(encoder.transform(test)).numpy() - test[schema.label]) ** 2)))


def report_ratings(data: DataSet) -> Iterator[tuple[str, float]]:
    ids = Schema(user=data.schema.user, item=data.schema.item, label=data.schema.label)
    fold = np.random.default_rng(0).permutation(len(data.frame)) % FOLDS
    cases = (("ids", ids, rmse), ("all features", data.schema, rmse), ("biases alone", ids, rmse_of_biases))
    for (title, schema, fit), goal in zip(cases, (*data.goals, None), strict=True):
        errors = [fit(schema, data.frame[fold != part], data.frame[fold == part]) for part in range(FOLDS)]
        mean, error = float(np.mean(errors)), float(np.std(errors, ddof=1) / FOLDS**0.5)
        print(
            f"{data.name:18} {title:13} RMSE {mean:.4f} ± {error:.4f}", f"  goal <= {goal}" if goal else "", flush=True
        )
        yield f"{data.name}, {title}", mean


def report_ranking(data: DataSet) -> Iterator[tuple[str, float]]:
    train, test = split_last(data.frame, data.schema.user.name, "timestamp")
    schema = Schema(user=data.schema.user, item=data.schema.item)
    runs = [Recommender(schema, seed=seed, progress=False).fit(train).evaluate(test, k=K) for seed in range(SEEDS)]
    for name, goal in (("recall", 0.132), ("ndcg", 0.068)):
        mean = float(np.mean([run[name] for run in runs]))
        print(f"{data.name:18} last item     {name}@{K} {mean:.4f}   goal >= {goal}", flush=True)
        yield f"{data.name}, {name}", mean


def main(folders: list[Path]) -> dict[str, float]:
    films = movielens(MOVIELENS)
    figures = {**dict(report_ratings(films)), **dict(report_ranking(films))}
    for read, name in ((eurovision, "eurovision_jurors"), (restaurant, "restaurant_consumer")):
        for folder in (parent / name for parent in folders if (parent / name).is_dir()):
            figures |= report_ratings(read(folder))
    return figures


if __name__ == "__main__":
    main([Path(folder) for folder in sys.argv[1:]])
