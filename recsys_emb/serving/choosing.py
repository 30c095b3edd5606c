"""Which objective and which solver, where the caller leaves it open; and why, in a sentence."""

from __future__ import annotations

from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.serving.fitted import LabelRange
from recsys_emb.training.fitting import Solver
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


def choose_solver(model: MatrixFactorization, objective: Objective) -> tuple[Solver, str]:
    """Choose the row-by-row solver, or minibatches where that does not apply."""
    sequential = SequentialSGD()
    reason = sequential.why_not(model, objective)
    if reason is None:
        return sequential, "the fastest on a CPU, and it applies here"
    return Minibatch(), f"SequentialSGD does not apply: {reason}"
