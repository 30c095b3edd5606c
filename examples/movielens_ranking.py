"""Rank movies: hold out the last movie of every user and look for it among ten recommendations.

Run:    python examples/movielens_ranking.py
Needs:  the network once, for the data; some seconds.
Prints: recall@10 and NDCG@10 of the factorization and of popularity, over the whole catalogue.
"""

from __future__ import annotations

import pandas as pd
import torch
from movielens_data import ITEM, USER, load, schema

from recsys_emb import Jagged, Recommender, split_last
from recsys_emb.evaluation.catalogue import Catalogue
from recsys_emb.evaluation.evaluate import evaluate_ranking
from recsys_emb.models.baselines import Popularity


def popularity(model: Recommender, train: pd.DataFrame, test: pd.DataFrame) -> dict[str, float]:
    """Judge the ranking by number of ratings, which is the same for all users but for what they have seen."""
    past, future = (model.encoder.transform(part, with_label=False) for part in (train, test))
    movies = model.encoder.vocabularies[ITEM]
    catalogue = Catalogue(
        torch.zeros(movies.num_embeddings, 1),
        Popularity(ITEM).fit(past).item_scores(),
        candidates=torch.arange(movies.first_index, movies.num_embeddings),
    )
    users = future[USER].unique()
    seen, relevant = (
        Jagged.from_lists([batch[ITEM][batch[USER] == user].tolist() for user in users]) for batch in (past, future)
    )
    return evaluate_ranking(catalogue, torch.zeros(len(users), 1), relevant, k=10, excluded=seen)


def main() -> dict[str, dict[str, float]]:
    """Print and return the figures by model; every rating counts as interest, whatever its stars."""
    rows, _ = load()
    train, test = split_last(rows, USER, "timestamp")
    model = Recommender(schema(None), seed=0, progress=False).fit(train)
    figures = {"popularity": popularity(model, train, test), "factorization": model.evaluate(test, k=10)}
    print("Last movie of each user           recall@10   NDCG@10   users")
    for name, figure in figures.items():
        print(f"{name:<33} {figure['recall']:>9.4f} {figure['ndcg']:>9.4f} {figure['n_evaluated']:>7.0f}")
    return figures


if __name__ == "__main__":
    main()
