"""Pictures of a run: each function takes data and returns a matplotlib `Figure`, and touches no global state.

Save one with ``figure.savefig("loss.png")``; in a notebook it shows itself. matplotlib is an optional extra and is
loaded when the first picture is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from recsys_emb.errors import DataError, counted
from recsys_emb.reporting.canvas import COLOURS, QUIET, add_below, new_canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_TICKS = 20


class History(Protocol):
    """A run that can tell its epochs, as `FitHistory` does."""

    def to_frame(self) -> pd.DataFrame:
        """Give one row per epoch: ``epoch``, ``train_loss``, ``validation``."""
        ...


def loss_curve(
    history: History | pd.DataFrame,
    *,
    loss_label: str = "mean loss per row",
    validation_label: str = "validation",
    title: str = "Learning by epoch",
) -> Figure:
    """Draw the training loss by epoch and, under it, the validation figure with its best epoch.

    Parameters
    ----------
    history
        `Recommender.history`, or a frame with the columns ``epoch``, ``train_loss`` and, where there was
        validation, ``validation``. Of a ``stage`` column, the stage ``"refit"`` is drawn apart.
    loss_label, validation_label
        What the two figures are, and in what unit: of ratings, half the squared error in variances of the label, and
        the RMSE. Each has an axis of its own, since its unit is.
    title
        Title of the picture.

    Returns
    -------
    Figure
        A matplotlib figure, with a second axis when there is validation.

    Raises
    ------
    DataError
        When there is no epoch.
    MissingDependencyError
        When matplotlib is not installed.

    Examples
    --------
    >>> frame = pd.DataFrame({"epoch": [1, 2, 3], "train_loss": [0.9, 0.5, 0.3], "validation": [1.0, 0.7, 0.8]})
    >>> [axes.get_ylabel() for axes in loss_curve(frame, validation_label="validation RMSE").axes]
    ['mean loss per row', 'validation RMSE']
    """
    frame = history if isinstance(history, pd.DataFrame) else history.to_frame()
    if not len(frame):
        raise DataError("loss_curve: expected at least one epoch, got 0. Draw it after fit.")
    is_refit = frame["stage"].eq("refit") if "stage" in frame else pd.Series(False, index=frame.index)
    first, refit = frame[~is_refit], frame[is_refit]
    figure, axes = new_canvas(title, "epoch (passes over the training rows)", loss_label)
    _draw_epochs(axes, first["epoch"], first["train_loss"], color=COLOURS[0], label="training")
    if len(refit):
        _draw_epochs(axes, refit["epoch"], refit["train_loss"], color=COLOURS[2], ls="--", label="again, on all rows")
        axes.legend(frameon=False)
    if "validation" in first and first["validation"].notna().any():
        below = add_below(axes, validation_label, heights=(1, 1))
        _draw_epochs(below, first["epoch"], first["validation"], color=COLOURS[1])
        _mark_best(below, first["epoch"], first["validation"])
        below.legend(frameon=False)
    return figure


def weight_histogram(
    before: ArrayLike, after: ArrayLike, *, title: str = "Weights before and after training"
) -> Figure:
    """Draw how the weights of a table spread before and after training.

    Parameters
    ----------
    before, after
        Weights of any shape and number. Both are drawn as densities on the same bins, one of which has 0 in its
        middle, so that weights which are symmetric about 0 look so.
    title
        Title of the picture.

    Returns
    -------
    Figure
        A matplotlib figure.

    Raises
    ------
    DataError
        When there are no weights, or some are not finite.
    MissingDependencyError
        When matplotlib is not installed.

    Examples
    --------
    >>> figure = weight_histogram(np.zeros((10, 4)), np.ones((10, 4)))
    >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ['before: mean 0, sd 0', 'after: mean 1, sd 0']
    """
    weights = {"before": _flat("before", before), "after": _flat("after", after)}
    figure, axes = new_canvas(title, "weight", "density (area 1)")
    bins = _bins_about_zero(list(weights.values()))
    for (name, values), colour in zip(weights.items(), (QUIET, COLOURS[0]), strict=True):
        label = f"{name}: {_mean_and_spread(values)}"
        axes.hist(values, bins=list(bins), density=True, histtype="stepfilled", color=colour, alpha=0.25)
        axes.hist(values, bins=list(bins), density=True, histtype="step", color=colour, lw=2, label=label)
    axes.legend(frameon=False)
    axes.set_ylim(bottom=0)
    return figure


def position_effect(
    positions: ArrayLike,
    effects: ArrayLike,
    *,
    counts: ArrayLike | None = None,
    serve_at: int | None = None,
    position_label: str = "position",
    unit: str = "units of the label",
    title: str = "What the position adds to a score",
) -> Figure:
    """Draw what each position adds to a score, and how often it was seen.

    Parameters
    ----------
    positions
        int ``(P,)``, positions.
    effects
        float ``(P,)``, what each adds to the score.
    counts
        int ``(P,)``, training rows at each position; drawn as bars below.
    serve_at
        Position that recommendations are scored at; it is marked.
    position_label
        What a position is, for the axis.
    unit
        Unit of the effects, for the axis.
    title
        Title of the picture.

    Returns
    -------
    Figure
        A matplotlib figure, with a second axis when ``counts`` is given.

    Raises
    ------
    DataError
        When the lengths differ or there is no position.
    MissingDependencyError
        When matplotlib is not installed.

    Examples
    --------
    >>> figure = position_effect([1, 2, 3], [0.4, 0.1, -0.2], serve_at=1)
    >>> figure.axes[0].get_ylabel()
    'effect (units of the label)'
    """
    places, heights = np.asarray(positions), np.asarray(effects, dtype=np.float64)
    seen = None if counts is None else np.asarray(counts)
    if not len(places) or any(len(other) != len(places) for other in (heights, seen) if other is not None):
        lengths = ", ".join(str(len(other)) for other in (places, heights, seen) if other is not None)
        raise DataError(
            f"position_effect: expected equal lengths of at least 1, got {lengths}. Give one number per position."
        )
    figure, axes = new_canvas(title, position_label, f"effect ({unit})")
    axes.axhline(0, color=QUIET, lw=1, zorder=1)
    axes.plot(places, heights, color=COLOURS[0], lw=2, marker="o", ms=5, zorder=2)
    if len(places) <= _MOST_TICKS:
        axes.set_xticks(places)
    else:
        axes.locator_params(axis="x", integer=True)
    if serve_at is not None:
        axes.axvline(serve_at, color=COLOURS[1], lw=1.5, ls="--", zorder=1, label=f"served at {serve_at}")
        axes.legend(frameon=False)
    if seen is not None:
        below = add_below(axes, "training rows", heights=(3, 1))
        below.bar(places, seen, color=QUIET, width=0.8)
        below.yaxis.set_major_formatter("{x:,.0f}")
    return figure


def _draw_epochs(axes: Axes, epochs: pd.Series, values: pd.Series, **style: Any) -> None:
    """Draw a line by epoch; a single epoch as a point."""
    axes.plot(epochs, values, lw=2, marker="o" if len(epochs) == 1 else None, **style)
    axes.locator_params(axis="x", integer=True)
    axes.margins(x=0.02)


def _mark_best(axes: Axes, epochs: pd.Series, validation: pd.Series) -> None:
    """Put a dot and its number at the lowest validation."""
    best = int(np.nanargmin(validation.to_numpy(dtype=np.float64)))
    epoch, value = int(epochs.iloc[best]), float(validation.iloc[best])
    axes.plot([epoch], [value], "o", color=COLOURS[1], ms=8, label=f"best: {value:.4g} after epoch {epoch}")


def _flat(name: str, values: ArrayLike) -> NDArray[np.float64]:
    flat = np.asarray(values, dtype=np.float64).reshape(-1)
    if not len(flat) or not np.isfinite(flat).all():
        bad = int(len(flat) - np.isfinite(flat).sum())
        got = f"{counted(bad, 'weight')} not finite" if bad else "none"
        raise DataError(f"weight_histogram: expected finite weights {name} training, got {got}. Check the table.")
    return flat


def _bins_about_zero(samples: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Give equal bins, one with 0 in its middle, narrow enough to show the shape of the narrowest sample."""
    edges = np.histogram_bin_edges(np.concatenate(samples), bins=80)
    span = edges[-1] - edges[0]
    spreads = [spread for sample in samples if (spread := float(sample.std())) > 0]
    width = float(np.clip(min(spreads, default=span) / 2, span / 400, span / 80))
    return (np.arange(np.floor(edges[0] / width), np.ceil(edges[-1] / width) + 2) - 0.5) * width


def _mean_and_spread(values: NDArray[np.float64]) -> str:
    """Give mean and deviation, the mean to a tenth of the deviation's first digit."""
    mean, spread = float(values.mean()), float(values.std())
    if spread > 0:
        mean = round(mean, 1 - math.floor(math.log10(spread))) + 0.0  # no minus before a zero
    return f"mean {mean:.2g}, sd {spread:.2g}"
