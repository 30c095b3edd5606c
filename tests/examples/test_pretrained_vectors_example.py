"""What the example on pretrained vectors claims, for a third of its steps."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("out")


@pytest.fixture(scope="module")
def figures(example, folder):
    return example("pretrained_vectors").main(folder, steps=100)


@pytest.fixture(scope="module")
def last(figures):
    return {start: curve.iloc[-1] for start, curve in figures["curves"].items()}


def test_the_coverage_report_counts_every_word_once(figures):
    coverage = figures["coverage"]
    assert (coverage.found, coverage.total) == (1360, 4520)
    assert coverage.unused == 5000 - 1360


def test_by_tags_never_seen_only_pretrained_vectors_beat_chance(last):
    assert last["random"]["unseen"] == pytest.approx(0.5, abs=0.03)
    assert last["GloVe, fine-tuned"]["unseen"] > 0.55
    assert last["GloVe, frozen"]["unseen"] > 0.57


def test_by_tags_seen_in_training_tables_that_learn_beat_the_frozen_one(last):
    assert last["random"]["seen"] > last["GloVe, frozen"]["seen"] + 0.1
    assert last["GloVe, fine-tuned"]["seen"] > last["GloVe, frozen"]["seen"] + 0.1


def test_the_picture_is_drawn(figures, folder):
    assert (folder / "pretrained_vectors.png").stat().st_size > 10_000
