"""Predictions, what they are made of, and vectors, as pandas objects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch

from recsys_emb.encoding.columns import to_series
from recsys_emb.errors import ColumnError, did_you_mean, listed
from recsys_emb.serving.fitted import Fitted
from recsys_emb.serving.scoring import BLOCK, at_rest, score_terms, total
from recsys_emb.serving.telling import read_pairs
from recsys_emb.training.losses import Logistic, SquaredError


def predict(fitted: Fitted, frame: Any) -> pd.Series:
    """Answer `Recommender.predict`."""
    batch = read_pairs(fitted, frame)
    return pd.Series(fitted.answer(batch).numpy(), index=_index_of(frame, len(batch)), name="score", copy=False)


def explain(fitted: Fitted, frame: Any) -> pd.DataFrame:
    """Answer `Recommender.explain`."""
    batch = read_pairs(fitted, frame)
    terms = score_terms(fitted.model, batch)
    score, objective = total(terms), fitted.objective
    answer = objective.answer(score, fitted.label.low, fitted.label.high)
    if isinstance(objective, SquaredError) and objective.clip:
        terms |= {"clipping": answer - score, "score": answer}
    elif isinstance(objective, Logistic):
        terms |= {"score": score, "probability": answer}
    else:
        terms |= {"score": answer}
    return pd.DataFrame({name: term.numpy() for name, term in terms.items()}, index=_index_of(frame, len(batch)))


def embeddings(fitted: Fitted, name: str) -> pd.DataFrame:
    """Answer `Recommender.embeddings`."""
    vocabularies = fitted.encoder.vocabularies
    if name not in vocabularies:
        hint = did_you_mean(name, list(vocabularies))
        raise ColumnError(f"Recommender.embeddings: expected one of {listed(vocabularies)}, got {name!r}.{hint}")
    if name == "vector":
        raise ColumnError(
            "Recommender.embeddings: expected a feature of another name than 'vector', got 'vector'. "
            "The answer has a column of this name; rename the feature, or read model.vectors.lookup('vector')."
        )
    vocabulary, lookup = vocabularies[name], fitted.model.vectors.lookup(name)
    first, end, device = vocabulary.first_index, vocabulary.num_embeddings, fitted.model.offset.device
    with at_rest(fitted.model):
        blocks = [
            lookup(torch.arange(start, min(start + BLOCK, end), device=device)).cpu().numpy()
            for start in range(first, end, BLOCK)
        ]
    rows = [np.array(row) for block in blocks for row in block]
    return pd.DataFrame({name: to_series(vocabulary.values, name), "vector": pd.Series(rows, dtype=object)})


def _index_of(frame: Any, length: int) -> pd.Index:
    return frame.index if isinstance(frame, pd.DataFrame) else pd.RangeIndex(length)
