"""Numbers and values as legible text, and tables of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

NOTHING = "–"


def shown(value: object, width: int = 24) -> str:
    r"""Show a value on one line, quoted where it is text, with nothing that a terminal would act on.

    >>> shown("new\nline"), shown(5), shown("a" * 30, 10)
    ("'new\\nline'", '5', "'aaaaaaaa…")
    """
    text = repr(value)
    return _cut(text if text.isprintable() else ascii(text)[1:-1], width)


def plain(name: str, width: int = 32) -> str:
    r"""Show a name, in quotes where it holds what is not printable.

    >>> plain("user_id"), plain("user\tid")
    ('user_id', "'user\\tid'")
    """
    return _cut(name if name.isprintable() else repr(name), width)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def percent(share: float) -> str:
    """Show a share; what is above nothing and below all of it stays so.

    >>> percent(0.1234), percent(0.00001), percent(0.99999), percent(float("nan"))
    ('12.3 %', '<0.1 %', '>99.9 %', '–')
    """
    if math.isnan(share):
        return NOTHING
    if 0 < share < 0.0005:
        return "<0.1 %"
    return ">99.9 %" if 0.9995 <= share < 1 else f"{share:.1%}".replace("%", " %")


def decimal(number: float) -> str:
    """Show a number to four decimals.

    >>> decimal(0.25), decimal(0.00001), decimal(float("nan"))
    ('0.2500', '<0.0001', '–')
    """
    if math.isnan(number):
        return NOTHING
    return "<0.0001" if 0 < number < 0.00005 else f"{number:.4f}"


def whole(number: int | None) -> str:
    """Show an integer.

    >>> whole(12345), whole(None)
    ('12,345', '–')
    """
    return NOTHING if number is None else f"{number:,}"


def many(number: int, noun: str) -> str:
    """Count a noun.

    >>> many(1, "row"), many(12345, "row")
    ('1 row', '12,345 rows')
    """
    return f"{whole(number)} {noun if number == 1 else noun + 's'}"


def in_bytes(count: float) -> str:
    """Show a number of bytes.

    >>> in_bytes(512), in_bytes(123_456_789)
    ('512 B', '117.7 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


@dataclass(frozen=True)
class TextTable:
    """Cells in columns; those numbered in ``left`` stand left, the others right.

    >>> print(TextTable(["name", "count"], [["a", "10"], ["long", "5"]]))
    name  count
    a        10
    long      5
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Collection[int] = (0,)

    def __str__(self) -> str:
        lines = [list(self.header), *(list(row) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if place in self.left else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )
