"""Learn from clicks which items are good apart from the slots they stood in, on data whose truth is known.

Run:    python examples/planted_slots.py
Needs:  nothing that is not in the repository; seconds.
Prints: how well the item ranking of a position-aware and of a position-blind model agrees with the planted one, the
        learned slot effects beside the planted ones, and what serving at slot 1 means.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from data_folder import load_script

from recsys_emb import Categorical, Position, Recommender, Schema

USER, ITEM = Categorical("user_id"), Categorical("item_id")
# The effect of a slot rests on thousands of rows and needs no L2, which would leave a part of it to the items.
SLOT = Position("slot", max_position=5, serve_at=1, l2_scale=0.0)
AWARE = Schema(user=USER, item=ITEM, position=SLOT, label="click")
BLIND = Schema(user=USER, item=ITEM, label="click")


def merit(truth) -> pd.Series:
    """Compute what each item is worth on average over the users, whatever the slot."""
    taste = truth.user_vectors.mean(axis=0) @ truth.item_vectors.T
    return pd.Series(truth.items["effect"].to_numpy() + taste, index=truth.items["item_id"])


def every_pair(truth) -> pd.DataFrame:
    """Pair every user with every item, at slot 1."""
    pairs = truth.users[["user_id"]].merge(truth.items[["item_id"]], how="cross")
    return pairs.assign(slot=1)


def log_odds(model: Recommender, pairs: pd.DataFrame) -> pd.Series:
    """Score pairs in the units of the planted effects."""
    return model.predict(pairs).transform(lambda chance: np.log(chance / (1 - chance)))


def slot_effects(model: Recommender, pairs: pd.DataFrame) -> pd.Series:
    """Measure what the model adds in each slot, beside the last one."""
    means = {slot: log_odds(model, pairs.assign(slot=slot)).mean() for slot in range(1, 6)}
    return pd.Series(means) - means[5]


def main() -> dict[str, object]:
    """Train both models and hold them against the truth."""
    truth = load_script("planted/generate.py").generate(rows=60_000, seed=0)
    aware, blind = (Recommender(schema, progress=False).fit(truth.interactions) for schema in (AWARE, BLIND))
    pairs = every_pair(truth)
    agreement = {}
    for name, model in {"position-aware": aware, "position-blind": blind}.items():
        learned = log_odds(model, pairs).groupby(pairs["item_id"]).mean()
        agreement[name] = float(learned.corr(merit(truth), method="spearman"))
        print(f"{name} model: rank correlation of its items with the planted ones {agreement[name]:.3f}")

    effects = slot_effects(aware, pairs)
    print("\nslot  learned  planted")
    for slot, planted in zip(truth.slots["slot"], truth.slots["effect"], strict=True):
        print(f"{slot:>4}  {effects[slot]:>7.2f}  {planted:>7.2f}")

    best = aware.recommend([1], k=5, exclude_seen=False)
    shown = {slot: aware.predict(best[["user_id", "item_id"]].assign(slot=slot)) for slot in (1, 5)}
    gap = float((best["score"] - shown[1]).abs().max())
    print(f"\nRecommendations are scored as in slot 1: the largest difference to a prediction for slot 1 is {gap:.6f},")
    print(f"the mean difference to one for slot 5 is {float((best['score'] - shown[5]).mean()):.2f}.")
    return {"agreement": agreement, "slot_effects": effects.tolist(), "serving_gap": gap}


if __name__ == "__main__":
    main()
