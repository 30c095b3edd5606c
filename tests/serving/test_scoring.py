"""Exact scores."""

from __future__ import annotations

import pandas as pd
import pytest
import torch

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema import Categorical, MultiCategorical, Schema
from recsys_emb.serving import scoring
from recsys_emb.serving.scoring import at_rest, score, score_terms, sides


@pytest.fixture(scope="module")
def encoder() -> FeatureEncoder:
    schema = Schema(
        user=Categorical("user"), item=Categorical("item"), item_features=[MultiCategorical("tags")], embedding_dim=3
    )
    frame = pd.DataFrame({"user": range(9), "item": range(9), "tags": [["a", "b"][: n % 3] for n in range(9)]})
    encoder = FeatureEncoder(schema).fit(frame)
    encoder.rows = encoder.transform(frame)
    return encoder


@pytest.fixture(scope="module")
def model(encoder: FeatureEncoder) -> MatrixFactorization:
    model = MatrixFactorization(encoder, init_std=1.0)
    model.set_units(3.0, 0.5)
    return model


def test_scores_are_the_models_own_to_its_precision(model: MatrixFactorization, encoder: FeatureEncoder) -> None:
    with torch.no_grad():
        expected = model(encoder.rows).double()
    torch.testing.assert_close(score(model, encoder.rows), expected, rtol=1e-6, atol=1e-6)


def test_terms_add_up_to_scores_bit_for_bit(model: MatrixFactorization, encoder: FeatureEncoder) -> None:
    terms = score_terms(model, encoder.rows)
    assert list(terms) == ["offset", "bias:user", "bias:item", "bias:tags", "interaction"]
    assert all(term.dtype == torch.float64 for term in terms.values())
    assert torch.equal(sum(terms.values()), score(model, encoder.rows))


@pytest.mark.parametrize("block", [1, 2, 100])
def test_blocks_change_nothing(
    model: MatrixFactorization, encoder: FeatureEncoder, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = score(model, encoder.rows), sides(model, encoder.rows, model.item_names)
    monkeypatch.setattr(scoring, "BLOCK", block)
    assert torch.equal(score(model, encoder.rows), expected[0])
    for mine, theirs in zip(sides(model, encoder.rows, model.item_names), expected[1], strict=True):
        assert torch.equal(mine, theirs)


def test_no_rows_have_no_scores(model: MatrixFactorization, encoder: FeatureEncoder) -> None:
    nothing = encoder.rows.select(torch.arange(0))
    assert score(model, nothing).shape == (0,)
    assert sides(model, nothing, model.user_names)[0].shape == (0, 3)


def test_the_mode_comes_back_even_after_an_error(model: MatrixFactorization) -> None:
    model.train()

    def fail_at_rest() -> None:
        with at_rest(model):
            assert (model.training, torch.is_grad_enabled()) == (False, False)
            raise KeyError

    with pytest.raises(KeyError):
        fail_at_rest()
    assert (model.training, torch.is_grad_enabled()) == (True, True)
