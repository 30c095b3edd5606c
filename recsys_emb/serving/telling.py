"""Pairs to be scored: what the caller's rows say of them, and for the rest what training last said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from recsys_emb.encoding.batch import Batch, Column
from recsys_emb.encoding.row_encoder import Answers, RowEncoder
from recsys_emb.errors import ColumnError, did_you_mean, listed
from recsys_emb.schema.columns import Feature, History, MultiCategorical
from recsys_emb.serving.fitted import Fitted
from recsys_emb.sources.sources import open_source


def read_pairs(fitted: Fitted, source: Any, *, where: str) -> Batch:
    """Encode pairs with every feature of both sides; a single row by the short way.

    What describes the users, what describes the items, the context and the position may each be left out as a whole.
    The pair is then what `Recommender.recommend` scores: features are those that training last said, the context is
    missing, and the position is that of serving.

    Raises
    ------
    ColumnError
        When the user or the item is not there, or only a part of what describes one of them.
    """
    encoder = fitted.encoder.row_encoder
    if type(source) is dict and all(type(column) is list and len(column) == 1 for column in source.values()):
        left_out = _left_out(fitted, encoder, source.__contains__, list(source), where)
        batch = _without(encoder, left_out).encode_row({name: column[0] for name, column in source.items()})
    else:
        opened = open_source(source, encoder.types)
        there = [name for part in opened.parts for name in part.columns]
        left_out = _left_out(fitted, encoder, opened.has, there, where)
        batch = _without(encoder, left_out).encode_all(opened, Answers())
    return batch.replacing(_remembered(fitted, batch, left_out)) if left_out else batch


def _left_out(
    fitted: Fitted, encoder: RowEncoder, has: Callable[[str], bool], there: Sequence[str], where: str
) -> list[str]:
    """Name the features that the rows leave to memory."""
    if all(map(has, encoder.columns)):
        return []
    schema = fitted.schema
    position = () if schema.position is None else (schema.position,)
    left_out = []
    for group in (schema.user_features, schema.item_features, schema.context_features, position):
        read = [one for one in group if not isinstance(one, History)]
        columns = [column for one in read for column in _columns(one)]
        missing = [column for column in columns if not has(column)]
        if missing and len(missing) < len(columns):
            given = [column for column in columns if has(column)]
            raise ColumnError(
                f"{where}: expected {listed(columns)} together, got {listed(given)} without {listed(missing)}."
                f"{did_you_mean(missing[0], there)} Add the rest, or leave all out to be scored as by recommend."
            )
        if missing:
            left_out += [one.name for one in read]
    return left_out


def _columns(feature: Feature) -> list[str]:
    weights = feature.weights if isinstance(feature, MultiCategorical) else None
    return [feature.name] if weights is None else [feature.name, weights]


def _without(encoder: RowEncoder, left_out: Sequence[str]) -> RowEncoder:
    return encoder.keeping([name for name in encoder.codecs if name not in left_out]) if left_out else encoder


def _remembered(fitted: Fitted, batch: Batch, names: Sequence[str]) -> dict[str, Column]:
    """Look up what training last said of the pairs of a batch."""
    known = fitted.pairs(batch.indices(fitted.user.name), batch.indices(fitted.item.name))
    return {name: known[name] for name in names}
