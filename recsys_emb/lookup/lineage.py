"""Between tables and the encoder that sized them: whether their rows mean the same."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.lineage import RowMeanings, vocabulary_of
from recsys_emb.errors import LineageError
from recsys_emb.lookup.tables import TableSizes


def meanings_of(encoder: TableSizes, names: Sequence[str]) -> RowMeanings | None:
    """Sum up what table rows mean to an encoder; None for a stand-in, which knows their number alone."""
    return RowMeanings.of(encoder.to_state(), tuple(names)) if isinstance(encoder, FeatureEncoder) else None


def to_buffer(meanings: RowMeanings) -> Tensor:
    """Give the fingerprint as uint8 ``(32,)``, which travels with weights."""
    return torch.tensor(list(bytes.fromhex(meanings.fingerprint)), dtype=torch.uint8, device="cpu")


def check_weights(
    meanings: RowMeanings | None, saved: object, *, by_value: str = "MatrixFactorization.load_by_value"
) -> None:
    """Refuse weights whose saved fingerprint says that their rows mean something else.

    ``by_value`` names what carries them over instead.

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
            f"or by value with {by_value}."
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
