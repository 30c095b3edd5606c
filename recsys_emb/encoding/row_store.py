"""Encoded rows kept small, and picked in any order at one memory access per row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch, Column, Jagged
from recsys_emb.encoding.stacking import stack_rows
from recsys_emb.errors import DataError

_LARGEST = torch.iinfo(torch.int32).max


@dataclass(frozen=True, eq=False)
class RowStore:
    """Encoded rows, row by row.

    Parameters
    ----------
    indices
        int32 ``(N, C)``: one row's single indices lie side by side.
    numbers
        float32 ``(N, F)``: two per `Numeric`, then label and weight if they are there.
    lists
        `Jagged` columns by name, with int32 values.
    template
        Batch without rows: which columns there are, in which order.

    Examples
    --------
    >>> batch = Batch({"user_id": torch.tensor([3, 4, 5])}, label=torch.tensor([1.0, 0.0, 0.5]))
    >>> picked = RowStore.of([batch]).pick(torch.tensor([2, 0]))
    >>> picked["user_id"], picked.label
    (tensor([5, 3]), tensor([0.5000, 1.0000]))
    """

    indices: Tensor
    numbers: Tensor
    lists: Mapping[str, Jagged]
    template: Batch
    num_rows: int

    @classmethod
    def of(cls, batches: Iterable[Batch]) -> RowStore:
        """Keep the rows of ``batches``, of which there is at least one; each is compacted as it comes.

        Raises
        ------
        DataError
            When there is no batch, or an index does not fit 32 bits.
        """
        pieces = [cls._compacted(batch) for batch in batches]
        if not pieces:
            raise DataError("RowStore: expected at least one batch, got none. Encode an empty frame instead.")
        if len(pieces) == 1:
            return pieces[0]
        listed = stack_rows([Batch(piece.lists) for piece in pieces])
        indices, numbers = (
            torch.cat([piece.indices for piece in pieces]),
            torch.cat([piece.numbers for piece in pieces]),
        )
        lists = {name: listed.lists(name) for name in listed}
        return cls(indices, numbers, lists, pieces[0].template, len(indices))

    @classmethod
    def _compacted(cls, batch: Batch) -> RowStore:
        lists = {name: column for name, column in batch.columns.items() if isinstance(column, Jagged)}
        singles = [column for column in batch.columns.values() if isinstance(column, Tensor)]
        indices = [_narrow(column) for column in singles if not column.is_floating_point()]
        numeric = [column for column in singles if column.is_floating_point()]
        answers = [column[:, None] for column in (batch.label, batch.weight) if column is not None]
        narrow = {name: Jagged(_narrow(one.values), one.offsets, one.weights) for name, one in lists.items()}
        template = batch.select(torch.zeros(0, dtype=torch.int64))
        rows = len(batch)
        return cls(
            _side_by_side(indices, rows, torch.int32), _side_by_side([*numeric, *answers], rows), narrow, template, rows
        )

    def __len__(self) -> int:
        """Count the rows."""
        return self.num_rows

    def pick(self, rows: Tensor) -> Batch:
        """Batch of the rows numbered ``rows``, integer ``(B,)``."""
        indices = iter(self.indices.index_select(0, rows).t().to(torch.int64, memory_format=torch.contiguous_format))
        numbers = self.numbers.index_select(0, rows)
        columns: dict[str, Column] = {}
        place = 0
        for name, column in self.template.columns.items():
            if isinstance(column, Jagged):
                picked = self.lists[name].select(rows.to(torch.int64))
                columns[name] = Jagged(picked.values.to(torch.int64), picked.offsets, picked.weights)
            elif column.is_floating_point():
                columns[name] = numbers[:, place : place + 2].contiguous()
                place += 2
            else:
                columns[name] = next(indices)
        answers = iter(numbers[:, place:].t().contiguous())
        label = None if self.template.label is None else next(answers)
        return Batch(columns, label, None if self.template.weight is None else next(answers), self.template.limits)


def _narrow(indices: Tensor) -> Tensor:
    if len(indices) and int(indices.max()) > _LARGEST:
        raise DataError(f"RowStore: expected indices of at most {_LARGEST}, got {int(indices.max())}. Load unshuffled.")
    return indices.to(torch.int32)


def _side_by_side(columns: Sequence[Tensor], rows: int, dtype: torch.dtype = torch.float32) -> Tensor:
    if not columns:
        return torch.zeros((rows, 0), dtype=dtype)
    return torch.cat([column.reshape(rows, 1 if column.ndim == 1 else column.shape[1]) for column in columns], dim=1)
