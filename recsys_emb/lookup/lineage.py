"""Between tables and the encoder that sized them: whether their rows mean the same, and which ones are new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from recsys_emb.encoding.batch import UNKNOWN_INDEX
from recsys_emb.encoding.columns import FIRST_POSITION
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.lineage import RowMeanings, vocabulary_of
from recsys_emb.errors import ColumnError, LineageError, did_you_mean, listed
from recsys_emb.lookup.new_rows import ByFeature, DrawnRows, Newcomers, NewRows
from recsys_emb.lookup.tables import TableSizes
from recsys_emb.schema.columns import Position


def meanings_of(encoder: TableSizes, names: Sequence[str]) -> RowMeanings | None:
    """Sum up what table rows mean to an encoder; None for a stand-in, which knows their number alone."""
    return RowMeanings.of(encoder.to_state(), tuple(names)) if isinstance(encoder, FeatureEncoder) else None


def to_buffer(meanings: RowMeanings) -> Tensor:
    """Give the fingerprint as uint8 ``(32,)``, which travels with weights."""
    return torch.tensor(list(bytes.fromhex(meanings.fingerprint)), dtype=torch.uint8, device="cpu")


def check_weights(meanings: RowMeanings | None, saved: object) -> None:
    """Refuse weights whose saved fingerprint says that their rows mean something else.

    Raises
    ------
    LineageError
        When both sides say what rows mean, and not the same.
    """
    if meanings is None or not isinstance(saved, Tensor) or saved.is_meta:
        return
    got = bytes(saved.flatten().tolist()).hex()
    if got != meanings.fingerprint:
        raise LineageError(
            f"load_state_dict: expected weights of the vocabularies {meanings.fingerprint[:12]}, got those of "
            f"{got[:12]}. Their rows stand for other values; load them with the encoder that they were trained with, "
            "or by value with MatrixFactorization.load_by_value."
        )


def check_extends(meanings: RowMeanings | None, encoder: TableSizes, names: Sequence[str]) -> None:
    """Refuse an encoder that did not grow out of the one that sized the tables.

    Raises
    ------
    LineageError
        When an index means something else to it.
    """
    if meanings is None or not isinstance(encoder, FeatureEncoder):
        return
    state = encoder.to_state()
    sizes = {name: vocabulary_of(state, state.schema[name]) for name in meanings.sizes}
    shorter = [name for name, one in sizes.items() if one is not None and len(one) < meanings.sizes[name]]
    if shorter or not meanings.hold_in(state, tuple(names)):
        raise LineageError(
            "grow: expected an encoder that extends the one of these tables, got one to which their rows mean "
            "something else. Extend the fitted encoder with partial_fit."
        )


def check_own(meanings: RowMeanings | None, encoder: FeatureEncoder, names: Sequence[str]) -> None:
    """Refuse an encoder that is not the one of these tables.

    Raises
    ------
    LineageError
        When rows mean something else to it, or nothing is known about them.
    """
    if meanings is None or meanings != meanings_of(encoder, names):
        raise LineageError(
            "load_by_value: expected the encoder that this model was made with, got another one. "
            "Pass the old encoder, then the model's own."
        )


def ways(new_rows: ByFeature, places: Mapping[str, int]) -> dict[int, NewRows]:
    """Say for each table, by its place, how its rows begin; features share a place as they share a table.

    Raises
    ------
    ColumnError
        When there is no such feature.
    """
    if not isinstance(new_rows, Mapping):
        return dict.fromkeys(places.values(), new_rows)
    for name in new_rows:
        if name not in places:
            hint = did_you_mean(name, list(places))
            raise ColumnError(f"grow: expected new_rows for some of {listed(places)}, got {name!r}.{hint}")
    return {**dict.fromkeys(places.values(), DrawnRows()), **{places[name]: way for name, way in new_rows.items()}}


def newcomers(
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
