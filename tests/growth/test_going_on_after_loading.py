"""A loaded recommender learns on as the saved one does, to the last bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from recsys_emb.artifact.manifest import MANIFEST, describe_file
from recsys_emb.errors import ArtifactError
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, History, Schema
from recsys_emb.training.losses import BPR, Logistic, SampledSoftmax, SquaredError
from recsys_emb.training.minibatch import Minibatch

SCHEMAS = {
    "pair": Schema(user=Categorical("user"), item=Categorical("item"), label="stars", embedding_dim=4),
    "history": Schema(
        user=Categorical("user"), item=Categorical("item"), user_features=[History("item")], embedding_dim=4
    ),
}


def rows(first: int, count: int = 60) -> pd.DataFrame:
    generator = np.random.default_rng(first)
    return pd.DataFrame(
        {
            "user": generator.integers(first, first + 10, count),
            "item": generator.integers(first, first + 8, count),
            "stars": generator.integers(1, 6, count),
        }
    )


def reseal(folder: Path, **changes: object) -> None:
    """Change the settings of a saved folder, and its manifest with them."""
    path = folder / "recommender.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][path.name] = describe_file(path)
    (folder / MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("pair", {"objective": SquaredError()}),
        ("pair", {"objective": BPR()}),
        ("pair", {"objective": SampledSoftmax(negatives=4), "solver": Minibatch(batch_size=16)}),
        ("history", {"objective": Logistic(negatives=2)}),
    ],
    ids=str,
)
def test_a_loaded_recommender_trains_on_bit_for_bit(schema: str, said: dict[str, object], tmp_path: Path) -> None:
    recommender = Recommender(SCHEMAS[schema], epochs=3, seed=7, progress=False, **said).fit(rows(0))
    recommender.save(tmp_path / "model")
    loaded = Recommender.load(tmp_path / "model")
    for first in (5, 9):
        before = len(recommender.model.vectors.lookup("item").weight)
        for one in (recommender, loaded):
            one.partial_fit(rows(first))
        expected, answer = recommender.model.state_dict(), loaded.model.state_dict()
        assert list(answer) == list(expected)
        assert all(torch.equal(answer[name], weights) for name, weights in expected.items())
        assert len(recommender.model.vectors.lookup("item").weight) > before


def test_the_spread_and_the_seed_of_the_fit_are_kept(tmp_path: Path) -> None:
    recommender = Recommender(SCHEMAS["pair"], objective=BPR(), epochs=1, seed=7, progress=False).fit(rows(0))
    recommender.save(tmp_path / "model")
    vectors = Recommender.load(tmp_path / "model").model.vectors
    assert (vectors.init_std, vectors.seed) == (0.1, 7)
    assert vectors.lookup("item").init_std == 0.1


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"init_std": -1.0}, "expected init_std of at least 0, got -1.0"),
        ({"init_std": "wide"}, "expected init_std of at least 0, got 'wide'"),
        ({"seed": 1.5}, "expected seed to be an integer, got 1.5"),
    ],
)
def test_a_spread_or_seed_that_is_none_is_refused(changes: dict[str, object], text: str, tmp_path: Path) -> None:
    Recommender(SCHEMAS["pair"], epochs=1, progress=False).fit(rows(0)).save(tmp_path / "model")
    reseal(tmp_path / "model", **changes)
    with pytest.raises(ArtifactError) as caught:
        Recommender.load(tmp_path / "model")
    assert str(caught.value) == f"recommender.json: {text}. Save the artifact again."
