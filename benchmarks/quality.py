"""Quality of the defaults, ``Recommender(schema).fit(train)``: ratings by cross-validation, ranking by the last item.

Run:    python benchmarks/quality.py [FOLDER ...]
Needs:  data/movielens_100k; a FOLDER may hold eurovision_jurors and restaurant_consumer, which are left out otherwise
Prints: mean test RMSE ± standard error over five folds of ids alone, ids with a history, all features, biases alone
        (their L2 is the best of a grid on the test folds, in their favour), beside the goals; recall@10 and NDCG@10
        over the full catalogue, seen items excluded, mean of five seeds
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.evaluation.splitting import split_last
from recsys_emb.models.baselines import BiasModel
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, History, MultiCategorical, Position, Schema

MOVIELENS = Path(__file__).parents[1] / "data" / "movielens_100k"
LISTS = {"genres", "composers", "tastes", "cuisines", "parking"}
FOLDS, SEEDS, K = 5, 5, 10


class DataSet(NamedTuple):
    """Ratings with all that is known about users and items, what it means, and the goals: RMSE of ids, history, all."""

    name: str
    frame: pd.DataFrame
    schema: Schema
    goals: tuple[float | None, float | None, float | None]


def read(folder: Path, *names: str) -> list[pd.DataFrame]:
    return [pd.read_parquet(folder / f"{name}.parquet") for name in names]


def schema_of(item: str, label: str, users: str, items: str, position: Position | None = None) -> Schema:
    features = {
        side: [MultiCategorical(name) if name in LISTS else Categorical(name) for name in names.split()]
        for side, names in (("user_features", users), ("item_features", items))
    }
    return Schema(user=Categorical("user_id"), item=Categorical(item), position=position, label=label, **features)


def movielens(folder: Path) -> DataSet:
    ratings, users, items = read(folder, "ratings", "users", "items")
    ratings = ratings.sort_values(["user_id", "timestamp"], kind="stable")
    ratings["place"] = np.log2(ratings.groupby("user_id").cumcount() + 1).astype("int64")
    frame = ratings.merge(users, on="user_id", how="left").merge(items, on="movie_id", how="left")
    frame["age_group"], frame["decade"] = frame["age"] // 10, frame["year"] // 10
    about = ("age_group gender occupation", "genres decade", Position("place", max_position=10))
    return DataSet("MovieLens-100K", frame, schema_of("movie_id", "rating", *about), (0.907, 0.901, 0.901))


def eurovision(folder: Path) -> DataSet:
    rankings, entries = read(folder, "rankings", "entries")
    own = [name for name in entries.columns if name == "item_id" or name not in rankings.columns]
    place = Position("position", max_position=30)
    schema = schema_of("item_id", "score", "from_country from_region", "country region composers", place)
    frame = rankings.merge(entries[own], on="item_id", how="left")
    return DataSet("Eurovision jurors", frame, schema, (0.248, None, 0.238))


def restaurant(folder: Path) -> DataSet:
    ratings, users, places = read(folder, "ratings", "users", "places")
    frame = ratings.merge(users.rename(columns={"cuisines": "tastes"}), on="user_id").merge(places, on="place_id")
    about_users = "budget occupation smoker drink_level transport tastes"
    schema = schema_of("place_id", "rating", about_users, "price alcohol area city cuisines parking")
    return DataSet("Restaurants", frame, schema, (None, None, None))


def by_recommender(schema: Schema, train: pd.DataFrame, test: pd.DataFrame) -> pd.Series:
    return Recommender(schema, seed=0, progress=False).fit(train).predict(test)


def by_biases(schema: Schema, train: pd.DataFrame, test: pd.DataFrame) -> np.ndarray:
    encoder = FeatureEncoder(schema).fit(train)
    model = BiasModel((schema.user.name, schema.item.name), l2=3.0).fit(encoder.transform(train))
    return model.predict(encoder.transform(test)).numpy()


def report_ratings(data: DataSet) -> Iterator[tuple[str, float]]:
    ids = Schema(user=data.schema.user, item=data.schema.item, label=data.schema.label)
    past = replace(ids, user_features=(History(ids.item.name),))
    label, fold = data.frame[ids.label], np.random.default_rng(0).permutation(len(data.frame)) % FOLDS
    fitted = {"ids": ids, "ids, history": past, "all features": data.schema}
    cases = [*((title, schema, by_recommender) for title, schema in fitted.items()), ("biases", ids, by_biases)]
    for (title, schema, answers), goal in zip(cases, (*data.goals, None), strict=True):
        predicted = [answers(schema, data.frame[fold != part], data.frame[fold == part]) for part in range(FOLDS)]
        errors = [((one - label[fold == part]) ** 2).mean() ** 0.5 for part, one in enumerate(predicted)]
        mean, error, aim = np.mean(errors), np.std(errors, ddof=1) / FOLDS**0.5, f"   goal <= {goal}" if goal else ""
        print(f"{data.name:18} {title:13} RMSE {mean:.4f} ± {error:.4f}{aim}", flush=True)
        yield f"{data.name}, {title}", float(mean)


def report_ranking(data: DataSet) -> Iterator[tuple[str, float]]:
    train, test = split_last(data.frame, data.schema.user.name, "timestamp")
    schema = Schema(user=data.schema.user, item=data.schema.item)
    runs = [Recommender(schema, seed=seed, progress=False).fit(train).evaluate(test, k=K) for seed in range(SEEDS)]
    for name, goal in (("recall", 0.132), ("ndcg", 0.068)):
        mean = float(np.mean([run[name] for run in runs]))
        print(f"{data.name:18} last item     {name}@{K} {mean:.4f}   goal >= {goal}", flush=True)
        yield f"{data.name}, {name}", mean


def main(*folders: str) -> dict[str, float]:
    films = movielens(MOVIELENS)
    figures = {**dict(report_ratings(films)), **dict(report_ranking(films))}
    for make, name in ((eurovision, "eurovision_jurors"), (restaurant, "restaurant_consumer")):
        for folder in (Path(parent, name) for parent in folders if Path(parent, name).is_dir()):
            figures |= report_ratings(make(folder))
    return figures


if __name__ == "__main__":
    main(*sys.argv[1:])
