"""Weights carried over to other vocabularies, value by value."""

from __future__ import annotations

import torch
from torch import Tensor

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.encoding.lineage import RowMeanings, vocabulary_of
from recsys_emb.errors import LineageError
from recsys_emb.lookup.feature_embedding import FeatureEmbedding
from recsys_emb.lookup.history import HistoryEmbedding
from recsys_emb.lookup.tables import FeatureTable, pair_of
from recsys_emb.vocabulary.reserved import UNKNOWN_INDEX
from recsys_emb.vocabulary.vocabulary import Vocabulary


@torch.no_grad()
def carry(source: FeatureEmbedding, target: FeatureEmbedding, before: FeatureEncoder, after: FeatureEncoder) -> None:
    """Copy into ``target`` the row of every value that both know; its other rows stay as they are.

    Reserved rows and positions keep their place, but for unknown rows under another rule. What users had in training
    goes along. Features that ``source`` lacks are left alone.

    Parameters
    ----------
    source, target
        Tables of equal width, sized by ``before`` and ``after``.

    Raises
    ------
    LineageError
        When a table cannot be carried: its numbers are standardised otherwise, or it holds no row per value while
        indices have moved.
    """
    done: set[int] = set()
    for name in (one for one in target.names if one in source.names):
        table = target.lookup(name)
        if id(table) not in done:
            done.add(id(table))
            _carry(name, source.lookup(name), table, before, after)


def _carry(name: str, old: FeatureTable, new: FeatureTable, before: FeatureEncoder, after: FeatureEncoder) -> None:
    states = before.to_state(), after.to_state()
    if RowMeanings.of(states[0], (name,)).fingerprint == RowMeanings.of(states[1], (name,)).fingerprint:
        rows: tuple[Tensor, Tensor] | None = None
    else:
        vocabularies = [vocabulary_of(state, state.schema[name]) for state in states]
        rows = _shared_rows(name, *vocabularies)
    if isinstance(old, HistoryEmbedding) and isinstance(new, HistoryEmbedding):
        _carry_histories(old, new, before, after)
    _copy(name, old, new, rows)


def _copy(name: str, old: FeatureTable, new: FeatureTable, rows: tuple[Tensor, Tensor] | None) -> None:
    source, storage = old.storage(), new.storage()
    if rows is None and storage is None and type(old) is type(new):
        new.load_state_dict(old.state_dict())
    elif source is None or storage is None:
        raise LineageError(
            f"load_by_value: expected a table with a row per value of {name!r}, got a {type(new).__name__} whose "
            "indices have moved. Train this feature anew."
        )
    elif rows is None:
        size = min(len(source), len(storage))
        storage[:size] = source[:size].to(storage)
    else:
        storage[rows[1].to(storage.device)] = source[rows[0].to(source.device)].to(storage)


def _shared_rows(name: str, old: Vocabulary | None, new: Vocabulary | None) -> tuple[Tensor, Tensor]:
    """Pair rows that mean the same: int64 ``(N,)`` of the old table, and of the new one."""
    if old is None or new is None:
        raise LineageError(
            f"load_by_value: expected numbers of {name!r} standardised as before, got another mean or standard "
            "deviation. Extend the old encoder with partial_fit, which keeps them, or train this feature anew."
        )
    found = new.rows_of(old)
    known = found >= new.first_index
    # Under another rule for unknown values their rows mean something else.
    reserved = torch.arange(new.first_index if new.unknown == old.unknown else UNKNOWN_INDEX)
    values = torch.arange(old.first_index, old.num_embeddings)[known]
    return torch.cat([reserved, values]), torch.cat([reserved, found[known]])


def _carry_histories(
    old: HistoryEmbedding, new: HistoryEmbedding, before: FeatureEncoder, after: FeatureEncoder
) -> None:
    user, item = pair_of(after.to_state().schema)
    translated = []
    for name, indices in ((user.name, old.lists().owners), (item.name, old.values)):
        mine, theirs = before.vocabularies[name], after.vocabularies[name]
        table = torch.cat([torch.ones(mine.first_index, dtype=torch.int64), theirs.rows_of(mine)])
        translated.append(table[indices.cpu()])
    new.remember(*translated)
