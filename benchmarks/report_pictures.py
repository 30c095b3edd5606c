"""Pictures of benchmark results: how many times longer others take, and how costs grow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from results import Record, Results
from timing import in_figures

from recsys_emb.reporting.canvas import COLOURS, INK, QUIET

OURS, THEIRS, MEMORY = COLOURS[0], COLOURS[1], COLOURS[2]
ROW, PAD = 0.21, 0.75  # inches that a line and what surrounds a panel take


class Line(NamedTuple):
    """A line of a panel: a heading, or a bar with its label."""

    label: str
    record: Record | None = None


def draw_ratios(results: Sequence[Results]) -> Figure:
    """Bars of times ÷ ours on a logarithmic axis, a panel for each benchmark."""
    panels = [(one.benchmark, _lines(one)) for one in results if one.races]
    legend = "Blue: others take longer. Orange: others are faster. │: the goal."
    figure, sheet = _sheet("Time of others ÷ ours", legend, [ROW * len(lines) for _, lines in panels])
    for (title, lines), axes in zip(panels, sheet, strict=True):
        _draw_panel(axes, title, lines)
    return figure


def _lines(results: Results) -> list[Line]:
    lines = []
    for case, race in results.races.items():
        lines.append(Line(case))
        lines += [Line(one["name"], one) for one in race if not one["ours"]]
    return lines


def _draw_panel(axes: Axes, title: str, lines: list[Line]) -> None:
    ratios = [line.record["ratio"] for line in lines if line.record]
    axes.set(xscale="log", xlim=(min(0.5, *ratios) / 1.6, max(2, *ratios) * 4), ylim=(len(lines) - 0.4, -0.6))
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=INK)
    axes.axvline(1, color=QUIET, lw=0.8)
    for place, (label, record) in enumerate(lines):
        if record is None:
            paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
            _write(axes, place, label, shift=-195, ha="left", fontweight="bold", bbox=paper)
            continue
        _write(axes, place, label if len(label) <= 40 else f"{label[:39]}…", shift=-4, ha="right")
        ratio, goal = record["ratio"], record["goal"]
        axes.barh(place, ratio - 1, left=1, height=0.7, color=OURS if ratio >= 1 else THEIRS)
        end = max(ratio, 1)
        if goal is not None:
            _mark(axes, place, goal)
            end = goal if end <= goal < 3 * end else end
        axes.text(end * 1.1, place, in_figures(ratio), fontsize=8, color=INK, va="center")
    _calm(axes)
    axes.set_yticks([])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _write(axes: Axes, place: int, text: str, *, shift: float, **style: Any) -> None:
    """Write beside the axis, ``shift`` points to the right of its left edge."""
    where = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    axes.annotate(text, (0, place), (shift, 0), fontsize=8, color=INK, va="center", **where, **style)


def _mark(axes: Axes, place: int, goal: float) -> None:
    axes.plot([goal] * 2, [place - 0.45, place + 0.45], color=INK, lw=1.4)


def draw_growth(results: Sequence[Results]) -> Figure:
    """Bars of the factors by which time and memory change, a panel for each change of size."""
    growths = [one for result in results for one in result.growths]
    changes = list(dict.fromkeys(one["change"] for one in growths))
    panels = [(change, [one for one in growths if one["change"] == change]) for change in changes]
    legend = "Blue: time. Green: peak memory. │: at most wanted."
    figure, sheet = _sheet("What growing costs", legend, [ROW * 1.2 * len(lines) for _, lines in panels])
    for (change, lines), axes in zip(panels, sheet, strict=True):
        _draw_change(axes, change, lines)
    return figure


def _draw_change(axes: Axes, change: str, lines: list[Record]) -> None:
    end = max(one[key] for one in lines for key in ("ratio", "goal"))
    axes.set(ylim=(len(lines) - 0.4, -0.6), xlim=(0, 1.25 * end))
    axes.set_title(change, loc="left", fontsize=11, fontweight="bold", color=INK)
    for place, one in enumerate(lines):
        axes.barh(place, one["ratio"], height=0.7, color=OURS if one["quantity"] == "time" else MEMORY)
        _mark(axes, place, one["goal"])
        covered = one["ratio"] <= one["goal"] < one["ratio"] + 0.2 * end
        start = one["goal"] if covered else one["ratio"]
        axes.text(start, place, f" × {in_figures(one['ratio'])}", fontsize=8, color=INK, va="center")
    names = [f"{one['benchmark']}, {one['case']}, {one['quantity']}" for one in lines]
    axes.set_yticks(range(len(lines)), names, fontsize=8, color=INK)
    _calm(axes)


# --- layout ------------------------------------------------------------------------------------------------------


def _sheet(title: str, legend: str, heights: list[float]) -> tuple[Figure, list[Axes]]:
    """Make a figure, and an axes of each height in inches in the shorter one of two columns, the highest first.

    They are placed by hand, so that a line is as high in each.
    """
    ends, tops = [0.0, 0.0], {}
    for place in sorted(range(len(heights)), key=lambda one: -heights[one]):
        column = ends.index(min(ends))
        tops[place] = (column, ends[column])
        ends[column] += PAD + heights[place]
    width, height = 13.0, max(ends) + 0.8
    figure = Figure(figsize=(width, height), dpi=120)
    for x, text, style in ((0.02, title, {"fontsize": 15, "fontweight": "bold"}), (0.3, legend, {"fontsize": 9})):
        figure.text(x, 1 - 0.25 / height, text, color=INK, va="center", **style)
    axes = []
    for place, own in enumerate(heights):
        column, top = tops[place]
        left, bottom = 2.9 + column * width / 2, height - 0.9 - top - own
        axes.append(figure.add_axes((left / width, bottom / height, 3.2 / width, own / height)))
    return figure, axes


def _calm(axes: Axes) -> None:
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(QUIET)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8, colors=INK, color=QUIET)
    axes.grid(axis="x", color="#E6E6E6", lw=0.8)
    axes.set_axisbelow(True)
