"""Where a model comes from: one step for its fit, and one for every time it grew."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from recsys_emb.encoding.columns import FIRST_POSITION
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.lookup.tables import owner_of
from recsys_emb.schema.columns import Feature, History, Numeric, Position


@dataclass(frozen=True)
class Step:
    """One fit, or one growth.

    Parameters
    ----------
    fingerprint
        Of the encoder after it: of the schema, the vocabularies and the statistics of numbers. Equal fingerprints
        encode equally.
    rows
        Training rows that it brought.
    values
        How many values each vocabulary had after it, by name.
    """

    fingerprint: str
    rows: int
    values: dict[str, int]

    @classmethod
    def of(cls, encoder: FeatureEncoder, rows: int) -> Step:
        """Note what an encoder knows now."""
        vocabularies = encoder.to_state().vocabularies
        return cls(encoder.fingerprint, rows, {name: len(one) for name, one in vocabularies.items()})


def experience(encoder: FeatureEncoder, rows: int) -> dict[str, Tensor]:
    """Say how often each table row has been learned from ``rows`` rows: float64 ``(V,)`` by the table's owner.

    Vocabularies count their values. Missing and unknown rows, positions and numbers are not counted one by one; they
    are taken to have learned from every row, so that they move least.
    """
    owners = [one for one in encoder.to_state().schema.features if owner_of(one) == one.name]
    return {feature.name: _learned(feature, encoder, rows) for feature in owners if not isinstance(feature, History)}


def _learned(feature: Feature, encoder: FeatureEncoder, rows: int) -> Tensor:
    if isinstance(feature, Numeric):
        return torch.full((2,), float(rows), dtype=torch.float64)
    if isinstance(feature, Position):
        learned = torch.zeros(encoder.num_embeddings(feature.name), dtype=torch.float64)
        seen = torch.tensor(encoder.to_state().positions[feature.name], dtype=torch.int64)
        learned[:FIRST_POSITION] = rows
        return learned.index_fill_(0, FIRST_POSITION + seen, float(rows))
    vocabulary = encoder.vocabularies[feature.name]
    reserved = torch.full((vocabulary.first_index,), float(rows), dtype=torch.float64)
    return torch.cat([reserved, torch.from_numpy(vocabulary.counts).double()])
