"""Sampled softmax against the full one, where that is known; and how validation rows are judged."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.schema import Schema
from recsys_emb.training.contrast import contrast_of
from recsys_emb.training.fitting import train
from recsys_emb.training.judge import Judge
from recsys_emb.training.losses import BPR, Logistic, SampledSoftmax, SquaredError
from recsys_emb.training.minibatch import Minibatch
from recsys_emb.training.scoring import Scorer

ModelOf = Callable[..., MatrixFactorization]

# Item index 3 + i occurs COUNTS[i] times: as skewed as catalogues are.
COUNTS = torch.tensor([120, 40, 20, 12, 8])


@pytest.fixture
def popular(ids: Schema) -> Batch:
    """One user per row, items by frequency."""
    items = torch.arange(5).repeat_interleave(COUNTS) + 3
    return Batch({"user": torch.arange(len(items)) % 6 + 3, "item": items})


@pytest.fixture
def biased(ids: Schema, model_of: ModelOf) -> MatrixFactorization:
    """A model of item biases alone, far from the frequencies."""
    model = model_of(ids)
    with torch.no_grad():
        for table in (*model.vectors.lookups, model.biases.lookup("user")):
            table.weight.zero_().requires_grad_(False)
        model.biases.lookup("item").weight[3:8, 0] = torch.tensor([-1.0, 0.5, 0.0, 1.5, 0.3])
    return model


def sampled_losses(model: MatrixFactorization, rows: Batch, objective: SampledSoftmax, chosen: Tensor) -> Tensor:
    scorer = Scorer(model, objective.defaults)
    contrast = contrast_of(objective, rows, scorer)
    scores, _ = contrast.scores(scorer.sides(rows.select(chosen)), chosen, torch.Generator().manual_seed(0))
    return objective.loss(scores, torch.ones(len(chosen))).detach()


def full_losses(model: MatrixFactorization, rows: Batch, chosen: Tensor) -> Tensor:
    scores = model.biases.lookup("item").weight.detach()[3:8, 0]
    return -scores.log_softmax(0)[rows.indices("item")[chosen] - 3]


@pytest.mark.parametrize("negatives", [100_000, None], ids=["sampled", "in batch"])
def test_with_many_negatives_the_sampled_softmax_is_the_full_one(
    negatives: int | None, popular: Batch, biased: MatrixFactorization
) -> None:
    chosen = torch.arange(len(popular))
    estimate = sampled_losses(biased, popular, SampledSoftmax(negatives), chosen)
    torch.testing.assert_close(estimate, full_losses(biased, popular, chosen), atol=0.02, rtol=0)


def test_few_negatives_estimate_the_full_sum_without_bias(popular: Batch, biased: MatrixFactorization) -> None:
    scorer = Scorer(biased, SampledSoftmax().defaults)
    contrast = contrast_of(SampledSoftmax(3), popular, scorer)
    chosen, generator = torch.tensor([0]), torch.Generator().manual_seed(0)
    sums = []
    for _ in range(3000):
        scores, _ = contrast.scores(scorer.sides(popular.select(chosen)), chosen, generator)
        sums.append(float(scores[0, 1:].detach().exp().sum()))
    others = biased.biases.lookup("item").weight.detach()[4:8, 0].exp().sum()
    assert sum(sums) / len(sums) == pytest.approx(float(others), rel=0.05)


def test_the_own_item_among_the_negatives_is_masked(popular: Batch, biased: MatrixFactorization) -> None:
    scorer = Scorer(biased, SampledSoftmax().defaults)
    chosen = torch.tensor([0, 1, 199])
    contrast = contrast_of(SampledSoftmax(), popular, scorer)
    scores, _ = contrast.scores(scorer.sides(popular.select(chosen)), chosen, torch.Generator())
    assert scores[:, 1:].isneginf().tolist() == [[True, True, False], [True, True, False], [False, False, True]]


@pytest.mark.parametrize("negatives", [4, None], ids=["sampled", "in batch"])
def test_training_arrives_at_the_frequencies_as_the_full_softmax_would(
    negatives: int | None, popular: Batch, biased: MatrixFactorization
) -> None:
    solver = Minibatch(learning_rate=0.02, batch_size=20, l2=0.0, bias_l2=0.0)
    train(biased, popular, SampledSoftmax(negatives), solver, epochs=150, fresh=False)
    learned = biased.biases.lookup("item").weight.detach()[3:8, 0].softmax(0)
    torch.testing.assert_close(learned, COUNTS / COUNTS.sum(), atol=0.05, rtol=0)


# --- judging ---------------------------------------------------------------------------------------------------


def test_ratings_are_judged_by_their_rmse_in_units_of_the_label(ids: Schema, model_of: ModelOf) -> None:
    model = model_of(ids)
    rows = Batch({"user": torch.tensor([3, 4, 5]), "item": torch.tensor([3, 4, 5])}, torch.tensor([1.0, 3.0, 5.0]))
    model.set_units(3.0, 2.0)
    expected = (model(rows).clamp(1, 5) - rows.label).square().mean().sqrt().item()
    assert Judge(model, SquaredError(), rows, rows, seed=0)() == pytest.approx(expected, rel=1e-6)


def test_rankings_are_judged_against_items_that_are_new_to_the_user(ids: Schema, model_of: ModelOf) -> None:
    model = model_of(ids)
    with torch.no_grad():
        for table in (*model.vectors.lookups, *model.biases.lookups):
            table.weight.zero_()
        model.biases.lookup("item").weight[3:7, 0] = torch.tensor([0.0, 5.0, 9.0, 1.0])
    learned = Batch({"user": torch.tensor([3, 4]), "item": torch.tensor([3, 6])})
    watched = Batch({"user": torch.tensor([3, 3]), "item": torch.tensor([4, 5])})
    # User 3 has items 3, 4 and 5 in either part; item 6 alone is left to compare with.
    expected = (math.log1p(math.exp(1 - 5)) + math.log1p(math.exp(1 - 9))) / 2
    assert Judge(model, BPR(), learned, watched, seed=0)() == pytest.approx(expected, rel=1e-5)


def test_judging_depends_neither_on_chance_nor_on_the_model_being_judged(
    rich: Schema, model_of: ModelOf, rows_of: Callable[..., Batch]
) -> None:
    model = model_of(rich)
    judge = Judge(model, Logistic(negatives=2), rows_of(20), rows_of(10, seed=1), seed=0)
    before, first = model.state_dict(), judge()
    assert judge() == first
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
