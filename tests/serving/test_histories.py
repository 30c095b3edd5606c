"""Recommenders that know what users had: learned, served, grown, saved and loaded without the training rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from recsys_emb.artifact.manifest import MANIFEST, describe_file
from recsys_emb.errors import ArtifactError
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, History, Schema
from recsys_emb.training.losses import Logistic
from recsys_emb.training.minibatch import Minibatch

SCHEMA = Schema(
    user=Categorical("user"),
    item=Categorical("item"),
    user_features=[History("item", max_length=4)],
    label="stars",
    embedding_dim=4,
)


def interactions(rows: int = 80, *, seed: int = 0) -> pd.DataFrame:
    """Twelve users and nine items; the time is the order of the rows."""
    generator = np.random.default_rng(seed)
    users, items = generator.integers(0, 12, rows), generator.integers(0, 9, rows)
    return pd.DataFrame(
        {"user": [f"u{user}" for user in users], "item": items, "stars": generator.integers(1, 6, rows).astype(float)}
    )


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return interactions()


@pytest.fixture(scope="module")
def fitted(frame: pd.DataFrame) -> Recommender:
    return Recommender(SCHEMA, epochs=5, progress=False).fit(frame)


@pytest.fixture
def saved(fitted: Recommender, tmp_path: Path) -> Path:
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


def remembered(recommender: Recommender) -> dict[str, list[int]]:
    """Raw items by raw user."""
    users, items = (recommender.encoder.vocabularies[name] for name in ("user", "item"))
    lists = recommender.model.vectors.histories["item_history"].lists(users.encode(users.values)).to_lists()
    return {user: items.decode(one) for user, one in zip(users.values.to_pylist(), lists, strict=True)}


def latest(frame: pd.DataFrame) -> dict[str, list[int]]:
    last = frame.drop_duplicates(["user", "item"], keep="last")
    return {user: part["item"].tolist()[-4:] for user, part in last.groupby("user")}


def change_weights(folder: Path, damage: dict[str, torch.Tensor]) -> str:
    """Replace tensors of the history, with a manifest that fits; give the place of the history."""
    path = folder / "weights.safetensors"
    weights = load_file(path)
    with safe_open(path, framework="pt") as opened:
        metadata = dict(opened.metadata())
    place = next(name for name in weights if name.endswith(".values")).removesuffix("values")
    save_file({**weights, **{f"{place}{name}": tensor for name, tensor in damage.items()}}, path, metadata)
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][path.name] = describe_file(path)
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return place


def test_a_fit_remembers_the_latest_items_of_every_user(fitted: Recommender, frame: pd.DataFrame) -> None:
    assert remembered(fitted) == latest(frame)


def test_a_history_is_no_column_and_has_no_bias(fitted: Recommender, frame: pd.DataFrame) -> None:
    told = fitted.explain(frame)
    assert list(told) == ["offset", "bias:user", "bias:item", "interaction", "clipping", "score"]
    assert fitted.predict(frame[["user", "item"]]).equals(told["score"])


def test_a_recommended_score_is_the_prediction_for_the_pair(fitted: Recommender) -> None:
    answer = fitted.recommend(["u3", "nobody", "u0"], k=3, exclude_seen=False)
    assert answer["known"].tolist() == [True] * 3 + [False] * 3 + [True] * 3
    assert np.array_equal(fitted.predict(answer[["user", "item"]]), answer["score"])


def test_what_a_user_had_moves_its_scores_and_a_stranger_has_none(frame: pd.DataFrame) -> None:
    fitted = Recommender(SCHEMA, epochs=5, progress=False).fit(frame)
    asked = pd.DataFrame({"user": ["u0", "nobody"], "item": [1, 1]})
    before = fitted.predict(asked)
    table = fitted.model.vectors.histories["item_history"]
    with torch.no_grad():
        table.items.weight[3:] += 1
    after = fitted.predict(asked)
    assert after[0] != before[0]
    assert after[1] == before[1]


@pytest.mark.parametrize("solver", [None, Minibatch(learning_rate=0.05)], ids=["rows", "batch"])
def test_growth_adds_to_the_histories(solver: Minibatch | None, frame: pd.DataFrame) -> None:
    grown = Recommender(SCHEMA, solver=solver, epochs=3, progress=False).fit(frame)
    before = remembered(grown)
    more = pd.DataFrame({"user": ["new", "u1", "u1"], "item": [99, 99, 3], "stars": [5.0, 1.0, 2.0]})
    grown.partial_fit(more)
    assert remembered(grown) == latest(pd.concat([frame, more]))
    assert {user: remembered(grown)[user] for user in before if user != "u1"} == {
        user: items for user, items in before.items() if user != "u1"
    }


def test_a_saved_model_serves_without_the_training_rows(saved: Path, fitted: Recommender, frame: pd.DataFrame) -> None:
    again = Recommender.load(saved)
    assert remembered(again) == remembered(fitted)
    assert again.predict(frame).equals(fitted.predict(frame))
    users = [*frame["user"].unique(), "nobody"]
    pd.testing.assert_frame_equal(again.recommend(users, k=4), fitted.recommend(users, k=4))


def test_a_loaded_model_goes_on_as_the_saved_one_would(saved: Path, frame: pd.DataFrame) -> None:
    first, second = Recommender.load(saved), Recommender.load(saved)
    more = interactions(20, seed=1).assign(user="new")
    first.partial_fit(more)
    second.partial_fit(more)
    assert remembered(first) == latest(pd.concat([frame, more]))
    assert first.predict(more).equals(second.predict(more))


@pytest.mark.parametrize(
    "damage",
    [
        {"values": torch.tensor([3, 500])},
        {"values": torch.tensor(3)},
        {"values": torch.tensor([[3]])},
        {"values": torch.tensor([3.0])},
        {"offsets": torch.zeros(3, dtype=torch.int64)},
    ],
)
def test_histories_that_belong_to_other_vocabularies_are_refused(saved: Path, damage: dict[str, torch.Tensor]) -> None:
    place = change_weights(saved, damage)
    with pytest.raises(ArtifactError, match=rf"^weights\.safetensors: .*{place}.*Save the artifact again\.$"):
        Recommender.load(saved)


def test_clicks_and_rankings_learn_with_histories(frame: pd.DataFrame) -> None:
    clicks = frame.assign(stars=(frame["stars"] > 3).astype(float))
    for objective in (Logistic(), Logistic(negatives=2)):
        fitted = Recommender(SCHEMA, objective=objective, epochs=3, progress=False).fit(clicks)
        assert fitted.model.vectors.histories["item_history"].items.weight.any()
        assert len(fitted.recommend(["u0"], k=2, exclude_seen=False)) == 2
