"""Pictures of a model of MovieLens 100K: loss, weights, position effect, map of movies.

Needs:  matplotlib. Called by examples/movielens.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from movielens_data import ITEM

from recsys_emb import MatrixFactorization, Recommender
from recsys_emb.reporting.maps import item_map
from recsys_emb.reporting.plots import loss_curve, position_effect, weight_histogram

STEP_TITLE = "What the step in a user's history adds to a rating"
STEP_LABEL = "ratings given before, in doublings (0: none, 1: 1–2, 2: 3–6, 3: 7–14, …)"
LOSS_LABEL = "training: ½ squared error\n(variances of a rating)"
MAP_TITLE = "The 150 movies with most ratings, by the rarest of these genres"
GENRES = ("War", "Sci-Fi", "Crime", "Romance", "Action", "Comedy", "Drama")  # of all movies, the rarest first


def position_effects(model: Recommender, rows: pd.DataFrame) -> pd.Series:
    """Measure what each step of a history adds to a predicted rating, on average over the rows."""
    sample = rows.iloc[::50]
    steps = sorted(rows["step"].unique())
    terms = {step: model.explain(sample.assign(step=step)) for step in steps}
    means = {step: (table["score"] - table.get("clipping", 0)).mean() for step, table in terms.items()}
    return pd.Series(means) - pd.Series(means).mean()


def genre_of(genres: Sequence[str]) -> str | None:
    """Choose the genre that tells most about a movie: of the seven that are told apart, the rarest."""
    return next((genre for genre in GENRES if genre in genres), None)


def draw(model: Recommender, rows: pd.DataFrame, items: pd.DataFrame, out: Path) -> list[str]:
    """Write four pictures into ``out`` and return their names."""
    effects = position_effects(model, rows)
    counts = rows["step"].value_counts().sort_index()
    vectors = model.embeddings(ITEM).merge(items, on=ITEM)
    known = vectors[vectors[ITEM].isin(rows[ITEM].value_counts().head(150).index)]
    before = MatrixFactorization(model.encoder, seed=0).vectors.lookup(ITEM).weight.detach()
    after = model.model.vectors.lookup(ITEM).weight.detach()
    pictures = {
        "loss": loss_curve(model.history, loss_label=LOSS_LABEL, validation_label="validation RMSE (stars)"),
        "weights": weight_histogram(before, after, title="Movie vectors before and after training"),
        "position": position_effect(
            effects.index, effects, counts=counts, position_label=STEP_LABEL, unit="stars", title=STEP_TITLE
        ),
        "movies": item_map(
            known["vector"].tolist(),
            known["title"].tolist(),
            groups=known["genres"].map(genre_of).tolist(),
            title=MAP_TITLE,
        ),
    }
    for name, figure in pictures.items():
        figure.savefig(out / f"{name}.png", dpi=120)
    return [f"{name}.png" for name in pictures]
