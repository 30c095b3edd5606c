"""Draw the pictures of docs/reporting.md from the bundled Open Bandit sample.

Run:    python docs/draw_reporting.py
Needs:  matplotlib.
Draws:  docs/pictures/encoding_report.png and docs/pictures/model_report.png.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from recsys_emb import Categorical, MultiCategorical, Numeric, Position, Recommender, Schema
from recsys_emb.reporting.model_report import model_report
from recsys_emb.reporting.report import report

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = Schema(
    user=Categorical("user_segment"),
    item=Categorical("item_id"),
    position=Position("position", max_position=3, serve_at=1),
    user_features=[MultiCategorical("past_clicked_items", vocabulary="item_id")],
    item_features=[Numeric("item_feature_0"), *(Categorical(f"item_feature_{i}") for i in (1, 2, 3))],
    context_features=[Categorical("campaign")],
    label="click",
    embedding_dim=16,
)


def main(out: Path = ROOT / "docs/pictures") -> None:
    """Fit on the displays of the random policy, report those of the policy that learns, and print both reports."""
    items = pd.read_parquet(ROOT / "data/open_bandit/items.parquet").drop(columns="campaign")
    rows = pd.read_parquet(ROOT / "data/open_bandit/impressions.parquet").merge(items, on="item_id")
    learned_from, others = rows[rows["policy"] == "random"], rows[rows["policy"] != "random"]
    model = Recommender(SCHEMA, progress=False).fit(learned_from)
    found = {"encoding": report(model.encoder, others), "model": model_report(model.model, model.encoder)}
    for name, one in found.items():
        one.plot().savefig(out / f"{name}_report.png")
        print(one, end="\n\n")


if __name__ == "__main__":
    main()
