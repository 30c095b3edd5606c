"""Predict clicks from displays in three slots of a shop's page, on the bundled sample.

Run:    python examples/open_bandit.py
Needs:  nothing that is not in the repository; half a minute.
Prints: AUC by five-fold cross-validation, with the slot, without it, and of a one-hot linear model, each with a
        bootstrap interval; what the slot adds; and the click rate of each slot. With 287 clicks in 60,000 displays
        there is little to learn: no effect of the slot shows, and the linear model is not beaten.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from data_folder import DATA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from recsys_emb import Categorical, MultiCategorical, Numeric, Position, Recommender, Schema
from recsys_emb.models.baselines import OneHotLinear

SLOT = Position("position", max_position=3, serve_at=1)


def schema(position: Position | None) -> Schema:
    """Declare the displays; no user id exists in this data, so a user is a segment of four attributes."""
    return Schema(
        user=Categorical("user_segment"),
        item=Categorical("item_id"),
        position=position,
        user_features=[
            *(Categorical(f"user_feature_{i}") for i in range(4)),
            MultiCategorical("past_clicked_items", vocabulary="item_id"),
        ],
        item_features=[Numeric("item_feature_0"), *(Categorical(f"item_feature_{i}") for i in (1, 2, 3))],
        context_features=[Categorical("campaign"), Categorical("policy")],
        label="click",
        embedding_dim=8,
    )


def placements(clicks: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Find the share of unclicked displays scored below each clicked one; AUC is the mean."""
    others, won = np.sort(scores[clicks == 0]), scores[clicks == 1]
    return (np.searchsorted(others, won, "left") + np.searchsorted(others, won, "right")) / (2 * len(others))


def interval(values: np.ndarray) -> tuple[float, float, float]:
    """Mean over the clicks, and the middle 95 % of the means of 2,000 bootstrap samples."""
    means = np.random.default_rng(0).choice(values, (2000, len(values))).mean(axis=1)
    return float(values.mean()), *(float(bound) for bound in np.quantile(means, (0.025, 0.975)))


def judge(train: pd.DataFrame, test: pd.DataFrame) -> dict[str, np.ndarray]:
    """Fit the three models to the same displays and place the clicks among others."""
    aware, blind = (Recommender(schema(slot), progress=False).fit(train) for slot in (SLOT, None))
    linear = OneHotLinear(aware.schema.names, LogisticRegression(max_iter=1000)).fit(aware.encoder.transform(train))
    scores = {"with the slot": aware.predict(test), "without": blind.predict(test)}
    scores["one-hot linear"] = linear.predict(aware.encoder.transform(test))
    return {name: placements(test["click"].to_numpy(), np.asarray(score)) for name, score in scores.items()}


def main() -> dict[str, tuple[float, float, float]]:
    """Print and return each figure with its interval."""
    items = pd.read_parquet(DATA / "open_bandit/items.parquet").drop(columns="campaign")
    rows = pd.read_parquet(DATA / "open_bandit/impressions.parquet").merge(items, on="item_id")
    folds = StratifiedKFold(5, shuffle=True, random_state=0).split(rows, rows["click"])
    placed = pd.concat([pd.DataFrame(judge(rows.iloc[train], rows.iloc[test])) for train, test in folds])
    placed["gain of the slot"] = placed["with the slot"] - placed["without"]
    figures = {name: interval(values.to_numpy()) for name, values in placed.items()}
    for name, (auc, low, high) in figures.items():
        print(f"AUC, {name:<17} {auc:>6.3f}   95 % interval {low:.3f} to {high:.3f}")
    for slot, clicks in rows[rows["policy"] == "random"].groupby("position")["click"]:
        rate, spread = clicks.mean(), 1.96 * clicks.sem()
        figures[f"slot {slot}"] = (rate, rate - spread, rate + spread)
        print(
            f"random policy, slot {slot}: {rate:.2%} clicked   95 % interval {rate - spread:.2%} to {rate + spread:.2%}"
        )
    print("This sample is too small to show an effect of the slot.")
    return figures


if __name__ == "__main__":
    main()
