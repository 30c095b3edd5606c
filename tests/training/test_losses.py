"""The objectives: losses against torch's own and known values, units, answers, refusals."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from recsys_emb.errors import DataError, FitError
from recsys_emb.training.losses import BPR, Logistic, SampledSoftmax, SquaredError
from recsys_emb.training.objective import EarlyStopping, SharedItems, Units, UnseenItems, check_settings

OBJECTIVES = [SquaredError(), Logistic(), Logistic(negatives=5), BPR(), SampledSoftmax()]


def test_squared_error_is_half_the_squared_difference() -> None:
    loss = SquaredError().loss(torch.tensor([[1.0], [0.0]]), torch.tensor([3.0, -1.0]))
    assert loss.tolist() == [2.0, 0.5]


def test_squared_error_standardises_and_forward_undoes_it() -> None:
    label = torch.tensor([1.0, 2.0, 6.0])
    units = SquaredError().units(label, None)
    targets = SquaredError().targets(label, units)
    assert targets.mean() == pytest.approx(0, abs=1e-7)
    assert targets.std(correction=0) == pytest.approx(1)
    torch.testing.assert_close(units.offset + units.scale * targets, label)


def test_standard_units_follow_the_row_weights() -> None:
    units = SquaredError().units(torch.tensor([1.0, 5.0]), torch.tensor([3.0, 1.0]))
    assert units == Units(2.0, pytest.approx(math.sqrt(3)))


def test_a_constant_label_has_scale_one() -> None:
    assert SquaredError().units(torch.tensor([4.0, 4.0]), None) == Units(4.0, 1.0)


def test_a_large_label_with_a_small_spread_keeps_its_spread() -> None:
    label = torch.tensor([1e7, 1e7 + 2, 1e7 + 4])
    assert SquaredError().units(label, None).scale == pytest.approx(math.sqrt(8 / 3))


def test_logistic_is_the_log_loss_of_torch() -> None:
    scores, label = torch.tensor([[-2.0], [0.3]]), torch.tensor([1.0, 0.0])
    expected = torch.nn.functional.binary_cross_entropy_with_logits(scores[:, 0], label, reduction="none")
    torch.testing.assert_close(Logistic().loss(scores, label), expected)


def test_logistic_with_negatives_adds_the_log_loss_of_each_against_zero() -> None:
    scores = torch.tensor([[0.5, -1.0, 2.0]])
    expected = math.log1p(math.exp(-0.5)) + math.log1p(math.exp(-1)) + math.log1p(math.exp(2))
    assert Logistic(negatives=2).loss(scores, torch.ones(1)).item() == pytest.approx(expected)


def test_logistic_starts_from_the_base_rate() -> None:
    assert Logistic(negatives=5).units(None, None) == Units(-math.log(5), 1.0)
    offset, _ = Logistic().units(torch.tensor([1.0] + 9 * [0.0]), None)
    assert 1 / (1 + math.exp(-offset)) == pytest.approx(1.5 / 11)


def test_logistic_with_one_class_has_finite_units() -> None:
    assert math.isfinite(Logistic().units(torch.ones(5), None).offset)


def test_bpr_depends_on_differences_alone() -> None:
    scores = torch.tensor([[1.0, 3.0]])
    torch.testing.assert_close(BPR().loss(scores, torch.ones(1)), BPR().loss(scores + 10, torch.ones(1)))
    assert BPR().loss(scores, torch.ones(1)).item() == pytest.approx(math.log1p(math.exp(2)))


def test_sampled_softmax_is_cross_entropy_on_the_first() -> None:
    scores = torch.randn(4, 7, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.functional.cross_entropy(scores, torch.zeros(4, dtype=torch.int64), reduction="none")
    torch.testing.assert_close(SampledSoftmax().loss(scores, torch.ones(4)), expected)


def test_a_masked_negative_adds_nothing_to_the_softmax() -> None:
    assert SampledSoftmax().loss(torch.tensor([[2.0, -torch.inf]]), torch.ones(1)).tolist() == [0.0]


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (SquaredError(), [1.0, 3.0, 5.0]),
        (SquaredError(clip=False), [0.0, 3.0, 9.0]),
        (Logistic(), [0.5, 1 / (1 + math.exp(-3)), 1 / (1 + math.exp(-9))]),
        (BPR(), [0.0, 3.0, 9.0]),
    ],
)
def test_answers_are_ratings_probabilities_or_scores(objective: SquaredError, expected: list[float]) -> None:
    assert objective.answer(torch.tensor([0.0, 3.0, 9.0]), 1.0, 5.0).tolist() == pytest.approx(expected)


def test_validation_of_ratings_is_the_rmse_of_clipped_answers() -> None:
    figure = SquaredError().validate(torch.tensor([[7.0], [3.0]]), torch.tensor([5.0, 1.0]), 1.0, 5.0)
    assert figure == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize("objective", [Logistic(negatives=1), BPR(), SampledSoftmax()])
def test_validation_of_rankings_falls_when_the_own_item_rises(objective: BPR) -> None:
    low = objective.validate(torch.tensor([[0.0, 0.0]]), torch.ones(1), 0.0, 1.0)
    assert objective.validate(torch.tensor([[2.0, 0.0]]), torch.ones(1), 0.0, 1.0) < low


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_no_row_has_no_loss_of_any_shape_but_zero(objective: SquaredError) -> None:
    assert objective.loss(torch.zeros(0, 3), torch.zeros(0)).shape == (0,)


def test_contrasts_say_what_each_objective_compares_with() -> None:
    assert [objective.contrast for objective in OBJECTIVES] == [
        None,
        None,
        UnseenItems(5),
        UnseenItems(1),
        SharedItems(None),
    ]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_label_that_is_not_finite_is_refused_with_column_and_count(objective: SquaredError, wrong: float) -> None:
    with pytest.raises(DataError) as error:
        objective.check(torch.tensor([1.0, wrong]), "rating")
    assert str(error.value) == (
        "rating: expected finite labels, got NaN or infinity in 1 row. Drop or repair these rows."
    )


@pytest.mark.parametrize("objective", [SquaredError(), Logistic()], ids=repr)
def test_an_objective_that_learns_labels_refuses_rows_without(objective: SquaredError) -> None:
    with pytest.raises(FitError) as error:
        objective.check(None, "label")
    assert str(error.value) == (
        f"{type(objective).__name__}: expected a label to learn, got none. "
        "Declare label= in the schema, or rank with Logistic(negatives=5)."
    )


@pytest.mark.parametrize("label", [None, torch.tensor([1.0, 4.0])])
def test_ranking_takes_any_finite_label_or_none(label: Tensor | None) -> None:
    for objective in (Logistic(negatives=5), BPR(), SampledSoftmax()):
        objective.check(label, "rating")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Logistic(negatives=-1), "Logistic: expected negatives of at least 0, got -1. 0 learns the label."),
        (
            lambda: SampledSoftmax(negatives=0),
            "SampledSoftmax: expected negatives of at least 1, got 0. None takes the items of the other rows.",
        ),
        (
            lambda: EarlyStopping(fraction=1.0),
            "EarlyStopping: expected fraction in (0, 1), got 1.0. It is a share of rows.",
        ),
        (
            lambda: check_settings("SequentialSGD", learning_rate=0.0, l2=None, bias_l2=None),
            "SequentialSGD: expected learning_rate above 0, got 0.0. 0.01 suits standardised labels.",
        ),
        (
            lambda: check_settings("Minibatch", learning_rate=None, l2=None, bias_l2=-1.0),
            "Minibatch: expected bias_l2 of at least 0, got -1.0. 0 turns it off.",
        ),
    ],
)
def test_settings_that_mean_nothing_are_refused(make: object, message: str) -> None:
    with pytest.raises(FitError) as error:
        make()
    assert str(error.value) == message
