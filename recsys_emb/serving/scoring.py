"""Exact scores: one pair, one number, whatever the batch, its order or the device.

The model's sums of lookups are taken as they are, in float32; what follows, the products and the additions, is
float64 on the CPU, so that explanations add up to scores and rankings agree with them.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch
from recsys_emb.errors import FitError, counted
from recsys_emb.models.matrix_factorization import MatrixFactorization

BLOCK = 2**16
_trusted: weakref.WeakKeyDictionary[MatrixFactorization, dict[str, tuple[int, int]]] = weakref.WeakKeyDictionary()


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
    blocks = [_block_terms(model, block) for block in _blocks(batch)]
    return {name: torch.cat([block[name] for block in blocks]) for name in blocks[0]}


def sides(model: MatrixFactorization, batch: Batch, names: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """Sum one side: vectors float32 ``(B, D)`` and biases float64 ``(B,)``, on the CPU, in standard units."""
    vectors, biases = [], []
    for block in _blocks(batch):
        moved = block.to(model.offset.device)
        with at_rest(model):
            vectors.append(model.side(moved, names)[0].cpu())
            with_bias = [name for name in names if name in model.biases.names]
            parts = [model.biases.vectors_of(name, moved)[:, 0].cpu().double() for name in with_bias]
        biases.append(functools.reduce(torch.add, parts))
    return torch.cat(vectors), torch.cat(biases)


def check_finite(model: MatrixFactorization) -> None:
    """Refuse a model that training has ruined: its best items would look plausible.

    Weights that `trust` vouched for are not read until torch changes them.

    Raises
    ------
    FitError
        Naming the first table with weights that are not finite, and how many.
    """
    if model in _trusted and _trusted[model] == _versions(model):
        return
    _trusted.pop(model, None)
    for name, tensor in model.state_dict().items():
        # A sum is quick to take and finite only if all of its terms are; it may overflow, so it does not decide.
        if tensor.sum().isfinite():
            continue
        finite = tensor.isfinite()
        if not finite.all():
            bad = int(finite.logical_not().sum())
            raise FitError(
                f"Recommender: expected finite weights, got {counted(bad, 'number')} not finite in {name!r}. "
                "Fit again with a lower learning rate."
            )


def trust(model: MatrixFactorization) -> None:
    """Vouch for weights that were found finite before they were saved."""
    _trusted[model] = _versions(model)


def _versions(model: MatrixFactorization) -> dict[str, tuple[int, int]]:
    """Say where each tensor is and how often torch has changed it."""
    tensors = model.state_dict(keep_vars=True)
    return {name: (tensor.data_ptr(), tensor._version) for name, tensor in tensors.items()}


@contextmanager
def at_rest(model: MatrixFactorization) -> Iterator[None]:
    """Switch dropout and gradients off inside, and the mode back after."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def _blocks(batch: Batch) -> Iterator[Batch]:
    """Cut a batch into blocks of bounded size; an empty batch is one block."""
    for start in range(0, max(len(batch), 1), BLOCK):
        yield batch.select(torch.arange(start, min(start + BLOCK, len(batch))))


def _block_terms(model: MatrixFactorization, batch: Batch) -> dict[str, Tensor]:
    moved = batch.to(model.offset.device)
    with at_rest(model):
        users, items = (model.side(moved, names)[0].cpu().double() for names in (model.user_names, model.item_names))
        biases = {name: column[:, 0].cpu().double() for name, column in model.biases(moved).items()}
        offset, scale = model.offset.cpu().double(), model.scale.cpu().double()
    named = {f"bias:{name}": scale * column for name, column in biases.items()}
    return {"offset": offset.expand(len(batch)), **named, "interaction": scale * (users * items).sum(-1)}
