"""Tell a model what each user watched: SVD++ (Koren, 2008), by one line of schema.

Run:    python examples/history.py
Needs:  the network once, for the data; seconds.
Prints: the RMSE of ids alone and of ids with a history, on the same fifth of the ratings; the same by how many ratings
        the user has left in training.
"""

from __future__ import annotations

import pandas as pd
from movielens_data import ITEM, USER, load

from recsys_emb import Categorical, History, Recommender, Schema, split_random
from recsys_emb.evaluation.metrics import rmse

PAIR = {"user": Categorical(USER), "item": Categorical(ITEM), "label": "rating"}
SCHEMAS = {
    "ids alone": Schema(**PAIR),
    "with history": Schema(**PAIR, user_features=[History(ITEM)]),
}


def predict_with_each(train: pd.DataFrame, test: pd.DataFrame) -> pd.DataFrame:
    """Fit each model to the same rows and predict the same others."""
    models = {name: Recommender(schema, progress=False).fit(train) for name, schema in SCHEMAS.items()}
    return pd.DataFrame({name: model.predict(test) for name, model in models.items()})


def rmse_of(predicted: pd.DataFrame, rating: pd.Series) -> dict[str, float]:
    """Judge each column of predictions."""
    return {name: rmse(rating[predicted.index], predicted[name]) for name in predicted}


def main(rows: pd.DataFrame | None = None) -> dict[str, float]:
    """Print and return the RMSE of each model."""
    rows = load()[0] if rows is None else rows
    train, test = split_random(rows, 0.2, seed=0)
    predicted = predict_with_each(train, test)
    figures = rmse_of(predicted, test["rating"])
    print(f"{'RMSE':<24}" + "".join(f"{name:>14}" for name in figures))
    print(f"{'all ratings':<24}" + "".join(f"{figure:>14.4f}" for figure in figures.values()))
    counts = test[USER].map(train[USER].value_counts()).fillna(0)
    for quarter, part in predicted.groupby(pd.qcut(counts, 4, duplicates="drop"), observed=True):
        who = f"users with {quarter.left + 1:.0f} to {quarter.right:.0f}"
        print(f"{who:<24}" + "".join(f"{figure:>14.4f}" for figure in rmse_of(part, test["rating"]).values()))
    return figures


if __name__ == "__main__":
    main()
