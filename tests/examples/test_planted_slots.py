"""What the example on planted slots claims."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def figures(example):
    return example("planted_slots").main()


def test_a_model_that_knows_the_slot_ranks_items_closer_to_the_truth_than_one_that_does_not(figures):
    assert figures["agreement"]["position-aware"] > 0.94
    assert figures["agreement"]["position-blind"] < 0.8


def test_the_learned_slot_effects_fall_as_the_planted_ones_do(figures):
    effects = figures["slot_effects"]
    assert effects == sorted(effects, reverse=True)
    assert effects == pytest.approx([1.5, 1.125, 0.75, 0.375, 0.0], abs=0.3)


def test_recommendations_are_scored_at_the_declared_slot(figures):
    assert figures["serving_gap"] == 0.0
