"""MovieLens 100K as one frame, and the schemas the MovieLens examples use.

Needs:  the Parquet files of data/movielens_100k; they are made when absent, which downloads one package.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from data_folder import DATA, load_script

from recsys_emb import Categorical, MultiCategorical, Position, Schema

FOLDER = DATA / "movielens_100k"
USER, ITEM = "user_id", "movie_id"


def load() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read the ratings with all attributes, one user after another and in order of time, and the movies."""
    if not (FOLDER / "ratings.parquet").exists():
        load_script("movielens_100k/prepare.py").main()
    ratings, users, items = (pd.read_parquet(FOLDER / f"{name}.parquet") for name in ("ratings", "users", "items"))
    rows = ratings.merge(users, on=USER).merge(items, on=ITEM)
    rows = rows.sort_values([USER, "timestamp"], kind="stable", ignore_index=True)
    rows["age_group"] = rows["age"] // 10 * 10
    rows["step"] = step_of(rows)
    return rows, items


def step_of(rows: pd.DataFrame) -> pd.Series:
    """Place each rating in its user's history, in doublings.

    0 is the first rating, 1 the second and third, 2 the fourth to seventh, and so on. It counts the ratings that the
    user gave before, so it is known when the rating is asked for.
    """
    return np.log2(rows.groupby(USER).cumcount() + 1).astype("int64")


def schema(label: str | None) -> Schema:
    """Declare user, item, place in the history, and what is known about users and movies."""
    return Schema(
        user=Categorical(USER),
        item=Categorical(ITEM),
        position=Position("step", max_position=10),
        user_features=[Categorical("occupation"), Categorical("age_group"), Categorical("gender")],
        item_features=[MultiCategorical("genres", pooling="mean")],
        label=label,
    )
