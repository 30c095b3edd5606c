"""Strangers with a handful of interactions are answered without training, by solving its objective for their row."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import ColumnError, DataError, listed
from recsys_emb.lookup.new_rows import ZeroRows
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, History, MultiCategorical, Numeric, Position, Schema
from recsys_emb.serving.convex import Pairwise, Regression, Scores, Softmax, minimise
from recsys_emb.serving.fitted import Strength
from recsys_emb.serving.folding import fold_in
from recsys_emb.serving.prior import Prior
from recsys_emb.serving.strangers import read_history
from recsys_emb.training.losses import BPR, Logistic, SampledSoftmax, SquaredError
from recsys_emb.training.minibatch import Minibatch
from recsys_emb.training.sequential import SequentialSGD

RATED = Schema(
    user=Categorical("user", l2_scale=0.5),
    item=Categorical("item"),
    position=Position("slot", max_position=3, serve_at=1),
    user_features=[Categorical("country"), Numeric("age")],
    item_features=[MultiCategorical("tags")],
    context_features=[Categorical("device")],
    label="stars",
    weight="trust",
    embedding_dim=3,
)
CLICKED = dataclasses.replace(RATED, label="click")
SEEN = dataclasses.replace(RATED, label=None)


def frame(count: int = 120, users: int = 15, items: int = 9, seed: int = 0) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    item, user = generator.integers(0, items, count), generator.integers(0, users, count)
    return pd.DataFrame(
        {
            "user": user,
            "item": [f"i{one}" for one in item],
            "slot": generator.integers(1, 4, count),
            "country": [f"c{one % 3}" for one in user],
            "age": 20.0 + user,
            "tags": [[f"t{one % 2}", f"t{one % 3}"] for one in item],
            "device": generator.choice(["tv", "phone"], count),
            "stars": generator.integers(1, 6, count),
            "click": generator.integers(0, 2, count),
            "trust": generator.uniform(0.5, 2.0, count),
        }
    )


def fitted(schema: Schema = RATED, **said: object) -> Recommender:
    return Recommender(schema, **{"epochs": 8, "seed": 1, "progress": False, **said}).fit(frame())


def strangers(count: int = 12) -> pd.DataFrame:
    return frame(count, users=3, seed=5).assign(user=lambda rows: rows["user"] + 100)


# --- the solution --------------------------------------------------------------------------------------------------


def brute_force(recommender: Recommender, history: pd.DataFrame, loss) -> torch.Tensor:
    """Minimise the objective as it is written, with what autograd gives: the vector and the bias of one stranger."""
    known, model = recommender._fitted, recommender.model
    user = known.user
    theta = torch.zeros(known.schema.embedding_dim + 1, dtype=torch.float64, requires_grad=True)
    strength, spread = known.strength, torch.tensor(known.prior.spread, dtype=torch.float64).clamp(min=1e-9)
    tables = (model.vectors.lookup("user"), model.biases.lookup("user"))
    start = torch.cat([table.weight[2].detach().double() for table in tables])

    def value() -> torch.Tensor:
        penalty = strength.l2 * theta[:-1].square().sum() + strength.bias_l2 * theta[-1] ** 2
        prior = known.prior.noise * ((theta - start).square() / spread).sum()
        total, count = loss(theta, model, history)
        return total + count * user.l2_scale / 2 * penalty + prior / 2

    optimizer = torch.optim.LBFGS(
        [theta], max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe"
    )

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        found = value()
        found.backward()
        return found

    for _ in range(3):
        optimizer.step(closure)
    return theta.detach()


def raw_of(recommender: Recommender, rows: pd.DataFrame, theta: torch.Tensor) -> torch.Tensor:
    """Raw scores of rows whose user's own row is ``theta``."""
    model, encoder = recommender.model, recommender.encoder
    batch = encoder.transform(rows, with_label=False)
    others = [name for name in model.user_names if name != "user"]
    with torch.no_grad():
        users, user_biases = model.side(batch, others)
        items, item_biases = model.side(batch, model.item_names)
    side = users.double() + theta[:-1]
    return user_biases.double() + item_biases.double() + theta[-1] + (side * items.double()).sum(-1)


def served(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(slot=1, device=None)


def catalogue(recommender: Recommender, user: pd.Series) -> pd.DataFrame:
    items = frame().drop_duplicates("item")[["item", "tags"]]
    return items.assign(user=user["user"], country=user["country"], age=user["age"], slot=1, device=None)


def squared(theta, recommender, history):
    offset, scale = float(recommender.model.offset), float(recommender.model.scale)
    targets = (torch.tensor(history["stars"].to_numpy()).double() - offset) / scale
    weights = torch.tensor(history["trust"].to_numpy()).float().double()
    error = targets.float().double() - raw_of(recommender, history, theta)
    return (weights * error.square() / 2).sum(), len(history)


def clicked(theta, recommender, history):
    targets = torch.tensor(history["click"].to_numpy()).double()
    weights = torch.tensor(history["trust"].to_numpy()).float().double()
    scores = float(recommender.model.offset) + raw_of(recommender, history, theta)
    return (weights * F.binary_cross_entropy_with_logits(scores, targets, reduction="none")).sum(), len(history)


def contrasted(theta, recommender, history):
    """Own scores, the scores of all known items, and which of these are in the history."""
    others = catalogue(recommender, history.iloc[-1])
    mine = set(history["item"])
    return (
        raw_of(recommender, served(history), theta),
        raw_of(recommender, others, theta),
        torch.tensor([item in mine for item in others["item"]]),
        torch.tensor(history["trust"].to_numpy()).float().double(),
    )


def with_negatives(theta, recommender, history):
    own, others, had, weights = contrasted(theta, recommender, history)
    constant = float(recommender.model.offset)
    losses = F.softplus(-(constant + own)) + 3 * F.softplus(constant + others[~had]).mean()
    return (weights * losses).sum(), len(history)


def pairwise(theta, recommender, history):
    own, others, had, weights = contrasted(theta, recommender, history)
    return (weights * F.softplus(others[~had].unsqueeze(0) - own.unsqueeze(1)).mean(1)).sum(), len(history)


def softmax(theta, recommender, history):
    _, others, _, weights = contrasted(theta, recommender, history)
    names = list(catalogue(recommender, history.iloc[-1])["item"])
    own = torch.tensor([names.index(item) for item in history["item"]])
    return -(weights * others.log_softmax(0)[own]).sum(), len(history)


@pytest.mark.parametrize(
    ("schema", "objective", "loss"),
    [
        (RATED, SquaredError(), squared),
        (CLICKED, Logistic(), clicked),
        (SEEN, Logistic(negatives=3), with_negatives),
        (SEEN, BPR(), pairwise),
        (SEEN, SampledSoftmax(negatives=4), softmax),
    ],
    ids=["squared error", "log loss", "with negatives", "BPR", "softmax"],
)
def test_it_is_the_minimum_of_the_stated_objective(schema, objective, loss) -> None:
    recommender = fitted(schema, objective=objective)
    history = strangers()
    found = fold_in(recommender._fitted, read_history(recommender._fitted, history))
    for number, (_, rows) in enumerate(history.groupby("user", sort=False)):
        expected = brute_force(recommender, rows, lambda theta, _, rows: loss(theta, recommender, rows))
        features = served(rows.tail(1))
        batch = recommender.encoder.transform(features, with_label=False)
        others = [name for name in recommender.model.user_names if name != "user"]
        with torch.no_grad():
            vectors, biases = recommender.model.side(batch, others)
        torch.testing.assert_close(found.vectors[number] - vectors[0].double(), expected[:-1], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(found.biases[number] - biases[0].double(), expected[-1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("objective", [SquaredError(), Logistic()], ids=repr)
def test_training_the_strangers_row_alone_ends_there(objective) -> None:
    schema = RATED if isinstance(objective, SquaredError) else CLICKED
    recommender, rows = fitted(schema, objective=objective), strangers(8).assign(user=100)
    # Training knows no prior.
    free = dataclasses.replace(recommender._fitted, prior=Prior(1.0, (math.inf,) * 4))
    expected = fold_in(free, read_history(free, rows))
    encoder = FeatureEncoder.from_state(recommender.encoder.to_state()).partial_fit(rows)
    model = recommender.model
    model.grow(encoder, new_rows=ZeroRows())
    for name in model.biases.names:
        for tables in (model.vectors, model.biases):
            tables.lookup(name).requires_grad_(name == "user")
    # Full batches of gradient descent: the mean over the rows, as training states it.
    descent = Minibatch(optimizer=torch.optim.SGD, learning_rate=0.5, batch_size=len(rows))
    run = descent.start(model, encoder.transform(rows), objective, seed=0)
    for _ in range(3000):
        run.epoch()
    batch = encoder.transform(served(rows.tail(1)))
    with torch.no_grad():
        vectors, biases = model.side(batch, model.user_names)
    torch.testing.assert_close(vectors[0].double(), expected.vectors[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(biases[0].double(), expected.biases[0], rtol=1e-4, atol=1e-5)


def test_the_strength_of_l2_is_that_of_the_training(tmp_path) -> None:
    weak, strong = (fitted(solver=SequentialSGD(l2=l2, bias_l2=l2)) for l2 in (1e-4, 50.0))
    sizes = []
    for recommender in (weak, strong):
        recommender.save(tmp_path / "model")
        again = Recommender.load(tmp_path / "model")
        assert again._fitted.strength == recommender._fitted.strength
        assert again._fitted.prior == recommender._fitted.prior
        free = dataclasses.replace(again._fitted, prior=Prior(1.0, (math.inf,) * 4))
        found = fold_in(free, read_history(free, strangers().drop(columns=["country", "age"])))
        sizes.append(float(found.vectors.norm()))
    assert sizes[1] < sizes[0] / 10


def test_a_prior_is_the_spread_of_the_known_users_and_the_noise_of_training() -> None:
    recommender = fitted()
    prior, model = recommender._fitted.prior, recommender.model
    known = recommender.encoder.vocabularies["user"].encode(sorted(frame()["user"].unique()))
    rows = torch.cat([tables.lookup("user").weight[known].detach() for tables in (model.vectors, model.biases)], 1)
    torch.testing.assert_close(torch.tensor(prior.spread).double(), rows.double().var(0))
    assert prior.noise == 2 * recommender.history.epochs[-1].train_loss
    assert fitted(CLICKED, objective=Logistic())._fitted.prior.noise == 1.0


def test_nothing_can_be_expected_of_users_where_only_one_is_known() -> None:
    one = frame().assign(user=1)
    recommender = Recommender(RATED, epochs=2, progress=False).fit(one)
    assert set(recommender._fitted.prior.spread) == {math.inf}
    assert np.isfinite(recommender.recommend(history=strangers(), k=3)["score"]).all()


def test_entries_in_which_users_do_not_differ_stay_where_they_start() -> None:
    recommender = fitted()
    spread = (0.0, *recommender._fitted.prior.spread[1:])
    stuck = dataclasses.replace(recommender._fitted, prior=Prior(recommender._fitted.prior.noise, spread))
    rows = strangers().drop(columns=["country", "age"])
    found, other = fold_in(stuck, read_history(stuck, rows)), fold_in(recommender._fitted, read_history(stuck, rows))
    start = fold_in(stuck, read_history(stuck, rows.assign(trust=0.0))).vectors
    assert (found.vectors[:, 0] - start[:, 0]).abs().max() < 1e-6
    assert (found.vectors[:, 1:] - other.vectors[:, 1:]).abs().max() < 0.5


def test_a_known_user_starts_from_its_own_row() -> None:
    recommender = fitted()
    model, rows = recommender.model, frame()[frame()["user"] == 3].head(1).assign(trust=0.0)
    certain = dataclasses.replace(
        recommender._fitted, strength=Strength(0.0, 0.0), prior=Prior(1.0, recommender._fitted.prior.spread)
    )
    found = fold_in(certain, read_history(certain, rows))
    batch = recommender.encoder.transform(served(rows), with_label=False)
    with torch.no_grad():
        torch.testing.assert_close(found.vectors[0].float(), model.side(batch, model.user_names)[0][0])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 6), st.integers(1, 4))
def test_newton_finds_a_point_without_slope(seed: int, count: int, width: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    own, others = Scores(3 * random(count, width), random(count)), Scores(3 * random(5, width), random(5))
    weights, ridge = random(count).abs(), torch.full((width,), 0.1, dtype=torch.float64)
    places = torch.randint(-1, 5, (count,), generator=generator)
    targets = (random(count) > 0).double()
    for problem in (
        Regression(own, targets, weights, ridge, logistic=True),
        Regression(own, targets, weights, ridge, logistic=False),
        Pairwise(own, weights, others, ridge),
        Softmax(own, weights, places, others, ridge),
    ):
        found = problem.at(minimise(problem))
        assert float(found.gradient.abs().max()) < 1e-5
        theta = random(width).requires_grad_()
        local = problem.at(theta)
        (slope,) = torch.autograd.grad(local.value, theta)
        torch.testing.assert_close(slope, local.gradient.detach())
        curve = torch.autograd.functional.hessian(lambda point, one=problem: one.at(point).value, theta.detach())
        # torch takes softplus for a line from 20 on, and differentiates that.
        torch.testing.assert_close(curve, local.hessian.detach(), atol=1e-6, rtol=1e-6)


# --- the answers ---------------------------------------------------------------------------------------------------


def test_strangers_get_answers_of_their_own_in_the_order_of_their_rows() -> None:
    recommender = fitted()
    history = strangers()
    answer = recommender.recommend(history=history, k=3)
    assert list(dict.fromkeys(answer["user"])) == list(dict.fromkeys(history["user"]))
    assert (answer["user_route"] == "history").all()
    assert (answer["item_route"] == "trained").all()
    assert not answer["known"].any()
    for user, rows in history.groupby("user"):
        assert not set(rows["item"]) & set(answer.loc[answer["user"] == user, "item"])
    alone = recommender.recommend(history=history[history["user"] == history["user"].iloc[0]], k=3)
    pd.testing.assert_frame_equal(alone, answer[answer["user"] == history["user"].iloc[0]].reset_index(drop=True))


def test_without_a_user_column_all_rows_are_one_strangers() -> None:
    recommender, rows = fitted(), strangers().assign(user=100, country="c1", age=120.0)
    named = recommender.recommend(history=rows, k=3)
    nameless = recommender.recommend(history=rows.drop(columns="user"), k=3)
    assert nameless["user"].isna().all()
    pd.testing.assert_frame_equal(nameless.drop(columns="user"), named.drop(columns="user"))


def test_users_in_the_index_are_not_taken_for_one_nameless_stranger() -> None:
    recommender = fitted()
    name, item = recommender.schema.user.name, recommender.schema.item.name
    history = strangers().set_index(name)
    with pytest.raises(ColumnError) as caught:
        recommender.recommend(history=history)
    assert str(caught.value) == (
        f"history: expected a column {name!r}, got {listed(history.columns)}. It is the index: call reset_index()."
    )
    assert item in history.columns


def test_what_a_stranger_liked_moves_the_scores_its_way() -> None:
    schema = Schema(user=Categorical("user"), item=Categorical("item"), label="stars", embedding_dim=3)
    taste = pd.DataFrame(
        [(u, i, 5 if (u + i) % 2 else 1) for u in range(20) for i in range(10)], columns=["user", "item", "stars"]
    )
    recommender = Recommender(schema, epochs=60, progress=False).fit(taste)
    for odd in (0, 1):
        history = pd.DataFrame({"item": [0, 1, 2], "stars": [5 if (odd + i) % 2 else 1 for i in range(3)]})
        best = recommender.recommend(history=history, k=3)
        assert set((best["item"] + odd) % 2) == {1}
        assert (best["score"] > 3).all()


def test_users_with_and_without_a_history_are_answered_together() -> None:
    recommender, history = fitted(), strangers()
    first = history["user"].iloc[0]
    answer = recommender.recommend([3, first, 999, first], k=2, history=history, exclude_seen=False)
    assert answer["user"].tolist() == [3, 3, first, first, 999, 999, first, first]
    assert answer["user_route"].tolist() == ["trained"] * 2 + ["history"] * 2 + ["unknown"] * 2 + ["history"] * 2
    assert answer["known"].tolist() == [True] * 2 + [False] * 6
    plain = recommender.recommend([3], k=2, exclude_seen=False)
    pd.testing.assert_frame_equal(answer.iloc[:2].drop(columns=["user_route", "item_route"]), plain)


def test_a_known_user_with_a_history_is_answered_by_it_and_gets_nothing_seen() -> None:
    recommender = fitted()
    rows = frame()[frame()["user"] == 3].head(2)
    answer = recommender.recommend([3], k=9, history=rows)
    assert (answer["user_route"] == "history").all()
    assert answer["known"].all()
    assert not set(answer["item"]) & set(frame().loc[frame()["user"] == 3, "item"])


@pytest.mark.parametrize("objective", [Logistic(negatives=3), BPR(), SampledSoftmax()], ids=repr)
def test_rankings_need_no_label(objective) -> None:
    answer = fitted(SEEN, objective=objective).recommend(history=strangers()[["user", "item"]], k=2)
    assert len(answer) == 6
    assert np.isfinite(answer["score"]).all()


def test_rows_below_the_positives_are_seen_but_not_learned() -> None:
    recommender = fitted(CLICKED, objective=BPR())
    history = pd.DataFrame({"item": ["i1", "i2"], "click": [1, 0]})
    both = recommender.recommend(history=history, k=9)
    positive = recommender.recommend(history=history.head(1), k=9)
    assert "i2" not in set(both["item"])
    assert "i2" in set(positive["item"])
    merged = both.merge(positive, on="item", suffixes=("", "_alone"))
    np.testing.assert_allclose(merged["score"], merged["score_alone"], atol=0.2)


def test_a_history_of_items_nobody_knows_says_only_what_their_features_say() -> None:
    recommender = fitted()
    history = pd.DataFrame({"item": ["new"], "tags": [["t1"]], "stars": [5]})
    assert len(recommender.recommend(history=history, k=9)) == 9


def test_no_rows_are_no_strangers() -> None:
    recommender = fitted()
    nothing = recommender.recommend(history=strangers().iloc[:0], k=3)
    assert len(nothing) == 0
    assert list(nothing.columns) == ["user", "item", "score", "rank", "known", "user_route", "item_route"]
    listed = recommender.recommend([3], k=2, history=strangers().iloc[:0])
    assert listed["user_route"].tolist() == ["trained"] * 2


def test_what_a_user_had_counts_where_the_schema_has_a_history() -> None:
    schema = Schema(
        user=Categorical("user"),
        item=Categorical("item"),
        user_features=[History("item", max_length=3)],
        label="stars",
        embedding_dim=3,
    )
    recommender = fitted(schema)
    rows = strangers().assign(user=100)[["user", "item", "stars"]]
    found = fold_in(recommender._fitted, read_history(recommender._fitted, rows))
    table = recommender.model.vectors.histories["item_history"]
    latest = list(dict.fromkeys(rows["item"][::-1]))[:3]
    past = table.items.weight[recommender.encoder.vocabularies["item"].encode(latest)].double().sum(0) / 3**0.5

    def loss(theta, _, rows):
        batch = recommender.encoder.transform(rows)
        items, biases = recommender.model.side(batch, recommender.model.item_names)
        side = past.detach() + theta[:-1]
        raw = biases.detach().double() + theta[-1] + (side * items.detach().double()).sum(-1)
        targets = (batch.label.double() - recommender.model.offset) / recommender.model.scale
        return ((targets.float() - raw).square() / 2).sum(), len(rows)

    expected = brute_force(recommender, rows, loss)
    torch.testing.assert_close(found.vectors[0] - past.detach(), expected[:-1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("history", "error", "text"),
    [
        (
            strangers().drop(columns="stars"),
            ColumnError,
            "expected the label 'stars', which this model learns, got none",
        ),
        (strangers().drop(columns="item"), ColumnError, "expected a column 'item'"),
        (strangers().assign(stars=np.nan), DataError, "stars"),
        (strangers().assign(user=None), DataError, "expected a user in every row, got none in 12 rows"),
        (strangers().assign(trust=-1.0), DataError, "trust"),
    ],
)
def test_a_history_that_cannot_be_learned_from_is_refused(history, error, text) -> None:
    with pytest.raises(error, match=text):
        fitted().recommend(history=history)


def test_a_list_of_users_needs_a_history_that_names_them() -> None:
    with pytest.raises(DataError) as caught:
        fitted().recommend([1], history=strangers().drop(columns="user"))
    assert str(caught.value) == (
        "Recommender.recommend: history: expected a column 'user' beside users, got none. "
        "Say whose rows these are, or leave users out."
    )


# --- items by their features ---------------------------------------------------------------------------------------


def items() -> pd.DataFrame:
    return pd.DataFrame(
        {"item": ["i1", "new", "i2", "other", "new"], "tags": [["t0"], ["t1"], ["t2", "t0"], [], ["t2"]]}
    )


def test_items_nobody_knows_are_scored_by_their_features() -> None:
    recommender = fitted()
    answer = recommender.recommend([3, 4], k=9, items=items(), exclude_seen=False)
    assert sorted(answer.loc[answer["user"] == 3, "item"]) == ["i1", "i2", "new", "other"]
    pairs = answer.merge(items().drop_duplicates("item", keep="last"), on="item")
    users = frame().drop_duplicates("user", keep="last")[["user", "country", "age"]]
    pairs = pairs.merge(users, on="user").assign(slot=1, device=None)
    np.testing.assert_array_equal(pairs["score"], recommender.predict(pairs))
    routes = dict(zip(answer["item"], answer["item_route"], strict=True))
    assert routes == {"i1": "trained", "i2": "trained", "new": "features", "other": "features"}
    assert (answer["known"] == (answer["item_route"] == "trained")).all()


def test_seen_items_are_left_out_though_a_frame_offers_them() -> None:
    recommender = fitted()
    seen = set(frame().loc[frame()["user"] == 3, "item"])
    answer = recommender.recommend([3], k=9, items=items())
    assert set(answer["item"]) == {"i1", "i2", "new", "other"} - seen


def test_an_unknown_item_of_a_history_is_not_offered_again() -> None:
    recommender = fitted()
    history = pd.DataFrame({"item": ["new", "i1"], "tags": [["t1"], ["t0"]], "stars": [5, 1]})
    answer = recommender.recommend(history=history, k=9, items=items())
    assert sorted(answer["item"]) == ["i2", "other"]
    by_name = recommender.recommend(history=history, k=9, candidates=["new", "i1", "i2", "other"])
    assert sorted(by_name["item"]) == ["i2", "other"]
    assert set(by_name.loc[by_name["item"] == "other", "item_route"]) == {"unknown"}


def test_candidates_and_items_are_one_question() -> None:
    with pytest.raises(DataError) as caught:
        fitted().recommend([1], candidates=["i1"], items=items())
    assert str(caught.value) == (
        "Recommender.recommend: expected candidates or items, got both. The items are the candidates."
    )


def test_missing_items_and_no_items_are_fine() -> None:
    recommender = fitted()
    assert len(recommender.recommend([1], items=items().iloc[:0])) == 0
    some = recommender.recommend([1], items=items().assign(item=[None, "new", None, None, "new"]), exclude_seen=False)
    assert some["item"].tolist() == ["new"]


def test_items_need_their_features() -> None:
    with pytest.raises(ColumnError, match="'tags'"):
        fitted().recommend([1], items=items()[["item"]])


def test_a_column_called_as_a_route_is_refused() -> None:
    schema = Schema(user=Categorical("user_route"), item=Categorical("item"), label="stars", embedding_dim=2)
    rows = frame().rename(columns={"user": "user_route"})
    recommender = Recommender(schema, epochs=2, progress=False).fit(rows)
    assert len(recommender.recommend([1], k=2)) == 2
    with pytest.raises(DataError, match="got 'user_route'"):
        recommender.recommend([1], items=items()[["item"]])
