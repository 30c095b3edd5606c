"""Predict clicks from displays in three slots of a shop's page, on the bundled sample.

Run:    python examples/open_bandit.py
Needs:  nothing that is not in the repository; seconds.
Prints: AUC on the last days with and without the slot, each with a bootstrap interval, and the click rate of each slot
        with its interval. With 287 clicks in all, neither shows an effect of the slot.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from data_folder import DATA
from sklearn.metrics import roc_auc_score

from recsys_emb import Categorical, MultiCategorical, Numeric, Position, Recommender, Schema, split_time

SLOT = Position("position", max_position=3, serve_at=1)
RESAMPLES = 300


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


def interval(values: list[float]) -> tuple[float, float]:
    """Middle 95 % of the values."""
    return float(np.quantile(values, 0.025)), float(np.quantile(values, 0.975))


def auc_with_interval(clicks: np.ndarray, scores: np.ndarray) -> tuple[float, float, float]:
    """AUC, and its bootstrap interval over the displays."""
    rng = np.random.default_rng(0)
    draws = (rng.integers(0, len(clicks), len(clicks)) for _ in range(RESAMPLES))
    return roc_auc_score(clicks, scores), *interval([roc_auc_score(clicks[rows], scores[rows]) for rows in draws])


def main() -> dict[str, tuple[float, float, float]]:
    """Train with and without the slot and print both beside the click rates."""
    rows = pd.read_parquet(DATA / "open_bandit/impressions.parquet")
    items = pd.read_parquet(DATA / "open_bandit/items.parquet").drop(columns="campaign")
    train, test = split_time(rows.merge(items, on="item_id"), "timestamp", 0.3)
    print(f"{len(train):,} displays to learn from, {len(test):,} to judge, {test['click'].sum()} of them clicked")
    figures = {}
    for name, position in {"with the slot": SLOT, "without": None}.items():
        model = Recommender(schema(position), seed=0).fit(train)
        figures[name] = auc_with_interval(test["click"].to_numpy(), model.predict(test).to_numpy())
        print("AUC {}: {:.3f} (95 % interval {:.3f} to {:.3f})".format(name, *figures[name]))

    for slot, clicks in rows[rows["policy"] == "random"].groupby("position")["click"]:
        rate, spread = clicks.mean(), 1.96 * clicks.std() / np.sqrt(len(clicks))
        figures[f"slot {slot}"] = (rate, rate - spread, rate + spread)
        print(
            f"random policy, slot {slot}: clicks {rate:.2%} (95 % interval {rate - spread:.2%} to {rate + spread:.2%})"
        )
    print("The intervals overlap: this sample is too small to show an effect of the slot.")
    return figures


if __name__ == "__main__":
    main()
