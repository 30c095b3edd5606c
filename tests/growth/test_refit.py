"""A second fit of one encoder moves no index that weights may know, unless it is told to."""

from __future__ import annotations

import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import LineageError
from recsys_emb.schema import Categorical, Numeric, Position, Schema, UnknownBuckets

SCHEMA = Schema(user=Categorical("user"), position=Position("slot", max_position=5), user_features=[Numeric("age")])


def frame(users: list[object], slot: int = 1, age: float = 1.0) -> pd.DataFrame:
    return pd.DataFrame({"user": users, "slot": slot, "age": age})


def refusal(encoder: FeatureEncoder, source: object) -> str:
    before = encoder.fingerprint
    with pytest.raises(LineageError) as caught:
        encoder.fit(source)
    assert encoder.fingerprint == before
    return str(caught.value)


def test_a_fit_that_moves_values_is_refused_by_name() -> None:
    encoder = FeatureEncoder(SCHEMA).fit(frame(["a", "a", "b", "c"]))
    assert refusal(encoder, frame(["b", "b", "a", "c"])) == (
        "FeatureEncoder.fit: expected every value of 'user' to keep the index of the earlier fit, got another or none "
        "for 2 values: 'a', 'b'. Append with partial_fit, fit a clone, or say renumber=True and train anew."
    )


@pytest.mark.parametrize(
    ("users", "moved"),
    [
        (["a", "a", "b"], "1 value: 'c'"),
        (["a", "a", "b", "bb", "c"], "1 value: 'c'"),
        ([1, 1, 2, 3], "3 values: 'a', 'b', 'c'"),
        ([None], "3 values: 'a', 'b', 'c'"),
    ],
    ids=["forgotten", "shifted", "of another kind", "all gone"],
)
def test_values_that_would_move_or_be_lost_are_named(users: list[object], moved: str) -> None:
    encoder = FeatureEncoder(SCHEMA).fit(frame(["a", "a", "b", "c"]))
    assert moved in refusal(encoder, frame(users))


def test_true_is_not_1() -> None:
    schema = Schema(user=Categorical("user"))
    encoder = FeatureEncoder(schema).fit({"user": [True, True, False]})
    assert "2 values: True, False" in refusal(encoder, {"user": [1, 1, 0]})


def test_a_position_that_would_be_unknown_again_is_refused() -> None:
    encoder = FeatureEncoder(SCHEMA).fit(frame(["a"], slot=4))
    assert "every position of 'slot'" in refusal(encoder, frame(["a"], slot=2))


def test_another_rule_for_unknown_values_moves_every_index() -> None:
    encoder = FeatureEncoder(Schema(user=Categorical("user"))).fit({"user": ["a", "b"]})
    encoder.set_params(schema=Schema(user=Categorical("user", unknown=UnknownBuckets(4))))
    assert "2 values: 'a', 'b'" in refusal(encoder, {"user": ["a", "b"]})


@pytest.mark.parametrize("users", [["a", "a", "b", "c"], ["c", "a", "b", "a"], ["a", "a", "b", "c", "d"]])
def test_a_fit_that_moves_nothing_is_fine(users: list[object]) -> None:
    encoder = FeatureEncoder(SCHEMA).fit(frame(["a", "a", "b", "c"]))
    encoder.fit(frame(users, age=7.0))
    assert encoder.transform(frame(["a", "b", "c"], age=7.0)).indices("user").tolist() == [3, 4, 5]
    assert encoder.numeric_statistics["age"].mean == 7.0


def test_it_may_be_told() -> None:
    encoder = FeatureEncoder(SCHEMA).fit(frame(["a", "a", "b"]))
    encoder.fit(frame(["b", "b", "a"]), renumber=True)
    assert encoder.vocabularies["user"].values.to_pylist() == ["b", "a"]


def test_a_clone_is_not_fitted_and_free() -> None:
    encoder = FeatureEncoder(SCHEMA).fit(frame(["a", "a", "b"]))
    assert clone(encoder).fit(frame(["b", "b", "a"])).vocabularies["user"].values.to_pylist() == ["b", "a"]


def test_a_pipeline_passes_the_word_on() -> None:
    pipeline = make_pipeline(FeatureEncoder(SCHEMA)).fit(frame(["a", "a", "b"]))
    with pytest.raises(LineageError):
        pipeline.fit(frame(["b", "b", "a"]))
    pipeline.fit(frame(["b", "b", "a"]), featureencoder__renumber=True)


def test_counts_accumulate_and_buckets_never_take_a_named_value() -> None:
    schema = Schema(user=Categorical("user", unknown=UnknownBuckets(4)))
    encoder = FeatureEncoder(schema).fit({"user": ["a", "a", "b"]})
    named = encoder.vocabularies["user"].encode(["a", "b"]).tolist()
    for _ in range(3):
        encoder.partial_fit({"user": ["b", "c", "c"]})
        assert encoder.vocabularies["user"].encode(["a", "b"]).tolist() == named == [6, 7]
    assert encoder.vocabularies["user"].counts.tolist() == [2, 4, 6]
    buckets = encoder.vocabularies["user"].encode([f"stranger {n}" for n in range(50)])
    assert set(buckets.tolist()) == {2, 3, 4, 5}
