"""How long steps take on a machine that was measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ColumnRates:
    """Nanoseconds of one core for a kind of column.

    Parameters
    ----------
    fit, encode
        For each value that is read from Parquet and learned from, or encoded.
    distinct
        For each distinct value, once: to rank it and to give it an index.
    """

    fit: float
    encode: float
    distinct: float = 0.0


@dataclass(frozen=True)
class LookupRates:
    """Nanoseconds of one core for each lookup of a row that is trained on: ``start + width * embedding_dim``."""

    start: float
    width: float


@dataclass(frozen=True)
class Machine:
    """What was measured on a machine; ``benchmarks/plan.py`` prints one for the machine that it runs on.

    Parameters
    ----------
    name
        The processor.
    integers, texts, numbers
        Columns of integer keys, of text keys of some 20 bytes, and of numbers.
    sequential, minibatch
        Epochs of `SequentialSGD` and of `Minibatch`, tables larger than the processor's cache.
    """

    name: str
    integers: ColumnRates
    texts: ColumnRates
    numbers: ColumnRates
    sequential: LookupRates
    minibatch: LookupRates


MEASURED = Machine(
    name="AMD EPYC (family 26, model 2), AVX-512",
    integers=ColumnRates(fit=11, encode=9, distinct=150),
    texts=ColumnRates(fit=70, encode=75, distinct=380),
    numbers=ColumnRates(fit=7, encode=6),
    sequential=LookupRates(start=30, width=0.4),
    minibatch=LookupRates(start=170, width=2.2),
)
"""What ``benchmarks/plan.py`` printed, rounded."""
