"""What the example on the Open Bandit sample claims, and does not claim."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="module")
def figures(example):
    return example("open_bandit").main()


def test_every_figure_lies_in_its_interval(figures):
    assert all(low <= figure <= high for figure, low, high in figures.values())


def test_clicks_can_be_told_from_other_displays_a_little(figures):
    assert all(figures[name][1] > 0.5 for name in ("with the slot", "without", "one-hot linear"))


def test_no_effect_of_the_slot_shows(figures):
    assert figures["gain of the slot"][1] < 0 < figures["gain of the slot"][2]
    lows, highs = zip(*(figures[f"slot {slot}"][1:] for slot in (1, 2, 3)), strict=True)
    assert max(lows) < min(highs)


def test_the_mean_placement_of_the_clicks_is_the_area_under_the_curve(example):
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    clicks, scores = rng.integers(0, 2, 200), rng.integers(0, 20, 200).astype(float)
    placed = example("open_bandit").placements(clicks, scores)
    assert placed.mean() == pytest.approx(metrics.roc_auc_score(clicks, scores), abs=1e-12)
