"""Answers that do not depend on who asks beside, and questions that have none."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from recsys_emb.errors import ColumnError, DataError, EmptySourceError, RecsysEmbError
from recsys_emb.lookup.new_rows import MeanRows
from recsys_emb.recommender import Recommender
from recsys_emb.reporting.report import report
from recsys_emb.schema import Categorical, Schema
from recsys_emb.training.losses import Logistic

CLICKED = Schema(user=Categorical("user"), item=Categorical("item"), label="click", embedding_dim=4)


def clicks(count: int = 2000) -> pd.DataFrame:
    generator = np.random.default_rng(2)
    users, items = generator.integers(0, 97, count), generator.integers(0, 53, count)
    chance = np.where(users % 3 == items % 3, 0.8, 0.2)
    return pd.DataFrame(
        {
            "user": [f"u{user}" for user in users],
            "item": items,
            "click": (generator.random(count) < chance).astype(int),
        }
    )


@pytest.fixture(scope="module")
def recommender() -> Recommender:
    return Recommender(CLICKED, objective=Logistic(), epochs=3, progress=False).fit(clicks())


def refusal(kind: type[RecsysEmbError], act) -> str:
    with pytest.raises(kind) as caught:
        act()
    return str(caught.value)


# --- probabilities ---------------------------------------------------------------------------------------------


def test_a_probability_is_that_of_its_row_wherever_it_stands(recommender: Recommender) -> None:
    frame = clicks()
    expected = recommender.predict(frame)
    order = np.random.default_rng(3).permutation(len(frame))
    pd.testing.assert_series_equal(recommender.predict(frame.iloc[order]).sort_index(), expected, check_exact=True)
    parts = pd.concat([recommender.predict(frame[start : start + 7]) for start in range(0, len(frame), 7)])
    pd.testing.assert_series_equal(parts, expected, check_exact=True)


def test_a_user_alone_gets_the_probabilities_of_predict(recommender: Recommender) -> None:
    together = recommender.recommend([f"u{user}" for user in range(97)], k=9)
    for user, rows in list(together.groupby("user", sort=False))[:20]:
        alone = recommender.recommend([user], k=9)
        pd.testing.assert_frame_equal(alone, rows.reset_index(drop=True), check_exact=True)
        assert alone["score"].tolist() == recommender.predict(alone.assign(click=0)).tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_probabilities_are_those_of_one_score_at_a_time(dtype: torch.dtype) -> None:
    scores = torch.randn(1003, dtype=dtype, generator=torch.Generator().manual_seed(0)) * 5
    together = Logistic().answer(scores, 0.0, 1.0)
    alone = torch.cat([Logistic().answer(one, 0.0, 1.0) for one in scores.split(1)])
    assert torch.equal(together, alone)
    assert torch.allclose(together, scores.sigmoid())
    extremes = Logistic().answer(torch.tensor([-1e4, 0.0, 1e4], dtype=dtype), 0.0, 1.0)
    assert extremes.tolist() == [0.0, 0.5, 1.0]
    assert Logistic().answer(torch.tensor(0.0, dtype=dtype), 0.0, 1.0).shape == ()


# --- sources ---------------------------------------------------------------------------------------------------


def once() -> pa.RecordBatchReader:
    return pa.Table.from_pandas(clicks(50)).to_reader()


@pytest.mark.parametrize(
    ("verb", "act"),
    [
        ("fit", lambda _: Recommender(CLICKED, progress=False).fit(once())),
        ("partial_fit", lambda one: one.partial_fit(once())),
        ("evaluate", lambda one: one.evaluate(once())),
    ],
)
def test_what_reads_rows_twice_says_so_to_a_reader(recommender: Recommender, verb: str, act) -> None:
    assert refusal(DataError, lambda: act(recommender)) == (
        f"Recommender.{verb}: expected rows that can be read twice, got a RecordBatchReader, which gives them once. "
        "Pass a table: read_all()."
    )


def test_a_reader_does_where_rows_are_read_once(recommender: Recommender) -> None:
    expected = recommender.predict(clicks(50))
    pd.testing.assert_series_equal(recommender.predict(once()), expected, check_exact=True)
    watched = Recommender(CLICKED, epochs=1, progress=False).fit(clicks(50), validation=once())
    assert watched.history.epochs[0].validation is not None


def test_validation_rows_that_are_none_are_named() -> None:
    told = Recommender(CLICKED, progress=False)
    assert refusal(EmptySourceError, lambda: told.fit(clicks(50), validation=clicks(50)[:0])) == (
        "train: validation: expected at least one row, got 0 rows. Leave it out, or check its source."
    )


# --- questions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", ["4", float("nan"), True, [1]])
def test_what_is_relevant_is_said_by_a_number(recommender: Recommender, threshold: object) -> None:
    assert refusal(DataError, lambda: recommender.evaluate(clicks(50), relevant_at=threshold)) == (
        f"Recommender.evaluate: expected relevant_at to be a number, got {threshold!r}. "
        "It is the least label of a relevant row."
    )


@pytest.mark.parametrize("nobody", [[], ()])
def test_nobody_has_the_type_of_everybody(recommender: Recommender, nobody: object) -> None:
    expected = recommender.recommend(["u1"])[:0]
    pd.testing.assert_frame_equal(recommender.recommend(nobody), expected)
    pd.testing.assert_frame_equal(recommender.similar(nobody), recommender.similar([1])[:0])


def test_a_feature_called_vector_cannot_stand_beside_its_vectors() -> None:
    schema = Schema(
        user=Categorical("user"), item=Categorical("item"), item_features=[Categorical("vector")], label="click"
    )
    frame = clicks(50).assign(vector="x")
    recommender = Recommender(schema, epochs=1, progress=False).fit(frame)
    assert refusal(ColumnError, lambda: recommender.embeddings("vector")) == (
        "Recommender.embeddings: expected a feature of another name than 'vector', got 'vector'. "
        "The answer has a column of this name; rename the feature, or read model.vectors.lookup('vector')."
    )


def test_values_that_a_cut_left_out_are_strangers() -> None:
    schema = Schema(user=Categorical("user"), item=Categorical("item", max_size=2), label="click", embedding_dim=2)
    frame = pd.DataFrame({"user": [1, 2, 1, 2, 1], "item": [7, 7, 8, 8, 9], "click": [1, 0, 1, 0, 1]})
    recommender = Recommender(schema, epochs=1, progress=False).fit(frame)
    answer = recommender.recommend([1], candidates=[9])
    assert answer[["item", "known"]].values.tolist() == [[9, False]]
    assert refusal(DataError, lambda: recommender.similar([9])) == (
        "Recommender.similar: expected items of the training rows that the vocabulary holds, got 9. "
        "Ask for others, or fit without min_count and max_size."
    )


@pytest.mark.parametrize("index", ["hnsw", 3, dict])
def test_an_index_is_an_object_that_finds(recommender: Recommender, index: object) -> None:
    for verb, act in (("recommend", recommender.recommend), ("similar", recommender.similar)):
        assert refusal(DataError, lambda act=act: act([1], index=index)) == (
            f"Recommender.{verb}: expected an index such as ApproximateIndex(), got {index!r}. "
            "Leave it out to scan all items."
        )


# --- what is handed to the wrong place ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (
            lambda one: report(one, clicks(3)),
            "report: expected a fitted FeatureEncoder, got a Recommender. Pass recommender.encoder.",
        ),
        (
            lambda one: report(clicks(3), one.encoder),
            "report: expected a fitted FeatureEncoder, got a DataFrame. Pass the encoder, then the rows.",
        ),
        (
            lambda _: Recommender(clicks(3)),
            "Recommender: expected a Schema, got a DataFrame. Declare what the columns mean, "
            "Recommender(Schema(...)), and pass rows to fit.",
        ),
        (
            lambda one: one.partial_fit(clicks(3), new_rows=MeanRows),
            "grow: expected new_rows such as MeanRows(), got the class MeanRows. Call it: MeanRows().",
        ),
        (
            lambda one: one.partial_fit(clicks(3), new_rows={"user": "mean"}),
            "grow: expected new_rows such as MeanRows(), got 'mean'. DrawnRows() begins as at birth.",
        ),
        (
            lambda one: one.predict("u1"),
            "u1: expected Parquet files, got none. Check the path; values themselves go into a frame.",
        ),
        (
            lambda one: one.recommend(history=pd.DataFrame([["u1", 1]])),
            "history: expected a column 'item', got no columns.",
        ),
        (
            lambda one: one.recommend(["u1"], items=pd.DataFrame([[1]])),
            "items: expected a column 'item', got no columns.",
        ),
        (
            lambda one: one.recommend(["u1"], candidates=pd.DataFrame([[1]])),
            "Recommender.recommend: candidates: expected a list of values, got DataFrame. Give one column.",
        ),
    ],
)
def test_what_is_no_such_thing_is_refused_by_name(ask, expected: str, recommender: Recommender) -> None:
    assert refusal(RecsysEmbError, lambda: ask(recommender)) == expected


# --- what is told -------------------------------------------------------------------------------------------------


def test_a_recommender_says_in_a_line_what_it_is(recommender: Recommender) -> None:
    assert repr(recommender) == (
        "Recommender('user' × 'item', Logistic(negatives=0), fitted: 97 users, 53 items, 2000 rows)"
    )
    assert repr(Recommender(CLICKED)) == "Recommender('user' × 'item', not fitted)"
    assert repr(Recommender(CLICKED, objective=Logistic())) == (
        "Recommender('user' × 'item', Logistic(negatives=0), not fitted)"
    )


def test_a_fit_tells_the_settings_that_it_uses(capsys) -> None:
    Recommender(CLICKED, epochs=1).fit(clicks(50))
    assert capsys.readouterr().err.splitlines()[1] == (
        "Recommender: SequentialSGD(learning_rate={0.learning_rate}, l2={0.l2}, bias_l2={0.bias_l2}, blocks=1), "
        "as the fastest on a CPU, and it applies here.".format(Logistic().defaults)
    )
