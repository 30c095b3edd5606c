"""A recommender grows for years: nothing is forgotten, nothing mixed up, and it knows where it comes from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from recsys_emb.artifact.manifest import MANIFEST, describe_file
from recsys_emb.errors import ArtifactError
from recsys_emb.lookup.new_rows import InheritedRows, MeanRows, NewRows, ZeroRows
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, MultiCategorical, Position, Schema
from recsys_emb.training.losses import BPR, Logistic, SampledSoftmax
from recsys_emb.training.minibatch import Minibatch
from recsys_emb.training.past import Past
from recsys_emb.training.sequential import SequentialSGD

RATED = Schema(user=Categorical("user"), item=Categorical("item"), label="stars", embedding_dim=4)
SEEN = Schema(user=Categorical("user"), item=Categorical("item"), embedding_dim=4)


def ratings(users: range, items: range, count: int = 80, seed: int = 0) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    stars = generator.integers(1, 6, count)
    stars[:2] = 1, 5
    return pd.DataFrame(
        {"user": generator.choice(users, count), "item": generator.choice(items, count), "stars": stars}
    )


def fitted(schema: Schema = RATED, **said: object) -> Recommender:
    return Recommender(schema, **{"epochs": 5, "progress": False, **said}).fit(ratings(range(10), range(12)))


SOLVERS = [SequentialSGD(), Minibatch(batch_size=16, learning_rate=0.01)]


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda one: type(one).__name__)
def test_rows_of_strangers_alone_leave_every_old_prediction_bit_for_bit(solver) -> None:
    recommender, old = fitted(solver=solver), ratings(range(10), range(12))
    before = recommender.predict(old)
    for step in range(3):
        recommender.partial_fit(ratings(range(100 + step, 105 + step), range(200 + step, 206 + step), 30, seed=step))
        pd.testing.assert_series_equal(recommender.predict(old), before, check_exact=True)


@pytest.mark.parametrize("objective", [Logistic(negatives=3), BPR(), SampledSoftmax(negatives=4)], ids=repr)
def test_an_item_that_is_only_drawn_as_a_negative_stays_as_it_was(objective) -> None:
    recommender, old = fitted(SEEN, objective=objective), ratings(range(10), range(12))
    before = recommender.predict(old)
    recommender.partial_fit(ratings(range(100, 105), range(200, 206), 20))
    pd.testing.assert_series_equal(recommender.predict(old), before, check_exact=True)


def test_known_rows_move_in_proportion_to_what_is_new() -> None:
    steps = []
    for repeats in (1, 20):
        recommender = Recommender(RATED, epochs=5, progress=False)
        recommender.fit(pd.concat([ratings(range(10), range(12))] * repeats, ignore_index=True))
        before = recommender.predict(ratings(range(10), range(12)))
        recommender.partial_fit(ratings(range(10), range(12), 80, seed=7))
        steps.append(float((recommender.predict(ratings(range(10), range(12))) - before).abs().mean()))
    assert steps[1] < steps[0] / 4


class Spy(SequentialSGD):
    """Notes what it is told about the rows before."""

    def start(self, model, batch, objective, *, seed, past: Past | None = None):
        told.append(past)
        return super().start(model, batch, objective, seed=seed, past=past)


told: list[Past | None] = []


def test_training_is_told_of_all_rows_so_far() -> None:
    told.clear()
    recommender = fitted(SEEN, solver=Spy())
    first = ratings(range(10), range(12))
    second = ratings(range(5, 15), range(12, 20), 20)
    recommender.partial_fit(second).partial_fit(ratings(range(3), range(3), 5))
    assert told[0] is None
    pairs = []
    for past in told[1:]:
        vocabularies = recommender.encoder.vocabularies
        users, items = (vocabularies[name].decode(one) for name, one in (("user", past.users), ("item", past.items)))
        pairs.append(set(zip(users, items, strict=True)))
    assert pairs[0] == set(zip(first["user"], first["item"], strict=True))
    assert pairs[1] == pairs[0] | set(zip(second["user"], second["item"], strict=True))
    assert len(told[2].catalogue) == len({*first["item"], *second["item"]})


def test_growth_takes_as_many_epochs_as_early_stopping_would_at_least() -> None:
    recommender = Recommender(RATED, progress=False).fit(ratings(range(10), range(12)))
    recommender.partial_fit(ratings(range(10), range(12), seed=1))
    assert [len(recommender.history.epochs), len(recommender.history.refit)] == [25, 0]
    assert len(fitted().partial_fit(ratings(range(3), range(3))).history.epochs) == 5


@pytest.mark.parametrize("new_rows", [ZeroRows(), MeanRows(), InheritedRows(), {"user": InheritedRows()}], ids=repr)
def test_new_rows_begin_as_declared(new_rows: NewRows) -> None:
    schema = Schema(
        user=Categorical("user", unknown_dropout=0.2),
        item=Categorical("item", unknown_dropout=0.2),
        label="stars",
        embedding_dim=4,
    )
    recommender = fitted(schema, solver=SequentialSGD(learning_rate=0.01), epochs=20)
    recommender._plan = Recommender(schema, solver=SequentialSGD(learning_rate=1e-30), epochs=1, progress=False)._plan
    strangers = pd.DataFrame({"user": [900], "item": [3], "stars": [3]})
    unknown = recommender.predict(strangers)
    recommender.partial_fit(strangers, new_rows=new_rows)
    if not isinstance(new_rows, (ZeroRows, MeanRows)):
        assert recommender.predict(strangers).equals(unknown)
    size = float(recommender.model.vectors.lookup("user").weight[-1].detach().norm())
    assert (size < 1e-20) == isinstance(new_rows, ZeroRows)


def test_the_lineage_has_a_step_per_growth_and_lasts(tmp_path: Path) -> None:
    recommender = fitted()
    assert [step.rows for step in recommender.lineage] == [80]
    recommender.partial_fit(ratings(range(20), range(30), 40))
    assert [step.rows for step in recommender.lineage] == [80, 40]
    assert recommender.lineage[-1].fingerprint == recommender.encoder.fingerprint
    assert recommender.lineage[0].fingerprint != recommender.lineage[1].fingerprint
    assert recommender.lineage[1].values == {
        name: len(vocabulary) for name, vocabulary in recommender.encoder.vocabularies.items()
    }
    recommender.save(tmp_path / "model")
    again = Recommender.load(tmp_path / "model")
    assert again.lineage == recommender.lineage
    assert len(again.partial_fit(ratings(range(3), range(3), 5)).lineage) == 3


def test_no_rows_are_no_step() -> None:
    recommender = fitted()
    recommender.partial_fit(ratings(range(1), range(1)).iloc[:0])
    assert len(recommender.lineage) == 1


def test_growth_after_loading_is_growth_without(tmp_path: Path) -> None:
    recommender, more = fitted(), ratings(range(20), range(30), 40)
    recommender.save(tmp_path / "model")
    again = Recommender.load(tmp_path / "model")
    for one in (recommender, again):
        one.partial_fit(more)
    assert again.predict(more).equals(recommender.predict(more))


def test_a_lineage_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    fitted().save(tmp_path / "model")
    path = tmp_path / "model" / "recommender.json"
    content = json.loads(path.read_text())
    content["settings"]["lineage"][-1]["fingerprint"] = "0" * 64
    path.write_text(json.dumps(content))
    manifest = json.loads((tmp_path / "model" / MANIFEST).read_text())
    manifest["files"]["recommender.json"] = describe_file(path)
    (tmp_path / "model" / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ArtifactError) as caught:
        Recommender.load(tmp_path / "model")
    wanted = fitted().encoder.fingerprint[:12]
    assert str(caught.value) == (
        f"recommender.json: expected a lineage that leads to {wanted}, got 000000000000. Save it again."
    )


def test_all_kinds_of_features_grow_together() -> None:
    schema = Schema(
        user=Categorical("user"),
        item=Categorical("item"),
        position=Position("slot", max_position=9, serve_at=1),
        item_features=[MultiCategorical("tags")],
        label="stars",
        embedding_dim=4,
    )
    first, second = (
        ratings(range(start, start + 10), range(start, start + 12), seed=start).assign(
            slot=lambda frame: frame["item"] % 10, tags=lambda frame: [[f"t{item}"] for item in frame["item"]]
        )
        for start in (0, 8)
    )
    recommender = Recommender(schema, epochs=3, progress=False).fit(first).partial_fit(second)
    answer = recommender.recommend([0, 9, 17], k=30, exclude_seen=False)
    assert set(answer["item"]) == {*first["item"], *second["item"]}
    assert isinstance(recommender.model, MatrixFactorization)
