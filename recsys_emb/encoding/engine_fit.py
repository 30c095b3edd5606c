"""A fit on an engine: pieces are counted apart, and what comes out is what one process would learn, bit for bit.

Moments of numbers are exact integers, seen positions are marks, counts of keys add up: none of them depends on how the
rows were cut or in which order they came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recsys_emb.encoding.engine_pieces import Sent, submit_pieces
from recsys_emb.encoding.learning import EncoderState, Learning
from recsys_emb.engines.engine import Engine, Handle, watched
from recsys_emb.schema import Schema
from recsys_emb.schema.tables import Unknown
from recsys_emb.sources.locations import Location
from recsys_emb.sources.pieces import Piece, pieces
from recsys_emb.sources.sources import Source
from recsys_emb.vocabulary.ranking import Limits, Ranked, rank_on, shards_of
from recsys_emb.vocabulary.spilling import spill_on
from recsys_emb.vocabulary.vocabulary import Vocabulary

_SHARD_BYTES = 2**27  # of columns as they are read, which is more than their distinct values take
_MOST_SHARDS = 256


def learn_on(
    engine: Engine,
    schema: Schema,
    source: Source,
    *,
    place: Location | None = None,
    above: int = 0,
    progress: bool | None = None,
) -> tuple[int, EncoderState]:
    """Learn from all rows of a source, and count them; vocabularies of more than ``above`` values go to a place.

    Raises
    ------
    DataError
        When a column does not hold what the schema says: naming the file, the row group and the column.
    """
    learning = Learning(schema)
    columns = list(dict.fromkeys(learning.columns))
    source.check(columns)
    number = max(2, engine.workers, min(source.size(columns) // _SHARD_BYTES, _MOST_SHARDS))

    def count(piece: Piece, sent: Sent) -> list[Handle]:
        return engine.submit(_count, schema, sent, number, returns=number + 1, name=f"fit {piece.name}")

    counted = submit_pieces(engine, pieces(source, columns), count)
    for facts in watched(engine, [own[-1] for own in counted], "fit", progress):
        learning.absorb(facts)
    source.check_unchanged()
    shards = [own[:-1] for own in counted]
    rules = {
        one.name: (Limits(one.owner.min_count, one.owner.max_size), one.owner.unknown) for one in learning.vocabularies
    }
    if not shards or not rules:
        return learning.num_rows, learning.state({})
    del counted
    ranges, sizes = rank_on(engine, shards, {name: limits for name, (limits, _) in rules.items()})
    large: dict[str, tuple[Limits, Unknown]] = {}
    found: dict[str, Vocabulary] = {}
    if place is not None:
        large = {name: rule for name, rule in rules.items() if _size(name, rule[0], sizes) > above}
        found |= spill_on(engine, ranges, sizes, large, place)
    small = {name: rule for name, rule in rules.items() if name not in large}
    return learning.num_rows, learning.state(found | _held(engine, ranges, small))


def _size(name: str, limits: Limits, sizes: Sequence[Mapping[str, int]]) -> int:
    found = sum(one[name] for one in sizes)
    return found if limits.max_size is None else min(found, limits.max_size)


def _held(
    engine: Engine, ranges: Sequence[Handle], rules: Mapping[str, tuple[Limits, Unknown]]
) -> dict[str, Vocabulary]:
    """Put the ranges of each vocabulary together, here."""
    picked = [engine.submit(_picked, one, tuple(rules))[0] for one in ranges]
    pieces: list[dict[str, Ranked]] = list(engine.gather(picked))
    return {
        name: Vocabulary(name, *_first([one[name] for one in pieces], limits.max_size), unknown)
        for name, (limits, unknown) in rules.items()
    }


def _picked(ranks: Mapping[str, Ranked], names: tuple[str, ...]) -> dict[str, Ranked]:
    return {name: ranks[name] for name in names}


def _first(ranges: Sequence[Ranked], max_size: int | None) -> Ranked:
    ranked = Ranked.end_to_end(ranges)
    return ranked if max_size is None or max_size >= len(ranked.counts) else ranked.slice(0, max_size)


def _count(schema: Schema, piece: Piece, number: int) -> list[Any]:
    """Learn from a piece: give a shard of the keys for each worker that merges, and the facts."""
    learning = Learning(schema)
    for rows in piece.rows(list(dict.fromkeys(learning.columns))):
        learning.observe(rows)
    counts = {one.name: one.builder for one in learning.vocabularies}
    return [*shards_of(counts, number), learning.facts()]
