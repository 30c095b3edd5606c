"""Exact scores: one pair, one number, whatever the batch, its order or the device.

The model's sums of lookups are taken as they are, in float32; what follows, the products and the additions, is
float64 on the CPU, so that explanations add up to scores and rankings agree with them.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from recsys_emb.encoding.batch import Batch
from recsys_emb.lookup.category import CategoryEmbedding
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.serving.weights import modules_of

BLOCK = 2**16


class Part(NamedTuple):
    """One side of B rows, on the CPU, in standard units."""

    vectors: Tensor
    """Sums of lookups, float32 ``(B, D)``."""

    biases: dict[str, Tensor]
    """float64 ``(B,)`` of each feature that has one."""

    @property
    def bias(self) -> Tensor:
        """All biases together, float64 ``(B,)``."""
        return functools.reduce(torch.add, self.biases.values())

    def select(self, rows: Tensor) -> Part:
        """Pick rows by number."""
        return Part(self.vectors[rows], {name: column[rows] for name, column in self.biases.items()})


def score(model: MatrixFactorization, batch: Batch) -> Tensor:
    """Score the rows in units of the label, not clipped: float64 ``(B,)``, the sum of `score_terms` in order."""
    return total(score_terms(model, batch))


def total(terms: Mapping[str, Tensor]) -> Tensor:
    """Add the terms up, in their order."""
    return functools.reduce(torch.add, terms.values())


def score_terms(model: MatrixFactorization, batch: Batch) -> dict[str, Tensor]:
    """Take scores apart, in units of the label: float64 ``(B,)`` each.

    ``"offset"``, then ``"bias:<name>"`` of every feature of either side that has one, then ``"interaction"``.
    """
    with at_rest(model):
        blocks = [
            terms_of(model, part(model, block, model.user_names), part(model, block, model.item_names))
            for block in _blocks(batch)
        ]
    return blocks[0] if len(blocks) == 1 else {name: torch.cat([one[name] for one in blocks]) for name in blocks[0]}


def terms_of(model: MatrixFactorization, users: Part, items: Part) -> dict[str, Tensor]:
    """As `score_terms`, of rows whose sides are known."""
    offset, scale = model.offset.cpu().double(), model.scale.cpu().double()
    found = {**users.biases, **items.biases}
    biases = {f"bias:{name}": scale * found[name] for name in model.biases.names}
    interaction = (users.vectors.double() * items.vectors.double()).sum(-1)
    return {"offset": offset.expand(len(interaction)), **biases, "interaction": scale * interaction}


def part(model: MatrixFactorization, batch: Batch, names: Sequence[str]) -> Part:
    """Sum one side, or some features of it."""
    blocks = [_block_part(model, block, names) for block in _blocks(batch)]
    if len(blocks) == 1:
        return blocks[0]
    biases = {name: torch.cat([one.biases[name] for one in blocks]) for name in blocks[0].biases}
    return Part(torch.cat([one.vectors for one in blocks]), biases)


def sides(model: MatrixFactorization, batch: Batch, names: Sequence[str]) -> tuple[Tensor, Tensor]:
    """As `part`: vectors float32 ``(B, D)``, and all biases together, float64 ``(B,)``."""
    found = part(model, batch, names)
    return found.vectors, found.bias


_resting: weakref.WeakKeyDictionary[nn.Module, tuple[int, list[nn.Module]]] = weakref.WeakKeyDictionary()
_changing = threading.Lock()


@contextmanager
def at_rest(model: nn.Module) -> Iterator[None]:
    """Switch dropout and gradients off inside, and each module's mode back after, when the last thread is done."""
    with _changing:
        count, awake = _resting.get(model) or (0, [one for one in modules_of(model) if one.training])
        for one in awake:
            one.training = False
        _resting[model] = count + 1, awake
    try:
        with torch.no_grad():
            yield
    finally:
        with _changing:
            count, awake = _resting.pop(model)
            if count > 1:
                _resting[model] = count - 1, awake
            else:
                for one in awake:
                    one.training = True


def _blocks(batch: Batch) -> Iterator[Batch]:
    """Cut a batch into blocks of bounded size; a small or empty batch is one block."""
    if len(batch) <= BLOCK:
        yield batch
        return
    for start in range(0, len(batch), BLOCK):
        yield batch.select(torch.arange(start, min(start + BLOCK, len(batch))))


def _looked_up(tables: FeatureEmbedding, name: str, batch: Batch) -> Tensor:
    """Look a feature up; an ordinary table on the CPU is read as it stands, for nothing that is encoded is padding."""
    table, column = tables.lookup(name), batch.columns.get(name)
    weight = table.weight if type(table) is CategoryEmbedding and table.max_norm is None else None
    if weight is not None and weight.is_cpu and isinstance(column, Tensor):
        try:
            return weight.index_select(0, column)
        except IndexError:
            pass  # below, the feature is named
    return tables.vectors_of(name, batch)


def _block_part(model: MatrixFactorization, batch: Batch, names: Sequence[str]) -> Part:
    device = model.offset.device
    moved = batch if device.type == "cpu" else batch.to(device)
    with at_rest(model):
        with_vector = [_looked_up(model.vectors, name, moved) for name in names if name in model.vectors.names]
        vectors = functools.reduce(torch.add, with_vector or [model.side_vectors(moved, names)]).cpu()
        with_bias = [name for name in names if name in model.biases.names]
        biases = {name: _looked_up(model.biases, name, moved)[:, 0].cpu().double() for name in with_bias}
    return Part(vectors, biases)
