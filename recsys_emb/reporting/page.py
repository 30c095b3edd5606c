"""A report as one HTML file: no scripts, nothing loaded from elsewhere, every value escaped."""

from __future__ import annotations

import base64
import html
import io
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from recsys_emb.errors import MissingDependencyError
from recsys_emb.reporting.text import TextTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The policy is a second lock: were a value to get through unescaped, a browser would still run and load nothing.
_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #262626; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }}
h1 {{ font-size: 1.5rem }} h2 {{ font-size: 1.15rem; margin-top: 2rem }}
div {{ overflow-x: auto }} img {{ max-width: 100% }}
table {{ border-collapse: collapse }} th, td {{ padding: .3rem .8rem; text-align: right; vertical-align: top }}
th {{ border-bottom: 2px solid #262626 }} td {{ border-bottom: 1px solid #e6e6e6; font-variant-numeric: tabular-nums }}
.left {{ text-align: left }} .warning {{ border-left: 4px solid #d55e00; padding-left: .8rem }}
</style>
</head>
<body>
<h1>{title}</h1>
"""


def heading(text: str) -> str:
    """Make a heading."""
    return f"<h2>{html.escape(text)}</h2>\n"


def paragraph(text: str, *, warning: bool = False) -> str:
    r"""Make a paragraph of plain text.

    >>> paragraph("a < b")
    '<p>a &lt; b</p>\n'
    """
    kind = ' class="warning"' if warning else ""
    return f"<p{kind}>{html.escape(text)}</p>\n"


def table(cells: TextTable) -> str:
    """Make a table of plain text."""
    body = "".join(_row("td", row, cells.left) for row in cells.rows)
    head = _row("th", cells.header, cells.left)
    return f"<div><table>\n<thead>{head}</thead>\n<tbody>\n{body}</tbody>\n</table></div>\n"


def _row(tag: str, cells: Sequence[str], left: Collection[int]) -> str:
    kinds = [' class="left"' if place in left else "" for place in range(len(cells))]
    made = [f"<{tag}{kind}>{html.escape(cell)}</{tag}>" for cell, kind in zip(cells, kinds, strict=True)]
    return f"<tr>{''.join(made)}</tr>\n"


def picture(draw: Callable[[], Figure], alternative: str) -> str:
    """Make a picture that the file holds itself; nothing where matplotlib is not installed."""
    stream = io.BytesIO()
    try:
        figure = draw()
    except MissingDependencyError:
        return ""
    with warnings.catch_warnings():
        # A name in letters that the font lacks is boxes in the picture, and whole in the text of the page.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure.savefig(stream, format="png")
    data = base64.b64encode(stream.getvalue()).decode("ascii")
    return f'<p><img alt="{html.escape(alternative)}" src="data:image/png;base64,{data}"></p>\n'


def write_page(path: str | os.PathLike[str], title: str, parts: Iterable[str]) -> None:
    """Write a file of these parts; its folder must exist."""
    text = _HEAD.format(title=html.escape(title)) + "".join(parts) + "</body>\n</html>\n"
    Path(path).write_text(text, encoding="utf-8", errors="xmlcharrefreplace")
