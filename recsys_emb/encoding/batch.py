"""`Batch` and `Jagged`: encoded rows as tensors, ready for any lookup on any device."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias, overload

import torch
from torch import Tensor

from recsys_emb.errors import ColumnError, DataError, KeyTypeError, did_you_mean, listed
from recsys_emb.vocabulary.reserved import PADDING_INDEX


@dataclass(frozen=True, eq=False)
class Jagged:
    """Lists of indices of different lengths, end to end.

    Parameters
    ----------
    values
        int64 ``(N,)``, all lists one after another.
    offsets
        int64 ``(B + 1,)``; list b is ``values[offsets[b]:offsets[b + 1]]``.
    weights
        float32 ``(N,)`` or None, one per value.

    Raises
    ------
    DataError
        When they do not fit each other. Offsets on another device than the CPU are taken at their word.

    Examples
    --------
    >>> lists = Jagged.from_lists([[5, 6], [], [7]])
    >>> len(lists), lists.lengths.tolist()
    (3, [2, 0, 1])
    >>> lists.pad()
    tensor([[5, 6],
            [0, 0],
            [7, 0]])
    """

    values: Tensor
    offsets: Tensor
    weights: Tensor | None = None

    def __post_init__(self) -> None:
        if not torch.compiler.is_compiling():
            _check_jagged(self.values, self.offsets, self.weights)

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]]) -> Jagged:
        """Build from Python lists of indices."""
        lengths = torch.tensor([0, *(len(one) for one in lists)], dtype=torch.int64)
        values = [index for one in lists for index in one]
        return cls(torch.tensor(values) if values else lengths[:0], lengths.cumsum(0))

    def __len__(self) -> int:
        """Count the lists, B."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Tensor:
        """int64 ``(B,)``, the length of each list."""
        return self.offsets.diff()

    @property
    def owners(self) -> Tensor:
        """int64 ``(N,)``, the list that each value belongs to."""
        # Sizes are read from shapes, which `torch.export` keeps symbolic; len() would fix them.
        rows = torch.arange(self.offsets.shape[0] - 1, device=self.values.device)
        return rows.repeat_interleave(self.lengths, output_size=self.values.shape[0])

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Jagged:
        """Copy to a device."""
        weights = None if self.weights is None else self.weights.to(device, non_blocking=non_blocking)
        values = self.values.to(device, non_blocking=non_blocking)
        return Jagged(values, self.offsets.to(device, non_blocking=non_blocking), weights)

    def select(self, rows: Tensor) -> Jagged:
        """Pick lists by number: ``rows`` int64 ``(R,)``, repeats allowed."""
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        starts = (self.offsets[rows] - offsets[:-1]).repeat_interleave(lengths)
        picked = starts + torch.arange(len(starts), device=starts.device)
        return Jagged(self.values[picked], offsets, None if self.weights is None else self.weights[picked])

    def slice(self, first: int, last: int) -> Jagged:
        """Give lists ``first`` to ``last - 1``; their values are not copied.

        >>> Jagged.from_lists([[5, 6], [], [7]]).slice(1, 3).to_lists()
        [[], [7]]
        """
        offsets = self.offsets[first : last + 1]
        start, end = int(offsets[0]), int(offsets[-1])
        weights = None if self.weights is None else self.weights[start:end]
        return Jagged(self.values[start:end], offsets - start, weights)

    def pad(self, length: int | None = None) -> Tensor:
        """Lay the lists out as int64 ``(B, L)``, filled with `PADDING_INDEX` at the end.

        ``length`` cuts longer lists to their first values; None takes the longest list.
        """
        width = int(self.lengths.max()) if length is None and len(self) else (length or 0)
        padded = self.values.new_full((len(self), width), PADDING_INDEX)
        owners = self.owners
        places = torch.arange(len(self.values), device=self.values.device) - self.offsets[owners]
        kept = places < width
        padded[owners[kept], places[kept]] = self.values[kept]
        return padded

    def to_lists(self) -> list[list[int]]:
        """Give the indices back as Python lists."""
        values, offsets = self.values.tolist(), self.offsets.tolist()
        return [values[start:end] for start, end in itertools.pairwise(offsets)]

    def pin_memory(self) -> Jagged:
        """Copy to page-locked memory, as `torch.utils.data.DataLoader` asks for."""
        weights = None if self.weights is None else self.weights.pin_memory()
        return Jagged(self.values.pin_memory(), self.offsets.pin_memory(), weights)


Column: TypeAlias = Tensor | Jagged


@dataclass(frozen=True, eq=False)
class Batch:
    """Encoded rows: one tensor per feature, all with the same number of rows B.

    Parameters
    ----------
    columns
        By feature name: int64 ``(B,)`` indices of a `Categorical` or `Position`; a `Jagged` of a
        `MultiCategorical`; float32 ``(B, 2)`` of a `Numeric`: standardised value, missing indicator.
    label
        float32 ``(B,)`` or None.
    weight
        float32 ``(B,)`` or None.
    limits
        By feature name, the number of table rows that the indices were checked against when they were encoded;
        a table at least as large needs no second check, on any device.

    Examples
    --------
    >>> batch = Batch({"user_id": torch.tensor([3, 4]), "tags": Jagged.from_lists([[3], []])})
    >>> len(batch), batch.names, batch["user_id"]
    (2, ('user_id', 'tags'), tensor([3, 4]))
    >>> batch["user"]
    Traceback (most recent call last):
    ...
    recsys_emb.errors.ColumnError: Batch: expected one of 'user_id', 'tags', got 'user'. Did you mean 'user_id'?
    """

    columns: Mapping[str, Column]
    label: Tensor | None = None
    weight: Tensor | None = None
    limits: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = {name: _num_rows(name, column) for name, column in self.columns.items()}
        for name, answers in (("its label", self.label), ("its weight", self.weight)):
            if answers is not None:
                sizes[name] = _num_rows(name, answers)
        first = next(iter(sizes.values()), 0)
        if any(size != first for size in sizes.values()):
            raise ColumnError(f"Batch: expected columns of equal length, got {sizes!r}. Encode them from one table.")

    def __len__(self) -> int:
        """Count the rows, B."""
        return next((len(column) for column in self.columns.values()), 0)

    @overload
    def __getitem__(self, name: str) -> Column: ...

    @overload
    def __getitem__(self, name: slice) -> Batch: ...

    def __getitem__(self, name: str | slice) -> Column | Batch:
        """Column of the feature called ``name``, or the rows of a slice."""
        if isinstance(name, slice) and name.step in (None, 1):
            first, last, _ = name.indices(len(self))
            return self.slice(first, max(first, last))
        if not isinstance(name, str):
            # A TypeError: it is how scikit-learn learns that rows have no number of columns.
            raise KeyTypeError(
                f"Batch: expected the name of a feature, or a slice of step 1, got {name!r}. Pick rows with select."
            )
        if name not in self.columns:
            hint = did_you_mean(name, self.names)
            raise ColumnError(f"Batch: expected one of {listed(self.names)}, got {name!r}.{hint}")
        return self.columns[name]

    def __contains__(self, name: object) -> bool:
        """Whether there is a feature called ``name``."""
        return name in self.columns

    def __iter__(self) -> Iterator[str]:
        """Iterate over the feature names."""
        return iter(self.columns)

    if not TYPE_CHECKING:  # which would take every name for an attribute

        def __getattr__(self, name):
            """Say where names and tensors are: a batch reads like a mapping, and is none."""
            raise AttributeError(f"Batch: no attribute {name!r}. It has names and columns.", name=name, obj=self)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(self.columns)

    def indices(self, name: str) -> Tensor:
        """Column called ``name``, which must hold one index per row, int64 ``(B,)``."""
        column = self[name]
        if isinstance(column, Jagged):
            raise ColumnError(f"Batch: expected one index per row in {name!r}, got lists. Declare it Categorical.")
        return column

    def lists(self, name: str) -> Jagged:
        """Column called ``name``, which must hold a list per row."""
        column = self[name]
        if not isinstance(column, Jagged):
            raise ColumnError(
                f"Batch: expected a list per row in {name!r}, got one value. Declare it MultiCategorical."
            )
        return column

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """Copy to a device."""
        moved = {name: column.to(device, non_blocking=non_blocking) for name, column in self.columns.items()}
        label = None if self.label is None else self.label.to(device, non_blocking=non_blocking)
        weight = None if self.weight is None else self.weight.to(device, non_blocking=non_blocking)
        return Batch(moved, label, weight, self.limits)

    def select(self, rows: Tensor) -> Batch:
        """Pick rows by number: ``rows`` int64 ``(R,)``, repeats allowed."""
        picked = {name: _select(column, rows) for name, column in self.columns.items()}
        label = None if self.label is None else self.label[rows]
        return Batch(picked, label, None if self.weight is None else self.weight[rows], self.limits)

    def slice(self, first: int, last: int) -> Batch:
        """Give rows ``first`` to ``last - 1``, which stay in the memory that they are in.

        >>> Batch({"user_id": torch.tensor([3, 4, 5])}).slice(1, 3)["user_id"]
        tensor([4, 5])
        """
        columns = {name: _slice(column, first, last) for name, column in self.columns.items()}
        label = None if self.label is None else self.label[first:last]
        return Batch(columns, label, None if self.weight is None else self.weight[first:last], self.limits)

    def replacing(self, columns: Mapping[str, Column]) -> Batch:
        """Copy with some columns replaced or added; nobody has checked these, so they lose their limit."""
        limits = {name: limit for name, limit in self.limits.items() if name not in columns}
        return replace(self, columns={**self.columns, **columns}, limits=limits)

    def keeping(self, names: Sequence[str]) -> Batch:
        """Copy with only the features called ``names``, in that order, and the label and weight."""
        return replace(self, columns={name: self[name] for name in names})

    def pin_memory(self) -> Batch:
        """Copy to page-locked memory, as `torch.utils.data.DataLoader` asks for."""
        pinned = {name: column.pin_memory() for name, column in self.columns.items()}
        label = None if self.label is None else self.label.pin_memory()
        weight = None if self.weight is None else self.weight.pin_memory()
        return Batch(pinned, label, weight, self.limits)


def check_batch(given: object, where: str) -> None:
    """Refuse what is no batch; ``where`` one was asked for.

    Raises
    ------
    DataError
        Saying how to make one.
    """
    if not isinstance(given, Batch):
        raise DataError(f"{where}: expected a Batch, got {type(given).__name__}. Give it encoder.transform(rows).")


def _select(column: Column, rows: Tensor) -> Column:
    return column.select(rows) if isinstance(column, Jagged) else column[rows]


def _slice(column: Column, first: int, last: int) -> Column:
    return column.slice(first, last) if isinstance(column, Jagged) else column[first:last]


def _num_rows(name: str, column: Column) -> int:
    if isinstance(column, Jagged):
        return column.offsets.shape[0] - 1
    if not isinstance(column, Tensor) or not column.ndim:
        got = "one number" if isinstance(column, Tensor) else type(column).__name__
        raise DataError(f"Batch: expected {name!r} to be a tensor (B, ...) or a Jagged, got {got}. Encode a table.")
    return column.shape[0]


def _check_jagged(values: Tensor, offsets: Tensor, weights: Tensor | None) -> None:
    """Refuse tensors that are no lists, without a look at those on other devices."""
    for name, shape, tensor in (("values", "(N,)", values), ("offsets", "(B + 1,)", offsets)):
        if not isinstance(tensor, Tensor):
            raise DataError(
                f"Jagged: expected {name} to be a tensor, got {type(tensor).__name__}. Use Jagged.from_lists."
            )
        if tensor.ndim != 1 or tensor.is_floating_point():
            raise DataError(
                f"Jagged: expected {name} to be integers {shape}, got {tuple(tensor.shape)} of {tensor.dtype}. "
                "Lay the lists end to end."
            )
    if weights is not None and weights.shape != values.shape:
        raise DataError(
            f"Jagged: expected weights of shape {tuple(values.shape)}, got {tuple(weights.shape)}. Give one per value."
        )
    if type(offsets) is Tensor and offsets.device.type == "cpu":
        ends = offsets.numpy()
        if not len(ends) or ends[0] != 0 or ends[-1] != len(values) or (ends[1:] < ends[:-1]).any():
            raise DataError(
                f"Jagged: expected offsets that go from 0 up to {len(values)}, got {listed(ends.tolist())}. "
                "They are where lists begin, and where the last one ends."
            )
