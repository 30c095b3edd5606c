"""Pictures of curves: what a lookup costs, how a model learns, and what a start is worth.

Needs:  matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, PercentFormatter

from recsys_emb.reporting.canvas import COLOURS, INK, QUIET, calm


def draw_costs(costs: pd.DataFrame) -> Figure:
    """Draw the time and the bytes that `lookup_cost.py` measured, against V and against D, on logarithmic axes."""
    figure = Figure(figsize=(11, 6.4), dpi=160, layout="constrained")
    width, rows = (costs[size].mode()[0] for size in "DV")
    panels = {
        f"forward, D = {width}": ("V", costs[(costs["D"] == width) & ~costs["gradient"]]),
        f"forward and gradient, D = {width}": ("V", costs[(costs["D"] == width) & costs["gradient"]]),
        f"forward and gradient, V = {rows:,}": ("D", costs[(costs["V"] == rows) & costs["gradient"]]),
    }
    upper, lower = figure.subplots(2, 3, sharex="col", sharey="row")
    for above, below, (title, (size, found)) in zip(upper, lower, panels.items(), strict=True):
        _draw_cost(above, found, size, "seconds", "s")
        _draw_cost(below, found, size, "bytes", "B")
        above.set_title(title, size=11, weight="bold", color=INK, loc="left")
        below.set_xlabel({"V": "V, rows of the table", "D": "D, width of the table"}[size], color=INK)
    upper[0].set_ylabel("time", color=INK)
    lower[0].set_ylabel("bytes allocated", color=INK)
    figure.legend(*upper[0].get_legend_handles_labels(), loc="outside upper left", ncols=3, frameon=False, fontsize=11)
    return figure


def _draw_cost(axes: Axes, costs: pd.DataFrame, size: str, name: str, unit: str) -> None:
    costs = costs.sort_values(size, kind="stable")
    for (way, found), colour in zip(costs.groupby("way", sort=False), COLOURS, strict=False):
        axes.loglog(found[size], found[name], "o-", ms=4, lw=2, color=colour, label=way)
    axes.set_xticks(costs[size].unique())
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_formatter(EngFormatter(unit))
    axes.minorticks_off()
    calm(axes)


def draw_training(traces: Sequence[Sequence[float]], curves: Mapping[str, Sequence[tuple[float, float]]]) -> Figure:
    """Draw the losses of two equal models over each other, and perplexity against seconds of training."""
    figure = Figure(figsize=(11, 4.4), dpi=160, layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(traces[1], color=COLOURS[5], lw=8, alpha=0.5, label="one-hot × matrix", solid_capstyle="round")
    left.plot(traces[0], color=INK, lw=1, label="lookup")
    for (name, curve), colour in zip(curves.items(), COLOURS, strict=False):
        seconds, perplexities = zip(*curve, strict=True)
        right.semilogy(seconds, perplexities, "o-", ms=4, lw=2, color=colour, label=name)
    right.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.5, 4.0, 6.0)))
    right.yaxis.set_major_formatter("{x:,.0f}")
    right.minorticks_off()
    labels = {
        left: ("Two projections, one model", "step", "loss of the batch"),
        right: ("Full softmax beside negative sampling", "seconds of training", "perplexity on held-out verses"),
    }
    for axes, (title, x_label, y_label) in labels.items():
        axes.set_title(title, size=12, weight="bold", color=INK, loc="left")
        axes.set_xlabel(x_label, color=INK)
        axes.set_ylabel(y_label, color=INK)
        axes.legend(frameon=False)
        calm(axes)
    return figure


def draw_starts(curves: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw how well tables of different starts do while they train, by tags seen in training and by others."""
    figure = Figure(figsize=(11, 4.6), dpi=160, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, part in ((left, "seen"), (right, "unseen")):
        for (start, curve), colour in zip(curves.items(), COLOURS, strict=False):
            axes.plot(curve.index, curve[part], color=colour, lw=2.5, label=start)
        axes.axhline(0.5, color=QUIET, lw=1, ls="--", zorder=1)
        axes.set_title(f"By tags {part} in training", size=12, weight="bold", color=INK, loc="left")
        axes.set_xlabel("training step", color=INK)
        calm(axes)
    left.legend(frameon=False, loc="center right", bbox_to_anchor=(1, 0.32))
    left.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    left.set_ylabel("other chapters that the right one outscores", color=INK)
    right.annotate(
        "chance",
        (1, 0.5),
        (0, 4),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="right",
        color=QUIET,
    )
    return figure
