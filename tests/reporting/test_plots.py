"""Pictures say what they show: titles, axes with units, marks, and clear refusals."""

from __future__ import annotations

import importlib
import io
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from recsys_emb.errors import DataError, MissingDependencyError
from recsys_emb.reporting.maps import item_map
from recsys_emb.reporting.plots import loss_curve, position_effect, weight_histogram


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


def test_the_loss_is_named_with_its_unit() -> None:
    assert words(loss_curve(losses([1.0]), loss_label="half the squared error"))[2] == "half the squared error"


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


@pytest.mark.parametrize("spread", [0.01, 1.0, 300.0])
def test_symmetric_weights_look_symmetric(spread: float) -> None:
    half = np.abs(np.random.default_rng(0).normal(0, spread, 500))
    figure = weight_histogram(np.concatenate([half, -half]), np.random.default_rng(1).normal(spread, 5 * spread, 900))
    outline = figure.axes[0].patches[0].get_xy()
    edges = np.unique(outline[:, 0])
    heights = {edge: outline[outline[:, 0] == edge, 1].max() for edge in edges}
    width = np.diff(edges).mean()
    middle = edges[np.abs(edges - width / 2).argmin()]
    assert middle == pytest.approx(width / 2)
    for steps in range(5):
        right, left = middle + steps * width, -middle - steps * width
        sides = [heights[edges[np.abs(edges - side).argmin()]] for side in (right, left)]
        assert sides[0] == pytest.approx(sides[1])


def test_weights_that_are_all_one_number_stand_in_one_bin() -> None:
    figure = weight_histogram(np.full(9, 7.0), np.full(4, 7.0))
    xs = figure.axes[0].patches[0].get_xy()
    filled = xs[xs[:, 1] > 0, 0]
    assert filled.min() <= 7.0 <= filled.max()
    assert len(np.unique(filled)) == 2


def test_a_mean_is_told_as_exactly_as_the_spread_allows() -> None:
    weights = np.array([-0.10003, 0.09999])
    labels = [text.get_text() for text in weight_histogram(weights, -weights).axes[0].get_legend().get_texts()]
    assert labels == ["before: mean 0, sd 0.1", "after: mean 0, sd 0.1"]


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


def test_every_position_has_its_tick_and_the_axis_its_name() -> None:
    figure = position_effect(range(10), np.zeros(10), counts=np.full(10, 20_000), position_label="steps")
    above, below = figure.axes
    assert below.get_xlabel() == "steps"
    assert above.get_xticks().tolist() == list(range(10))
    rendered(figure)
    assert "20,000" in [label.get_text() for label in below.get_yticklabels()]


def test_many_positions_share_few_ticks() -> None:
    assert len(position_effect(range(300), np.zeros(300)).axes[0].get_xticks()) < 20


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


def test_a_label_stands_near_its_own_point_alone() -> None:
    vectors = np.random.default_rng(0).normal(size=(150, 3))
    figure = item_map(vectors, range(150))
    axes = figure.axes[0]
    pixels = axes.transData.transform(axes.collections[0].get_offsets())
    for text in axes.texts:
        box = text.get_window_extent()
        gaps = np.hypot(*np.maximum(0, np.maximum(box.min - pixels, pixels - box.max)).T)
        nearest, own = gaps.argmin(), int(text.get_text())
        assert gaps[own] == pytest.approx(gaps[nearest], abs=3.0), (nearest, own)


def test_the_map_says_how_many_names_it_holds() -> None:
    vectors = np.random.default_rng(0).normal(size=(150, 3))
    figure = item_map(vectors, [f"a long name {number}" for number in range(150)])
    written = len(figure.axes[0].texts)
    assert figure.get_supxlabel() == f"Names stand where there is room: {written} of 150."
    assert item_map([[0.0, 0.0], [9.0, 0.0]], ["a", "b"]).get_supxlabel() == ""


def test_a_vector_without_a_group_is_among_the_others() -> None:
    figure = item_map([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]], groups=["a", None, "a"])
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["others", "a"]


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
