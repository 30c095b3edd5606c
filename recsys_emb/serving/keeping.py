"""Between a fitted recommender and what a saved folder holds."""

from __future__ import annotations

from recsys_emb.artifact.contents import Artifact
from recsys_emb.serving.fitted import Fitted
from recsys_emb.serving.learning import Plan
from recsys_emb.serving.memory import Memory
from recsys_emb.serving.occurrences import read_occurrences
from recsys_emb.serving.prior import Prior
from recsys_emb.serving.settings import (
    read_history,
    read_label,
    read_lineage,
    read_objective,
    read_plan,
    read_prior,
    read_strength,
    write_settings,
)
from recsys_emb.serving.weights import check_numbers, trust


def pack(plan: Plan, fitted: Fitted) -> Artifact:
    """Gather what is to be saved.

    Raises
    ------
    ArtifactError
        When the objective is not one of this library.
    FitError
        When weights are not finite.
    """
    check_numbers(fitted.model)
    memory, settings = fitted.memory, write_settings(plan, fitted)
    return Artifact(fitted.encoder, fitted.model, memory.users, memory.items, memory.seen, settings)


def unpack(saved: Artifact) -> tuple[Plan, Fitted]:
    """Give back what `pack` gathered.

    Raises
    ------
    ArtifactError
        When the settings are not those of a recommender.
    """
    saved.model.eval()
    trust(saved.model)
    said, memory = saved.settings, Memory(saved.users, saved.items, saved.seen)
    objective, label, history = read_objective(said), read_label(said), read_history(said)
    plan, lineage = read_plan(said), read_lineage(said, saved.encoder)
    strength = read_strength(said, plan.solver, objective)
    prior = read_prior(said, saved.model) or Prior.of(
        saved.model, memory.users.key, memory.users.indices, objective, history
    )
    seen = read_occurrences(said.get("occurrences"), saved.encoder)
    return plan, Fitted(saved.encoder, saved.model, memory, objective, label, history, lineage, strength, prior, seen)
