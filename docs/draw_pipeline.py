"""Draw how one row becomes a score.

Run:    python docs/draw_pipeline.py
Needs:  matplotlib.
Writes: docs/pipeline.svg. The values and indices in the picture are made up.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle

HERE = Path(__file__).resolve().parent
USER, ITEM, INK, FAINT = "#2f6db3", "#c8641b", "#222222", "#9a9a9a"
CELL_W, CELL_H, DIM, ROWS, RESERVED = 0.17, 0.095, 4, 8, 3


@dataclass(frozen=True)
class Field:
    """One column of the row: what it holds and which rows of its table that picks."""

    name: str
    value: str
    indices: tuple[int, ...]
    colour: str
    y: float


FIELDS = [
    Field("user_id", "196", (5,), USER, 5.2),
    Field("occupation", "writer", (4,), USER, 4.1),
    Field("movie_id", "242", (6,), ITEM, 3.0),
    Field("genres", "Comedy, Drama", (3, 5), ITEM, 1.9),
    Field("slot", "2", (5,), ITEM, 0.8),
]


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = FAINT) -> None:
    """Point from one place to another."""
    style = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=end, xytext=start, arrowprops=style)


def box(axes: Axes, x: float, y: float, *, width: float, text: str, colour: str) -> None:
    """Write text in a rounded box whose left edge and middle are given."""
    shape = FancyBboxPatch(
        (x, y - 0.22), width, 0.44, boxstyle="round,pad=0,rounding_size=0.08", facecolor="white", edgecolor=colour
    )
    axes.add_patch(shape)
    axes.text(x + width / 2, y, text, ha="center", va="center", color=INK, fontsize=9.5)


def table(axes: Axes, x: float, field: Field) -> None:
    """Draw an embedding table, its reserved rows grey and the picked rows filled."""
    top = field.y + ROWS * CELL_H / 2
    for row in range(ROWS):
        picked = row in field.indices
        face = field.colour if picked else "#dddddd" if row < RESERVED else "white"
        for column in range(DIM):
            corner = (x + column * CELL_W, top - (row + 1) * CELL_H)
            edge = {"edgecolor": "white" if picked else "#bbbbbb", "linewidth": 0.6}
            axes.add_patch(Rectangle(corner, CELL_W, CELL_H, facecolor=face, **edge))


def vector(axes: Axes, x: float, y: float, colour: str, text: str) -> None:
    """Draw one vector with its name above."""
    for column in range(DIM):
        corner = (x + column * 0.24, y - 0.12)
        axes.add_patch(Rectangle(corner, 0.24, 0.24, facecolor=colour, edgecolor="white", linewidth=0.8))
    axes.text(x + DIM * 0.12, y + 0.24, text, ha="center", va="bottom", fontsize=9.5, color=colour)


def rows(axes: Axes) -> None:
    """Draw every column of the row, from its value to its picked vectors."""
    for field in FIELDS:
        box(axes, 0.1, field.y, width=1.75, text=field.value, colour=field.colour)
        axes.text(0.1, field.y + 0.28, field.name, fontsize=9, color=field.colour, va="bottom", family="monospace")
        indices = ", ".join(str(index) for index in field.indices)
        arrow(axes, (1.92, field.y), (2.88, field.y))
        box(axes, 2.95, field.y, width=0.8, text=indices, colour=field.colour)
        arrow(axes, (3.82, field.y), (4.83, field.y))
        table(axes, 4.95, field)
        arrow(axes, (5.75, field.y), (7.1, 4.65 if field.colour == USER else 1.9), field.colour)


def score(axes: Axes) -> None:
    """Draw the two sides and their product."""
    vector(axes, 7.2, 4.65, USER, "u = Σ user side")
    vector(axes, 7.2, 1.9, ITEM, "v = Σ item side")
    arrow(axes, (8.25, 4.65), (9.15, 3.5), USER)
    arrow(axes, (8.25, 1.9), (9.15, 3.1), ITEM)
    box(axes, 9.2, 3.3, width=2.1, text="μ + Σ biases + ⟨u, v⟩", colour=INK)


def stages(axes: Axes) -> None:
    """Name the stages and the classes that do them."""
    names = {
        0.98: ("values", "Schema"),
        3.35: ("indices", "FeatureEncoder"),
        5.3: ("lookup", "FeatureEmbedding"),
        7.68: ("sums", "MatrixFactorization"),
        10.25: ("score", "Recommender"),
    }
    for x, (stage, class_name) in names.items():
        axes.text(x, 6.2, stage, ha="center", fontsize=11, color=INK)
        axes.text(x, 5.95, class_name, ha="center", va="center", fontsize=8, color=FAINT, family="monospace")
    axes.text(5.3, 0.13, "grey: padding, missing, unknown", ha="center", fontsize=8, color=FAINT)


def main(path: Path = HERE / "pipeline.svg") -> Path:
    """Draw into ``path``; the same code gives the same bytes."""
    with mpl.rc_context({"svg.hashsalt": "pipeline", "font.family": "DejaVu Sans"}):
        figure, axes = plt.subplots(figsize=(11.6, 6.6))
        axes.set(xlim=(0, 11.5), ylim=(0, 6.5))
        axes.axis("off")
        rows(axes)
        score(axes)
        stages(axes)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, bbox_inches="tight", facecolor="white", metadata=metadata)
        plt.close(figure)
    return path


if __name__ == "__main__":
    print(f"drew docs/{main().name}")
