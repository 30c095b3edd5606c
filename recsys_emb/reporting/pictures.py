"""Pictures of reports: how occurrences divide, how far features moved, how long vectors are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from recsys_emb.reporting.canvas import COLOURS, INK, QUIET, add_beside, new_canvas
from recsys_emb.reporting.counters import FeatureReport
from recsys_emb.reporting.drift import LARGE
from recsys_emb.reporting.tables import TableRows
from recsys_emb.reporting.text import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BAR = 0.6


def draw_coverage(features: Sequence[FeatureReport], *, title: str) -> Figure:
    """Draw how the occurrences of each feature divide into covered, unknown and missing; beside it, the drift."""
    size = (9.5, 1.7 + 0.36 * max(len(features), 1))
    figure, axes = new_canvas(title, "share of the occurrences", "", size=size)
    shares = {
        "covered": ([one.coverage for one in features], COLOURS[0]),
        "unknown": ([one.unknown_rate for one in features], COLOURS[1]),
        "missing": ([one.missing_rate for one in features], "#BDBDBD"),
    }
    places, left = np.arange(len(features)), np.zeros(len(features))
    for label, (widths, colour) in shares.items():
        filled = np.nan_to_num(widths)
        axes.barh(places, filled, left=left, height=_BAR, color=colour, label=label)
        left += filled
    name_rows(axes, [plain(one.name) for one in features])
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}".replace("%", " %"))
    _draw_drift(add_beside(axes, "drift (stability index)", widths=(3, 2)), features)
    figure.legend(loc="outside lower left", ncols=6, frameon=False, fontsize=9)
    return figure


def _draw_drift(axes: Axes, features: Sequence[FeatureReport]) -> None:
    places = np.arange(len(features))
    drift, chance = ([getattr(one, name) for one in features] for name in ("drift", "drift_by_chance"))
    axes.barh(places, np.nan_to_num(drift), height=_BAR / 2, color=INK, label="drift")
    axes.plot(chance, places, "|", color=COLOURS[4], ms=14, mew=3, ls="none", label="by chance, 95 of 100 stay below")
    axes.axvline(LARGE, color=COLOURS[1], lw=1, ls="--", label=f"held to be a shift: {LARGE}")
    axes.grid(visible=False)
    axes.grid(axis="x", color="#E6E6E6", lw=0.8)
    for place in np.flatnonzero(np.isnan(drift)):
        axes.annotate("not given", (0, place), (4, 0), textcoords="offset points", va="center", size=9, color=QUIET)
    axes.set_xlim(0, 1.08 * max(LARGE * 1.2, float(np.nan_to_num(drift).max(initial=0))))


def draw_tables(tables: Sequence[TableRows], *, title: str) -> Figure:
    """Draw the mean length of the vectors of each table by occurrences in training; beside it, the memory."""
    figure, axes = new_canvas(title, "occurrences in training", "mean length of vectors", size=(9.5, 4.5))
    figure.delaxes(axes)
    return figure


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Write a name beside each row, the first on top, and take every sign in it literally."""
    axes.set_yticks(np.arange(len(names)), names, parse_math=False)
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.grid(axis="x", color="#E6E6E6", lw=0.8)
