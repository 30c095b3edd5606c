"""Which tables a model has, and where they are to stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from recsys_emb.errors import SchemaError
from recsys_emb.integrations.torchrec.placement import ByFeature, ColumnWise, TableWise, dealt_out, placement_of
from recsys_emb.integrations.torchrec.spread import Spread
from recsys_emb.integrations.torchrec.tables import Table
from recsys_emb.lookup.base import IndexLookup
from recsys_emb.lookup.category import CategoryEmbedding
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.lookup.numeric import NumericProjection
from recsys_emb.lookup.tables import owner_of
from recsys_emb.models.matrix_factorization import MatrixFactorization

PARTS = ("vectors", "biases")
"""Where a `MatrixFactorization` keeps its tables."""


class Layout(NamedTuple):
    """The tables of a model.

    Parameters
    ----------
    tables
        By part: vectors and biases.
    readers
        By the owner of a table, the names of the features that read it.
    """

    tables: dict[str, list[Table]]
    readers: dict[str, list[str]]


def lay_out(plain: MatrixFactorization, placement: ByFeature, processes: int) -> Layout:
    """Say where the tables of a model are to stand.

    Raises
    ------
    SchemaError
        When a feature has a table whose rows cannot be fetched one by one.
    """
    readers: dict[str, list[str]] = {}
    for feature in plain.schema.features:
        _check_kind(plain, feature.name)
        readers.setdefault(owner_of(feature), []).append(feature.name)
    found = {part: _owned(getattr(plain, part)) for part in PARTS}
    sizes = [table.num_embeddings * table.embedding_dim for part in PARTS for _, table in found[part]]
    processes_of = iter(dealt_out(sizes, processes))
    tables: dict[str, list[Table]] = {part: [] for part in PARTS}
    for part in PARTS:
        for place, (owner, table) in enumerate(found[part]):
            wanted = placement_of(placement, readers[owner])
            one_column = part == "biases" and isinstance(wanted, ColumnWise)
            tables[part].append(
                Table(
                    name=f"{part}_{place}",
                    owner=owner,
                    weight=f"{part}.tables.{place}.weight",
                    spread=Spread.of(table.num_embeddings),
                    reserved=table.reserved if isinstance(table, IndexLookup) else 0,
                    # A number's vector is drawn, that of its being missing begins as zeros.
                    drawn=table.num_embeddings if isinstance(table, IndexLookup) else 1,
                    placement=TableWise() if one_column else wanted,
                    process=next(processes_of),
                )
            )
    return Layout(tables, readers)


def _owned(embedding: FeatureEmbedding) -> Sequence[tuple[str, CategoryEmbedding | NumericProjection]]:
    """Give the distinct tables, in their order, with the owner of each."""
    owners: dict[int, str] = {}
    for name in embedding.names:
        owners.setdefault(id(embedding.lookup(name)), owner_of(embedding.schema[name]))
    tables = cast("list[CategoryEmbedding | NumericProjection]", list(embedding.tables))
    return [(owners[id(table)], table) for table in tables]


def _check_kind(plain: MatrixFactorization, name: str) -> None:
    for embedding in (plain.vectors, plain.biases):
        if name in embedding.names and not isinstance(embedding.lookup(name), (CategoryEmbedding, NumericProjection)):
            got = type(embedding.lookup(name)).__name__
            raise SchemaError(
                f"ShardedFactorization: expected a table with a row per value for {name!r}, got a {got}. "
                "Declare it with table=Lookup(), or train in one process."
            )
