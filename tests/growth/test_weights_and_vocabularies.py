"""Weights know which vocabularies they belong to: others are refused, or met value by value."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import LineageError
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema import (
    Categorical,
    Hashed,
    History,
    MultiCategorical,
    Numeric,
    OneHot,
    Position,
    Schema,
    UnknownBuckets,
)
from recsys_emb.serving.scoring import score

PAIR = Schema(user=Categorical("user"), item=Categorical("item"), embedding_dim=2)
RICH = Schema(
    user=Categorical("user"),
    item=Categorical("item"),
    position=Position("slot", max_position=9),
    user_features=[MultiCategorical("liked", vocabulary="item", share_table=True), History("item")],
    item_features=[Categorical("brand", table=OneHot())],
    embedding_dim=3,
)


def frame(users: list[int], items: list[str]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "user": users,
            "item": items,
            "slot": np.arange(len(users)) % 10,
            "liked": [[item] for item in items],
            "brand": [f"brand of {item}" for item in items],
            "age": [float(user) for user in users],
        }
    )


OLD = frame([1, 1, 2, 3], ["a", "b", "c", "a"])
MORE_POPULAR = frame([1, 2, 2, 3, 4], ["b", "c", "b", "a", "d"])  # the same values and new ones, in another order


def made(schema: Schema, source: pd.DataFrame, seed: int = 0) -> tuple[FeatureEncoder, MatrixFactorization]:
    encoder = FeatureEncoder(schema).fit(source)
    model = MatrixFactorization(encoder, init_std=1.0, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator)
    model.set_units(2.0, 0.5)
    model.vectors.remember(encoder.transform(source))
    return encoder, model


def test_weights_of_other_vocabularies_are_refused_though_all_shapes_agree() -> None:
    _, model = made(PAIR, OLD)
    other = FeatureEncoder(PAIR).fit(frame([1, 1, 2, 3], ["a", "b", "x", "a"]))
    stranger = MatrixFactorization(other, seed=5)
    before = copy.deepcopy(stranger.state_dict())
    with pytest.raises(LineageError) as caught:
        stranger.load_state_dict(model.state_dict())
    mine, theirs = (one.biases.meanings.fingerprint[:12] for one in (stranger, model))
    assert str(caught.value).startswith(
        "load_state_dict: expected weights of the vocabularies "
        f"{stranger.vectors.meanings.fingerprint[:12]}, got those of {model.vectors.meanings.fingerprint[:12]}. "
    )
    assert mine != theirs
    assert all(torch.equal(tensor, before[name]) for name, tensor in stranger.state_dict().items())


def test_weights_inside_a_larger_module_are_refused_too() -> None:
    wrapped = torch.nn.ModuleDict({"tower": made(PAIR, OLD)[1]})
    other = torch.nn.ModuleDict({"tower": made(PAIR, MORE_POPULAR)[1]})
    with pytest.raises(LineageError):
        other.load_state_dict(wrapped.state_dict())


def test_weights_from_before_a_growth_are_refused_after_it() -> None:
    encoder, model = made(PAIR, OLD)
    weights = copy.deepcopy(model.state_dict())
    model.grow(FeatureEncoder.from_state(encoder.to_state()).partial_fit(MORE_POPULAR))
    with pytest.raises(LineageError):
        model.load_state_dict(weights)


def test_the_order_of_features_belongs_to_the_meaning_of_tables() -> None:
    features = [Categorical("brand"), Categorical("slot")]
    one, other = (dataclasses.replace(PAIR, item_features=some) for some in (features, features[::-1]))
    with pytest.raises(LineageError):
        made(other, OLD)[1].load_state_dict(made(one, OLD)[1].state_dict())


def test_numbers_standardised_otherwise_are_another_meaning() -> None:
    schema = dataclasses.replace(PAIR, user_features=[Numeric("age")])
    with pytest.raises(LineageError):
        made(schema, OLD.assign(age=OLD["age"] * 7))[1].load_state_dict(made(schema, OLD)[1].state_dict())


@pytest.mark.parametrize("assign", [False, True])
def test_weights_of_an_equal_fit_are_taken(assign: bool) -> None:
    encoder, model = made(PAIR, OLD)
    twin = MatrixFactorization(FeatureEncoder(PAIR).fit(OLD.sample(frac=1, random_state=0)))
    twin.load_state_dict(copy.deepcopy(model.state_dict()), assign=assign)
    assert torch.equal(score(twin, encoder.transform(OLD)), score(model, encoder.transform(OLD)))


def test_what_does_not_change_a_meaning_is_no_reason_to_refuse() -> None:
    _, model = made(PAIR, OLD)
    gentle = Schema(user=Categorical("user", l2_scale=0.5), item=Categorical("item"), embedding_dim=2)
    made(gentle, OLD)[1].load_state_dict(model.state_dict())


def test_a_feature_embedding_alone_refuses_as_well() -> None:
    embed = FeatureEmbedding(FeatureEncoder(PAIR).fit(OLD))
    with pytest.raises(LineageError, match=r"or by value with recsys_emb\.lookup\.carrying\.carry\.$"):
        FeatureEmbedding(FeatureEncoder(PAIR).fit(MORE_POPULAR)).load_state_dict(embed.state_dict())


def test_weights_are_carried_over_by_value() -> None:
    before, old = made(RICH, OLD)
    after, model = made(RICH, MORE_POPULAR, seed=1)
    born = copy.deepcopy(model.state_dict())
    model.load_by_value(old.state_dict(), before, after)
    for name in ("user", "item", "brand", "liked"):
        theirs, mine = before.vocabularies[name], after.vocabularies[name]
        for value in theirs.values.to_pylist():
            rows = theirs.encode([value]), mine.encode([value])
            for parts in ((old.vectors, model.vectors), (old.biases, model.biases)):
                assert torch.equal(parts[0].lookup(name)(rows[0]), parts[1].lookup(name)(rows[1]))
    new = after.vocabularies["user"].encode([4])
    place = f"vectors.tables.{list(model.vectors.names).index('user')}.weight"
    assert torch.equal(model.vectors.lookup("user").weight[new], born[place][new])
    # Every value of the old rows is known to both, histories included, so their scores are the same.
    torch.testing.assert_close(
        score(model, after.transform(OLD)), score(old, before.transform(OLD)), rtol=1e-6, atol=1e-6
    )


def test_reserved_rows_keep_their_place_under_one_rule_and_unknown_ones_are_left_under_another() -> None:
    before, old = made(PAIR, OLD)
    bucketed = dataclasses.replace(PAIR, user=Categorical("user", unknown=UnknownBuckets(3)))
    after, model = made(bucketed, MORE_POPULAR, seed=1)
    born = model.vectors.lookup("user").weight.detach().clone()
    model.load_by_value(old.state_dict(), before, after)
    table = model.vectors.lookup("user").weight
    assert torch.equal(table[:2], old.vectors.lookup("user").weight[:2])
    assert torch.equal(table[2:5], born[2:5])
    assert torch.equal(model.vectors.lookup("item").weight[2], old.vectors.lookup("item").weight[2])


def test_what_cannot_be_carried_is_refused_by_name() -> None:
    hashed = dataclasses.replace(PAIR, item=Categorical("item", table=Hashed(4)))
    aged = dataclasses.replace(PAIR, user_features=[Numeric("age")])
    for schema, source, name in ((hashed, MORE_POPULAR, "'item'"), (aged, OLD.assign(age=0.5), "'age'")):
        before, old = made(schema, OLD)
        after, model = made(schema, source)
        with pytest.raises(LineageError, match=name):
            model.load_by_value(old.state_dict(), before, after)


def test_hashed_tables_are_carried_where_no_index_has_moved() -> None:
    hashed = dataclasses.replace(PAIR, item=Categorical("item", table=Hashed(4)))
    before, old = made(hashed, OLD)
    after, model = made(hashed, OLD.assign(user=[7, 7, 8, 9]), seed=1)
    model.load_by_value(old.state_dict(), before, after)
    assert torch.equal(model.vectors.lookup("item")(torch.arange(6)), old.vectors.lookup("item")(torch.arange(6)))


def test_encoders_must_be_those_of_their_models() -> None:
    before, old = made(PAIR, OLD)
    after, model = made(PAIR, MORE_POPULAR)
    with pytest.raises(LineageError, match="the encoder that this model was made with"):
        model.load_by_value(old.state_dict(), before, before)
    with pytest.raises(LineageError, match="load_state_dict"):
        model.load_by_value(old.state_dict(), after, after)
