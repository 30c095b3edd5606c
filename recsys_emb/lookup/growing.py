"""Which rows of a table begin when its encoder has grown, and where they begin."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from recsys_emb.encoding.columns import FIRST_POSITION
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.lineage import RowMeanings, vocabulary_of
from recsys_emb.errors import ColumnError, DataError, did_you_mean, listed
from recsys_emb.lookup.base import IndexLookup
from recsys_emb.lookup.history import HistoryEmbedding
from recsys_emb.lookup.new_rows import ByFeature, DrawnRows, Newcomers, NewRows, Start
from recsys_emb.lookup.numeric import NumericProjection
from recsys_emb.lookup.projected import ProjectedEmbedding
from recsys_emb.lookup.tables import FeatureTable, TableSizes
from recsys_emb.schema.columns import Position
from recsys_emb.vocabulary.reserved import UNKNOWN_INDEX


def ways(new_rows: ByFeature, places: Mapping[str, int]) -> dict[str, NewRows]:
    """Say for each feature how the rows of its table begin; features that share a table have one place.

    Raises
    ------
    ColumnError
        When there is no such feature.
    DataError
        When it is no way to begin.
    """
    for way in new_rows.values() if isinstance(new_rows, Mapping) else [new_rows]:
        _check_way(way)
    if not isinstance(new_rows, Mapping):
        return dict.fromkeys(places, new_rows)
    for name in new_rows:
        if name not in places:
            hint = did_you_mean(name, list(places))
            raise ColumnError(f"grow: expected new_rows for some of {listed(places)}, got {name!r}.{hint}")
    chosen = {places[name]: way for name, way in new_rows.items()}
    return {name: chosen.get(place, DrawnRows()) for name, place in places.items()}


def _check_way(way: object) -> None:
    if isinstance(way, type):
        name = way.__name__
        raise DataError(f"grow: expected new_rows such as MeanRows(), got the class {name}. Call it: {name}().")
    if not (hasattr(way, "start") and hasattr(way, "of_biases")):
        raise DataError(f"grow: expected new_rows such as MeanRows(), got {way!r}. DrawnRows() begins as at birth.")


@torch.no_grad()
def starts_of(
    tables: Mapping[str, FeatureTable],
    encoder: TableSizes,
    meanings: RowMeanings | None,
    chosen: Mapping[str, NewRows],
) -> dict[str, Start]:
    """Say where new rows will begin, before anything has grown.

    Parameters
    ----------
    tables
        By a feature that reads it, each table. Numbers and tables without a row per index are passed over.
    encoder
        The extended encoder.
    meanings
        What rows meant before.
    chosen
        By feature, how its rows begin.
    """
    starts = {}
    for name, table in tables.items():
        lookup = _rowwise(table)
        storage = None if lookup is None else lookup.storage()
        if lookup is not None and storage is not None:
            new = _newcomers(name, encoder, meanings, reserved=lookup.reserved, num_embeddings=lookup.num_embeddings)
            starts[name] = chosen[name].start(storage, new)
    return starts


@torch.no_grad()
def begin(table: FeatureTable, start: Start) -> None:
    """Write new rows into a grown table."""
    lookup = _rowwise(table)
    storage = None if lookup is None else lookup.storage()
    if storage is not None:
        rows, vectors = start
        storage[rows.to(storage.device)] = vectors.to(storage)


def _newcomers(
    name: str, encoder: TableSizes, meanings: RowMeanings | None, *, reserved: int, num_embeddings: int
) -> Newcomers:
    """Tell which rows of a feature's table begin, before it grows from ``num_embeddings`` rows."""
    feature = encoder.schema[name]
    if isinstance(feature, Position) and isinstance(encoder, FeatureEncoder) and meanings is not None:
        seen, now = set(meanings.positions[name]), encoder.to_state().positions[name]
        rows = FIRST_POSITION + torch.tensor([one for one in now if one not in seen], dtype=torch.int64)
        known = FIRST_POSITION + torch.tensor(sorted(seen), dtype=torch.int64)
        return Newcomers(rows, torch.full_like(rows, UNKNOWN_INDEX), known, None)
    rows = torch.arange(num_embeddings, max(num_embeddings, encoder.num_embeddings(name)))
    known, before = torch.arange(reserved, num_embeddings), torch.full_like(rows, UNKNOWN_INDEX)
    vocabulary = vocabulary_of(encoder.to_state(), feature) if isinstance(encoder, FeatureEncoder) else None
    if vocabulary is not None:
        before = vocabulary.unknown_indices((rows - vocabulary.first_index).numpy())
    return Newcomers(rows, before, known, vocabulary)


def _rowwise(table: FeatureTable) -> IndexLookup | None:
    """Give the lookup that holds a row per index; None for a number."""
    if isinstance(table, HistoryEmbedding):
        return table.items
    if isinstance(table, ProjectedEmbedding):
        return table.inner
    return None if isinstance(table, NumericProjection) else table
