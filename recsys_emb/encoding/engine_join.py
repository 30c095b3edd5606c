"""Look keys up in vocabularies that lie in files: on an engine, so that every file is read once, not once a piece.

    keys (one task a piece)    → its distinct keys, split by hash as the files are
    look up (one task a file)  → the indices of the keys of all pieces, with the table of that file in memory

Whoever encodes a piece gets its keys with their indices, and needs the vocabulary no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from recsys_emb.encoding.engine_pieces import Sent, sent
from recsys_emb.encoding.learners import VocabularyLearner
from recsys_emb.encoding.learning import EncoderState
from recsys_emb.engines.engine import Engine, Handle
from recsys_emb.schema import Schema
from recsys_emb.sources.pieces import Piece
from recsys_emb.vocabulary.partitioned import Found, PartitionedVocabulary
from recsys_emb.vocabulary.ranking import Shard, shards_of

FoundByName: TypeAlias = dict[str, list[Found]]
"""Keys that were found, by the name of their vocabulary."""


def parted(state: EncoderState) -> dict[str, PartitionedVocabulary]:
    """Pick the vocabularies that lie in files."""
    return {name: one for name, one in state.vocabularies.items() if isinstance(one, PartitionedVocabulary)}


def join_on(
    engine: Engine, state: EncoderState, pieces: Iterable[Piece], submit: Callable[..., list[Handle]]
) -> list[list[Handle]]:
    """Look the keys of pieces up, then submit work on each, with the handles of its keys that were found.

    Each piece is read twice, so rows that travel are all kept by the engine meanwhile.
    """
    cut = [(piece, sent(engine, piece)) for piece in pieces]
    found = _looked_up(engine, state, [one for _, one in cut])
    return [submit(*piece, *own) for piece, own in zip(cut, found, strict=True)]


def _looked_up(engine: Engine, state: EncoderState, cut: Sequence[Sent]) -> list[list[Handle]]:
    """Give, by piece, handles of what was found, a `FoundByName` each."""
    found: list[list[Handle]] = [[] for _ in cut]
    for name, vocabulary in parted(state).items():
        # What stands last is there so that several values are returned also where there is one piece or shard.
        number = vocabulary.num_shards
        keys = [engine.submit(_keys, state.schema, name, piece, number, returns=number + 1) for piece in cut]
        for shard in range(number):
            own = [one[shard] for one in keys]
            looked = engine.submit(_look_up, vocabulary, shard, *own, returns=len(cut) + 1)
            for place, handle in enumerate(looked[:-1]):
                found[place].append(handle)
    return found


def _keys(schema: Schema, name: str, piece: Piece, number: int) -> list[Any]:
    owner = next(feature for feature in schema.keyed if feature.name == name)
    learner = VocabularyLearner(owner, schema, None)
    for rows in piece.rows(learner.columns):
        learner.observe(rows)
    return [*shards_of({name: learner.builder}, number), None]


def _look_up(vocabulary: PartitionedVocabulary, shard: int, *keys: Shard) -> list[Any]:
    name = vocabulary.name
    found = vocabulary.find_in_shard(shard, [own.get(name, []) for own in keys])
    return [*({name: one} for one in found), None]
