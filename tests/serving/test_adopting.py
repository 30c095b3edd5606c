from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import ColumnError
from recsys_emb.models.matrix_factorization import MatrixFactorization
from recsys_emb.recommender import Recommender
from recsys_emb.schema import Categorical, Schema
from recsys_emb.serving.adopting import save_recommender
from recsys_emb.training.losses import SquaredError

FRAME = pd.DataFrame(
    {"user": ["ann", "ann", "bob", "bob", "cy"], "film": [1, 2, 1, 3, 2], "stars": [5.0, 1.0, 4.0, 2.0, 1.0]}
)
SCHEMA = Schema(user=Categorical("user"), item=Categorical("film"), label="stars", embedding_dim=4)


@pytest.fixture
def encoder() -> FeatureEncoder:
    return FeatureEncoder(SCHEMA).fit(FRAME)


def test_a_model_that_was_trained_elsewhere_answers_as_a_recommender(encoder: FeatureEncoder, tmp_path: Path) -> None:
    model = MatrixFactorization(encoder, init_std=0.5, seed=1)
    model.set_units(3.0, 0.5)
    save_recommender(tmp_path / "model", model, encoder, FRAME, SquaredError(clip=False))

    loaded = Recommender.load(tmp_path / "model")
    assert loaded.encoder.fingerprint == encoder.fingerprint
    scores = loaded.predict(FRAME).to_numpy()
    assert torch.allclose(torch.tensor(scores).float(), model(encoder.transform(FRAME)))
    answers = loaded.recommend(["cy", "bob"], k=3)
    assert {user: set(films) for user, films in answers.groupby("user")["film"]} == {"cy": {1, 3}, "bob": {2}}
    assert all(module.training for module in model.modules())
    # Ratings are answered within what training rows hold, where the objective says so.
    save_recommender(tmp_path / "model", model, encoder, FRAME, SquaredError())
    assert Recommender.load(tmp_path / "model").predict(FRAME).between(1, 5).all()


def test_a_label_that_the_schema_declares_must_be_among_the_training_rows(
    encoder: FeatureEncoder, tmp_path: Path
) -> None:
    with pytest.raises(ColumnError) as error:
        save_recommender(
            tmp_path / "model", MatrixFactorization(encoder), encoder, FRAME[["user", "film"]], SquaredError()
        )
    assert str(error.value) == (
        "save_recommender: expected the column 'stars', which the schema declares, got none. Add it."
    )
    assert not (tmp_path / "model").exists()
