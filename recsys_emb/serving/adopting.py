"""From a model that was trained elsewhere to a folder that `Recommender.load` reads."""

from __future__ import annotations

import os
from typing import Any

from recsys_emb.artifact.contents import save_artifact
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.serving.fitted import Strength
from recsys_emb.serving.keeping import pack
from recsys_emb.serving.learning import Plan, concluded, open_again, read_rows
from recsys_emb.serving.scoring import at_rest
from recsys_emb.training.history import FitHistory
from recsys_emb.training.objective import Objective


def save_recommender(
    folder: str | os.PathLike[str],
    model: MatrixFactorization,
    encoder: FeatureEncoder,
    train: Any,
    objective: Objective,
    *,
    history: FitHistory | None = None,
) -> None:
    """Save a model as what `Recommender.load` reads.

    Parameters
    ----------
    folder
        Where to.
    model
        Trained: what `ShardedFactorization.gathered` or `read_factorization` gave.
    encoder
        The encoder that it was made with.
    train
        The training rows: who is known, with which features, and who has seen what. They are encoded in memory.
    objective
        What the model was trained for.
    history
        What `train_sharded` gave.
    """
    schema = encoder.to_state().schema
    source = open_again(train, schema, where="save_recommender")
    batch = read_rows(encoder, source, where="save_recommender", needed=(schema.label, schema.weight))
    strength = Strength.of(None, objective)
    with at_rest(model):
        fitted = concluded(encoder, model, batch, objective, history or FitHistory(), strength=strength)
        save_artifact(folder, pack(Plan(objective), fitted))
