"""The paper that pictures are drawn on: one figure, one style, and labels that cover nothing."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from recsys_emb.errors import MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

# Okabe and Ito (2008): told apart with any colour vision, and in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
QUIET = "#8A8A8A"
INK = "#262626"
GRID = "#E6E6E6"
_MOST_LABELS = 400
_SIDES = (((6, 0), "left"), ((-6, 0), "right"), ((0, 9), "center"), ((0, -9), "center"))


def new_canvas(
    title: str, x_label: str, y_label: str, *, size: tuple[float, float] = (7.0, 4.5)
) -> tuple[Figure, Axes]:
    """Make a figure with one axis in this module's style."""
    try:
        matplotlib_figure = importlib.import_module("matplotlib.figure")
    except ImportError as error:
        where = "recsys_emb.reporting.plots"
        raise MissingDependencyError(
            f"{where}: expected matplotlib to be installed, got none. Run: pip install 'recsys-emb[plots]'."
        ) from error
    figure: Figure = matplotlib_figure.Figure(figsize=size, dpi=120, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=13, fontweight="bold", color=INK, pad=12)
    axes.set_xlabel(x_label, color=INK)
    axes.set_ylabel(y_label, color=INK)
    calm(axes)
    return figure, axes


def add_below(axes: Axes, y_label: str, *, heights: tuple[float, float]) -> Axes:
    """Stack a second chart under the first, on the same x axis; ``heights`` share out the room."""
    figure = axes.figure
    grid = figure.add_gridspec(2, 1, height_ratios=list(heights))
    axes.set_subplotspec(grid[0])
    below = figure.add_subplot(grid[1], sharex=axes)
    below.set_xlabel(axes.get_xlabel(), color=INK)
    below.set_ylabel(y_label, color=INK)
    axes.set_xlabel("")
    axes.tick_params(labelbottom=False)
    calm(below)
    return below


def add_beside(axes: Axes, x_label: str, *, widths: tuple[float, float]) -> Axes:
    """Put a second chart to the right of the first; ``widths`` share out the room."""
    figure = axes.figure
    grid = figure.add_gridspec(1, 2, width_ratios=list(widths), wspace=0.06)
    axes.set_subplotspec(grid[0])
    beside = figure.add_subplot(grid[1])
    beside.set_xlabel(x_label, color=INK)
    calm(beside)
    return beside


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Write a name beside each row of a chart, the first on top; every sign in it is taken literally."""
    axes.set_yticks(np.arange(len(names)), names, parse_math=False)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)
    axes.grid(axis="x", color=GRID, lw=0.8)


def calm(axes: Axes) -> None:
    """Draw the axes thin and quiet, so that the data stands out."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(QUIET)
    axes.tick_params(colors=INK, color=QUIET)
    axes.grid(axis="y", color=GRID, lw=0.8)
    axes.set_axisbelow(True)


def add_note(figure: Figure, text: str) -> None:
    """Write a quiet line under everything, at the right."""
    figure.supxlabel(text, x=0.99, ha="right", fontsize=9, color=QUIET)


def write_labels(figure: Figure, axes: Axes, points: NDArray[np.float64], labels: Sequence[object]) -> int:
    """Write each label beside its point where it covers nothing and no other point is near; give how many.

    The outermost points come first.
    """
    axes.margins(x=0.12)
    figure.draw_without_rendering()
    pixels = axes.transData.transform(points)
    point = figure.dpi / 72
    wide, high = 10 * point, 4 * point
    outermost = np.argsort(-np.square(points / (points.std(axis=0) + 1e-12)).sum(axis=1), kind="stable")
    written: list[Bbox] = []
    for row in outermost[:_MOST_LABELS]:
        others = pixels[(pixels != pixels[row]).any(axis=1)]
        for shift, side in _SIDES:
            # More than a label is away from its own point.
            room = np.array((high, wide) if side == "center" else (wide, high))
            text = axes.annotate(str(labels[row]), points[row], shift, textcoords="offset points", ha=side)
            text.set(fontsize=8, color=INK, verticalalignment="center_baseline", in_layout=False)
            box = text.get_window_extent()
            inside = axes.bbox.containsx(box.x0) and axes.bbox.containsx(box.x1)
            near = ((others >= box.min - room) & (others <= box.max + room)).all(axis=1).any()
            if inside and not near and not any(box.overlaps(other) for other in written):
                written.append(box)
                break
            text.remove()
    return len(written)
