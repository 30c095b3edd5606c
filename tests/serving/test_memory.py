"""What serving remembers of training rows."""

from __future__ import annotations

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import SchemaError
from recsys_emb.schema import Categorical, MultiCategorical, Numeric, Position, Schema
from recsys_emb.serving.memory import Memory, pair_of, served
from recsys_emb.vocabulary.reserved import MISSING_INDEX, UNKNOWN_INDEX

PAIR = Schema(user=Categorical("user"), item=Categorical("item"), embedding_dim=2)


def remember(frame: pd.DataFrame, schema: Schema = PAIR) -> tuple[Memory, FeatureEncoder]:
    encoder = FeatureEncoder(schema).fit(frame)
    return Memory.from_batch(encoder.transform(frame), encoder), encoder


def seen_of(memory: Memory, encoder: FeatureEncoder, user: object) -> list[object]:
    (items,) = memory.seen_by(encoder.vocabularies["user"].encode([user])).to_lists()
    return encoder.vocabularies["item"].decode(items)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), min_size=1, max_size=30))
def test_every_pair_is_remembered_once(pairs: list[tuple[int, int]]) -> None:
    memory, encoder = remember(pd.DataFrame(pairs, columns=["user", "item"]))
    for user in range(5):
        assert sorted(seen_of(memory, encoder, user)) == sorted({item for one, item in pairs if one == user})


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=15),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), max_size=15),
)
def test_remembering_in_two_parts_is_remembering_all(first: list, second: list) -> None:
    frames = [pd.DataFrame(pairs, columns=["user", "item"], dtype="int64") for pairs in (first, second)]
    memory, encoder = remember(frames[0])
    encoder = FeatureEncoder.from_state(encoder.to_state()).partial_fit(frames[1])
    memory = memory.merged(Memory.from_batch(encoder.transform(frames[1]), encoder))
    for user in range(6):
        expected = sorted({item for one, item in (*first, *second) if one == user})
        assert sorted(seen_of(memory, encoder, user)) == expected


def test_rows_of_nobody_in_particular_are_left_out() -> None:
    schema = Schema(user=Categorical("user", min_count=2), item=Categorical("item"), embedding_dim=2)
    frame = pd.DataFrame({"user": ["a", "a", "rare", None, "a"], "item": ["x", None, "y", "z", "z"]})
    memory, encoder = remember(frame, schema)
    assert encoder.vocabularies["user"].decode(memory.users.indices) == ["a"]
    assert sorted(encoder.vocabularies["item"].decode(memory.items.indices)) == ["x", "y", "z"]
    assert sorted(seen_of(memory, encoder, "a")) == ["x", "z"]
    assert seen_of(memory, encoder, "rare") == seen_of(memory, encoder, None) == []


def test_items_that_only_stand_in_lists_are_not_in_the_catalogue() -> None:
    schema = Schema(
        user=Categorical("user"),
        item=Categorical("item"),
        user_features=[MultiCategorical("recent", vocabulary="item")],
        embedding_dim=2,
    )
    memory, encoder = remember(pd.DataFrame({"user": ["a"], "item": ["x"], "recent": [["y", "z"]]}), schema)
    assert len(encoder.vocabularies["item"]) == 3
    assert encoder.vocabularies["item"].decode(memory.items.indices) == ["x"]


def test_the_context_of_a_request_is_missing() -> None:
    schema = Schema(
        user=Categorical("user"),
        item=Categorical("item"),
        context_features=[Categorical("device"), MultiCategorical("words", weights="shares"), Numeric("hour")],
        embedding_dim=2,
    )
    frame = pd.DataFrame(
        {"user": ["a"], "item": ["x"], "device": ["tv"], "words": [["w"]], "shares": [[1.0]], "hour": [3.0]}
    )
    memory, encoder = remember(frame, schema)
    rows = memory.user_rows(torch.tensor([3, 2]), encoder)
    assert rows.indices("device").tolist() == [MISSING_INDEX] * 2
    assert rows.lists("words").to_lists() == [[], []]
    assert rows.lists("words").weights.tolist() == []
    assert rows.indices("hour").tolist() == [[0.0, 1.0]] * 2


@pytest.mark.parametrize(("serve_at", "index"), [(None, MISSING_INDEX), (1, 3 + 1), (5, UNKNOWN_INDEX)])
def test_the_position_of_serving_is_encoded_like_any_other(serve_at: int | None, index: int) -> None:
    position = Position("slot", max_position=9, serve_at=serve_at)
    schema = Schema(user=Categorical("user"), item=Categorical("item"), position=position, embedding_dim=2)
    frame = pd.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "slot": [1, 2]})
    memory, encoder = remember(frame, schema)
    assert served(position, encoder) == index
    assert memory.item_rows(memory.items.indices, encoder).indices("slot").tolist() == [index, index]
    asked = frame.assign(slot=pd.array([serve_at] * 2, dtype="Int64"))
    assert encoder.transform(asked).indices("slot").tolist() == [index, index]


def test_a_pair_needs_both_sides() -> None:
    with pytest.raises(SchemaError):
        pair_of(Schema(user=Categorical("user"), embedding_dim=2))
