"""Pictures say what they show: titles, axes with units, marks, and clear refusals."""

from __future__ import annotations

import importlib
import io
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from recsys_emb.errors import DataError, MissingDependencyError
from recsys_emb.reporting.plots import item_map, loss_curve, position_effect, weight_histogram


@dataclass
class Run:
    frame: pd.DataFrame

    def to_frame(self) -> pd.DataFrame:
        return self.frame


def losses(validation: list[float]) -> pd.DataFrame:
    epochs = range(1, len(validation) + 1)
    return pd.DataFrame({"epoch": epochs, "train_loss": np.linspace(1, 0.2, len(validation)), "validation": validation})


def words(figure) -> list[str]:
    axes = figure.axes[0]
    return [axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()]


def rendered(figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def test_the_loss_curve_names_its_axes_and_marks_the_lowest_validation() -> None:
    figure = loss_curve(losses([1.0, 0.5, 0.7]), validation_label="validation RMSE (stars)")
    above, below = figure.axes
    assert [above.get_title(loc="left"), above.get_ylabel()] == ["Learning by epoch", "mean loss per row"]
    assert below.get_xlabel() == "epoch (passes over the training rows)"
    assert below.get_ylabel() == "validation RMSE (stars)"
    assert [text.get_text() for text in below.get_legend().get_texts()] == ["best: 0.5 after epoch 2"]
    assert rendered(figure).startswith(b"\x89PNG")


def test_the_loss_curve_takes_a_history() -> None:
    assert [len(axes.lines) for axes in loss_curve(Run(losses([1.0, 0.5]))).axes] == [1, 2]


def test_without_validation_the_loss_curve_has_one_line() -> None:
    for frame in (losses([np.nan, np.nan]), losses([1.0, 0.5]).drop(columns="validation")):
        figure = loss_curve(frame)
        assert words(figure) == ["Learning by epoch", "epoch (passes over the training rows)", "mean loss per row"]
        assert len(figure.axes[0].lines) == 1


def test_the_refit_on_all_rows_is_a_line_of_its_own() -> None:
    refit = losses([np.nan] * 2).assign(stage="refit")
    above, below = loss_curve(pd.concat([losses([1.0, 0.5, 0.7]).assign(stage="train"), refit])).axes
    assert [line.get_label() for line in above.lines] == ["training", "again, on all rows"]
    assert [len(line.get_xdata()) for line in above.lines] == [3, 2]
    assert len(below.lines[0].get_xdata()) == 3


def test_a_single_epoch_is_a_visible_point() -> None:
    markers = [line.get_marker() for axes in loss_curve(losses([0.5])).axes for line in axes.lines]
    assert markers == ["o", "o", "o"]


def test_a_run_without_epochs_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        loss_curve(losses([]))
    assert str(caught.value) == "loss_curve: expected at least one epoch, got 0. Draw it after fit."


def test_both_histograms_have_the_same_bins_and_area_one() -> None:
    generator = np.random.default_rng(0)
    figure = weight_histogram(generator.normal(0, 1, (100, 4)), generator.normal(1, 3, 777))
    axes = figure.axes[0]
    outlines = [patch.get_xy() for patch in axes.patches]
    assert len({tuple(np.unique(outline[:, 0])) for outline in outlines}) == 1
    assert words(figure) == ["Weights before and after training", "weight", "density (area 1)"]
    rendered(figure)


@pytest.mark.parametrize(("weights", "got"), [([], "none"), ([1.0, np.nan, np.inf], "2 weights not finite")])
def test_weights_that_cannot_be_drawn_are_refused(weights: list[float], got: str) -> None:
    with pytest.raises(DataError) as caught:
        weight_histogram([0.0], weights)
    expected = "weight_histogram: expected finite weights after training"
    assert str(caught.value) == f"{expected}, got {got}. Check the table."


def test_the_position_effect_shows_where_scores_are_served() -> None:
    figure = position_effect([1, 2, 3], [0.3, 0.0, -0.1], serve_at=2, unit="stars")
    assert words(figure) == ["What the position adds to a score", "position", "effect (stars)"]
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["served at 2"]


def test_counts_stand_under_the_effects_on_the_same_positions() -> None:
    figure = position_effect([1, 2], [0.3, 0.0], counts=[10, 4])
    above, below = figure.axes
    assert [bar.get_height() for bar in below.patches] == [10, 4]
    assert (above.get_xlim(), below.get_xlabel(), below.get_ylabel()) == (below.get_xlim(), "position", "training rows")
    rendered(figure)


@pytest.mark.parametrize(("arguments", "lengths"), [(([], []), "0, 0"), (([1, 2], [0.1]), "2, 1")])
def test_effects_that_do_not_match_their_positions_are_refused(arguments: tuple, lengths: str) -> None:
    with pytest.raises(DataError) as caught:
        position_effect(*arguments)
    expected = f"position_effect: expected equal lengths of at least 1, got {lengths}. Give one number per position."
    assert str(caught.value) == expected


def test_points_on_a_line_need_one_axis() -> None:
    figure = item_map(np.outer([0.0, 1.0, 2.0, 5.0], [3.0, 4.0]))
    assert words(figure) == [
        "Map of items",
        "first principal axis (100 % of variance)",
        "second principal axis (0 % of variance)",
    ]


@pytest.mark.parametrize("width", [1, 2, 5])
def test_vectors_of_any_width_can_be_drawn(width: int) -> None:
    points = item_map(np.random.default_rng(0).normal(size=(6, width))).axes[0].collections[0].get_offsets()
    assert points.shape == (6, 2)


def test_equal_vectors_lie_on_one_point() -> None:
    assert not item_map(np.ones((3, 4))).axes[0].collections[0].get_offsets().any()


def test_every_label_is_written_where_there_is_room() -> None:
    figure = item_map([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]], ["a", "b", 3])
    assert sorted(text.get_text() for text in figure.axes[0].texts) == ["3", "a", "b"]


def test_labels_never_touch_each_other() -> None:
    vectors = np.random.default_rng(0).normal(size=(200, 3))
    figure = item_map(vectors, [f"a long name {number}" for number in range(200)])
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) > 5
    assert not any(one.overlaps(other) for place, one in enumerate(boxes) for other in boxes[:place])


def test_groups_beyond_the_colours_are_drawn_as_one() -> None:
    figure = item_map(np.random.default_rng(0).normal(size=(30, 3)), groups=[min(n, 9) for n in range(30)])
    names = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert len(names) == 8
    assert names[0] == "others"
    assert sum(len(cloud.get_offsets()) for cloud in figure.axes[0].collections) == 30


@pytest.mark.parametrize(
    ("vectors", "got"),
    [
        ([[1.0, 2.0]], "shape (1, 2)"),
        ([1.0, 2.0], "shape (2,)"),
        ([[1.0], [np.nan]], "shape (2, 1) with 1 number not finite"),
    ],
)
def test_vectors_that_cannot_be_drawn_are_refused(vectors: list, got: str) -> None:
    with pytest.raises(DataError) as caught:
        item_map(vectors)
    expected = "item_map: expected finite vectors (I, D) with I of at least 2"
    assert str(caught.value) == f"{expected}, got {got}. Check the table."


@pytest.mark.parametrize("name", ["labels", "groups"])
def test_one_label_per_vector_is_needed(name: str) -> None:
    with pytest.raises(DataError) as caught:
        item_map([[1.0], [2.0]], **{name: ["a"]})
    assert str(caught.value) == f"item_map: expected {name} of length 2, got 1. Give one per vector."


def test_without_matplotlib_the_message_tells_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(MissingDependencyError) as caught:
        loss_curve(losses([1.0]))
    expected = "recsys_emb.reporting.plots: expected matplotlib to be installed, got none."
    assert str(caught.value) == f"{expected} Run: pip install 'recsys-emb[plots]'."
