"""What a recommender was told and saw, as JSON-able data and back: plain names and numbers, nothing to execute."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import ArtifactError, FitError, listed
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.serving.fitted import Fitted, LabelRange, Strength
from recsys_emb.serving.learning import Plan
from recsys_emb.serving.lineage import Step
from recsys_emb.serving.prior import Prior
from recsys_emb.training.history import Epoch, FitHistory
from recsys_emb.training.losses import BPR, Logistic, SampledSoftmax, SquaredError
from recsys_emb.training.minibatch import Minibatch
from recsys_emb.training.objective import EarlyStopping, Objective
from recsys_emb.training.optim import LazyAdam, RowWiseAdagrad
from recsys_emb.training.sequential import SequentialSGD

_OBJECTIVES = (SquaredError, Logistic, BPR, SampledSoftmax)
_SOLVERS = (SequentialSGD, Minibatch)
_OPTIMIZERS = {optimizer.__name__: optimizer for optimizer in (LazyAdam, RowWiseAdagrad)}
_PLAIN = (bool, int, float, str, type(None))


def write_settings(plan: Plan, fitted: Fitted) -> dict[str, Any]:
    """Describe what serving and further training need beside encoder, model and memory.

    A solver with an optimizer of the caller's own is left out, and chosen anew after loading; so is whatever else is
    not of this library.

    Warns
    -----
    UserWarning
        Naming what is left out.

    Raises
    ------
    ArtifactError
        When the objective is not one of this library, so that no loader could know what a score means.
    """
    objective = describe(fitted.objective)
    if objective is None:
        got = type(fitted.objective).__name__
        raise ArtifactError(
            f"Recommender.save: expected an objective of recsys_emb, got {got}. Save the model's state_dict instead."
        )
    asked = {"objective": plan.objective, "solver": plan.solver, "early_stopping": plan.early_stopping}
    described = {name: describe(declared) for name, declared in asked.items()}
    for name, declared in asked.items():
        if declared is not None and described[name] is None:
            _warn_left_out(name, declared)
    return {
        "objective": objective,
        "label": _without_nan(dataclasses.asdict(fitted.label)),
        "history": _without_nan(dataclasses.asdict(fitted.history)),
        "lineage": [dataclasses.asdict(step) for step in fitted.lineage],
        "strength": fitted.strength._asdict(),
        "prior": _without_nan(fitted.prior._asdict()),
        "occurrences": dict(fitted.occurrences),
        "plan": {**described, "epochs": plan.epochs, "seed": plan.seed, "progress": plan.progress},
    }


def _warn_left_out(name: str, declared: object) -> None:
    optimizer = getattr(declared, "optimizer", None)
    foreign = isinstance(declared, Minibatch) and optimizer not in _OPTIMIZERS.values()
    shown = getattr(optimizer, "__name__", None) or repr(optimizer)
    expected = {"early_stopping": "rule for stopping"}.get(name, name)
    got = f"the optimizer {shown}" if foreign else type(declared).__name__
    warnings.warn(
        f"Recommender.save: expected a {expected} of recsys_emb, got {got}. It is not saved; the loaded recommender "
        "serves as this one does, and chooses for itself where training goes on.",
        UserWarning,
        stacklevel=5,
    )


def read_plan(settings: Mapping[str, Any]) -> Plan:
    """Read how the caller wanted to learn."""
    said = _mapping(settings.get("plan"), "plan")
    return _plan(
        objective=restore(said.get("objective"), *_OBJECTIVES),
        solver=restore(said.get("solver"), *_SOLVERS),
        epochs=_whole(said.get("epochs"), "epochs"),
        early_stopping=restore(said.get("early_stopping"), EarlyStopping),
        seed=_whole(said.get("seed"), "seed") or 0,
        progress=None if said.get("progress") is None else bool(said["progress"]),
    )


def _plan(**said: Any) -> Plan:
    try:
        return Plan(**said)
    except FitError as error:
        got = str(error).rstrip(".")
        raise ArtifactError(f"recommender.json: expected a plan, got {got}. Save it again.") from error


def read_objective(settings: Mapping[str, Any]) -> Objective:
    """Read what the model was trained for."""
    objective = restore(settings.get("objective"), *_OBJECTIVES)
    if objective is None:
        raise ArtifactError("recommender.json: expected an objective, got none. Save the recommender again.")
    return cast("Objective", objective)


def read_label(settings: Mapping[str, Any]) -> LabelRange:
    """Read what training saw of the label."""
    said = _mapping(settings.get("label"), "label")
    low, high = (_number(said.get(name), name) for name in ("low", "high"))
    return LabelRange(-math.inf if low is None else low, math.inf if high is None else high, bool(said.get("binary")))


def read_history(settings: Mapping[str, Any]) -> FitHistory:
    """Read how the fit went; an empty history where none was kept."""
    said = _mapping(settings.get("history"), "history")
    try:
        epochs, refit = ([_epoch(*line) for line in said.get(name, [])] for name in ("epochs", "refit"))
    except (TypeError, ValueError) as error:
        raise ArtifactError(f"recommender.json: history: expected epochs, got {error}. Save it again.") from error
    best, seconds = _whole(said.get("best_epoch"), "best_epoch"), _number(said.get("seconds"), "seconds")
    return FitHistory(epochs, best or 0, refit, seconds or 0.0, bool(said.get("interrupted")))


def read_lineage(settings: Mapping[str, Any], encoder: FeatureEncoder) -> tuple[Step, ...]:
    """Read where the model comes from; its last step must have led to this encoder.

    Raises
    ------
    ArtifactError
        When the last step led elsewhere.
    """
    try:
        lineage = tuple(
            Step(str(one["fingerprint"]), int(one["rows"]), dict(one["values"])) for one in settings["lineage"]
        )
    except (KeyError, TypeError, ValueError) as error:
        got = type(error).__name__
        raise ArtifactError(f"recommender.json: expected a lineage, got {got} {error}. Save it again.") from error
    if not lineage or lineage[-1].fingerprint != encoder.fingerprint:
        got = lineage[-1].fingerprint[:12] if lineage else "nothing"
        raise ArtifactError(
            f"recommender.json: expected a lineage that leads to {encoder.fingerprint[:12]}, got {got}. Save it again."
        )
    return lineage


def read_strength(settings: Mapping[str, Any], solver: object, objective: Objective) -> Strength:
    """Read how strong L2 was in training; where it is not said, as the solver would have it now."""
    said = _mapping(settings.get("strength"), "strength")
    found = (_number(said.get(name), name) for name in Strength._fields)
    kept = Strength.of(solver, objective)
    return Strength(*(own if one is None else one for one, own in zip(found, kept, strict=True)))


def read_prior(settings: Mapping[str, Any], model: MatrixFactorization) -> Prior | None:
    """Read how the known users differ; None where it is not said."""
    said = _mapping(settings.get("prior"), "prior")
    spread, width = said.get("spread"), model.vectors.embedding_dim + 1
    if not said:
        return None
    noise = _number(said.get("noise"), "noise")
    if not isinstance(spread, list) or len(spread) != width or noise is None:
        raise ArtifactError(f"recommender.json: expected a prior of {width} numbers, got {said!r}. Save it again.")
    numbers = (_number(one, "spread") for one in spread)
    return Prior(noise, tuple(math.inf if one is None else one for one in numbers))


def describe(declared: object) -> dict[str, Any] | None:
    """Describe a declaration of this library by its name and fields; None for what cannot be described.

    >>> describe(Logistic(negatives=5))
    {'kind': 'Logistic', 'negatives': 5}
    >>> describe(object()) is None
    True
    """
    # A caller's subclass may mean something else, so the very class is asked for.
    if not dataclasses.is_dataclass(declared) or type(declared) not in (*_OBJECTIVES, *_SOLVERS, EarlyStopping):
        return None
    fields = {field.name: getattr(declared, field.name) for field in dataclasses.fields(declared) if field.init}
    named = {name: _plain(value) for name, value in fields.items()}
    return (
        {"kind": type(declared).__name__, **named} if all(isinstance(one, _PLAIN) for one in named.values()) else None
    )


def _plain(value: object) -> object:
    """Say a field in plain names and numbers, if it can be said."""
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    return next((name for name, optimizer in _OPTIMIZERS.items() if value is optimizer), value)


def restore(described: object, *kinds: Any) -> Any:
    """Make the declaration that `describe` described; None stays None, and a field that is absent has its default.

    >>> restore({"kind": "Logistic"}, Logistic)
    Logistic(negatives=0)

    Raises
    ------
    ArtifactError
        When it is none of ``kinds``, or not as this version declares it.
    """
    if described is None:
        return None
    known = {kind.__name__: kind for kind in kinds}
    fields = dict(_mapping(described, "a declaration"))
    kind = fields.pop("kind", None)
    if not isinstance(kind, str) or kind not in known:
        raise ArtifactError(f"recommender.json: expected one of {listed(known)}, got {kind!r}. Save it again.")
    if "optimizer" in fields:
        fields["optimizer"] = _OPTIMIZERS.get(str(fields["optimizer"]))
    try:
        return known[kind](**fields)
    except (TypeError, ValueError) as error:
        got = str(error).rstrip(".")
        raise ArtifactError(f"recommender.json: expected settings of {kind}, got {got}. Save it again.") from error


def _epoch(epoch: int, train_loss: float | None, validation: float | None) -> Epoch:
    return Epoch(int(epoch), math.nan if train_loss is None else float(train_loss), validation)


def _without_nan(value: Any) -> Any:
    """Replace what JSON cannot say, infinities and NaN, by None."""
    if isinstance(value, dict):
        return {name: _without_nan(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _mapping(value: object, name: str) -> Mapping[str, Any]:
    if value is None or isinstance(value, Mapping):
        return value or {}
    raise ArtifactError(f"recommender.json: expected {name} to be an object, got {value!r}. Save it again.")


def _number(value: object, name: str) -> float | None:
    if value is None:
        return None
    # An integer may be longer than any float.
    if isinstance(value, float) or (type(value) is int and abs(value) < 2**63):
        return float(value)
    raise ArtifactError(f"recommender.json: expected {name} to be a number, got {value!r}. Save it again.")


def _whole(value: object, name: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ArtifactError(f"recommender.json: expected {name} to be an integer, got {value!r}. Save it again.")
