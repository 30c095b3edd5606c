"""Count and translate the codes of a dictionary column: the dictionary is looked at once, not once per row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recsys_emb.kernels.integer_table import IntegerColumn
from recsys_emb.kernels.jit import kernel
from recsys_emb.kernels.memory import Integers, is_valid


@kernel
def tally(codes: IntegerColumn, counts: Integers) -> None:
    """Add to ``counts`` (one per dictionary entry) how often each occurs; codes of any integer type.

    What stands under a null is not a code, and is not read as one.
    """
    for row in range(len(codes.keys)):
        if is_valid(codes.validity, codes.bit_offset + row):
            counts[codes.keys[row]] += 1


def tally_reference(codes: Iterable[int | None], entries: int) -> list[int]:
    """Count the plain way."""
    counts = [0] * entries
    for code in codes:
        if code is not None:
            counts[code] += 1
    return counts


@kernel
def translate(codes: IntegerColumn, indices: Integers, missing: int, out: Integers) -> None:
    """Write ``indices[code]`` of each row into ``out``, ``missing`` where it is null."""
    for row in range(len(codes.keys)):
        if is_valid(codes.validity, codes.bit_offset + row):
            out[row] = indices[codes.keys[row]]
        else:
            out[row] = missing


def translate_reference(codes: Iterable[int | None], indices: Sequence[int], missing: int) -> list[int]:
    """Translate the plain way."""
    return [missing if code is None else indices[code] for code in codes]
