"""Growing appends rows that begin as declared, and leaves everything else bit for bit."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import ColumnError, DataError, LineageError, SchemaError
from recsys_emb.lookup.new_rows import ByFeature, DrawnRows, InheritedRows, MeanRows, NewRows, PretrainedRows, ZeroRows
from recsys_emb.lookup.pretrained import PretrainedVectors
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema import (
    Categorical,
    Hashed,
    History,
    MultiCategorical,
    Numeric,
    OneHot,
    Position,
    QuotientRemainder,
    Schema,
    UnknownBuckets,
)
from recsys_emb.serving.scoring import score
from recsys_emb.training.optim import LazyAdam, RowWiseAdagrad

RICH = Schema(
    user=Categorical("user", unknown=UnknownBuckets(3)),
    item=Categorical("item"),
    position=Position("slot", max_position=9),
    user_features=[Numeric("age"), MultiCategorical("liked", vocabulary="item"), History("item")],
    item_features=[
        MultiCategorical("tags"),
        Categorical("brand", table=OneHot()),
        Categorical("shop", table=Hashed(5)),
        Categorical("maker", table=QuotientRemainder(2)),
    ],
    label="stars",
    embedding_dim=3,
)
WAYS: list[NewRows] = [DrawnRows(), ZeroRows(), MeanRows(), InheritedRows()]


def rows(first: int, last: int, *, age: float = 30.0) -> pd.DataFrame:
    """Rows whose values are numbered: everything from ``first`` to ``last`` occurs."""
    numbers = np.arange(first, last)
    return pd.DataFrame(
        {
            "user": numbers,
            "item": [f"i{n}" for n in numbers],
            "slot": numbers % 10,
            "age": age + numbers,
            "liked": [[f"i{n}", f"i{first}"] for n in numbers],
            "tags": [[f"t{n}"] for n in numbers],
            "brand": [f"b{n}" for n in numbers],
            "shop": [f"s{n}" for n in numbers],
            "maker": [f"m{n}" for n in numbers],
            "stars": numbers % 5 + 1.0,
        }
    )


def learned(schema: Schema = RICH, last: int = 6) -> tuple[FeatureEncoder, MatrixFactorization]:
    """A fitted encoder, and a model in which every row holds something: unknown rows and unseen positions too."""
    encoder = FeatureEncoder(schema).fit(rows(0, last))
    model = MatrixFactorization(encoder, seed=1)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator)
    model.vectors.remember(encoder.transform(rows(0, last)))
    model.set_units(3.0, 1.5)
    return encoder, model


def grown_by(encoder: FeatureEncoder, more: pd.DataFrame) -> FeatureEncoder:
    return FeatureEncoder.from_state(encoder.to_state()).partial_fit(more)


@pytest.mark.parametrize("way", WAYS, ids=repr)
def test_old_scores_stay_bit_for_bit(way: NewRows) -> None:
    encoder, model = learned()
    old = rows(0, 6)
    before = score(model, encoder.transform(old))
    for last in (9, 14, 30):
        encoder = grown_by(encoder, rows(last - 4, last))
        model.grow(encoder, new_rows=way)
        assert torch.equal(score(model, encoder.transform(old)), before)


@pytest.mark.parametrize("way", WAYS, ids=repr)
def test_old_rows_and_optimizer_state_stay_bit_for_bit(way: NewRows) -> None:
    encoder, model = learned()
    optimizers = [LazyAdam(model.vectors.parameters(), lr=0.1), RowWiseAdagrad(model.biases.parameters(), lr=0.1)]
    for _ in range(2):
        model(encoder.transform(rows(0, 6))).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    weights = copy.deepcopy(model.state_dict())
    states = [copy.deepcopy(optimizer.state_dict()["state"]) for optimizer in optimizers]
    model.grow(grown_by(encoder, rows(4, 12)), optimizers, new_rows=way)
    for name, tensor in model.state_dict().items():
        old = weights[name]
        if name.endswith("fingerprint") or name.endswith("offsets"):
            continue
        kept = tensor[tuple(slice(size) for size in old.shape)]
        if "tables" in name and old.ndim == 2 and len(old) == 13:  # positions are born with their rows
            assert torch.equal(kept[:9], old[:9])
        else:
            assert torch.equal(kept, old), name
    for optimizer, before in zip(optimizers, states, strict=True):
        for number, state in optimizer.state_dict()["state"].items():
            for key, value in state.items():
                old = before[number][key]
                if isinstance(value, torch.Tensor):
                    assert torch.equal(value[tuple(slice(size) for size in old.shape)], old)
                else:
                    assert value == old


def test_what_the_unknown_row_knew_is_inherited_so_that_no_score_changes_at_all() -> None:
    # A hashed feature has no row per value that could inherit.
    kept = [feature for feature in RICH.item_features if feature.name not in ("shop", "maker")]
    encoder, model = learned(dataclasses.replace(RICH, item_features=kept))
    strangers = rows(3, 60)
    before = score(model, encoder.transform(strangers))
    encoder = grown_by(encoder, strangers)
    model.grow(encoder, new_rows=InheritedRows())
    batch = encoder.transform(strangers)
    assert batch.indices("user").min() == 5 + 3  # after padding, missing and three buckets
    assert torch.equal(score(model, batch), before)


def test_the_mean_is_that_of_the_rows_known_before() -> None:
    encoder, model = learned()
    known = model.vectors.lookup("item").weight[3:9].detach()
    biases = model.biases.lookup("item").weight[3:9].detach()
    model.grow(grown_by(encoder, rows(6, 9)), new_rows=MeanRows())
    for row in (9, 10, 11):
        torch.testing.assert_close(model.vectors.lookup("item").weight[row], known.mean(0))
        torch.testing.assert_close(model.biases.lookup("item").weight[row], biases.mean(0))


def test_rows_at_zero_leave_the_features_alone() -> None:
    encoder, model = learned()
    model.grow(grown_by(encoder, rows(6, 9)), new_rows={"item": ZeroRows()})
    assert not model.vectors.lookup("item").weight[9:].any()
    assert model.vectors.lookup("user").weight[11:].all()


def test_rows_are_drawn_as_at_birth_unless_something_is_said() -> None:
    encoder, model = learned()
    twin = copy.deepcopy(model)
    later = grown_by(encoder, rows(6, 200))
    model.grow(later)
    twin.grow(later, new_rows=DrawnRows())
    drawn = model.vectors.lookup("item").weight[9:]
    assert drawn.std().item() == pytest.approx(0.01, rel=0.1)
    assert torch.equal(drawn, twin.vectors.lookup("item").weight[9:])
    assert not model.biases.lookup("item").weight[9:].any()


def test_pretrained_vectors_are_put_onto_new_values_only() -> None:
    encoder, model = learned()
    pretrained = PretrainedVectors(["i1", "i7"], torch.tensor([[1.0, 1.0, 1.0], [7.0, 7.0, 7.0]]))
    before = model.vectors.lookup("item").weight.detach().clone()
    later = grown_by(encoder, rows(6, 9))
    model.grow(later, new_rows={"item": PretrainedRows(pretrained, otherwise=ZeroRows())})
    table = model.vectors.lookup("item").weight
    assert torch.equal(table[:9], before)
    assert table[later.vocabularies["item"].encode(["i7"])].tolist() == [[7.0, 7.0, 7.0]]
    assert not table[later.vocabularies["item"].encode(["i6", "i8"])].any()
    assert not model.biases.lookup("item").weight[9:].any()


def test_pretrained_vectors_of_another_width_are_refused_before_anything_grows() -> None:
    encoder, model = learned()
    pretrained = PretrainedVectors(["i7"], torch.ones(1, 2), name="words")
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(DataError) as caught:
        model.grow(grown_by(encoder, rows(6, 9)), new_rows={"tags": PretrainedRows(pretrained)})
    assert str(caught.value) == (
        "words: expected a feature with a vocabulary and a table of width 2, got a table of width 3. "
        "Name the feature: new_rows={'item_id': ...}."
    )
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_positions_have_no_keys_to_look_up() -> None:
    encoder, model = learned()
    pretrained = PretrainedVectors([7], torch.ones(1, 3), name="words")
    with pytest.raises(DataError, match="got positions, which have no keys"):
        model.grow(grown_by(encoder, rows(6, 9)), new_rows={"slot": PretrainedRows(pretrained)})


def test_a_position_seen_for_the_first_time_begins_as_declared() -> None:
    for way, expected in (
        (DrawnRows(), lambda before: before[3 + 7]),
        (InheritedRows(), lambda before: before[2]),
        (ZeroRows(), lambda before: 0 * before[0]),
        (MeanRows(), lambda before: before[3:9].mean(0)),
    ):
        encoder, model = learned()
        before = model.vectors.lookup("slot").weight.detach().clone()
        model.grow(grown_by(encoder, rows(7, 8)), new_rows=way)
        after = model.vectors.lookup("slot").weight
        torch.testing.assert_close(after[3 + 7], expected(before))
        assert torch.equal(after[:9], before[:9])
        assert torch.equal(after[3 + 8 :], before[3 + 8 :])


def test_features_that_share_a_table_begin_as_one_of_them_says() -> None:
    schema = Schema(
        user=Categorical("user"),
        item=Categorical("item"),
        user_features=[MultiCategorical("liked", vocabulary="item", share_table=True)],
        label="stars",
        embedding_dim=2,
    )
    encoder, model = learned(schema)
    model.grow(grown_by(encoder, rows(6, 8)), new_rows={"item": ZeroRows()})
    assert model.vectors.lookup("liked") is model.vectors.lookup("item")
    assert not model.vectors.lookup("liked").weight[9:].any()


@pytest.mark.parametrize(("new_rows", "error"), [({"itm": ZeroRows()}, ColumnError)])
def test_rows_of_a_feature_that_is_none_are_refused(new_rows: ByFeature, error: type[Exception]) -> None:
    encoder, model = learned()
    with pytest.raises(error, match=r"got 'itm'\. Did you mean 'item'\?"):
        model.grow(grown_by(encoder, rows(6, 9)), new_rows=new_rows)


def test_an_encoder_of_other_values_is_refused_though_it_has_more_of_them() -> None:
    _, model = learned()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(LineageError) as caught:
        model.grow(FeatureEncoder(RICH).fit(rows(3, 20)))
    assert str(caught.value) == (
        "grow: expected an encoder that extends the one of these tables, got one to which their rows mean something "
        "else. Extend the fitted encoder with partial_fit."
    )
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_an_encoder_from_before_the_growth_is_refused() -> None:
    encoder, model = learned()
    model.grow(grown_by(encoder, rows(6, 9)))
    with pytest.raises(LineageError):
        model.grow(encoder)


def test_an_encoder_of_another_schema_is_refused() -> None:
    _, model = learned()
    other = Schema(user=Categorical("user"), item=Categorical("item"), label="stars")
    with pytest.raises(SchemaError):
        model.grow(FeatureEncoder(other).fit(rows(0, 9)))


def test_a_number_that_is_there_for_the_first_time_does_not_stop_growth() -> None:
    nothing = rows(0, 6).assign(age=np.nan)
    encoder = FeatureEncoder(RICH).fit(nothing)
    model = MatrixFactorization(encoder)
    model.grow(grown_by(encoder, rows(6, 9)))
    assert model.vectors.lookup("item").num_embeddings == 12


def test_growing_by_nothing_changes_nothing() -> None:
    encoder, model = learned()
    before = copy.deepcopy(model.state_dict())
    for way in WAYS:
        model.grow(grown_by(encoder, rows(0, 6).iloc[:0]), new_rows=way)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
