"""Predict MovieLens ratings, on the latest fifth of them and on five random folds, beside three baselines.

Run:    python examples/movielens_ratings.py
Needs:  the network once, for the data; about a minute.
Prints: the RMSE of each model.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from movielens_data import ITEM, USER, load, schema
from sklearn.model_selection import KFold

from recsys_emb import Recommender, split_time
from recsys_emb.evaluation.metrics import rmse
from recsys_emb.models.baselines import BiasModel, OneHotLinear


def rmse_of_each(train: pd.DataFrame, test: pd.DataFrame) -> dict[str, float]:
    """Fit every model to the same rows and judge it on the same others."""
    model = Recommender(schema("rating"), seed=0, progress=False).fit(train)
    past, future = model.encoder.transform(train), model.encoder.transform(test)
    predictions = {
        "mean rating": np.full(len(test), train["rating"].mean()),
        "user and movie biases": BiasModel((USER, ITEM)).fit(past).predict(future),
        "one-hot linear, all features": OneHotLinear(past.names).fit(past).predict(future),
        "user x movie x position, all features": model.predict(test),
    }
    return {name: rmse(test["rating"], predicted) for name, predicted in predictions.items()}


def folds(rows: pd.DataFrame) -> list[dict[str, float]]:
    """Judge on each fifth of the shuffled ratings in turn."""
    parts = KFold(5, shuffle=True, random_state=0).split(rows)
    return [rmse_of_each(rows.iloc[train], rows.iloc[test]) for train, test in parts]


def main() -> dict[str, dict[str, float]]:
    """Print and return the RMSE by split and model."""
    rows, _ = load()
    train, test = split_time(rows, "timestamp", 0.2)
    newcomers = 1 - test[USER].isin(train[USER]).mean()
    by_fold = pd.DataFrame(folds(rows))
    figures = {"latest fifth": rmse_of_each(train, test), "five folds": by_fold.mean().to_dict()}
    print("RMSE of ratings                          latest fifth   five folds (mean ± standard error)")
    for name, later in figures["latest fifth"].items():
        spread = by_fold[name].sem()
        print(f"{name:<40} {later:>12.4f}   {figures['five folds'][name]:.4f} ± {spread:.4f}")
    print(f"Of the latest fifth, {newcomers:.0%} are by users who have no earlier rating.")
    return figures


if __name__ == "__main__":
    main()
