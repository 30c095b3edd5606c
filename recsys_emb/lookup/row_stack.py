"""`RowStack`: tables under each other in one matrix, with the state of the rule that moves their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from recsys_emb import kernels
from recsys_emb.encoding.crew import crew
from recsys_emb.errors import DataError
from recsys_emb.lookup.huge_pages import ask_for_huge_pages
from recsys_emb.lookup.plain_rows import move_rows, named_rows, read_rows
from recsys_emb.lookup.row_rules import RowRule, Settings
from recsys_emb.vocabulary.reserved import PADDING_INDEX

if TYPE_CHECKING:
    from recsys_emb.kernels.row_gather import Integers, Stack

Vectors: TypeAlias = Tensor | Sequence[Tensor]
"""Vectors ``(N, D)`` for each of F columns, or ``(N, F, D)`` of all."""

# Bytes.
_INDEX, _FLOAT = 8, 4


class RowStack(nn.Module):
    """T tables of one width, ΣV rows in all; reads rows, and moves them by their gradients.

    On the CPU in float32 both are compiled kernels, one table per thread at a time, so that the result is the same
    for any number of threads. Elsewhere, and with ``compiled=False``, both are plain torch. Indices are int64, in
    range, and `PADDING_INDEX` reads as zeros and never moves.

    Parameters
    ----------
    sizes
        Rows of each table.
    embedding_dim
        D.
    rule
        What moves rows.
    compiled
        False takes plain torch on the CPU too.

    Attributes
    ----------
    sizes, firsts : list of int
        Rows of each table, and where it starts.
    steps : list of int
        How often each table has learned.
    """

    weights: Tensor

    def __init__(self, sizes: Sequence[int], embedding_dim: int, rule: RowRule, *, compiled: bool) -> None:
        super().__init__()
        self.rule = rule
        self.compiled = compiled
        self._lay_out(sizes)
        self.steps = [0] * len(self.sizes)
        like = torch.empty(0, embedding_dim)
        self.register_buffer("weights", _matrix(like, (sum(sizes), embedding_dim), None), persistent=False)
        for name, wide in rule.state.items():
            shape = (sum(sizes), embedding_dim) if wide else (sum(sizes),)
            self.register_buffer(_buffer(name), _matrix(like, shape, rule.start), persistent=False)

    @property
    def state(self) -> dict[str, Tensor]:
        """The rule's state, row by row as `weights`."""
        return {name: self.get_buffer(_buffer(name)) for name in self.rule.state}

    def rows_of(self, place: int) -> slice:
        """Rows of a table."""
        first = self.firsts[place]
        return slice(first, first + self.sizes[place])

    def reserve(self, sizes: Sequence[int]) -> None:
        """Make tables longer; their rows and state move to new memory, bit for bit."""
        wanted = [max(old, new) for old, new in zip(self.sizes, sizes, strict=True)]
        if wanted == self.sizes:
            return
        before = [self.rows_of(place) for place in range(len(wanted))]
        self._lay_out(wanted)
        starts = {"weights": 0.0} | {_buffer(name): self.rule.start for name in self.rule.state}
        for name, start in starts.items():
            old = self.get_buffer(name)
            new = _matrix(old, (sum(wanted), *old.shape[1:]), start)
            for place, rows in enumerate(before):
                new[self.rows_of(place)][: rows.stop - rows.start] = old[rows]
            setattr(self, name, new)

    def forget(self) -> None:
        """Begin anew: state as at the start, no steps."""
        self.steps = [0] * len(self.sizes)
        for state in self.state.values():
            state.fill_(self.rule.start)

    # --- read and move ---------------------------------------------------------------------------------------------

    @torch.no_grad()
    def read(self, places: Sequence[int], columns: Sequence[Tensor], *, together: bool) -> Vectors:
        """Read rows: ``(N, D)`` for each column; or, columns being equally long, ``(N, F, D)`` of all."""
        if not self._by_kernel:
            return self._read_plainly(places, columns, together=together)
        D = self.weights.shape[1]
        vectors: Vectors
        if together:
            vectors = self.weights.new_empty(columns[0].shape[0], len(columns), D)
        else:
            vectors = [self.weights.new_empty(column.shape[0], D) for column in columns]
        self._deal(partial(kernels.row_update.gather, self._kernel_stack()), _lookups(places, columns, vectors))
        return vectors

    @torch.no_grad()
    def move(self, places: Sequence[int], columns: Sequence[Tensor], gradients: Vectors) -> None:
        """Move the rows that were read, once each, by the gradients of what `read` gave."""
        for place in set(places):
            self.steps[place] += 1
        if not self._by_kernel:
            self._move_plainly(places, columns, gradients)
            return
        if isinstance(gradients, Tensor):
            gradients = gradients if gradients.stride(2) == 1 else gradients.contiguous()
        else:
            gradients = [one if one.stride(1) == 1 else one.contiguous() for one in gradients]
        stack, state = self._kernel_stack(), tuple(one.numpy() for one in self.state.values())
        numbers = np.array(self._settings(), np.float32)
        self._deal(lambda lookups: self.rule.run(stack, state, lookups, numbers), _lookups(places, columns, gradients))
        increment_version(self.weights)

    def _deal(self, work: Callable[[Integers], None], lookups: Integers) -> None:
        """Deal tables out to as many threads as torch has, large and small ones to each."""
        threads = torch.get_num_threads()
        with crew(int(lookups[:, 1].sum()), threads) as hands:
            if threads == 1:
                work(lookups)
                return
            largest_first = sorted(set(lookups[:, 0].tolist()), key=lambda place: -self.sizes[place])
            hands.map(work, [lookups[np.isin(lookups[:, 0], largest_first[k::threads])] for k in range(threads)])

    def _read_plainly(self, places: Sequence[int], columns: Sequence[Tensor], *, together: bool) -> Vectors:
        found = read_rows(self.weights, named_rows(self.firsts, places, columns, together=together), self.firsts)
        if together:
            return found.view(-1, len(columns), self.weights.shape[1])
        return torch.split(found, [column.shape[0] for column in columns])

    def _move_plainly(self, places: Sequence[int], columns: Sequence[Tensor], gradients: Vectors) -> None:
        together = isinstance(gradients, Tensor)
        rows = named_rows(self.firsts, places, columns, together=together)
        given = gradients.flatten(0, 1) if isinstance(gradients, Tensor) else torch.cat(list(gradients))
        settings = self._settings()
        move_rows(self.weights, self.state, self.rule, rows, given, firsts=self.firsts, settings=settings)

    def _settings(self) -> list[Settings]:
        """Give the numbers of each table's step."""
        by_step = {step: self.rule.settings(max(step, 1)) for step in set(self.steps)}
        return [by_step[step] for step in self.steps]

    @property
    def _by_kernel(self) -> bool:
        return self.compiled and self.weights.device.type == "cpu" and self.weights.dtype == torch.float32

    def _kernel_stack(self) -> Stack:
        stack: Stack = kernels.row_update.Stack(self.weights.numpy(), *self._layout, PADDING_INDEX)
        return stack

    def _lay_out(self, sizes: Sequence[int]) -> None:
        self._layout = (np.cumsum([0, *sizes])[:-1], np.array(sizes, np.int64))
        self.firsts, self.sizes = self._layout[0].tolist(), list(sizes)

    # --- saved state -----------------------------------------------------------------------------------------------

    def _saved(self) -> dict[str, Tensor | None]:
        """Give what a state dict holds: the state of each table, as views, and how often each has learned."""
        saved: dict[str, Tensor | None] = {"steps": torch.tensor(self.steps, dtype=torch.int64)}
        for name, state in self.state.items():
            saved |= {f"{name}_{place}": state[self.rows_of(place)] for place in range(len(self.sizes))}
        return saved

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        destination.update({f"{prefix}{key}": value for key, value in self._saved().items()})

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        if not any(key.startswith(prefix) for key in state_dict):
            self.forget()
            return
        steps, own = torch.tensor(self.steps, dtype=torch.int64), self._buffers
        self._buffers = {**self._saved(), "steps": steps}
        try:
            super()._load_from_state_dict(state_dict, prefix, into_views(local_metadata), *rest)
        finally:
            self._buffers = own
        self.steps = steps.tolist()


def into_views(local_metadata: dict[str, Any]) -> dict[str, Any]:
    """Let torch load into the memory that is there; with ``assign=True`` views would no longer be any."""
    return {**local_metadata, "assign_to_params_buffers": False}


def _buffer(name: str) -> str:
    return f"state_{name}"


def _matrix(like: Tensor, shape: tuple[int, ...], start: float | None) -> Tensor:
    """Make memory for rows; None leaves it as it is."""
    made = like.new_empty(shape)
    ask_for_huge_pages(made)
    return made if start is None else made.fill_(start)


def _lookups(places: Sequence[int], columns: Sequence[Tensor], vectors: Vectors) -> Integers:
    """Say where indices and vectors are, int64 ``(S, 6)``, tables one after another and otherwise in order."""
    elsewhere = [column.device for column in columns if not column.is_cpu]
    if elsewhere:
        raise DataError(
            f"FusedEmbedding: expected indices on the CPU, where its tables are, got {elsewhere[0]}. "
            "Move the batch or the module with to(device)."
        )
    if isinstance(vectors, Tensor):
        start, step, between = vectors.data_ptr(), _FLOAT * vectors.stride(0), _FLOAT * vectors.stride(1)
        spots = [(start + f * between, step) for f in range(len(columns))]
    else:
        spots = [(one.data_ptr(), _FLOAT * one.stride(0)) for one in vectors]
    lookups = [
        (place, column.shape[0], column.data_ptr(), _INDEX * column.stride(0), *spot)
        for place, column, spot in zip(places, columns, spots, strict=True)
    ]
    return np.array(sorted(lookups, key=itemgetter(0)), np.int64).reshape(len(lookups), 6)
