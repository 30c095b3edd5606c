"""The verbs of `Recommender`, in raw values."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from sklearn.exceptions import UndefinedMetricWarning

from recsys_emb.errors import (
    ArtifactError,
    ColumnError,
    DataError,
    EmptySourceError,
    FitError,
    KeyTypeError,
    NotFittedError,
    RepeatedPairsWarning,
    SchemaError,
    UnknownValueError,
)
from recsys_emb.recommender import Recommender
from recsys_emb.schema import (
    Categorical,
    MultiCategorical,
    Numeric,
    OneHot,
    Position,
    QuotientRemainder,
    RefuseUnknown,
    Schema,
)
from recsys_emb.training.losses import BPR, Logistic, SquaredError
from recsys_emb.training.minibatch import Minibatch

PAIR = Schema(user=Categorical("user"), item=Categorical("item"), embedding_dim=4)
RATED = Schema(user=Categorical("user"), item=Categorical("item"), label="stars", embedding_dim=4)
CLICKED = Schema(user=Categorical("user"), item=Categorical("item"), label="click", embedding_dim=4)
RICH = Schema(
    user=Categorical("user"),
    item=Categorical("item"),
    position=Position("slot", max_position=9, serve_at=1),
    user_features=[Numeric("age")],
    item_features=[MultiCategorical("genres"), Categorical("brand", table=OneHot())],
    context_features=[Categorical("device")],
    label="stars",
    embedding_dim=4,
)


def interactions(rows: int = 200, *, seed: int = 0) -> pd.DataFrame:
    """Rows of 12 users and 8 items with taste, features and a position; ids are text and integers."""
    generator = np.random.default_rng(seed)
    users, items = generator.integers(0, 12, rows), generator.integers(0, 8, rows)
    taste = np.where(users % 2 == items % 2, 4.0, 2.0) + generator.normal(0, 0.3, rows)
    return pd.DataFrame(
        {
            "user": [f"u{user}" for user in users],
            "item": items + 100,
            "slot": generator.integers(1, 5, rows),
            "age": 20.0 + users,
            "genres": [[["war"], ["war", "love"], []][item % 3] for item in items],
            "brand": [["x", "y", None][item % 3] for item in items],
            "device": generator.choice(["phone", "tv"], rows),
            "stars": taste.clip(1, 5),
            "click": (taste > 3).astype(int),
        }
    )


def fitted(schema: Schema = RATED, frame: pd.DataFrame | None = None, **options: object) -> Recommender:
    options = {"epochs": 5, "progress": False, **options}
    return Recommender(schema, **options).fit(interactions() if frame is None else frame)


@pytest.fixture(scope="module")
def rich() -> Recommender:
    return fitted(RICH)


def message(kind: type[Exception], act) -> str:
    with pytest.raises(kind) as caught:
        act()
    return str(caught.value)


# --- fit -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["user", "item"])
def test_a_schema_needs_a_user_and_an_item(missing: str) -> None:
    sides = {side: Categorical(side) for side in ("user", "item") if side != missing}
    assert message(SchemaError, lambda: Recommender(Schema(**sides))) == (
        f"Recommender: expected a schema with a user and an item, got {missing}=None. "
        f"Declare {missing}=Categorical(...)."
    )


@pytest.mark.parametrize(
    "ask",
    [
        lambda one: one.predict(interactions()),
        lambda one: one.recommend(["u1"]),
        lambda one: one.similar([100]),
        lambda one: one.evaluate(interactions()),
        lambda one: one.embeddings("item"),
        lambda one: one.explain(interactions()),
        lambda one: one.save("nowhere"),
        lambda one: one.encoder,
        lambda one: one.model,
        lambda one: one.history,
    ],
)
def test_nothing_can_be_asked_before_a_fit(ask) -> None:
    expected = "Recommender: expected a fitted recommender, got an unfitted one. Call fit first."
    assert message(NotFittedError, lambda: ask(Recommender(RATED))) == expected


@pytest.mark.parametrize(
    ("schema", "objective", "reason"),
    [
        (PAIR, "Logistic(negatives=5)", "the schema has no label, so that every row is a positive"),
        (CLICKED, "Logistic(negatives=0)", "the label 'click' is 0 or 1"),
        (RATED, "SquaredError(clip=True)", "the label 'stars' goes from 1 to 5"),
    ],
)
def test_the_objective_follows_the_label_and_is_told(schema: Schema, objective: str, reason: str, capsys) -> None:
    frame = interactions()
    frame.loc[0, "stars"], frame.loc[1, "stars"] = 1.0, 5.0
    fitted(schema, frame, progress=None)
    told = capsys.readouterr().err.splitlines()
    assert told[0] == f"Recommender: {objective}, as {reason}."
    assert told[1].startswith("Recommender: SequentialSGD(")


def test_a_silent_fit_tells_nothing(capsys) -> None:
    fitted()
    assert capsys.readouterr() == ("", "")


def test_where_the_fast_solver_does_not_apply_the_reason_is_told(capsys) -> None:
    schema = Schema(
        user=Categorical("user"), item=Categorical("item", table=QuotientRemainder(4)), label="stars", embedding_dim=4
    )
    fitted(schema, progress=None)
    told = capsys.readouterr().err.splitlines()[1]
    assert told.startswith("Recommender: Minibatch(")
    reason = "feature 'item' reads a QuotientRemainderEmbedding, which holds no row per index"
    assert told.endswith(f"as SequentialSGD does not apply: {reason}.")


def test_a_fit_without_rows_is_refused() -> None:
    with pytest.raises(EmptySourceError):
        fitted(frame=interactions()[:0])


@pytest.mark.parametrize("verb", ["fit", "evaluate", "partial_fit"])
def test_learning_and_judging_need_the_label(verb: str) -> None:
    recommender = fitted() if verb != "fit" else Recommender(RATED, progress=False)
    unlabelled = interactions().drop(columns="stars")
    expected = f"Recommender.{verb}: expected the column 'stars', which the schema declares, got none. Add it."
    assert message(ColumnError, lambda: getattr(recommender, verb)(unlabelled)) == expected


def test_equal_seeds_give_equal_models_and_others_do_not() -> None:
    scores = [fitted(seed=seed).predict(interactions()).to_numpy() for seed in (1, 1, 2)]
    assert (scores[0] == scores[1]).all()
    assert (scores[0] != scores[2]).any()


def test_explicit_validation_is_in_the_history() -> None:
    recommender = Recommender(RATED, epochs=3, progress=False).fit(interactions(), validation=interactions(50, seed=1))
    assert recommender.history.to_frame()["validation"].notna().all()


def test_taste_is_learned() -> None:
    frame = interactions(400)
    recommender = Recommender(RATED, epochs=60, progress=False).fit(frame)
    best = recommender.recommend(["u0", "u1"], k=3, exclude_seen=False)
    assert (best["item"] % 2).tolist() == [0, 0, 0, 1, 1, 1]


def test_the_callers_frame_stays_as_it_was() -> None:
    frame = interactions()
    before = frame.copy(deep=True)
    recommender = fitted(RICH, frame)
    recommender.predict(frame)
    recommender.evaluate(frame, exclude_seen=False)
    recommender.explain(frame)
    pd.testing.assert_frame_equal(frame, before)


# --- predict -------------------------------------------------------------------------------------------------------


def test_predictions_keep_the_index_of_the_frame(rich: Recommender) -> None:
    frame = interactions(7).set_index(pd.Index(list("gfedcba"), name="key"))
    scores = rich.predict(frame)
    assert (scores.name, scores.dtype, list(scores.index)) == ("score", np.float64, list("gfedcba"))


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_any_number_of_rows_can_be_predicted(rich: Recommender, rows: int) -> None:
    assert len(rich.predict(interactions(5)[:rows])) == rows
    assert len(rich.explain(interactions(5)[:rows])) == rows


@pytest.mark.parametrize("verb", ["predict", "explain"])
def test_what_is_recommended_can_be_handed_back(verb: str, rich: Recommender) -> None:
    answer = rich.recommend(["u3", "stranger"], k=8, exclude_seen=False)
    again = getattr(rich, verb)(answer)
    assert (again if verb == "predict" else again["score"]).tolist() == answer["score"].tolist()


def test_of_an_answer_with_a_column_more_that_column_counts(rich: Recommender) -> None:
    answer = rich.recommend(["u3"], k=2, exclude_seen=False)
    assert rich.predict(answer.assign(slot=4)).tolist() != rich.predict(answer).tolist()


@pytest.mark.parametrize("verb", ["predict", "explain"])
def test_every_feature_column_must_be_there(verb: str, rich: Recommender) -> None:
    with pytest.raises(ColumnError, match="frame: expected a column 'slot'"):
        getattr(rich, verb)(interactions().drop(columns="slot"))
    with pytest.raises(ColumnError, match="expected a column 'age'"):
        rich.predict({"user": ["u3"], "item": [101]})


def test_ratings_stay_within_the_range_of_the_training_label() -> None:
    recommender = fitted()
    with torch.no_grad():
        recommender.model.offset.fill_(1000.0)
    assert (recommender.predict(interactions()) == np.float32(interactions()["stars"].max())).all()
    unclipped = fitted(objective=SquaredError(clip=False))
    with torch.no_grad():
        unclipped.model.offset.fill_(1000.0)
    assert unclipped.predict(interactions()).min() > 900


def test_clicks_are_predicted_as_probabilities() -> None:
    scores = fitted(CLICKED).predict(interactions())
    assert scores.between(0, 1).all()


def test_a_null_position_is_the_missing_row(rich: Recommender) -> None:
    frame = interactions(3)
    nowhere = frame.assign(slot=pd.array([None] * 3, dtype="Int64"))
    terms = rich.explain(nowhere)
    assert (terms["bias:slot"] == 0).all()
    assert (rich.explain(frame)["bias:slot"] != 0).all()


def test_an_arrow_table_is_predicted_like_the_frame(rich: Recommender) -> None:
    frame = interactions(20)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    assert rich.predict(table).tolist() == rich.predict(frame).tolist()


# --- recommend -----------------------------------------------------------------------------------------------------


def test_recommendations_come_in_the_order_asked_with_repeats_answered_again(rich: Recommender) -> None:
    answer = rich.recommend(["u3", "nobody", "u3"], k=2, exclude_seen=False)
    assert list(answer.columns) == ["user", "item", "score", "rank", "known"]
    assert answer["user"].tolist() == ["u3", "u3", "nobody", "nobody", "u3", "u3"]
    assert answer["rank"].tolist() == [1, 2] * 3
    assert answer["known"].tolist() == [True, True, False, False, True, True]
    first, last = answer[:2].drop(columns="user"), answer[4:].drop(columns="user").reset_index(drop=True)
    pd.testing.assert_frame_equal(first, last)


def test_a_recommended_score_is_the_prediction_for_the_pair_at_serve_at(rich: Recommender) -> None:
    frame = interactions()
    answer = rich.recommend(["u3", "u4"], k=8, exclude_seen=False)
    known = frame.drop_duplicates("item").set_index("item")
    asked = pd.DataFrame(
        {
            "user": answer["user"],
            "item": answer["item"],
            "slot": 1,
            "age": answer["user"].str[1:].astype(float) + 20,
            "genres": known["genres"].loc[answer["item"]].to_numpy(),
            "brand": known["brand"].loc[answer["item"]].to_numpy(),
            "device": None,
        }
    )
    assert rich.predict(asked).tolist() == answer["score"].tolist()


def test_clipped_scores_are_still_ranked_by_what_lies_beyond() -> None:
    recommender = fitted()
    before = recommender.recommend(["u1"], k=8, exclude_seen=False)
    with torch.no_grad():
        recommender.model.offset.add_(1000.0)
    after = recommender.recommend(["u1"], k=8, exclude_seen=False)
    assert after["item"].tolist() == before["item"].tolist()
    assert after["score"].nunique() == 1


def test_fewer_than_k_is_all_that_is_left() -> None:
    frame = pd.DataFrame({"user": ["a", "a", "b"], "item": [1, 2, 3], "stars": [1.0, 2.0, 3.0]})
    answer = fitted(frame=frame).recommend(["a", "b"], k=10)
    assert answer.groupby("user")["item"].apply(set).to_dict() == {"a": {3}, "b": {1, 2}}


def test_a_user_who_has_seen_everything_gets_nothing() -> None:
    frame = pd.DataFrame({"user": ["a", "a"], "item": [1, 2], "stars": [1.0, 2.0]})
    answer = fitted(frame=frame).recommend(["a"])
    assert len(answer) == 0
    assert list(answer.columns) == ["user", "item", "score", "rank", "known"]


def test_no_users_get_no_rows(rich: Recommender) -> None:
    assert rich.recommend([]).empty


def test_seen_means_any_training_row_whatever_its_label() -> None:
    frame = pd.DataFrame({"user": ["a", "a", "b"], "item": [1, 2, 3], "click": [0, 1, 1]})
    assert fitted(CLICKED, frame).recommend(["a"])["item"].tolist() == [3]


def test_candidates_are_distinct_items_known_or_not(rich: Recommender) -> None:
    answer = rich.recommend(["u1"], k=10, exclude_seen=False, candidates=[101, 999, 101, 998, None])
    assert sorted(answer["item"]) == [101, 998, 999]
    assert dict(zip(answer["item"], answer["known"], strict=True)) == {101: True, 998: False, 999: False}
    assert answer["score"].is_monotonic_decreasing


def test_all_items_as_candidates_are_the_catalogue(rich: Recommender) -> None:
    pd.testing.assert_frame_equal(
        rich.recommend(["u1"], k=5, candidates=list(range(107, 99, -1))), rich.recommend(["u1"], k=5)
    )


def test_no_candidates_give_no_rows(rich: Recommender) -> None:
    assert rich.recommend(["u1"], candidates=[]).empty
    assert rich.recommend(["u1"], candidates=[None]).empty


def test_the_best_k_are_the_first_of_more(rich: Recommender) -> None:
    more = rich.recommend(["u1", "x"], k=6)
    for k in (1, 2, 5):
        pd.testing.assert_frame_equal(rich.recommend(["u1", "x"], k=k), more[more["rank"] <= k].reset_index(drop=True))


@pytest.mark.parametrize("k", [0, -1, 2.0, True, "3", None])
@pytest.mark.parametrize("verb", ["recommend", "similar", "evaluate"])
def test_k_counts_rows(rich: Recommender, verb: str, k: object) -> None:
    asked = {"recommend": ["u1"], "similar": [100], "evaluate": interactions()}[verb]
    expected = f"Recommender.{verb}: expected k to be an integer of at least 1, got {k!r}. Ask for one row or more."
    assert message(DataError, lambda: getattr(rich, verb)(asked, k)) == expected


@pytest.mark.parametrize(
    ("users", "got", "remedy"),
    [
        ("u1", "'u1'", "Put it into a list."),
        (b"u1", "b'u1'", "Put it into a list."),
        (5, "5", "Put it into a list."),
        (None, "None", "Put it into a list."),
        ({"u1"}, "set", "Put it into a list."),
        ({"u1": 1}, "dict", "Put it into a list."),
        (pd.DataFrame({"user": ["u1"]}), "DataFrame", "Give one column."),
        (np.array("u1"), "ndarray", "Give one column."),
    ],
)
def test_users_come_in_a_list(rich: Recommender, users: object, got: str, remedy: str) -> None:
    expected = f"Recommender.recommend: users: expected a list of values, got {got}. {remedy}"
    assert message(DataError, lambda: rich.recommend(users)) == expected


def test_a_single_candidate_is_no_list(rich: Recommender) -> None:
    expected = "Recommender.recommend: candidates: expected a list of values, got 100. Put it into a list."
    assert message(DataError, lambda: rich.recommend(["u1"], candidates=100)) == expected


def test_numbers_for_text_users_are_a_mistake_and_not_strangers(rich: Recommender) -> None:
    with pytest.raises(KeyTypeError):
        rich.recommend([1, 2])
    with pytest.raises(KeyTypeError):
        rich.recommend(["u1"], candidates=["100"])


def test_a_feature_that_refuses_the_unknown_refuses_strangers() -> None:
    schema = Schema(user=Categorical("user", unknown=RefuseUnknown()), item=Categorical("item"), label="stars")
    with pytest.raises(UnknownValueError):
        fitted(schema).recommend(["u1", "zoe"])


def test_what_a_user_was_last_known_for_is_what_serves() -> None:
    schema = Schema(
        user=Categorical("user"), item=Categorical("item"), user_features=[Categorical("city")], label="stars"
    )
    frame = pd.DataFrame(
        {"user": ["a", "a", "b"], "item": [1, 2, 1], "city": ["Rome", "Oslo", "Rome"], "stars": [1.0, 5.0, 3.0]}
    )
    recommender = fitted(schema, frame)
    answer = recommender.recommend(["a"], k=1, exclude_seen=False)
    asked = pd.DataFrame({"user": ["a"], "item": answer["item"], "city": ["Oslo"]})
    assert recommender.predict(asked).tolist() == answer["score"].tolist()


@pytest.mark.parametrize(
    "items",
    [
        ["a", "b", "c"],
        [b"a", b"\xff", b""],
        [Decimal("1.10"), Decimal("2.50"), Decimal("3.00")],
        [datetime.date(2024, 3, 1), datetime.date(2024, 3, 2), datetime.date(2024, 3, 3)],
        [2**53 + 1, 2**53 + 2, 2**53 + 3],
        ["NA", "<pad>", ""],
    ],
    ids=["text", "bytes", "decimals", "dates", "large integers", "reserved looks"],
)
def test_items_come_back_as_they_went_in(items: list[object]) -> None:
    frame = pd.DataFrame({"user": [1, 2, 3], "item": pd.Series(items, dtype=object), "stars": [1.0, 2.0, 3.0]})
    answer = fitted(frame=frame).recommend([1], exclude_seen=False)
    assert sorted(answer["item"], key=items.index) == items
    assert {type(item) for item in answer["item"].tolist()} == {type(items[0])}


@pytest.mark.parametrize(
    "users",
    [
        [1, 3],
        (1, 3),
        np.array([1, 3], dtype=np.int32),
        pd.Series([1, 3], index=[7, 7]),
        pd.Index([1, 3]),
        pd.array([1, 3], dtype="Int64"),
        pa.array([1, 3]),
        pa.chunked_array([[1], [3]]),
        torch.tensor([1, 3]),
        [1.0, 3.0],
        range(1, 4, 2),
    ],
    ids=lambda users: type(users).__name__,
)
def test_a_list_of_users_may_be_of_any_kind(users: object) -> None:
    frame = pd.DataFrame({"user": [1, 2, 3], "item": ["a", "b", "c"], "stars": [1.0, 2.0, 3.0]})
    answer = fitted(frame=frame).recommend(users, k=1)
    assert answer["user"].tolist() == [1, 3]


def test_an_integer_beside_a_missing_user_stays_an_integer() -> None:
    frame = pd.DataFrame({"user": [1, 2], "item": ["a", "b"], "stars": [1.0, 2.0]})
    answer = fitted(frame=frame).recommend([2**60, None], k=1)
    assert answer["user"].tolist() == [2**60, None]
    assert answer["known"].tolist() == [False, False]


def test_two_strangers_are_answered_alike_under_their_own_names(rich: Recommender) -> None:
    answer = rich.recommend(["x", "y"], k=3)
    assert answer["user"].tolist() == ["x"] * 3 + ["y"] * 3
    assert answer["item"].tolist()[:3] == answer["item"].tolist()[3:]


def test_a_model_that_holds_nan_answers_nothing() -> None:
    recommender = fitted()
    with torch.no_grad():
        recommender.model.vectors.lookup("user").weight[5, 0] = torch.nan
    expected = (
        "Recommender: expected finite weights, got 1 number not finite in 'vectors.tables.0.weight'. "
        "Fit again with a lower learning rate."
    )
    for ask in (
        lambda: recommender.recommend(["u1"]),
        lambda: recommender.predict(interactions()),
        lambda: recommender.similar([100]),
        lambda: recommender.evaluate(interactions()),
    ):
        assert message(FitError, ask) == expected


def test_a_ruined_model_does_not_replace_a_good_one_whoever_wrote_into_it(tmp_path: Path) -> None:
    recommender = fitted()
    recommender.save(tmp_path / "model")
    recommender.recommend(["u1"])
    recommender.model.biases.lookup("item").weight.data[5] = torch.nan
    expected = (
        "Recommender: expected finite weights, got 1 number not finite in 'biases.tables.1.weight'. "
        "Fit again with a lower learning rate."
    )
    assert message(FitError, lambda: recommender.save(tmp_path / "model")) == expected
    assert len(Recommender.load(tmp_path / "model").recommend(["u1"], k=1)) == 1


# --- similar, explain, embeddings ----------------------------------------------------------------------------------


def test_similar_items_are_others_by_cosine(rich: Recommender) -> None:
    answer = rich.similar([103, 100], k=3)
    assert list(answer.columns) == ["item", "similar_item", "score", "rank"]
    assert answer["item"].tolist() == [103] * 3 + [100] * 3
    assert not (answer["item"] == answer["similar_item"]).any()
    assert answer["score"].between(-1, 1).all()
    assert len(rich.similar([103], k=100)) == 7


def test_parallel_vectors_have_cosine_one_and_zeros_none() -> None:
    recommender = fitted()
    lookup = recommender.model.vectors.lookup("item")
    rows = recommender.encoder.vocabularies["item"].encode([100, 101, 102, 103])
    with torch.no_grad():
        lookup.weight[rows] = torch.tensor([[1.0, 1, 0, 0], [3, 3, 0, 0], [-1, -1, 0, 0], [0, 0, 0, 0]])
    answer = recommender.similar([100], k=7).set_index("similar_item")["score"]
    assert answer.loc[[101, 102, 103]].tolist() == [pytest.approx(1), pytest.approx(-1), 0]


def test_similarity_leaves_the_position_out(rich: Recommender) -> None:
    before = rich.similar([100])
    lookup = rich.model.vectors.lookup("slot")
    kept = lookup.weight.detach().clone()
    with torch.no_grad():
        lookup.weight.mul_(100)
    pd.testing.assert_frame_equal(rich.similar([100]), before)
    with torch.no_grad():
        lookup.weight.copy_(kept)


def test_unknown_items_have_nothing_similar(rich: Recommender) -> None:
    expected = (
        "Recommender.similar: expected items of the training rows that the vocabulary holds, got 999, 998. "
        "Ask for others, or fit without min_count and max_size."
    )
    assert message(UnknownValueError, lambda: rich.similar([100, 999, 998])) == expected


def test_the_terms_of_a_rating_add_up_to_the_prediction(rich: Recommender) -> None:
    frame = interactions(50, seed=3)
    terms = rich.explain(frame)
    names = [f"bias:{name}" for name in ("user", "age", "device", "item", "genres", "brand", "slot")]
    assert list(terms.columns) == ["offset", *names, "interaction", "clipping", "score"]
    assert terms["score"].tolist() == rich.predict(frame).tolist()
    np.testing.assert_allclose(terms.drop(columns="score").sum(axis=1), terms["score"], rtol=0, atol=1e-12)


def test_clipping_is_a_term_of_its_own() -> None:
    recommender = fitted()
    with torch.no_grad():
        recommender.model.offset.fill_(10.0)
    terms = recommender.explain(interactions(3))
    assert (terms["clipping"] < 0).all()
    np.testing.assert_allclose(terms.drop(columns="score").sum(axis=1), terms["score"], rtol=0, atol=1e-12)


def test_probabilities_are_explained_in_log_odds() -> None:
    frame = interactions(20)
    recommender = fitted(CLICKED)
    terms = recommender.explain(frame)
    assert list(terms.columns)[-2:] == ["score", "probability"]
    np.testing.assert_allclose(terms.drop(columns=["score", "probability"]).sum(axis=1), terms["score"], atol=1e-12)
    np.testing.assert_allclose(1 / (1 + np.exp(-terms["score"])), terms["probability"], atol=1e-12)
    assert terms["probability"].tolist() == recommender.predict(frame).tolist()


def test_a_pure_ranking_score_is_explained_as_it_is() -> None:
    recommender = fitted(PAIR, objective=BPR())
    terms = recommender.explain(interactions(5))
    assert list(terms.columns) == ["offset", "bias:user", "bias:item", "interaction", "score"]


@pytest.mark.parametrize("name", ["user", "item", "genres", "brand", "device"])
def test_vectors_are_exported_by_value(rich: Recommender, name: str) -> None:
    answer = rich.embeddings(name)
    vocabulary = rich.encoder.vocabularies[name]
    assert list(answer.columns) == [name, "vector"]
    assert answer[name].tolist() == vocabulary.values.to_pylist()
    expected = rich.model.vectors.lookup(name)(vocabulary.encode(vocabulary.values)).detach().numpy()
    assert np.array_equal(np.stack(answer["vector"]), expected)


def test_features_without_a_vocabulary_have_no_vectors_by_value(rich: Recommender) -> None:
    expected = "Recommender.embeddings: expected one of 'user', 'device', 'item', 'genres', 'brand', got "
    assert message(ColumnError, lambda: rich.embeddings("slot")) == f"{expected}'slot'."
    assert message(ColumnError, lambda: rich.embeddings("genre")) == f"{expected}'genre'. Did you mean 'genres'?"


# --- evaluate ------------------------------------------------------------------------------------------------------


def test_ratings_are_judged_by_their_errors(rich: Recommender) -> None:
    frame = interactions(60, seed=5)
    figures = rich.evaluate(frame, exclude_seen=False)
    errors = frame["stars"] - rich.predict(frame)
    assert figures["rmse"] == pytest.approx(float(np.sqrt((errors**2).mean())), rel=1e-6)
    assert figures["mae"] == pytest.approx(float(errors.abs().mean()), rel=1e-6)
    assert figures["n_rows"] == 60
    assert figures["n_evaluated"] == frame["user"].nunique()


def test_clicks_are_judged_by_auc_and_log_loss() -> None:
    figures = fitted(CLICKED).evaluate(interactions(60, seed=5), exclude_seen=False)
    assert {"auc", "log_loss", "recall", "ndcg", "mrr", "hit_rate"} < set(figures)
    assert "rmse" not in figures


def test_positives_alone_are_judged_by_rankings_alone() -> None:
    figures = fitted(PAIR).evaluate(interactions(60, seed=5), exclude_seen=False)
    assert set(figures) == {"recall", "ndcg", "mrr", "hit_rate", "n_evaluated", "n_skipped", "n_rows"}


def test_ranking_figures_agree_with_the_recommended_lists(rich: Recommender) -> None:
    frame = interactions(60, seed=5)
    figures = rich.evaluate(frame, k=3, relevant_at=4.0, exclude_seen=False)
    relevant = frame[frame["stars"] >= 4.0].groupby("user")["item"].apply(set)
    lists = rich.recommend(list(relevant.index), k=3, exclude_seen=False).groupby("user")["item"].apply(list)
    recalls = [len(relevant[user] & set(lists[user])) / len(relevant[user]) for user in relevant.index]
    assert figures["recall"] == pytest.approx(np.mean(recalls))
    assert figures["n_evaluated"] == len(relevant)
    assert figures["n_skipped"] == frame["user"].nunique() - len(relevant)


def test_unknown_users_and_items_of_a_test_stay_apart() -> None:
    frame = pd.DataFrame({"user": ["a", "b"], "item": [1, 2], "stars": [1.0, 2.0]})
    test = pd.DataFrame({"user": ["x", "x", "y", None], "item": [1, 7, 8, 1], "stars": [1.0, 1.0, 1.0, 1.0]})
    figures = fitted(frame=frame).evaluate(test, k=2)
    assert (figures["n_evaluated"], figures["n_rows"]) == (2, 4)
    # x: one of two relevant items is in the catalogue, and on the list; y: none.
    assert figures["recall"] == pytest.approx((0.5 + 0.0) / 2)


def test_what_training_has_seen_cannot_be_found_unless_it_may_be_recommended() -> None:
    frame = interactions()
    recommender = fitted(frame=frame)
    pairs = len(frame[["user", "item"]].drop_duplicates())
    with pytest.warns(RepeatedPairsWarning) as caught:
        assert recommender.evaluate(frame, k=8)["recall"] == 0.0
    assert [str(one.message) for one in caught] == [
        f"Recommender.evaluate: expected relevant pairs that training did not see, got {pairs} of {pairs} among the "
        "training rows, which are not recommended and count as missed. Judge by held-out rows, or say "
        "exclude_seen=False."
    ]
    assert caught[0].filename == __file__
    assert recommender.evaluate(frame, k=8, exclude_seen=False)["recall"] == 1.0


def test_a_test_may_repeat_half_of_its_pairs_unremarked() -> None:
    frame = pd.DataFrame({"user": ["a", "a", "b"], "item": [1, 2, 3], "stars": [1.0, 2.0, 3.0]})
    test = pd.DataFrame({"user": ["a", "a"], "item": [2, 3], "stars": 5.0})
    assert fitted(frame=frame).evaluate(test, k=2)["recall"] == 0.5


def test_an_empty_test_says_nothing() -> None:
    recommender = fitted()
    with pytest.warns(UndefinedMetricWarning):
        figures = recommender.evaluate(interactions()[:0])
    assert np.isnan([figures["rmse"], figures["mae"], figures["recall"], figures["ndcg"]]).all()
    assert (figures["n_rows"], figures["n_evaluated"], figures["n_skipped"]) == (0, 0, 0)


def test_relevance_needs_a_label() -> None:
    expected = "Recommender.evaluate: expected a schema with a label beside relevant_at=4, got none."
    got = message(DataError, lambda: fitted(PAIR).evaluate(interactions(), relevant_at=4))
    assert got == f"{expected} Leave it out: every row is relevant."


# --- partial_fit ---------------------------------------------------------------------------------------------------


def test_new_users_and_items_are_learned_and_old_indices_stay() -> None:
    recommender = fitted(RICH)
    before = recommender.encoder.vocabularies["user"].to_frame()
    more = interactions(30, seed=9).assign(user="newcomer", item=lambda frame: frame["item"] + 5)
    recommender.partial_fit(more)
    after = recommender.encoder.vocabularies["user"].to_frame()
    assert after[: len(before)][["value", "index"]].equals(before[["value", "index"]])
    answer = recommender.recommend(["newcomer"], k=20, exclude_seen=False)
    assert answer["known"].all()
    assert set(more["item"]) <= set(answer["item"])


def test_labels_of_another_scale_give_a_warning() -> None:
    recommender = fitted()
    stars = interactions()["stars"]
    more = interactions(4, seed=9).assign(stars=[50, 3, 40, 50])
    with pytest.warns(UserWarning, match="partial_fit") as caught:
        recommender.partial_fit(more)
    assert [str(one.message) for one in caught] == [
        f"Recommender.partial_fit: stars: expected labels like those so far, from {stars.min():g} to {stars.max():g}, "
        "got 40.0, 50.0 in 3 rows. They count as they stand, and ratings up to them may be predicted from now on. "
        "Bring them to the same scale."
    ]
    assert caught[0].filename == __file__


@pytest.mark.parametrize("stars", [0, 6, 9])
def test_labels_somewhat_beyond_the_range_are_learned_unremarked(stars: float) -> None:
    recommender = fitted().partial_fit(interactions(4, seed=9).assign(stars=stars))
    assert recommender.predict(interactions()).between(min(stars, 1), max(stars, 5)).all()


def test_strangers_to_new_rows_keep_their_scores_bit_for_bit() -> None:
    recommender = fitted()
    before = recommender.predict(interactions())
    more = interactions(30, seed=9).assign(user="newcomer", item=lambda frame: frame["item"] + 900)
    after = recommender.partial_fit(more.assign(stars=3.0)).predict(interactions())
    assert after.tolist() == before.tolist()


def test_old_users_keep_what_they_have_seen() -> None:
    frame = pd.DataFrame({"user": ["a", "a", "b"], "item": [1, 2, 3], "stars": [1.0, 2.0, 3.0]})
    recommender = fitted(frame=frame)
    recommender.partial_fit(pd.DataFrame({"user": ["a", "c"], "item": [3, 4], "stars": [5.0, 4.0]}))
    assert recommender.recommend(["a"])["item"].tolist() == [4]
    assert sorted(recommender.recommend(["c"])["item"]) == [1, 2, 3]


def test_the_first_partial_fit_is_a_fit() -> None:
    recommender = Recommender(RATED, epochs=5, progress=False).partial_fit(interactions())
    assert recommender.predict(interactions()).tolist() == fitted().predict(interactions()).tolist()


def test_a_failed_partial_fit_leaves_the_recommender_as_it_was() -> None:
    recommender = fitted()
    before = recommender.predict(interactions())
    more = interactions(10).assign(user="new", stars=np.nan)
    with pytest.raises(DataError):
        recommender.partial_fit(more)
    pd.testing.assert_series_equal(recommender.predict(interactions()), before)
    assert not recommender.recommend(["new"], k=1)["known"].any()


def test_a_partial_fit_without_rows_changes_nothing() -> None:
    recommender = fitted()
    before = recommender.predict(interactions())
    pd.testing.assert_series_equal(recommender.partial_fit(interactions()[:0]).predict(interactions()), before)


def test_a_wider_label_widens_the_range_of_predictions() -> None:
    recommender = fitted(objective=SquaredError())
    with pytest.warns(UserWarning, match="got 100.0 in 5 rows"):
        recommender.partial_fit(interactions(5).assign(stars=100.0))
    with torch.no_grad():
        recommender.model.offset.fill_(1e6)
    assert recommender.predict(interactions()).max() == 100.0


# --- sizes, sources, missing values -------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 9])
@pytest.mark.parametrize("solver", [None, Minibatch(batch_size=4)])
def test_pq_07_every_size_trains_and_no_row_is_dropped(rows: int, solver: Minibatch | None) -> None:
    frame = interactions(rows)
    recommender = fitted(frame=frame, epochs=1, solver=solver)
    assert len(recommender.predict(frame)) == rows
    biases = recommender.model.biases.lookup("item").weight
    assert biases.isfinite().all()
    assert biases.any()
    assert recommender.evaluate(frame, exclude_seen=False)["n_rows"] == rows


def test_pq_04_columns_are_matched_by_name_from_any_source() -> None:
    frame = interactions()
    recommender = fitted(frame=frame)
    shuffled = frame[list(reversed(frame.columns))].assign(junk=1)
    assert recommender.predict(shuffled).tolist() == recommender.predict(frame).tolist()
    doubled = pd.concat([frame, frame[["item"]] + 1], axis=1)
    with pytest.raises(ColumnError, match="'item'"):
        recommender.predict(doubled)


@pytest.mark.parametrize(
    "missing",
    [np.array([np.nan, np.nan]), np.array([None, None]), pd.array([None, None], dtype="string")],
    ids=["float", "object", "string"],
)
def test_mv_02_a_whole_batch_may_be_missing(rich: Recommender, missing: object) -> None:
    frame = interactions(2).assign(brand=missing, user=missing)
    assert np.isfinite(rich.predict(frame)).all()


def test_tr_05_a_bad_number_is_refused_with_its_column_and_count() -> None:
    for column, bad in (("stars", np.nan), ("stars", np.inf), ("age", np.inf)):
        frame = interactions(10)
        frame.loc[4, column] = bad
        text = message(DataError, lambda frame=frame: fitted(RICH, frame))
        assert column in text
        assert "1 row" in text


def test_features_with_awkward_names_work() -> None:
    schema = Schema(user=Categorical("type"), item=Categorical("a.b"), item_features=[Categorical("items")], label="y")
    frame = pd.DataFrame({"type": ["a", "b"], "a.b": [1, 2], "items": ["p", "q"], "y": [1.0, 2.0]})
    recommender = fitted(schema, frame)
    assert recommender.recommend(["a"])["a.b"].tolist() == [2]
    assert list(recommender.similar([1]).columns) == ["a.b", "similar_a.b", "score", "rank"]


def test_negatives_and_a_label_judge_by_auc_alone() -> None:
    figures = fitted(CLICKED, objective=Logistic(negatives=2)).evaluate(interactions(60, seed=5), exclude_seen=False)
    assert "auc" in figures
    assert "log_loss" not in figures


def test_an_objective_of_the_callers_own_cannot_be_saved(tmp_path) -> None:
    class SteepError(SquaredError):
        pass

    recommender = fitted(objective=SteepError(), solver=Minibatch())
    assert message(ArtifactError, lambda: recommender.save(tmp_path / "model")) == (
        "Recommender.save: expected an objective of recsys_emb, got SteepError. Save the model's state_dict instead."
    )
    assert not list(tmp_path.iterdir())
