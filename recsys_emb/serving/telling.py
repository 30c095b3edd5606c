"""Pairs to be scored: rows that say everything of them, or an answer of `recommend`, which says who and what."""

from __future__ import annotations

from typing import Any

from recsys_emb.encoding.batch import Batch
from recsys_emb.encoding.row_encoder import Answers
from recsys_emb.schema.schema import ANSWER_COLUMNS
from recsys_emb.serving.fitted import Fitted
from recsys_emb.sources.sources import open_source


def read_pairs(fitted: Fitted, source: Any) -> Batch:
    """Encode pairs with every feature of both sides; a single row by the short way.

    In what `Recommender.recommend` answered, the features that it has no column for are those that it scored: what
    training last said of user and item, no context, and the position of serving.

    Raises
    ------
    ColumnError
        When a column is not there.
    """
    encoder = fitted.encoder.row_encoder
    if type(source) is dict and all(type(column) is list and len(column) == 1 for column in source.values()):
        return encoder.encode_row({name: column[0] for name, column in source.items()})
    opened = open_source(source, encoder.types)
    if not all(map(opened.has, ANSWER_COLUMNS)):
        return encoder.encode_all(opened, Answers())
    there = [name for name in encoder.codecs if opened.has(name)]
    batch = encoder.keeping(list(dict.fromkeys([*_pair(fitted), *there]))).encode_all(opened, Answers())
    known = fitted.pairs(*(batch.indices(name) for name in _pair(fitted)))
    return batch.replacing({name: known[name] for name in encoder.codecs if name not in batch})


def _pair(fitted: Fitted) -> tuple[str, str]:
    return fitted.user.name, fitted.item.name
