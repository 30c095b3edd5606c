"""Rank movies by vectors that spread over the user-movie graph (LightGCN), beside plain factorization.

Run:    python examples/graph_nodes.py
Needs:  the Parquet files of data/movielens_100k, and says how to make them; half a minute on one core.
Prints: recall@10 and NDCG@10 over the whole catalogue, with the last movie of each user held out, and what the graph
        adds, with its standard error over the users. Both learn by BPR on the same kind of tables.
"""

from __future__ import annotations

import pandas as pd
import torch
from graph_model import GraphNodes
from movielens_data import FOLDER, ITEM, USER, load
from torch import Tensor

from recsys_emb import BPR, Batch, Categorical, FeatureEncoder, Jagged, Schema, split_last
from recsys_emb.evaluation.catalogue import Catalogue
from recsys_emb.evaluation.evaluate import judge
from recsys_emb.evaluation.ranking import rank
from recsys_emb.training.sampling import Seen

SCHEMA = Schema(user=Categorical(USER), item=Categorical(ITEM), embedding_dim=64)
# Of a few tried, those that did best on the last movie but one of each user: layers, learning rate, L2, epochs.
MODELS = {"plain factorization": (0, 0.01, 1e-2, 20), "graph of 3 layers": (3, 0.03, 1e-4, 25)}


def train(model: GraphNodes, batch: Batch, seen: Seen, *, rate: float, l2: float, epochs: int) -> None:
    """Put each user's movies before others, which the user does not have."""
    optimizer, generator = torch.optim.Adam(model.parameters(), lr=rate), torch.Generator().manual_seed(0)
    first = model.sizes[1] - seen.num_items
    for _ in range(epochs):
        for rows in torch.randperm(len(batch), generator=generator).split(4096):
            users, movies = batch[USER][rows], batch[ITEM][rows, None]
            pairs = torch.cat([movies, first + seen.draw(users, 1, generator)], 1)
            user_vectors, movie_vectors = model()
            scores = (user_vectors[users, None] * movie_vectors[pairs]).sum(-1)
            looked_up = zip(model.embed.lookups, (users, pairs), strict=True)
            penalty = sum(table(indices).square().sum() for table, indices in looked_up) / len(rows)
            optimizer.zero_grad()
            (BPR().loss(scores, scores[:, 0]).mean() + l2 / 2 * penalty).backward()
            optimizer.step()


def placed(model: GraphNodes, asked: Batch, seen: Seen) -> dict[str, Tensor]:
    """Judge ten movies for each row's user by whether they hold the row's movie."""
    with torch.no_grad():
        user_vectors, movie_vectors = model()
    real = movie_vectors[model.sizes[1] - seen.num_items :]
    had = Jagged(seen.items, seen.offsets).select(asked[USER])
    best = rank(Catalogue(real, None), user_vectors[asked[USER]], 10, excluded=had)
    movies = asked[ITEM] - (model.sizes[1] - seen.num_items)
    return judge(best, Jagged(movies, torch.arange(len(asked) + 1)), 10)


def compare(rows: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Train both, print and return the figures."""
    past, last = split_last(rows, USER, "timestamp")
    encoder = FeatureEncoder(SCHEMA).fit(past)
    batch, asked = encoder.transform(past), encoder.transform(last)
    movies = encoder.vocabularies[ITEM]
    sizes = {"num_users": encoder.num_embeddings(USER), "num_items": len(movies)}
    seen = Seen.from_pairs(batch[USER], batch[ITEM] - movies.first_index, **sizes)
    found = {}
    for name, (layers, rate, l2, epochs) in MODELS.items():
        model = GraphNodes(encoder, batch[USER], batch[ITEM], layers=layers)
        train(model, batch, seen, rate=rate, l2=l2, epochs=epochs)
        found[name] = placed(model, asked, seen)
    plain, graph = found.values()
    figures = {name: {key: one[key].mean().item() for key in ("recall", "ndcg")} for name, one in found.items()}
    print(f"{'Last movie of each user':<24} recall@10   NDCG@10")
    for name, figure in figures.items():
        print(f"{name:<24} {figure['recall']:>9.4f} {figure['ndcg']:>9.4f}")
    gains = {key: graph[key] - plain[key] for key in ("recall", "ndcg")}
    figures["gain"] = {key: gain.mean().item() for key, gain in gains.items()}
    figures["error"] = {key: gain.std().item() / len(gain) ** 0.5 for key, gain in gains.items()}
    print(f"{'the graph adds':<24} {figures['gain']['recall']:>+9.4f} {figures['gain']['ndcg']:>+9.4f}")
    print(f"{'standard error':<24} {figures['error']['recall']:>9.4f} {figures['error']['ndcg']:>9.4f}")
    return figures


def main() -> dict[str, dict[str, float]]:
    """Compare both on MovieLens 100K, or say how to get it."""
    if not (FOLDER / "ratings.parquet").exists():
        print("No MovieLens 100K: run python data/movielens_100k/prepare.py first.")
        return {}
    return compare(load()[0])


if __name__ == "__main__":
    main()
