"""Which objective and which solver, where the caller leaves it open; and why, in a sentence."""

from __future__ import annotations

import dataclasses

from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.serving.fitted import LabelRange
from recsys_emb.training.losses import Logistic, SquaredError
from recsys_emb.training.minibatch import Minibatch
from recsys_emb.training.objective import Objective
from recsys_emb.training.sequential import SequentialSGD


def choose_objective(label: str | None, seen: LabelRange) -> tuple[Objective, str]:
    """Choose by the label's name and what training saw of it.

    >>> choose_objective("clicked", LabelRange(0.0, 1.0, binary=True))
    (Logistic(negatives=0), "the label 'clicked' is 0 or 1")
    >>> choose_objective(None, LabelRange())
    (Logistic(negatives=5), 'the schema has no label, so that every row is a positive')
    """
    if label is None:
        return Logistic(negatives=5), "the schema has no label, so that every row is a positive"
    if seen.binary:
        return Logistic(), f"the label {label!r} is 0 or 1"
    return SquaredError(), f"the label {label!r} goes from {seen.low:g} to {seen.high:g}"


def settled(solver: SequentialSGD | Minibatch, objective: Objective) -> str:
    """Write a solver down with the settings that it takes from the objective; an optimizer has its own rate.

    >>> settled(SequentialSGD(l2=0.5), SquaredError())
    'SequentialSGD(learning_rate=0.01, l2=0.5, bias_l2=0.1, blocks=1)'
    >>> settled(Minibatch(), SquaredError())
    'Minibatch(optimizer=LazyAdam, batch_size=1024, l2=0.05, bias_l2=0.1)'
    """
    said = {field.name: getattr(solver, field.name) for field in dataclasses.fields(solver)}
    taken = solver.settings(objective)
    said |= {"l2": taken.l2, "bias_l2": taken.bias_l2}
    if isinstance(solver, SequentialSGD):
        said["learning_rate"] = taken.learning_rate
    parts = [
        f"{name}={value.__name__ if isinstance(value, type) else repr(value)}"
        for name, value in said.items()
        if value is not None
    ]
    return f"{type(solver).__name__}({', '.join(parts)})"


def choose_solver(model: MatrixFactorization, objective: Objective) -> tuple[SequentialSGD | Minibatch, str]:
    """Choose the row-by-row solver, or minibatches where that does not apply."""
    sequential = SequentialSGD()
    reason = sequential.why_not(model, objective)
    if reason is None:
        return sequential, "the fastest on a CPU, and it applies here"
    return Minibatch(), f"SequentialSGD does not apply: {reason}"
