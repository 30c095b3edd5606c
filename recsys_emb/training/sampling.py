"""Items that a user does not have: drawn without rejection, so that no user can hold a run up.

A user with S of I items has I − S to draw from. A number n below that is the user's n-th unseen item, found by one
binary search among the seen ones; a draw is one random number, whoever the user is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from recsys_emb.encoding.batch import Batch, Jagged
from recsys_emb.encoding.entities import EntityTable
from recsys_emb.errors import FitError, counted
from recsys_emb.schema.columns import Categorical
from recsys_emb.schema.schema import Schema
from recsys_emb.training.past import Past
from recsys_emb.vocabulary.reserved import UNKNOWN_INDEX


@dataclass(frozen=True, eq=False)
class Seen:
    """Which items each user has, both by number from 0.

    Parameters
    ----------
    offsets
        int64 ``(U + 1,)``; user u has ``items[offsets[u]:offsets[u + 1]]``.
    items
        int64 ``(S,)``, ascending within a user, no repeats.
    num_items
        Items that exist, I.

    Examples
    --------
    >>> users, items = torch.tensor([0, 0, 0, 1, 2]), torch.tensor([4, 1, 1, 2, 0])
    >>> seen = Seen.from_pairs(users, items, num_users=3, num_items=5)
    >>> seen.unseen_counts(torch.tensor([0, 1])).tolist()
    [3, 4]
    >>> seen.nth_unseen(torch.tensor([0]), torch.tensor([[0, 1, 2]])).tolist()
    [[0, 2, 3]]
    """

    offsets: Tensor
    items: Tensor
    num_items: int

    @classmethod
    def from_pairs(cls, users: Tensor, items: Tensor, *, num_users: int, num_items: int) -> Seen:
        """Collect pairs of numbers, each int64 ``(N,)``, in any order, repeats allowed."""
        pairs = torch.unique(users * num_items + items)
        owners = pairs // max(num_items, 1)
        counts = torch.zeros(num_users + 1, dtype=torch.int64, device=users.device)
        counts.index_add_(0, owners + 1, torch.ones_like(owners))
        return cls(counts.cumsum(0), pairs % max(num_items, 1), num_items)

    def unseen_counts(self, users: Tensor) -> Tensor:
        """How many items each of these users does not have: int64, of the shape of ``users``."""
        return self.num_items - (self.offsets[users + 1] - self.offsets[users])

    def nth_unseen(self, users: Tensor, n: Tensor) -> Tensor:
        """Give the n-th item, from 0, that a user does not have: users ``(B,)``, n ``(B, K)``, to ``(B, K)``."""
        owners = torch.arange(len(self.offsets) - 1, device=users.device)
        owners = owners.repeat_interleave(self.offsets.diff(), output_size=len(self.items))
        # Unseen items before the t-th seen one; ascending within a user, so one search serves all users.
        before = self.items - (torch.arange(len(self.items), device=users.device) - self.offsets[owners])
        span = self.num_items + 1
        place = torch.searchsorted(owners * span + before, users.unsqueeze(1) * span + n, right=True)
        return n + place - self.offsets[users].unsqueeze(1)

    def draw(self, users: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Draw unseen items with replacement: users ``(B,)`` to ``(B, count)``.

        Every user must have an unseen item; drop those that have none with `unseen_counts` first. The generator
        must live on the device of ``users``.
        """
        choices = self.unseen_counts(users).unsqueeze(1)
        shares = torch.rand(len(users), count, dtype=torch.float64, device=users.device, generator=generator)
        return self.nth_unseen(users, (shares * choices).long().clamp(max=choices - 1))

    def draw_distinct(self, users: Tensor, count: int, *, seed: int) -> Jagged:
        """Draw candidates to evaluate against: unseen items without repeats, one list per user.

        A user with fewer than ``count`` unseen items gets all of them. A list depends on the seed and its user, not
        on the other users. Let "seen" include the test items, or they are drawn as negatives.

        Examples
        --------
        >>> seen = Seen.from_pairs(torch.tensor([0, 0]), torch.tensor([0, 2]), num_users=1, num_items=5)
        >>> sorted(seen.draw_distinct(torch.tensor([0]), 10, seed=0).to_lists()[0])
        [1, 3, 4]
        """
        numbers = [
            np.random.default_rng([seed, user]).choice(choices, min(count, choices), replace=False)
            for user, choices in zip(users.tolist(), self.unseen_counts(users).tolist(), strict=True)
        ]
        lists = Jagged.from_lists([one.tolist() for one in numbers])
        owners = users[lists.owners.to(users.device)]
        drawn = self.nth_unseen(owners, lists.values.to(users.device).unsqueeze(1))[:, 0]
        return Jagged(drawn, lists.offsets.to(users.device))


@dataclass(frozen=True, eq=False)
class Interactions:
    """Training rows as ranking sees them: who has what, and what describes each item.

    Parameters
    ----------
    users, items
        int64 ``(N,)``, the number of each row's user and of its item; ``len(catalogue)`` where the item is missing or
        unknown.
    seen
        Which items each user has, by number.
    catalogue
        The items that can be drawn, in the order of their numbers, with their features; never padding, missing or
        unknown.
    """

    users: Tensor
    items: Tensor
    seen: Seen
    catalogue: EntityTable

    @classmethod
    def from_batch(cls, batch: Batch, schema: Schema, past: Past | None = None) -> Interactions:
        """Give users and items numbers, in the order of their indices.

        What stood in earlier rows is seen too, and their items can be drawn.

        Raises
        ------
        FitError
            When the schema has no user or no item, or the rows no known item.
        """
        user, item = pair_of(schema)
        # The position belongs to the interaction, not to the item; negatives share it.
        names = [item.name, *(feature.name for feature in schema.item_features)]
        first_index = UNKNOWN_INDEX + item.unknown.rows
        catalogue = EntityTable.from_batch(batch, item.name, names, first_index=first_index)
        catalogue = catalogue if past is None else past.catalogue.merged(catalogue)
        if not len(catalogue):
            raise FitError(
                f"{item.name}: expected a known item to draw negatives from, got none in {counted(len(batch), 'row')}. "
                "Every item is missing or unknown."
            )
        indices, users = torch.unique(batch.indices(user.name), return_inverse=True)
        items = catalogue.rows_of(batch.indices(item.name))
        pairs = torch.stack([users, items])
        if past is not None:
            place = torch.searchsorted(indices, past.users).clamp(max=len(indices) - 1)
            earlier = torch.stack([place, catalogue.rows_of(past.items)])
            pairs = torch.cat([pairs, earlier[:, indices[place] == past.users]], 1)
        pairs = pairs[:, pairs[1] < len(catalogue)]
        seen = Seen.from_pairs(pairs[0], pairs[1], num_users=len(indices), num_items=len(catalogue))
        return cls(users, items, seen, catalogue)

    def contrasted(self) -> Tensor:
        """Rows whose user lacks some item, int64 ``(M,)``: those that unseen items can be drawn for.

        Raises
        ------
        FitError
            When there are none.
        """
        rows = (self.seen.unseen_counts(self.users) > 0).nonzero()[:, 0]
        if not len(rows):
            raise FitError(
                f"negatives: expected a user without one of the {counted(len(self.catalogue), 'item')}, got none. "
                "There is nothing to contrast; learn a label, or add users or items."
            )
        return rows


def pair_of(schema: Schema) -> tuple[Categorical, Categorical]:
    """Give the user and the item, both of which ranking needs."""
    if schema.user is None or schema.item is None:
        missing = "user" if schema.user is None else "item"
        raise FitError(
            f"negatives: expected a schema with a user and an item, got {missing}=None. "
            f"Declare {missing}=Categorical(...)."
        )
    return schema.user, schema.item
