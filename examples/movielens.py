"""The whole way on MovieLens 100K: train, judge, recommend with reasons, find similar movies, save, answer again.

Run:    make demo, or python examples/movielens.py
Needs:  the network once, for the data; matplotlib; under 90 seconds.
Prints: RMSE and ranking figures beside their baselines, five movies for one user and why, five similar movies, and
        whether a fresh process answers the same from the saved folder. Pictures go to out/.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import movielens_again
import movielens_pictures
import movielens_ranking
import movielens_ratings
import pandas as pd
from data_folder import ROOT
from movielens_data import ITEM, USER, load, schema

from recsys_emb import Recommender

WHO, LIKE = 196, 50


def reasons(model: Recommender, rows: pd.DataFrame, items: pd.DataFrame, best: pd.DataFrame) -> pd.DataFrame:
    """Split each recommended score into the mean, what the user, the movie and its genres add, and taste."""
    user = rows.loc[rows[USER] == WHO, [USER, "occupation", "age_group", "gender"]].head(1)
    asked = best[[USER, ITEM]].merge(user, on=USER).merge(items, on=ITEM).assign(step=None)
    terms = model.explain(asked)
    person = [f"bias:{name}" for name in (USER, "occupation", "age_group", "gender")]
    return pd.DataFrame(
        {
            "title": asked["title"],
            "score": terms["score"],
            "mean": terms["offset"],
            "user": terms[person].sum(axis=1),
            "movie": terms[[f"bias:{ITEM}", "bias:genres"]].sum(axis=1),
            "taste": terms["interaction"],
        }
    )


def main(out: Path = ROOT / "out") -> dict[str, object]:
    """Walk the whole way and return every figure that was printed."""
    figures: dict[str, object] = {"ratings": movielens_ratings.main()}
    print()
    figures["ranking"] = movielens_ranking.main()
    rows, items = load()
    model = Recommender(schema("rating"), seed=0, progress=False).fit(rows)

    best = model.recommend([WHO], k=5)
    figures["recommended"] = reasons(model, rows, items, best)
    print(f"\nFive movies for user {WHO}, and why (stars)\n{figures['recommended'].round(2).to_string(index=False)}")

    alike = model.similar([LIKE], k=5).merge(items, left_on=f"similar_{ITEM}", right_on=ITEM)
    figures["similar"] = alike["title"].tolist()
    title = items.set_index(ITEM).loc[LIKE, "title"]
    print(f"\nFive movies like {title}\n{alike[['title', 'score']].round(2).to_string(index=False)}")

    out.mkdir(exist_ok=True)
    model.save(out / "movielens")
    again = [sys.executable, movielens_again.__file__, str(out / "movielens"), str(WHO)]
    answer = subprocess.run(again, check=True, capture_output=True, text=True).stdout
    figures["same_after_reload"] = answer == best.to_csv(index=False)
    print(f"\nSaved, loaded in a fresh process: the same answer: {figures['same_after_reload']}")
    figures["pictures"] = movielens_pictures.draw(model, rows, items, out)
    print(f"Pictures in out/: {', '.join(figures['pictures'])}")
    return figures


if __name__ == "__main__":
    main()
