"""On which processes the rows of tables stand: plans that are made here, for TorchRec to carry out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from recsys_emb.errors import SchemaError, did_you_mean, listed
from recsys_emb.integrations.torchrec.door import torchrec
from recsys_emb.lookup.row_rules import RowRule, RowWiseAdagradUpdate

_MULTIPLE = 4
"""What FBGEMM wants the width of a table to be a multiple of."""


@dataclass(frozen=True)
class TableWise:
    """A table stands on one process as a whole; tables are dealt out by size. For tables that fit into one."""


@dataclass(frozen=True)
class RowWise:
    """Every process holds as many rows of a table. For tables of any size."""


@dataclass(frozen=True)
class ColumnWise:
    """Every process holds as many columns of a table's vectors; biases, a column each, stand as by `TableWise`.

    Rules with a number per row of state, `RowWiseAdagradUpdate`, are refused: every process would have its own.
    """


Placement: TypeAlias = TableWise | RowWise | ColumnWise
ByFeature: TypeAlias = Placement | Mapping[str, Placement]
"""One for all tables, or by the name of a feature that reads the table; others are `RowWise`."""


def placement_of(given: ByFeature, features: Sequence[str]) -> Placement:
    """Choose the placement of a table that the features of these names read."""
    if not isinstance(given, Mapping):
        return given
    return next((given[name] for name in features if name in given), RowWise())


def check_placement(given: ByFeature, names: Sequence[str], update: RowRule) -> None:
    """Refuse a placement that names no feature, or that cannot give the numbers of one process.

    Raises
    ------
    SchemaError
        Naming it.
    """
    named = given if isinstance(given, Mapping) else {}
    unknown = [name for name in named if name not in names]
    if unknown:
        hint = did_you_mean(unknown[0], names)
        raise SchemaError(f"placement: expected features among {listed(names)}, got {listed(unknown)}.{hint}")
    placements = named.values() if isinstance(given, Mapping) else [given]
    wrong = [one for one in placements if not isinstance(one, (TableWise, RowWise, ColumnWise))]
    if wrong:
        raise SchemaError(f"placement: expected TableWise(), RowWise() or ColumnWise(), got {wrong[0]!r}. Call it.")
    if isinstance(update, RowWiseAdagradUpdate) and any(isinstance(one, ColumnWise) for one in placements):
        raise SchemaError(
            "placement: expected RowWise() or TableWise() with RowWiseAdagradUpdate, got ColumnWise(). Its state is "
            "one number per row, of which every process would have its own; use AdagradUpdate to split columns."
        )


def padded_width(width: int, placements: Iterable[Placement], processes: int) -> int:
    """Give the width that tables of ``width``, which stand side by side, are made with."""
    split = any(isinstance(one, ColumnWise) for one in placements)
    step = _MULTIPLE * (processes if split else 1)
    return -(-width // step) * step


def dealt_out(sizes: Sequence[int], processes: int) -> list[int]:
    """Deal tables out to processes, the largest first, each to the one with the least so far.

    >>> dealt_out([10, 70, 40, 30], 2)
    [0, 0, 1, 1]
    """
    loads, owners = [0] * processes, [0] * len(sizes)
    for place in sorted(range(len(sizes)), key=lambda place: -sizes[place]):
        owners[place] = loads.index(min(loads))
        loads[owners[place]] += sizes[place]
    return owners


def generator_of(placement: Placement, owner: int, processes: int) -> Any:
    """Say to TorchRec where a table stands."""
    plans = torchrec("distributed.sharding_plan")
    match placement:
        case RowWise():
            return plans.row_wise()
        case ColumnWise():
            return plans.column_wise(ranks=list(range(processes)))
        case TableWise():
            return plans.table_wise(rank=owner)
