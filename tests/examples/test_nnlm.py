"""What the example on a neural language model claims, on its first verses and for two epochs."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("out")


@pytest.fixture(scope="module")
def figures(example, folder):
    return example("nnlm").main(folder, verses=1533, epochs=3, both=10)


def test_lookup_and_one_hot_product_have_the_same_losses_step_by_step(figures):
    assert figures["gap"] < 1e-5


@pytest.mark.parametrize("way", ["full softmax", "negative sampling"])
def test_both_ways_of_training_learn_to_guess_words(figures, way):
    (_, before), *_, (_, after) = figures["curves"][way]
    assert after < before / 1.5


def test_words_of_one_kind_come_closer_and_words_of_other_kinds_do_not(figures):
    (alike, different), (alike_before, different_before) = figures["closeness"]["after"], figures["closeness"]["before"]
    assert abs(alike_before) < 0.05
    assert abs(different_before) < 0.05
    assert alike > 0.1
    assert alike > different + 0.1


@pytest.mark.parametrize("picture", ["nnlm_training", "nnlm_weights", "nnlm_words"])
def test_the_pictures_are_drawn(figures, folder, picture):
    assert (folder / f"{picture}.png").stat().st_size > 10_000
