"""Pictures of reports: how occurrences divide, how far features moved, how long vectors are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from recsys_emb.reporting.canvas import COLOURS, INK, QUIET, add_beside, name_rows, new_canvas
from recsys_emb.reporting.drift import LARGE
from recsys_emb.reporting.feature_report import FeatureReport
from recsys_emb.reporting.tables import TableRows
from recsys_emb.reporting.text import decimal, in_bytes, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BAR = 0.6
_PALE = "#BDBDBD"
_SAND = "#F2CE85"


def draw_coverage(features: Sequence[FeatureReport], *, title: str) -> Figure:
    """Draw how the occurrences of each feature divide into covered, unknown and missing; beside it, the drift."""
    figure, axes = new_canvas(title, "share of the occurrences", "", size=_size(len(features)))
    shares = {
        "covered": ([one.coverage for one in features], COLOURS[0]),
        "unknown": ([one.unknown_rate for one in features], COLOURS[1]),
        "missing": ([one.missing_rate for one in features], _PALE),
    }
    places, left = np.arange(len(features)), np.zeros(len(features))
    for label, (widths, colour) in shares.items():
        filled = np.nan_to_num(widths)
        axes.barh(places, filled, left=left, height=_BAR, color=colour, label=label)
        left += filled
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}".replace("%", " %"))
    name_rows(axes, [plain(one.name) for one in features])
    _draw_drift(add_beside(axes, "drift (population stability index)", widths=(3, 2)), features)
    figure.legend(loc="outside lower left", ncols=6, frameon=False, fontsize=9, columnspacing=1.2)
    return figure


def _draw_drift(axes: Axes, features: Sequence[FeatureReport]) -> None:
    drift = np.array([one.drift for one in features])
    places = np.arange(len(features))
    chance = np.nan_to_num([one.drift_by_chance for one in features])
    # The wide bar behind the narrow one: neither hides the other, however short they are.
    axes.barh(places, chance, height=1.3 * _BAR, color=_SAND, label="drift that chance explains")
    axes.barh(places, np.nan_to_num(drift), height=_BAR / 2, color=INK, label="drift")
    axes.axvline(LARGE, color=COLOURS[1], lw=1, ls="--", label=f"held to be a shift, {LARGE}")
    name_rows(axes, [""] * len(features))
    # Chance may explain more than all there is to see; its bar then ends outside.
    largest = max(LARGE * 1.2, float(np.nan_to_num(drift).max(initial=0)))
    axes.set_xlim(0, 1.2 * largest)
    for place, end in enumerate(np.nan_to_num(drift)):
        text, colour = ("not given", QUIET) if np.isnan(drift[place]) else (decimal(end), INK)
        beside = max(end, chance[place]) if chance[place] <= largest else end
        note = axes.annotate(text, (beside, place), (5, 0), textcoords="offset points", va="center", size=9)
        note.set(color=colour, in_layout=False)


def draw_tables(tables: Sequence[TableRows], *, title: str) -> Figure:
    """Draw the mean length of each table's vectors by occurrences in training; beside it, the memory."""
    figure, axes = new_canvas(title, "occurrences in training", "mean length of vectors", size=_size(len(tables)))
    bands = {_names(one): [band for band in one.bands() if band.low] for one in tables}
    # As many as there are colours: those with most to show.
    drawn = sorted((name for name, found in bands.items() if len(found) > 1), key=lambda name: -len(bands[name]))
    for name, colour in zip(drawn, COLOURS, strict=False):
        points = [(band.low, band.norm) for band in bands[name]]
        axes.plot(*zip(*points, strict=True), "o-", ms=4, lw=2, color=colour, label=name)
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")
    axes.set_ylim(bottom=0)
    if drawn:
        axes.legend(frameon=False, fontsize=9)
    _draw_memory(add_beside(axes, "memory of vectors and biases", widths=(3, 2)), tables)
    return figure


def _draw_memory(axes: Axes, tables: Sequence[TableRows]) -> None:
    sizes = [one.weight_bytes for one in tables]
    axes.barh(np.arange(len(tables)), sizes, height=_BAR, color=_PALE)
    for place, size in enumerate(sizes):
        axes.annotate(in_bytes(size), (size, place), (4, 0), textcoords="offset points", va="center", size=9, color=INK)
    name_rows(axes, [_names(one) for one in tables])
    axes.set_xticks([])
    axes.margins(x=0.4)


def _names(one: TableRows) -> str:
    return ", ".join(map(plain, one.names))


def _size(num_rows: int) -> tuple[float, float]:
    return 9.5, max(3.0, 1.7 + 0.36 * num_rows)
