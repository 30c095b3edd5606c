"""Checks that every declaration shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recsys_emb.errors import SchemaError

if TYPE_CHECKING:
    from pydantic import ConfigDict

# A dict as pydantic takes it: declaring columns does not wait for pydantic, which reads and writes them.
STRICT: ConfigDict = {"extra": "forbid", "strict": True}


def refuse(condition: bool, where: str, expected: str, got: object, remedy: str) -> None:
    """Raise `SchemaError` when ``condition`` holds."""
    if condition:
        raise SchemaError(f"{where}: expected {expected}, got {got!r}. {remedy}")


def check_at_least(where: str, field: str, value: object, minimum: int) -> None:
    """Refuse anything but an integer of at least ``minimum``."""
    wrong = not isinstance(value, int) or isinstance(value, bool) or value < minimum
    refuse(
        wrong,
        where,
        f"{field} to be an integer of at least {minimum}",
        value,
        f"Give {field}={minimum} or more.",
    )


def check_name(kind: str, name: object) -> None:
    """Refuse anything but a non-empty text."""
    refuse(
        not isinstance(name, str) or not name,
        kind,
        "a column name",
        name,
        "Name the column with a non-empty text.",
    )


def check_scale(where: str, value: object) -> None:
    """Refuse an ``l2_scale`` that is not a number of at least 0."""
    wrong = not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < float("inf")
    refuse(wrong, where, "l2_scale to be a number of at least 0", value, "It multiplies the solver's L2.")
