"""Training rows of a model as the row-by-row kernels read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from recsys_emb import kernels
from recsys_emb.encoding.batch import Batch
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.training.losses import BPR, Logistic, SquaredError
from recsys_emb.training.objective import Objective, Units, UnseenItems
from recsys_emb.training.plan import row_lists
from recsys_emb.training.sampling import Interactions
from recsys_emb.training.stack import Stack

if TYPE_CHECKING:
    from recsys_emb.kernels.sequential import Contrast, Examples, Histories, Task

_ONE = torch.zeros(1, dtype=torch.int64)


def task_of(model: MatrixFactorization, objective: Objective) -> Task:
    """Say what is minimised; the seed is set anew for each epoch."""
    room = kernels.sequential
    link = {SquaredError: room.SQUARED, Logistic: room.LOGISTIC, BPR: room.PAIRWISE}[type(objective)]
    constant = objective.constant(Units(float(model.offset), float(model.scale)))
    contrast = objective.contrast
    return room.Task(link, np.float32(constant), contrast.count if isinstance(contrast, UnseenItems) else 0, 0)


def examples_of(model: MatrixFactorization, rows: Batch, objective: Objective, stack: Stack) -> Examples:
    """List what rows with pooling weights name, what they want, and what they weigh."""
    label = torch.ones(len(rows)) if rows.label is None else rows.label
    weights = torch.ones(len(rows)) if rows.weight is None else rows.weight
    targets = objective.targets(label, Units(float(model.offset), float(model.scale)))
    items = [name for name in model.item_names if not (objective.contrast and _is_place(model, name))]
    users = [name for name in model.user_names if name not in model.vectors.histories]
    return kernels.sequential.Examples(
        row_lists(rows, users, stack.first_rows),
        row_lists(rows, items, stack.first_rows),
        _histories(model, rows, stack),
        targets.numpy(),
        weights.float().numpy(),
    )


def _histories(model: MatrixFactorization, rows: Batch, stack: Stack) -> Histories:
    """Give each user what it had; one empty history for all where the model has none."""
    tables, user = model.vectors.histories, model.schema.user
    if not tables or user is None:
        return kernels.sequential.Histories(np.zeros(len(rows), np.int64), row_lists(rows.select(_ONE), [], {}))
    past = Batch({name: table.lists() for name, table in tables.items()})
    return kernels.sequential.Histories(rows.indices(user.name).numpy(), row_lists(past, past.names, stack.first_rows))


def contrast_of(model: MatrixFactorization, rows: Batch, interactions: Interactions, stack: Stack) -> Contrast:
    """List the items that are drawn as negatives, and who has which."""
    catalogue = interactions.catalogue
    known = catalogue.features.select(torch.arange(len(catalogue)))
    places = [name for name in model.item_names if _is_place(model, name)]
    return kernels.sequential.Contrast(
        interactions.users.numpy(),
        interactions.seen.offsets.numpy(),
        interactions.seen.items.numpy(),
        row_lists(known, catalogue.features.names, stack.first_rows),
        row_lists(rows, places, stack.first_rows),
    )


def _is_place(model: MatrixFactorization, name: str) -> bool:
    return model.schema.role_of(name) == "position"


def are_pairs(examples: Examples, pace: npt.NDArray[np.float32]) -> bool:
    """Whether `pair_pass` applies: one row of weight 1 on either side, of one pace per side, none on both."""
    users, items = examples.users.rows, examples.items.rows
    if len(examples.histories.lists.rows):
        return False
    for lists in (examples.users, examples.items):
        single = len(lists.rows) == len(examples.targets) and bool((lists.offsets[1:] > lists.offsets[:-1]).all())
        named = np.zeros(len(pace), bool)
        named[lists.rows] = True
        if not single or (lists.weights != 1).any() or np.ptp(pace[named], axis=0).any():
            return False
    return bool(users.max() < items.min() or items.max() < users.min())
