"""Pictures of matrices: equations of them, and tables of positions.

Needs:  matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from recsys_emb.reporting.canvas import INK, QUIET

GAP, LETTER = 2.6, 0.55  # cells that a sign and a letter take


@dataclass(frozen=True)
class Block:
    """A matrix, what stands over and under it, and what its rows are called."""

    values: NDArray[np.float32]
    title: str
    note: str = ""
    rows: Sequence[str] = ()


def draw_equation(parts: Sequence[Block | str], *, deepest: float | None = None, cell: float = 0.24) -> Figure:
    """Draw blocks and signs from left to right; blue is negative, red positive, and pale is zero.

    A block without negative numbers is drawn in grey. ``deepest`` is the number that is drawn in the deepest colour;
    unless given, it is the largest of each block. ``cell`` is the width of a cell in inches.
    """
    figure = Figure(dpi=160, layout="constrained")
    axes = figure.add_subplot(aspect="equal")
    axes.axis("off")
    right = 0.0
    for part in parts:
        right = _write(axes, right, part) if isinstance(part, str) else _draw(axes, right, part, deepest)
    height = max(len(part.values) for part in parts if isinstance(part, Block)) + 5
    axes.set(xlim=(-1, right + 1), ylim=(-height / 2, height / 2))
    figure.set_size_inches((right + 2) * cell, height * cell)
    return figure


def _write(axes: Axes, left: float, sign: str) -> float:
    axes.text(left + GAP / 2, 0, sign, size=20, color=INK, ha="center", va="center")
    return left + GAP


def _draw(axes: Axes, left: float, block: Block, deepest: float | None) -> float:
    rows, columns = block.values.shape
    bound = deepest or np.abs(block.values).max() or 1.0
    left += LETTER * max(map(len, block.rows), default=0)
    top = rows / 2
    colours = {"cmap": "RdBu_r", "vmin": -bound} if block.values.min() < 0 else {"cmap": "Greys", "vmin": 0}
    edges = np.arange(columns + 1) + left, top - np.arange(rows + 1)
    axes.pcolormesh(*edges, block.values, vmax=bound, edgecolor="#DDDDDD", linewidth=0.4, **colours)
    axes.text(left + columns / 2, top + 0.6, block.title, size=13, weight="bold", color=INK, ha="center")
    axes.text(left + columns / 2, -top - 0.6, block.note, size=11, color=QUIET, ha="center", va="top")
    for row, name in enumerate(block.rows):
        axes.text(left - 0.4, top - row - 0.5, name, size=11, color=INK, ha="right", va="center_baseline")
    return left + columns


def draw_positions(table: NDArray[np.float32], products: NDArray[np.float32]) -> Figure:
    """Draw a table of positions ``(L, D)`` and the dot products of its rows ``(L, L)``."""
    figure = Figure(figsize=(11, 5.6), dpi=160, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[table.shape[1] / len(table), 1])
    images = {
        left: (table, "Positions as waves", "dimension", "RdBu_r"),
        right: (products, "Dot products: near places look alike", "position", "magma"),
    }
    for axes, (values, title, x_label, colours) in images.items():
        image = axes.imshow(values, cmap=colours, interpolation="nearest")
        axes.set_title(title, size=12, weight="bold", color=INK, loc="left")
        axes.set(xlabel=x_label, ylabel="position")
        axes.spines[:].set_visible(False)
        figure.colorbar(image, ax=axes, shrink=0.8, aspect=30, pad=0.02).outline.set_visible(False)
    return figure
