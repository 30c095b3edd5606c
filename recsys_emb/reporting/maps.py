"""`item_map`: vectors as points of a plane, with their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.decomposition import PCA

from recsys_emb.errors import DataError, counted
from recsys_emb.reporting.canvas import COLOURS, QUIET, add_note, new_canvas, write_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def item_map(
    vectors: ArrayLike,
    labels: Sequence[object] | None = None,
    *,
    groups: Sequence[object] | None = None,
    title: str = "Map of items",
) -> Figure:
    """Draw vectors on their two principal axes.

    Parameters
    ----------
    vectors
        float ``(I, D)``, at least two rows.
    labels
        One name per vector. As many are written as fit beside their own point and no other, the outermost first; the
        picture says how many.
    groups
        One group per vector, told apart by colour: the seven largest, the others and those without (None) as one.
    title
        Title of the picture.

    Returns
    -------
    Figure
        A matplotlib figure; the axes tell the share of variance that they show.

    Raises
    ------
    DataError
        When there are fewer than two vectors, some number is not finite, or lengths differ.
    MissingDependencyError
        When matplotlib is not installed.

    Examples
    --------
    >>> figure = item_map([[0.0, 0.0], [1.0, 1.0], [2.0, 2.1]], ["a", "b", "c"])
    >>> figure.axes[0].get_xlabel()
    'first principal axis (100 % of variance)'
    """
    points, shares = _principal_axes(np.asarray(vectors, dtype=np.float64))
    for name, given in (("labels", labels), ("groups", groups)):
        if given is not None and len(given) != len(points):
            raise DataError(
                f"item_map: expected {name} of length {len(points)}, got {len(given)}. Give one per vector."
            )
    described = [
        f"{order} principal axis ({share:.0%} of variance)".replace("%", " %")
        for order, share in zip(("first", "second"), shares, strict=True)
    ]
    figure, axes = new_canvas(title, *described, size=(9.5, 7.0))
    axes.grid(visible=False)
    _scatter(axes, points, groups)
    if labels is not None:
        written = write_labels(figure, axes, points, labels)
        if written < len(points):
            add_note(figure, f"Names stand where there is room: {written:,} of {len(points):,}.")
    return figure


def _principal_axes(vectors: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give points ``(I, 2)`` and the two axes' shares of variance."""
    if vectors.ndim != 2 or len(vectors) < 2 or not np.isfinite(vectors).all():
        bad = int(vectors.size - np.isfinite(vectors).sum())
        got = f"shape {vectors.shape}" + (f" with {counted(bad, 'number')} not finite" if bad else "")
        raise DataError(f"item_map: expected finite vectors (I, D) with I of at least 2, got {got}. Check the table.")
    wide = vectors if vectors.shape[1] > 1 else np.pad(vectors, ((0, 0), (0, 1)))
    if not np.ptp(wide, axis=0).any():
        return np.zeros((len(wide), 2)), np.zeros(2)
    analysis = PCA(n_components=2, svd_solver="full").fit(wide)
    return analysis.transform(wide), analysis.explained_variance_ratio_


def _scatter(axes: Axes, points: NDArray[np.float64], groups: Sequence[object] | None) -> None:
    size = float(np.clip(4000 / len(points), 10, 45))
    if groups is None:
        axes.scatter(points[:, 0], points[:, 1], s=size, color=COLOURS[0], alpha=0.75, lw=0)
        return
    names = pd.Series(list(groups), dtype=object).map(str, na_action="ignore")
    largest = sorted(names.value_counts().index[: len(COLOURS) - 1])
    others = ~names.isin(largest).to_numpy()
    if others.any():
        axes.scatter(points[others, 0], points[others, 1], s=size, color=QUIET, alpha=0.5, lw=0, label="others")
    for name, colour in zip(largest, COLOURS, strict=False):
        own = (names == name).to_numpy()
        axes.scatter(points[own, 0], points[own, 1], s=size, color=colour, alpha=0.8, lw=0, label=name)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), markerscale=(45 / size) ** 0.5)
