"""Use the feature layer alone, inside somebody else's module and training loop.

Run:    python examples/pandas_in_tensors_out.py
Needs:  nothing that is not in the repository; seconds.
Prints: the loss by epoch, and the RMSE on held-out rows, encoded by the encoder as it was saved, beside that of the
        mean rating.
"""

from __future__ import annotations

import tempfile

import pandas as pd
import torch
from data_folder import load_script
from torch import Tensor, nn

from recsys_emb import (
    Batch,
    BatchLoader,
    Categorical,
    FeatureEmbedding,
    FeatureEncoder,
    MultiCategorical,
    Position,
    Schema,
    split_random,
)

SCHEMA = Schema(
    user=Categorical("user_id"),
    item=Categorical("item_id"),
    position=Position("slot", max_position=5),
    user_features=[MultiCategorical("recent_items", vocabulary="item_id", share_table=True)],
    label="rating",
    embedding_dim=16,
)


class Tower(nn.Module):
    """Somebody's network: it concatenates the vectors of all features and runs them through two layers."""

    def __init__(self, encoder: FeatureEncoder) -> None:
        super().__init__()
        self.embed = FeatureEmbedding(encoder, init_std=0.1)
        width = 16 * len(self.embed.names)
        self.head = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, batch: Batch) -> Tensor:
        """Predict ratings, ``(B,)``."""
        vectors = self.embed(batch)
        return self.head(torch.cat(list(vectors.values()), dim=1)).squeeze(1)


def interactions() -> pd.DataFrame:
    """Planted ratings, each with the list of items that the user rated in the three rows before."""
    rows = load_script("planted/generate.py").generate(rows=20_000, users=200, seed=0).interactions
    before = [rows.groupby("user_id")["item_id"].shift(i).astype("Int64") for i in (1, 2, 3)]
    recent = pd.concat(before, axis=1).apply(lambda row: row.dropna().tolist(), axis=1)
    return rows.assign(recent_items=recent)


def epochs(model: Tower, loader: BatchLoader, count: int) -> list[float]:
    """Train as anybody would, and return the mean loss of each epoch."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    means = []
    for epoch in range(count):
        loader.set_epoch(epoch)
        losses = []
        for batch in loader:
            loss = nn.functional.mse_loss(model(batch), batch.label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        means.append(sum(losses) / len(losses))
        print(f"epoch {epoch}: mean squared error {means[-1]:.3f}")
    return means


def main() -> dict[str, object]:
    """Encode, train, judge; print and return the figures."""
    train, test = split_random(interactions(), 0.2, seed=0)
    encoder = FeatureEncoder(SCHEMA).fit(train)
    loader = BatchLoader(encoder, train, batch_size=512, shuffle=True, seed=0)
    torch.manual_seed(0)
    model = Tower(encoder)
    losses = epochs(model, loader, 8)
    with tempfile.TemporaryDirectory() as folder:
        encoder.save(folder)
        held_out = FeatureEncoder.load(folder).transform(test)
    with torch.no_grad():
        error = nn.functional.mse_loss(model(held_out), held_out.label).sqrt().item()
    constant = (test["rating"] - train["rating"].mean()).pow(2).mean() ** 0.5
    print(f"RMSE on held-out rows {error:.3f}; of the mean rating {constant:.3f}")
    return {"losses": losses, "rmse": error, "mean_rmse": constant}


if __name__ == "__main__":
    main()
