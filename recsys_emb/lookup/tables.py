"""From a declaration to the table that it asks for."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, cast

from recsys_emb.lookup.base import IndexLookup, seeded_generator
from recsys_emb.lookup.category import CategoryEmbedding
from recsys_emb.lookup.hashed import HashedEmbedding
from recsys_emb.lookup.history import HistoryEmbedding
from recsys_emb.lookup.numeric import NumericProjection
from recsys_emb.lookup.one_hot import OneHotProjection
from recsys_emb.lookup.quotient_remainder import QuotientRemainderEmbedding
from recsys_emb.schema.columns import Categorical, Feature, History, MultiCategorical, Numeric
from recsys_emb.schema.schema import Schema
from recsys_emb.schema.tables import Hashed, Lookup, OneHot, QuotientRemainder, Table
from recsys_emb.vocabulary.reserved import PADDING_INDEX

FeatureTable: TypeAlias = IndexLookup | NumericProjection | HistoryEmbedding

_PLACES_BEFORE_POSITIONS = 3  # padding, missing, unknown


class TableSizes(Protocol):
    """What lookups need of an encoder: its schema, and how many rows each feature's table has."""

    @property
    def schema(self) -> Schema:
        """The declarations."""

    def num_embeddings(self, name: str) -> int:
        """Rows of the table of the feature called ``name``, reserved rows included."""


def owner_of(feature: Feature) -> str:
    """Name of the feature whose table this one reads: its own, unless the table is shared."""
    if isinstance(feature, (Categorical, MultiCategorical)) and feature.share_table:
        return feature.vocabulary_name
    return feature.name


def real_values(feature: Feature, sizes: TableSizes) -> int:
    """Count the real values of a feature that is no `Numeric`; of a `History` they are the items."""
    keyed = pair_of(sizes.schema)[1] if isinstance(feature, History) else feature
    return max(0, sizes.num_embeddings(feature.name) - _reserved(keyed))


def pair_of(schema: Schema) -> tuple[Categorical, Categorical]:
    """User and item of a schema that declares a `History`, and hence both."""
    return cast("Categorical", schema.user), cast("Categorical", schema.item)


def build_table(
    feature: Feature, sizes: TableSizes, embedding_dim: int, *, init_std: float, seed: int, sparse: bool
) -> FeatureTable:
    """Make a feature's table, a function of the seed and the name of the table's owner alone."""
    owner = owner_of(feature)
    common: dict[str, Any] = {"init_std": init_std, "generator": seeded_generator(seed, owner), "name": owner}
    if isinstance(feature, Numeric):
        return NumericProjection(embedding_dim, **common)
    common |= {"padding_index": PADDING_INDEX}
    if isinstance(feature, History):
        return _history_table(feature, sizes, embedding_dim, sparse=sparse, common=common)
    common |= {"reserved": _reserved(feature)}
    table = feature.table if isinstance(feature, (Categorical, MultiCategorical)) else Lookup()
    return _index_table(table, sizes.num_embeddings(feature.name), embedding_dim, sparse=sparse, common=common)


def _history_table(
    feature: History, sizes: TableSizes, embedding_dim: int, *, sparse: bool, common: dict[str, Any]
) -> HistoryEmbedding:
    user, item = pair_of(sizes.schema)
    return HistoryEmbedding(
        sizes.num_embeddings(item.name),
        embedding_dim,
        num_users=sizes.num_embeddings(user.name),
        max_length=feature.max_length,
        reserved=_reserved(item),
        reserved_users=_reserved(user),
        sparse=sparse,
        **common,
    )


def _index_table(
    table: Table, num_embeddings: int, embedding_dim: int, *, sparse: bool, common: dict[str, Any]
) -> IndexLookup:
    match table:
        case Lookup():
            return CategoryEmbedding(num_embeddings, embedding_dim, sparse=sparse, **common)
        case OneHot(dense_limit=limit):
            return OneHotProjection(num_embeddings, embedding_dim, dense_limit=limit, **common)
        case Hashed(num_embeddings=rows, num_hashes=hashes):
            return HashedEmbedding(
                num_embeddings, embedding_dim, num_embeddings=rows, num_hashes=hashes, sparse=sparse, **common
            )
        case QuotientRemainder(buckets=buckets):
            return QuotientRemainderEmbedding(num_embeddings, embedding_dim, buckets=buckets, sparse=sparse, **common)


def _reserved(feature: Feature) -> int:
    """Rows that stand before a feature's real values."""
    if isinstance(feature, (Categorical, MultiCategorical)):
        return 2 + feature.unknown.rows
    return _PLACES_BEFORE_POSITIONS
