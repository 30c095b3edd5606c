"""What the example on graph nodes claims: the paper's formula, its gradient, and that both models learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from recsys_emb import FeatureEncoder

USERS, ITEMS = 40, 24


@pytest.fixture(scope="module")
def nodes(example):
    return example("graph_nodes")


@pytest.fixture(scope="module")
def rows():
    """Two circles of users, each with its own half of the items, and a little noise."""
    generator = np.random.default_rng(0)
    users = np.repeat(np.arange(USERS), 8)
    half = np.concatenate([generator.permutation(ITEMS // 2)[:8] for _ in range(USERS)])
    stray = generator.random(len(users)) < 0.05
    items = np.where(stray, generator.integers(0, ITEMS, len(users)), half + users % 2 * (ITEMS // 2))
    frame = pd.DataFrame({"user_id": users, "movie_id": items, "timestamp": np.arange(len(users))})
    return frame.drop_duplicates(["user_id", "movie_id"])


@pytest.fixture(scope="module")
def encoded(nodes, rows):
    encoder = FeatureEncoder(nodes.SCHEMA).fit(rows)
    return encoder, encoder.transform(rows)


def model_of(nodes, encoded, layers):
    encoder, batch = encoded
    return nodes.GraphNodes(encoder, batch["user_id"], batch["movie_id"], layers=layers)


def dense_formula(model, encoded, layers):
    """Mean over the powers of D^-1/2 A D^-1/2, as in the paper, by dense matrices."""
    _, batch = encoded
    num_users, num_items = model.sizes
    adjacency = torch.zeros(num_users + num_items, num_users + num_items)
    adjacency[batch["user_id"], num_users + batch["movie_id"]] = 1
    adjacency += adjacency.T.clone()
    scale = adjacency.sum(1).clamp(min=1).rsqrt()
    spread = scale[:, None] * adjacency * scale
    rows = torch.cat([table.table() for table in model.embed.lookups])
    return sum(torch.linalg.matrix_power(spread, power) @ rows for power in range(layers + 1)) / (layers + 1)


@pytest.mark.parametrize("layers", [0, 1, 3])
def test_vectors_and_gradients_are_those_of_the_formula(nodes, encoded, layers):
    model = model_of(nodes, encoded, layers)
    weights = [table.weight for table in model.embed.lookups]
    ours, theirs = torch.cat(model()), dense_formula(model, encoded, layers)
    assert torch.allclose(ours, theirs, atol=1e-6)
    target = torch.randn(ours.shape, generator=torch.Generator().manual_seed(0))
    ours_gradient = torch.autograd.grad((ours * target).sum(), weights)
    theirs_gradient = torch.autograd.grad((theirs * target).sum(), weights)
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(ours_gradient, theirs_gradient, strict=True))


def test_without_layers_a_node_is_its_row(nodes, encoded):
    model = model_of(nodes, encoded, 0)
    assert torch.equal(torch.cat(model()), torch.cat([table.table() for table in model.embed.lookups]))


def test_reserved_rows_stay_zero(nodes, encoded):
    users, items = model_of(nodes, encoded, 3)()
    assert not users[:3].any()
    assert not items[:3].any()


def test_an_edge_counts_once(nodes, encoded):
    _, batch = encoded
    twice = [torch.cat([batch[name], batch[name]]) for name in ("user_id", "movie_id")]
    once, again = model_of(nodes, encoded, 2), nodes.GraphNodes(encoded[0], *twice, layers=2)
    assert torch.equal(torch.cat(once()), torch.cat(again()))


@pytest.fixture(scope="module")
def figures(nodes, rows):
    return nodes.compare(rows)


def test_both_models_find_the_circle_of_a_user(figures):
    assert figures["plain factorization"]["recall"] > 0.8
    assert figures["graph of 3 layers"]["recall"] > 0.8


def test_the_gain_is_the_difference_of_the_figures(figures):
    plain, graph = figures["plain factorization"], figures["graph of 3 layers"]
    for name in ("recall", "ndcg"):
        assert figures["gain"][name] == pytest.approx(graph[name] - plain[name])
        assert figures["error"][name] >= 0


def test_without_the_data_it_says_how_to_make_it(nodes, monkeypatch, capsys):
    monkeypatch.setattr(nodes, "FOLDER", Path("nowhere"))
    assert nodes.main() == {}
    assert capsys.readouterr().out == "No MovieLens 100K: run python data/movielens_100k/prepare.py first.\n"
