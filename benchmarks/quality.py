"""Quality of the default settings: ratings by five-fold cross-validation, ranking by leaving the last item out.

Run:    python benchmarks/quality.py [FOLDER ...]
Needs:  data/movielens_100k; a FOLDER may hold eurovision_jurors and restaurant_consumer, which are skipped otherwise
Prints: mean test RMSE ± standard error of ids alone, of all features, and of biases alone, beside the goals;
        recall@10 and NDCG@10 over the full catalogue, seen items excluded, mean of five seeds

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
    """Ratings with everything known about users and items, and what the columns mean."""

    name: str
    frame: pd.DataFrame
    schema: Schema
    goals: tuple[float | None, float | None]  # RMSE of ids alone, of all features

    @property
    def ids(self) -> Schema:
        return Schema(user=self.schema.user, item=self.schema.item, label=self.schema.label)


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
    schema = Schema(
        user=Categorical("user_id"),
        item=Categorical("item_id"),
        position=Position("position", max_position=30),
        user_features=[Categorical("from_country"), Categorical("from_region")],
        item_features=[Categorical("country"), Categorical("region"), MultiCategorical("composers")],
        label="score",
    )
    own = [name for name in entries.columns if name == "item_id" or name not in rankings.columns]
    return DataSet("Eurovision jurors", rankings.merge(entries[own], on="item_id", how="left"), schema, (0.248, 0.238))


def restaurant(folder: Path) -> DataSet:
    ratings, users, places = (pd.read_parquet(folder / f"{name}.parquet") for name in ("ratings", "users", "places"))
    frame = ratings.merge(users, on="user_id", how="left")
    frame = frame.merge(places, on="place_id", how="left", suffixes=("", "_of_place"))
    about_users = [Categorical(name) for name in ("budget", "occupation", "smoker", "drink_level", "transport")]
    about_places = [Categorical(name) for name in ("price", "alcohol", "area", "city")]
    schema = Schema(
        user=Categorical("user_id"),
        item=Categorical("place_id"),
        user_features=[*about_users, MultiCategorical("cuisines")],
        item_features=[*about_places, MultiCategorical("cuisines_of_place"), MultiCategorical("parking")],
        label="rating",
    )
    return DataSet("Restaurant", frame, schema, (None, None))


def folds(frame: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    fold = np.random.default_rng(0).permutation(len(frame)) % FOLDS
    for number in range(FOLDS):
        yield frame[fold != number], frame[fold == number]


def rmse(schema: Schema, train: pd.DataFrame, test: pd.DataFrame) -> float:
    predicted = Recommender(schema, seed=0, progress=False).fit(train).predict(test)
    return float(np.sqrt(np.mean((predicted - test[schema.label]) ** 2)))


def rmse_of_biases(schema: Schema, train: pd.DataFrame, test: pd.DataFrame) -> float:
    encoder = FeatureEncoder(schema).fit(train)
    model = BiasModel((schema.user.name, schema.item.name)).fit(encoder.transform(train))
    return float(np.sqrt(np.mean((model.predict(encoder.transform(test)).numpy() - test[schema.label]) ** 2)))


def report_ratings(data: DataSet) -> dict[str, tuple[float, float]]:
    figures = {}
    cases = (("ids", data.ids, rmse), ("all features", data.schema, rmse), ("biases alone", data.ids, rmse_of_biases))
    for (title, schema, fit), goal in zip(cases, (*data.goals, None), strict=True):
        errors = [fit(schema, train, test) for train, test in folds(data.frame)]
        figures[title] = float(np.mean(errors)), float(np.std(errors, ddof=1) / len(errors) ** 0.5)
        shown = "" if goal is None else f"   goal <= {goal}"
        print(f"{data.name:18} {title:13} RMSE {figures[title][0]:.4f} ± {figures[title][1]:.4f}{shown}", flush=True)
    return figures


def report_ranking(data: DataSet) -> dict[str, float]:
    train, test = split_last(data.frame, data.schema.user.name, "timestamp")
    schema = Schema(user=data.schema.user, item=data.schema.item)
    runs = [Recommender(schema, seed=seed, progress=False).fit(train).evaluate(test, k=K) for seed in range(SEEDS)]
    figures = {name: float(np.mean([run[name] for run in runs])) for name in ("recall", "ndcg")}
    print(f"{data.name:18} last item     recall@{K} {figures['recall']:.4f}   goal >= 0.132", flush=True)
    print(f"{data.name:18} last item     NDCG@{K}   {figures['ndcg']:.4f}   goal >= 0.068", flush=True)
    return figures


def main(folders: list[Path]) -> dict[str, object]:
    """Print the table and give its figures."""
    films = movielens(MOVIELENS)
    figures: dict[str, object] = {films.name: report_ratings(films), "ranking": report_ranking(films)}
    for read, name in ((eurovision, "eurovision_jurors"), (restaurant, "restaurant_consumer")):
        for folder in (parent / name for parent in folders if (parent / name).is_dir()):
            data = read(folder)
            figures[data.name] = report_ratings(data)
    return figures


if __name__ == "__main__":
    main([Path(folder) for folder in sys.argv[1:]])
