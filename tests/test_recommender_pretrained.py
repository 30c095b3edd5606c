"""Rows that begin with vectors from elsewhere: `Recommender(schema, pretrained=...)`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from recsys_emb.errors import ArtifactError, KeyTypeError, SchemaError
from recsys_emb.lookup.new_rows import PretrainedRows
from recsys_emb.lookup.pretrained import PretrainedVectors
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, Hashed, History, MultiCategorical, Numeric, OneHot, Schema
from recsys_emb.training.losses import Logistic
from recsys_emb.training.minibatch import Minibatch
from recsys_emb.training.sequential import SequentialSGD

SCHEMA = Schema(user=Categorical("user"), item=Categorical("item"), label="stars", embedding_dim=4)
# So small a step changes no weight that is not zero, so that a fit shows where it began.
STILL = SequentialSGD(learning_rate=1e-30)


def ratings(rows: int = 120, *, items: int = 8, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    users, films = rng.integers(0, 12, rows), rng.integers(0, items, rows)
    stars = np.where(users % 2 == films % 2, 4.0, 2.0) + rng.normal(0, 0.2, rows)
    return pd.DataFrame({"user": [f"u{user}" for user in users], "item": films, "stars": stars})


def vectors_of(keys: list[object], dim: int = 4) -> PretrainedVectors:
    return PretrainedVectors(keys, torch.arange(1.0, 1 + len(keys) * dim).reshape(-1, dim))


def rows_of(recommender: Recommender, name: str) -> torch.Tensor:
    return torch.from_numpy(np.stack(recommender.embeddings(name)["vector"].tolist()))


def fitted(**options: object) -> Recommender:
    return Recommender(SCHEMA, progress=False, **options).fit(ratings())


def test_the_embeddings_of_one_model_are_the_first_rows_of_another():
    exported = fitted(epochs=5).embeddings("item")
    following = fitted(epochs=1, solver=STILL, pretrained={"item": PretrainedVectors.from_frame(exported)})
    again = following.embeddings("item")
    assert again["item"].tolist() == exported["item"].tolist()
    assert all(map(np.array_equal, again["vector"], exported["vector"]))


@pytest.mark.parametrize("table", ["lookup", "one-hot"])
def test_rows_with_a_vector_begin_there_and_the_others_as_at_birth(table):
    item = Categorical("item", **({} if table == "lookup" else {"table": OneHot()}))
    schema = Schema(user=Categorical("user"), item=item, label="stars", embedding_dim=4)
    options = {"epochs": 1, "solver": STILL, "progress": False}
    plain = Recommender(schema, **options).fit(ratings())
    given = Recommender(schema, pretrained={"item": vectors_of([7, 99, 2])}, **options).fit(ratings())
    known = plain.encoder.vocabularies["item"].values.to_pylist()
    expected = rows_of(plain, "item").clone()
    expected[known.index(7)] = torch.arange(1.0, 5.0)
    expected[known.index(2)] = torch.arange(9.0, 13.0)
    assert torch.equal(rows_of(given, "item"), expected)
    assert torch.equal(rows_of(given, "user"), rows_of(plain, "user"))
    table = given.model.vectors.lookup("item").table().detach()
    assert torch.equal(table[:3], plain.model.vectors.lookup("item").table().detach()[:3])


def test_features_that_share_a_table_begin_together():
    frame = ratings().assign(recent=[[1, 2]] * 120)
    recent = MultiCategorical("recent", vocabulary="item", share_table=True)
    schema = Schema(
        user=Categorical("user"), item=Categorical("item"), user_features=[recent], label="stars", embedding_dim=4
    )
    made = Recommender(schema, epochs=1, solver=STILL, pretrained={"recent": vectors_of([1])}, progress=False)
    made.fit(frame)
    found = made.embeddings("item").set_index("item")["vector"]
    assert found[1].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert made.model.vectors.lookup("item") is made.model.vectors.lookup("recent")


@pytest.mark.parametrize("solver", [SequentialSGD(), Minibatch()])
def test_vectors_that_a_fit_begins_with_learn(solver):
    pretrained = vectors_of([1, 2])
    found = rows_of(fitted(epochs=3, solver=solver, pretrained={"item": pretrained}), "item")
    assert bool(found.isfinite().all())
    assert not torch.equal(found[:2], pretrained.vectors)


def test_early_stopping_begins_both_of_its_runs_there():
    with_vectors, again = (fitted(pretrained={"item": vectors_of([1, 2])}) for _ in range(2))
    assert with_vectors.history.epochs == again.history.epochs
    assert torch.equal(rows_of(with_vectors, "item"), rows_of(again, "item"))
    assert with_vectors.history.epochs != fitted().history.epochs


def test_what_the_vectors_reach_is_told_like_the_other_choices(capsys):
    Recommender(SCHEMA, epochs=1, pretrained={"item": vectors_of([0, 1, 2, 3, 99])}).fit(ratings())
    told = capsys.readouterr().err
    assert "Recommender: 'item' begins with pretrained vectors: 4 of 8 values have a vector (" in told
    assert "; without: " in told
    assert " 1 key unused, 0 repeated, 0 lines skipped." in told
    fitted(epochs=1, pretrained={"item": vectors_of([0])})
    assert capsys.readouterr().err == ""


def test_a_saved_recommender_answers_alike_and_goes_on(tmp_path):
    made = fitted(epochs=3, pretrained={"item": vectors_of([1, 2])})
    made.save(tmp_path / "model")
    loaded = Recommender.load(tmp_path / "model")
    pd.testing.assert_series_equal(loaded.predict(ratings()), made.predict(ratings()))
    more = ratings(40, items=10, seed=1)
    assert torch.equal(rows_of(loaded.partial_fit(more), "item"), rows_of(made.partial_fit(more), "item"))


def test_rows_that_a_partial_fit_appends_begin_where_it_says():
    made = fitted(epochs=1, solver=STILL, pretrained={"item": vectors_of([1, 9])})
    more = pd.DataFrame({"user": ["u1", "u1"], "item": [9, 1], "stars": [4.0, 2.0]})
    made.partial_fit(more, new_rows={"item": PretrainedRows(vectors_of([1, 9]))})
    found = made.embeddings("item").set_index("item")["vector"]
    assert found[1].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert found[9].tolist() == [5.0, 6.0, 7.0, 8.0]


def test_a_checkpoint_of_other_vectors_is_refused(tmp_path):
    def fit(keys: list[object]) -> Recommender:
        made = Recommender(SCHEMA, epochs=2, pretrained={"item": vectors_of(keys)}, progress=False)
        return made.fit(ratings(), checkpoint=tmp_path / "run")

    first = fit([1, 2])
    assert torch.equal(rows_of(fit([1, 2]), "item"), rows_of(first, "item"))
    with pytest.raises(ArtifactError, match="got one of another in 'settings'"):
        fit([1, 3])


def test_keys_of_another_type_are_refused():
    with pytest.raises(KeyTypeError):
        fitted(pretrained={"item": vectors_of(["1", "2"])})


WIDE = Schema(
    user=Categorical("user"),
    item=Categorical("item"),
    user_features=[
        Numeric("age"),
        History("item"),
        MultiCategorical("recent", vocabulary="item", share_table=True),
    ],
    item_features=[Categorical("shop", table=Hashed(5))],
    embedding_dim=4,
)


@pytest.mark.parametrize(("pretrained", "message"), [
    (
        {"itme": vectors_of([1])},
        "Recommender: pretrained['itme']: expected one of the features 'user', 'recent', 'item', 'shop', got 'itme'. "
        "Did you mean 'item'?",
    ),
    (
        {"age": vectors_of([1])},
        "Recommender: pretrained['age']: expected one of the features 'user', 'recent', 'item', 'shop', got 'age'.",
    ),
    (
        {"item": {1: [1.0] * 4}},
        "Recommender: pretrained['item']: expected PretrainedVectors, got dict. "
        "Use PretrainedVectors.from_mapping or another reader.",
    ),
    (
        {"shop": vectors_of([1])},
        "Recommender: pretrained['shop']: expected a feature with a row per value, got table=Hashed(num_embeddings=5, "
        "num_hashes=2). Declare it with table=Lookup().",
    ),
    (
        {"item": vectors_of([1], dim=3)},
        "Recommender: pretrained['item']: expected vectors of the schema's width 4, got 3. "
        "Declare Schema(..., embedding_dim=3), or reduce the vectors to 4 numbers.",
    ),
    (
        {"recent": vectors_of([1]), "item": vectors_of([2])},
        "Recommender: pretrained['item']: expected vectors once for a table, got them for 'recent' too, "
        "which shares it. Keep one.",
    ),
])  # fmt: skip
def test_vectors_that_no_table_can_take_are_refused_before_any_row_is_read(pretrained, message):
    with pytest.raises(SchemaError) as caught:
        Recommender(WIDE, pretrained=pretrained)
    assert str(caught.value) == message


def test_probabilities_begin_with_vectors_too():
    frame = ratings().assign(click=lambda rows: (rows["stars"] > 3).astype(int))
    schema = Schema(user=Categorical("user"), item=Categorical("item"), label="click", embedding_dim=4)
    made = Recommender(schema, objective=Logistic(), epochs=1, solver=STILL, pretrained={"item": vectors_of([5])})
    found = made.fit(frame).embeddings("item").set_index("item")["vector"]
    assert found[5].tolist() == [1.0, 2.0, 3.0, 4.0]
