"""What the columns mean: frozen declarations that refuse contradictions.

Declarations hold no data and no parameters, so two models built from one schema share nothing; everything learned
from data lives in the `FeatureEncoder`.
"""

from recsys_emb.schema.columns import Categorical, Feature, History, Keyed, MultiCategorical, Numeric, Pooling, Position
from recsys_emb.schema.schema import Role, Schema
from recsys_emb.schema.tables import (
    Hashed,
    Lookup,
    OneHot,
    QuotientRemainder,
    RefuseUnknown,
    Table,
    Unknown,
    UnknownBuckets,
    UnknownRow,
)

__all__ = [
    "Categorical",
    "Feature",
    "Hashed",
    "History",
    "Keyed",
    "Lookup",
    "MultiCategorical",
    "Numeric",
    "OneHot",
    "Pooling",
    "Position",
    "QuotientRemainder",
    "RefuseUnknown",
    "Role",
    "Schema",
    "Table",
    "Unknown",
    "UnknownBuckets",
    "UnknownRow",
]
