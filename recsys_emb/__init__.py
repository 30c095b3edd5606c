"""Recommender-system feature embeddings: pandas in, tensors out.

A `Schema` declares the columns, a `FeatureEncoder` turns any table into a `Batch` of indices, lookups turn indices
into vectors, and a `Recommender` trains, judges, recommends, saves and grows a matrix factorization over them.

Names load when they are first asked for (PEP 562): a `CategoryEmbedding` inside somebody's own module costs torch and
nothing more.
"""

from __future__ import annotations

import importlib
import threading
from typing import TYPE_CHECKING, Any

from recsys_emb import errors
from recsys_emb._version import __version__

if TYPE_CHECKING:
    from recsys_emb.artifact.inspecting import inspect
    from recsys_emb.encoding.batch import Batch, Jagged
    from recsys_emb.encoding.encoded_folder import EncodedRows
    from recsys_emb.encoding.encoder import FeatureEncoder
    from recsys_emb.engines.local import Local
    from recsys_emb.evaluation.splitting import split_last, split_random, split_time
    from recsys_emb.integrations.ray import Ray
    from recsys_emb.loading.loader import BatchLoader
    from recsys_emb.lookup.category import CategoryEmbedding
    from recsys_emb.lookup.feature_embedding import FeatureEmbedding
    from recsys_emb.lookup.fused_embedding import FusedEmbedding
    from recsys_emb.lookup.hashed import HashedEmbedding
    from recsys_emb.lookup.new_rows import DrawnRows, InheritedRows, MeanRows, PretrainedRows, ZeroRows
    from recsys_emb.lookup.one_hot import OneHotProjection, one_hot
    from recsys_emb.lookup.position import LearnedPosition, SinusoidalPosition
    from recsys_emb.lookup.pretrained import PretrainedVectors
    from recsys_emb.lookup.quotient_remainder import QuotientRemainderEmbedding
    from recsys_emb.lookup.row_rules import AdagradUpdate, LazyAdamUpdate, RowWiseAdagradUpdate, SGDUpdate
    from recsys_emb.lookup.widths import suggested_dim
    from recsys_emb.models.matrix_factorization import MatrixFactorization
    from recsys_emb.recommender import Recommender
    from recsys_emb.reporting.report import report
    from recsys_emb.schema.columns import Categorical, History, MultiCategorical, Numeric, Position
    from recsys_emb.schema.schema import Schema
    from recsys_emb.schema.tables import (
        Hashed,
        Lookup,
        OneHot,
        QuotientRemainder,
        RefuseUnknown,
        UnknownBuckets,
        UnknownRow,
    )
    from recsys_emb.training.fitting import EarlyStopping
    from recsys_emb.training.losses import BPR, Logistic, SampledSoftmax, SquaredError
    from recsys_emb.training.minibatch import Minibatch
    from recsys_emb.training.optim import LazyAdam, RowWiseAdagrad
    from recsys_emb.training.sequential import SequentialSGD
    from recsys_emb.vocabulary.reserved import MISSING_INDEX, PADDING_INDEX, UNKNOWN_INDEX
    from recsys_emb.vocabulary.spilling import Spill
    from recsys_emb.vocabulary.vocabulary import Vocabulary

__all__ = [
    "BPR",
    "MISSING_INDEX",
    "PADDING_INDEX",
    "UNKNOWN_INDEX",
    "AdagradUpdate",
    "Batch",
    "BatchLoader",
    "Categorical",
    "CategoryEmbedding",
    "DrawnRows",
    "EarlyStopping",
    "EncodedRows",
    "FeatureEmbedding",
    "FeatureEncoder",
    "FusedEmbedding",
    "Hashed",
    "HashedEmbedding",
    "History",
    "InheritedRows",
    "Jagged",
    "LazyAdam",
    "LazyAdamUpdate",
    "LearnedPosition",
    "Local",
    "Logistic",
    "Lookup",
    "MatrixFactorization",
    "MeanRows",
    "Minibatch",
    "MultiCategorical",
    "Numeric",
    "OneHot",
    "OneHotProjection",
    "Position",
    "PretrainedRows",
    "PretrainedVectors",
    "QuotientRemainder",
    "QuotientRemainderEmbedding",
    "Ray",
    "Recommender",
    "RefuseUnknown",
    "RowWiseAdagrad",
    "RowWiseAdagradUpdate",
    "SGDUpdate",
    "SampledSoftmax",
    "Schema",
    "SequentialSGD",
    "SinusoidalPosition",
    "Spill",
    "SquaredError",
    "UnknownBuckets",
    "UnknownRow",
    "Vocabulary",
    "ZeroRows",
    "__version__",
    "errors",
    "inspect",
    "one_hot",
    "report",
    "split_last",
    "split_random",
    "split_time",
    "suggested_dim",
]

# Where each name is defined; the imports above say the same to type checkers.
_ROOMS = {
    "artifact.inspecting": "inspect",
    "encoding.batch": "Batch Jagged",
    "encoding.encoded_folder": "EncodedRows",
    "encoding.encoder": "FeatureEncoder",
    "engines.local": "Local",
    "evaluation.splitting": "split_last split_random split_time",
    "integrations.ray": "Ray",
    "loading.loader": "BatchLoader",
    "lookup.category": "CategoryEmbedding",
    "lookup.feature_embedding": "FeatureEmbedding",
    "lookup.fused_embedding": "FusedEmbedding",
    "lookup.hashed": "HashedEmbedding",
    "lookup.new_rows": "DrawnRows InheritedRows MeanRows PretrainedRows ZeroRows",
    "lookup.one_hot": "OneHotProjection one_hot",
    "lookup.position": "LearnedPosition SinusoidalPosition",
    "lookup.pretrained": "PretrainedVectors",
    "lookup.quotient_remainder": "QuotientRemainderEmbedding",
    "lookup.row_rules": "AdagradUpdate LazyAdamUpdate RowWiseAdagradUpdate SGDUpdate",
    "lookup.widths": "suggested_dim",
    "models.matrix_factorization": "MatrixFactorization",
    "recommender": "Recommender",
    "reporting.report": "report",
    "schema.columns": "Categorical History MultiCategorical Numeric Position",
    "schema.schema": "Schema",
    "schema.tables": "Hashed Lookup OneHot QuotientRemainder RefuseUnknown UnknownBuckets UnknownRow",
    "training.fitting": "EarlyStopping",
    "training.losses": "BPR Logistic SampledSoftmax SquaredError",
    "training.minibatch": "Minibatch",
    "training.optim": "LazyAdam RowWiseAdagrad",
    "training.sequential": "SequentialSGD",
    "vocabulary.reserved": "MISSING_INDEX PADDING_INDEX UNKNOWN_INDEX",
    "vocabulary.spilling": "Spill",
    "vocabulary.vocabulary": "Vocabulary",
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names.split()}
# Rooms of a wing import each other: two threads that enter by different ones would find half of them.
_ENTERING = threading.RLock()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        hint = "" if name.startswith("_") else errors.did_you_mean(name, __all__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}" + (hint and f".{hint}"))
    with _ENTERING:
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
