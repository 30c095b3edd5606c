"""How often training rows looked up what vocabularies do not count: reserved rows, positions, numbers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import TypeAlias

from recsys_emb.encoding.batch import Batch
from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.errors import ArtifactError
from recsys_emb.lookup.row_counts import row_counts

Occurrences: TypeAlias = Mapping[str, tuple[int, ...]]
"""By feature, lookups of the first rows of its table: the reserved ones, or all where no vocabulary counts the rest."""


def occurrences_of(batch: Batch, encoder: FeatureEncoder) -> Occurrences:
    """Count in training rows, as they are; ``unknown_dropout`` makes more unknown ones, by chance.

    Examples
    --------
    >>> from recsys_emb.schema import Categorical, Schema
    >>> encoder = FeatureEncoder(Schema(item=Categorical("film", min_count=2))).fit({"film": [1, 1, 2, None]})
    >>> occurrences_of(encoder.transform({"film": [1, 1, 2, None]}), encoder)
    {'film': (0, 1, 1)}
    """
    owners = {one.name: one.vocabulary_name for one in encoder.schema.keyed}
    counts = row_counts(batch)
    first = {name: encoder.vocabularies[owners[name]].first_index for name in counts if name in owners}
    return {name: tuple(one[: first.get(name)].tolist()) for name, one in counts.items()}


def added(one: Occurrences, other: Occurrences) -> Occurrences:
    """Add counts of earlier and of later rows.

    >>> added({"film": (0, 1, 1)}, {"film": (0, 2, 0)})
    {'film': (0, 3, 1)}
    """
    both = {name: zip_longest(one.get(name, ()), other.get(name, ()), fillvalue=0) for name in {**one, **other}}
    return {name: tuple(map(sum, pairs)) for name, pairs in both.items()}


def read_occurrences(said: object, encoder: FeatureEncoder) -> Occurrences:
    """Read what was saved; nothing where nothing was.

    Raises
    ------
    ArtifactError
        When it is not counts by feature.
    """
    kept = {} if said is None else said
    names = encoder.schema.names
    if not isinstance(kept, dict) or not all(name in names and _are_counts(one) for name, one in kept.items()):
        raise ArtifactError("recommender.json: expected occurrences by feature, got something else. Save it again.")
    return {name: tuple(counts) for name, counts in kept.items()}


def _are_counts(said: object) -> bool:
    return isinstance(said, list) and all(type(count) is int and 0 <= count < 2**62 for count in said)
