"""What can go wrong, and in which words.

Every exception this library raises on purpose is a `RecsysEmbError` and also the built-in exception that a
caller would expect, so ``except ValueError`` keeps working::

    RecsysEmbError
    ├── SchemaError (ValueError)                 declarations that contradict each other
    ├── DataError (ValueError)                   a source that cannot be used as it is
    │   ├── ColumnError                          a column is missing or there twice
    │   ├── EmptySourceError                     no rows where some are needed
    │   ├── KeyTypeError (TypeError)             a key of another type than the vocabulary's
    │   └── UnknownValueError                    a value that the feature refuses to take as unknown
    ├── IndexRangeError (IndexError)             an index outside its table
    ├── LineageError (ValueError)                weights or indices of other vocabularies than those at hand
    ├── FitError (ValueError)                    a training run that cannot start or did not converge
    ├── NotFittedError (sklearn's NotFittedError)
    ├── ArtifactError (ValueError)               a folder that is not a whole, readable artifact
    ├── EngineError (RuntimeError)               work that a cluster lost, and could not do again
    └── MissingDependencyError (ImportError)     an optional extra that is not installed

Messages read «where: expected X, got Y. Remedy.»; at most five values are listed.
"""

from __future__ import annotations

import difflib
import importlib
import operator
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recsys_emb.not_fitted import NotFittedError

__all__ = [
    "ArtifactError",
    "ColumnError",
    "DataError",
    "EmptySourceError",
    "EngineError",
    "FitError",
    "IndexRangeError",
    "KeyTypeError",
    "LineageError",
    "MissingDependencyError",
    "NotFittedError",
    "RecsysEmbError",
    "RepeatedPairsWarning",
    "SchemaError",
    "UnknownValueError",
    "at_least",
    "counted",
    "did_you_mean",
    "listed",
]

LISTED = 5
LONGEST = 120  # characters of one listed value


class RecsysEmbError(Exception):
    """Base of every error raised on purpose."""


class SchemaError(RecsysEmbError, ValueError):
    """Declarations that contradict each other."""


class DataError(RecsysEmbError, ValueError):
    """A source that cannot be used as it is."""


class ColumnError(DataError):
    """A column is missing or there twice."""


class EmptySourceError(DataError):
    """No rows where some are needed."""


class KeyTypeError(DataError, TypeError):
    """A key of another type than the vocabulary's."""


class UnknownValueError(DataError):
    """A value that the feature refuses to take as unknown."""


class IndexRangeError(RecsysEmbError, IndexError, ValueError):
    """An index outside its table."""


class LineageError(RecsysEmbError, ValueError):
    """Weights or indices of other vocabularies than those at hand."""


class FitError(RecsysEmbError, ValueError):
    """A training run that cannot start or did not converge."""


class ArtifactError(RecsysEmbError, ValueError):
    """A folder that is not a whole, readable artifact."""


class EngineError(RecsysEmbError, RuntimeError):
    """Work that a cluster lost, and could not do again."""


class MissingDependencyError(RecsysEmbError, ImportError):
    """An optional extra that is not installed."""


class RepeatedPairsWarning(UserWarning):
    """User-item pairs stand both among the rows to learn from and among those to judge by."""


def __getattr__(name: str) -> Any:
    # scikit-learn takes half a second to load, and most who import errors never name this one.
    if name != "NotFittedError":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module("recsys_emb.not_fitted").NotFittedError


def at_least(where: str, name: str, value: Any, least: int, *, error: type[RecsysEmbError] = DataError) -> int:
    """Give a whole number, of whatever integer type it came, as a Python integer.

    >>> at_least("BatchLoader", "batch_size", 1.5, 1)
    Traceback (most recent call last):
    ...
    recsys_emb.errors.DataError: BatchLoader: expected batch_size to be an integer of at least 1, got 1.5. \
Give batch_size=1 or more.

    Raises
    ------
    RecsysEmbError
        Of the class ``error``, when it is no integer (a boolean is none) or less than ``least``.
    """
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise error(
            f"{where}: expected {name} to be an integer of at least {least}, got {value!r}. "
            f"Give {name}={least} or more."
        )
    return number


def warn_outside(message: str) -> None:
    """Warn at the line that called this library, however deep within it that shows."""
    frame, level = sys._getframe(1), 2
    while frame.f_globals.get("__name__", "").partition(".")[0] == __package__ and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def listed(values: Iterable[object]) -> str:
    """Name at most five values, and count the rest.

    >>> listed(["a", "b"])
    "'a', 'b'"
    >>> listed(range(8))
    '0, 1, 2, 3, 4 and 3 more'
    """
    shown = list(values)
    text = ", ".join(_short(repr(value)) for value in shown[:LISTED])
    return f"{text} and {len(shown) - LISTED} more" if len(shown) > LISTED else text


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}...{text[-LONGEST // 4 :]}"


def counted(count: int, noun: str) -> str:
    """Count a noun.

    >>> counted(1, "row"), counted(3, "row")
    ('1 row', '3 rows')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def did_you_mean(name: str, candidates: Sequence[str]) -> str:
    """Suggest the nearest of ``candidates``, as a sentence with a leading space, or nothing.

    >>> did_you_mean("movie_id", ["user_id", "movieid"])
    " Did you mean 'movieid'?"
    >>> did_you_mean("movie_id", ["colour"])
    ''
    """
    nearest = difflib.get_close_matches(name, candidates, n=1)
    return f" Did you mean {nearest[0]!r}?" if nearest else ""
