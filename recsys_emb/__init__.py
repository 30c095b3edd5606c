"""Recommender-system feature embeddings: pandas in, tensors out.

A `Schema` declares the columns, a `FeatureEncoder` turns any table into a `Batch` of indices, lookups turn indices
into vectors, and a `Recommender` trains, judges, recommends, saves and grows a matrix factorization over them.
"""

from recsys_emb._version import __version__
from recsys_emb.artifact.inspecting import inspect
from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.evaluation.splitting import split_last, split_random, split_time
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
    "Recommender",
    "RefuseUnknown",
    "RowWiseAdagrad",
    "RowWiseAdagradUpdate",
    "SGDUpdate",
    "SampledSoftmax",
    "Schema",
    "SequentialSGD",
    "SinusoidalPosition",
    "SquaredError",
    "UnknownBuckets",
    "UnknownRow",
    "Vocabulary",
    "ZeroRows",
    "__version__",
    "inspect",
    "one_hot",
    "report",
    "split_last",
    "split_random",
    "split_time",
    "suggested_dim",
]
