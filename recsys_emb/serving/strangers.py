"""What strangers did, read from a frame: who they are, what they turned to, and how they liked it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch, Column
from recsys_emb.encoding.columns import to_series
from recsys_emb.encoding.row_encoder import Answers
from recsys_emb.encoding.values import read_keys
from recsys_emb.errors import ColumnError, DataError, counted
from recsys_emb.schema.columns import Categorical, History
from recsys_emb.serving.fitted import Fitted
from recsys_emb.serving.learning import open_again
from recsys_emb.serving.requests import called
from recsys_emb.sources.sources import Source
from recsys_emb.vocabulary.vocabulary import Vocabulary, VocabularyBuilder

_WHERE = "Recommender.recommend: history"


@dataclass(frozen=True, eq=False)
class Strangers:
    """Rows of strangers, encoded.

    Parameters
    ----------
    rows
        Every feature of both sides; what the frame does not say is taken from the training rows (of items), at the
        position of serving, or missing (of users and their context). Label and weight where they are there.
    owners
        int64 ``(N,)``, whose row it is, numbered in the order of first appearance.
    people
        Raw values of the users, ``(S,)``; of one nameless stranger, a missing value.
    users
        The frame's own vocabulary of users, which tells unknown ones apart; None where they are nameless.
    order
        int64 ``(S,)``, the number of each value of ``users``.
    items, numbers
        The frame's own vocabulary of items, and int64 ``(N,)``, the number of each row's item in it, -1 if missing.
    """

    rows: Batch
    owners: Tensor
    people: pd.Series
    users: Vocabulary | None
    order: Tensor
    items: Vocabulary
    numbers: Tensor

    def __len__(self) -> int:
        """Count the strangers, S."""
        return len(self.people)

    def indices(self, user: str) -> Tensor:
        """Give what each is to the model, as a value of the feature ``user``: int64 ``(S,)``."""
        return torch.empty(len(self), dtype=torch.int64).index_copy_(0, self.owners, self.rows.indices(user))

    def number_of(self, users: Any) -> Tensor:
        """Find users by value: the number of each, int64 ``(A,)``, -1 for those without a row.

        Raises
        ------
        DataError
            When the rows do not say whose they are.
        """
        if self.users is None:
            raise DataError(
                f"{_WHERE}: expected a column {self.people.name!r} beside users, got none. "
                "Say whose rows these are, or leave users out."
            )
        places = torch.cat([self.order, torch.tensor([-1])])
        return places[(self.users.encode(users) - self.users.first_index).clamp(min=-1)]


def read_history(fitted: Fitted, frame: Any) -> Strangers:
    """Read interactions of strangers.

    Raises
    ------
    ColumnError
        When the item's column is not there, or the label's where the objective learns labels.
    DataError
        When a user is missing, a label or a weight cannot be learned from, or the rows can be read but once.
    """
    source = called(open_again(frame, fitted.schema, where=_WHERE), "history")
    rows = _encode(fitted, source)
    items, numbers = own_values(fitted.item, source)
    name, nobody = fitted.user.name, torch.zeros(len(rows), dtype=torch.int64)
    if not source.has(name):
        if any(name in part.index for part in source.parts):
            source.parts[0].check([name])  # rows of several, not of one nameless stranger
        people = pd.Series([None] * min(1, len(rows)), dtype=object, name=name)
        return Strangers(rows, nobody, people, None, nobody[:0], items, numbers)
    users, mine = own_values(fitted.user, source)
    missing = int((mine < 0).sum())
    if missing:
        raise DataError(f"{_WHERE}: expected a user in every row, got none in {counted(missing, 'row')}. Drop them.")
    first = torch.full((len(users),), len(mine)).scatter_reduce_(0, mine, torch.arange(len(mine)), "amin")
    by_appearance = first.argsort()
    people = to_series(users.values, name).iloc[by_appearance.numpy()].reset_index(drop=True)
    order = by_appearance.argsort()
    return Strangers(rows, order[mine], people, users, order, items, numbers)


def _encode(fitted: Fitted, source: Source) -> Batch:
    """Encode what the frame says, and fill in the rest."""
    schema, encoder = fitted.schema, fitted.encoder
    said = [one.name for one in schema.features if not isinstance(one, History) and source.has(one.name)]
    names = list(dict.fromkeys([fitted.item.name, *said]))
    batch = encoder.row_encoder.keeping(names).encode_all(source, Answers.of(schema, source))
    if fitted.objective.contrast is None and batch.label is None:
        raise ColumnError(f"{_WHERE}: expected the label {schema.label!r}, which this model learns, got none. Add it.")
    fitted.objective.check(batch.label, schema.label or "label")
    columns: dict[str, Column] = {
        **fitted.memory.user_rows(torch.full((len(batch),), -1), encoder).columns,
        **fitted.memory.item_rows(batch.indices(fitted.item.name), encoder).columns,
        **batch.columns,
    }
    return Batch(columns, batch.label, batch.weight)


def own_values(feature: Categorical, source: Source) -> tuple[Vocabulary, Tensor]:
    """Give the values of a column a vocabulary of their own, and its rows by number, -1 where missing."""
    builder, parts = VocabularyBuilder(feature.name), list(source.rows([feature.name]))
    for rows in parts:
        builder.add(read_keys(feature, rows), where=rows.where(feature.name))
    own = builder.build()
    numbers = [own.encode(read_keys(feature, rows)) - own.first_index for rows in parts]
    return own, torch.cat([torch.empty(0, dtype=torch.int64), *numbers]).clamp(min=-1)
