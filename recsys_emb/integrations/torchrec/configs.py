"""A schema's tables for models of your own in TorchRec, and batches in its words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.errors import EmptySourceError, SchemaError
from recsys_emb.integrations.torchrec.door import torchrec
from recsys_emb.lookup.category import CategoryEmbedding
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.lookup.numeric import NumericProjection
from recsys_emb.lookup.pooling import pooled_weights
from recsys_emb.lookup.tables import TableSizes
from recsys_emb.schema.columns import MultiCategorical, Numeric
from recsys_emb.schema.schema import Schema
from recsys_emb.vocabulary.reserved import PADDING_INDEX


def bag_configs(
    encoder: TableSizes, *, embedding_dim: int | None = None, features: Sequence[str] | None = None
) -> list[Any]:
    """Give the tables of a schema as `EmbeddingBagConfig`, one vector per row and feature.

    Make the collection with ``is_weighted=True``, and batches by `keyed_jagged`: pooling is in the weights. Table
    ``table_<k>`` is ``tables.<k>`` of a `FeatureEmbedding`, and features are called as in the schema. Read a
    `KeyedTensor` by key: the order of its values depends on where tables stand.

    Parameters
    ----------
    encoder
        A fitted `FeatureEncoder`, or anything with its ``schema`` and ``num_embeddings(name)``.
    embedding_dim
        D; the schema's unless given. FBGEMM wants a multiple of 4.
    features
        Names of the features to embed; all of the schema's unless given.

    Raises
    ------
    SchemaError
        When a feature has no row per value, or pools by something that is no weighted sum.
    """
    made = _made(encoder, embedding_dim, features)
    config = torchrec("modules.embedding_configs").EmbeddingBagConfig
    for name in made.names:
        feature = made.schema[name]
        if isinstance(feature, MultiCategorical) and feature.pooling in ("max", "none"):
            raise SchemaError(
                f"bag_configs: expected {name!r} to pool by a weighted sum, got pooling={feature.pooling!r}. "
                "Pool it by 'mean', 'sum' or 'sqrtn', or use collection_configs."
            )
    return [config(**table) for table in _tables(made)]


def collection_configs(
    encoder: TableSizes, *, embedding_dim: int | None = None, features: Sequence[str] | None = None
) -> list[Any]:
    """Give the tables of a schema as `EmbeddingConfig`, one vector per value; else as `bag_configs`."""
    config = torchrec("modules.embedding_configs").EmbeddingConfig
    return [config(**table) for table in _tables(_made(encoder, embedding_dim, features))]


def keyed_jagged(batch: Batch, schema: Schema, *, features: Sequence[str] | None = None) -> Any:
    """Turn a batch into a `KeyedJaggedTensor`, keyed by feature, whose weights pool as the schema says.

    A feature with one value per row has lists of length 1, padding none; a number is the two rows of its table,
    weighed by the number and by whether it is missing.

    Parameters
    ----------
    batch
        Encoded.
    schema
        What its columns mean.
    features
        Names of the features, in order; all of the batch's unless given.

    Raises
    ------
    EmptySourceError
        When there are no rows, of which TorchRec makes no vectors.
    """
    if not len(batch):
        raise EmptySourceError(
            "keyed_jagged: expected at least one row, got 0 rows. TorchRec takes none; pass over it."
        )
    names = list(batch.names if features is None else features)
    lists = [_lists(batch, schema, name) for name in names]
    return torchrec("sparse.jagged_tensor").KeyedJaggedTensor(
        keys=names,
        values=torch.cat([one.values for one in lists]),
        lengths=torch.cat([one.lengths for one in lists]).int(),
        weights=torch.cat([cast("Tensor", one.weights) for one in lists]),
    )


def _made(encoder: TableSizes, embedding_dim: int | None, features: Sequence[str] | None) -> FeatureEmbedding:
    with torch.device("meta"):
        made = FeatureEmbedding(encoder, embedding_dim=embedding_dim, features=features)
    for name, table in zip(made.names, made.lookups, strict=True):
        if not isinstance(table, (CategoryEmbedding, NumericProjection)):
            got = type(table).__name__
            raise SchemaError(
                f"TorchRec: expected a table with a row per value for {name!r}, got a {got}. "
                "Declare it with table=Lookup(), or leave it out of features."
            )
    return made


def _tables(made: FeatureEmbedding) -> list[dict[str, Any]]:
    return [
        {
            "name": f"table_{place}",
            "embedding_dim": table.embedding_dim,
            "num_embeddings": table.num_embeddings,
            "feature_names": [name for name in made.names if made.lookup(name) is table],
        }
        for place, table in enumerate(cast("Sequence[CategoryEmbedding]", made.tables))
    ]


def _lists(batch: Batch, schema: Schema, name: str) -> Jagged:
    """Write a feature as lists of rows and weights."""
    feature = schema[name]
    if isinstance(feature, MultiCategorical):
        lists = pooled_weights(batch.lists(name), feature.pooling)
        weights = torch.ones_like(lists.values, dtype=torch.float32) if lists.weights is None else lists.weights
        return Jagged(lists.values, lists.offsets, weights)
    column = batch.indices(name)
    if isinstance(feature, Numeric):
        rows = torch.arange(2, device=column.device).repeat(len(column))
        return Jagged(rows, 2 * torch.arange(len(column) + 1, device=column.device), column.flatten().float())
    kept = column != PADDING_INDEX
    offsets = torch.cat([kept.new_zeros(1, dtype=torch.int64), kept.cumsum(0)])
    return Jagged(column[kept], offsets, torch.ones(int(kept.sum()), device=column.device))
