"""`HistoryEmbedding`: what a user had in training, pooled into one vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from recsys_emb.encoding.batch import Jagged
from recsys_emb.lookup.base import check_indices
from recsys_emb.lookup.category import CategoryEmbedding
from recsys_emb.lookup.growth import Optimizers


class HistoryEmbedding(nn.Module):
    """A user's items as one vector: user index ``(...)`` to Σ E[i] / √n over the user's n items, ``(..., D)``.

    The table E of items is the history's own. Which items a user has is data, not a parameter: `remember` takes it
    from training rows, and it travels with the module, in buffers. A user without items, and every stranger, has the
    zero vector, since nothing is missing where nothing happened.

    Parameters
    ----------
    num_categories
        Rows of the table, V, reserved rows included.
    embedding_dim
        D.
    num_users
        User indices that exist, U, reserved ones included.
    max_length
        Keep the latest items of longer histories; None keeps all.
    padding_index
        Row of the table that stays zero.
    reserved, reserved_users
        The first indices of items and of users (padding, missing, unknown), which nobody remembers.
    init_std
        The other rows start as N(0, init_std).
    sparse
        Gradients as sparse tensors of the touched rows.
    generator
        Source of the first rows; None takes torch's own.
    name
        The feature, for messages.

    Attributes
    ----------
    items : CategoryEmbedding
        The table, ``(V, D)``.
    offsets : torch.Tensor
        int64 ``(U + 1,)``, a buffer; the items of user u are ``values[offsets[u]:offsets[u + 1]]``.
    values : torch.Tensor
        int64 ``(N,)``, a buffer; the items of each user, the latest last.

    References
    ----------
    Koren, Y. "Factorization meets the neighborhood: a multifaceted collaborative filtering model." KDD 2008.

    Examples
    --------
    >>> history = HistoryEmbedding(6, 2, num_users=5, max_length=2)
    >>> history.remember(torch.tensor([3, 3, 4, 3]), torch.tensor([5, 4, 2, 3]))
    >>> history.lists().to_lists()
    [[], [], [], [4, 3], [2]]
    >>> vectors = history(torch.tensor([3, 1]))
    >>> torch.allclose(vectors[0], (history.items.weight[4] + history.items.weight[3]) / 2**0.5)
    True
    >>> vectors[1].tolist()
    [0.0, 0.0]
    """

    offsets: Tensor
    values: Tensor

    def __init__(
        self,
        num_categories: int,
        embedding_dim: int,
        *,
        num_users: int,
        max_length: int | None = None,
        padding_index: int | None = None,
        reserved: int = 0,
        reserved_users: int = 0,
        init_std: float = 0.01,
        sparse: bool = False,
        generator: torch.Generator | None = None,
        name: str = "history",
    ) -> None:
        super().__init__()
        self.name = name
        self.max_length = max_length
        self.reserved_users = reserved_users
        self.items = CategoryEmbedding(
            num_categories,
            embedding_dim,
            padding_index=padding_index,
            reserved=reserved,
            init_std=init_std,
            sparse=sparse,
            generator=generator,
            name=name,
        )
        self.register_buffer("offsets", torch.zeros(num_users + 1, dtype=torch.int64))
        self.register_buffer("values", torch.empty(0, dtype=torch.int64))

    @property
    def num_embeddings(self) -> int:
        """Rows of the table of items, V."""
        return self.items.num_embeddings

    @property
    def embedding_dim(self) -> int:
        """Width of a row, D."""
        return self.items.embedding_dim

    @property
    def num_users(self) -> int:
        """User indices that exist, U."""
        return self.offsets.shape[0] - 1

    @property
    def weight(self) -> nn.Parameter:
        """The table of items, ``(V, D)``."""
        return self.items.weight

    def lists(self, users: Tensor | None = None) -> Jagged:
        """Items of ``users``, int64 ``(B,)``, or of all, the latest last; each with its weight, 1/√n."""
        lists = Jagged(self.values, self.offsets)
        lists = lists if users is None else lists.select(users)
        weights = lists.lengths.to(self.weight.dtype).rsqrt()
        return replace(lists, weights=weights[lists.owners])

    @torch.no_grad()
    def remember(self, users: Tensor, items: Tensor, *, anew: bool = True) -> None:
        """Collect who had what, in the order of the rows.

        An item counts once for a user, where it stood last. Rows whose user or item is reserved (missing, unknown)
        tell nothing about anybody and are left out.

        Parameters
        ----------
        users, items
            int64 ``(N,)`` each, indices of training rows.
        anew
            False appends to what is remembered.

        Raises
        ------
        IndexRangeError
            When an index lies outside its table.
        """
        check_indices(users, self.num_users, f"{self.name}: user")
        check_indices(items, self.num_embeddings, self.name)
        users, items = users.to(self.offsets), items.to(self.values)
        if not anew:
            users, items = torch.cat([self.lists().owners, users]), torch.cat([self.values, items])
        known = (users >= self.reserved_users) & (items >= self.items.reserved)
        kept = _latest(users[known], items[known], self.num_users, self.max_length)
        self.offsets, self.values = kept.offsets, kept.values

    def forward(self, users: Tensor) -> Tensor:
        """Pool the histories of users: int ``(...)`` to ``(..., D)``; checks the range first.

        An exported program pools the histories of all users at every call, since its shapes are fixed beforehand.
        """
        check_indices(users, self.num_users, self.name)
        if torch.compiler.is_exporting():
            return self._pool(self.lists(), self.values, self.items.table())[users]
        return _pooled_outside_graphs(self, users.flatten()).view(*users.shape, self.embedding_dim)

    def pooled(self, users: Tensor) -> tuple[Tensor, Tensor]:
        """Pool the histories of users known to be in range, ``(B,)``.

        Each user and each item is looked up once, however often it occurs.

        Returns
        -------
        Tensor
            Vectors ``(B, D)``.
        Tensor
            Σ |E[i]|² / n over the items of each user, ``(B,)``: what L2 is charged for.
        """
        distinct, places = torch.unique(users, return_inverse=True)
        lists = self.lists(distinct)
        named, rows = torch.unique(lists.values, return_inverse=True)
        vectors = self.items.rows(named)
        squares = vectors.square().sum(-1)[rows] / lists.lengths[lists.owners]
        totals = torch.segment_reduce(squares, "sum", offsets=lists.offsets)
        return self._pool(lists, rows, vectors)[places], totals[places]

    def _pool(self, lists: Jagged, rows: Tensor, vectors: Tensor) -> Tensor:
        """Sum ``vectors[rows]`` list by list, weighted."""
        return F.embedding_bag(
            rows, vectors, lists.offsets, mode="sum", per_sample_weights=lists.weights, include_last_offset=True
        )

    def storage(self) -> Tensor:
        """View ``(V, D)`` of the table of items, for writing in place."""
        return self.items.storage()

    @property
    def given_rows(self) -> Tensor:
        """int64 ``(N,)``, the rows of the table that were set by `CategoryEmbedding.give`."""
        return self.items.given_rows

    def reset_parameters(self, *, init_std: float | None = None, generator: torch.Generator | None = None) -> None:
        """Draw the table as at birth; what users had stays."""
        self.items.reset_parameters(init_std=init_std, generator=generator)

    def grow(
        self, num_embeddings: int, *, generator: torch.Generator | None = None, optimizer: Optimizers = None
    ) -> None:
        """Append rows to the table in place, drawn as at birth; old rows stay bit for bit."""
        self.items.grow(num_embeddings, generator=generator, optimizer=optimizer)

    def admit(self, num_users: int) -> None:
        """Make room for more users, who have nothing yet."""
        self.offsets = torch.cat([self.offsets, self.offsets[-1:].expand(num_users - self.num_users)])

    def extra_repr(self) -> str:
        """Describe the history in ``print(module)``."""
        length = "" if self.max_length is None else f", max_length={self.max_length}"
        return f"{self.name!r}, num_users={self.num_users}{length}"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # Histories are as long as training made them, so the saved length is taken over before shapes are compared.
        values, errors = state_dict.get(f"{prefix}values"), rest[-1]
        if isinstance(values, Tensor) and values.ndim == 1:
            self.values = self.values.new_empty(len(values))
        super()._load_from_state_dict(state_dict, prefix, *rest)
        if not errors and not self.values.is_meta and not self._is_sound():
            errors.append(
                f"{prefix}values: expected lists of items in [0, {self.num_embeddings}) for {self.num_users} users, "
                "got others."
            )

    def _is_sound(self) -> bool:
        """Whether the lists are lists, and of items that exist."""
        ends = (int(self.offsets[0]), int(self.offsets[-1])) == (0, len(self.values))
        inside = (self.values >= 0) & (self.values < self.num_embeddings)
        return ends and bool((self.offsets.diff() >= 0).all() & inside.all())


def _pooled(history: HistoryEmbedding, users: Tensor) -> Tensor:
    return history.pooled(users)[0]


# How many users and items a batch holds is known from its values alone, which a compiled graph cannot wait for.
_Pooled: TypeAlias = Callable[[HistoryEmbedding, Tensor], Tensor]
_pooled_outside_graphs = cast("Callable[[_Pooled], _Pooled]", _disable_dynamo)(_pooled)


def _latest(users: Tensor, items: Tensor, num_users: int, max_length: int | None) -> Jagged:
    """List the distinct items of every user in the order of their last rows; at most the latest ``max_length``."""
    stride = int(items.max()) + 1 if len(items) else 1
    pairs, order = (users * stride + items).sort(stable=True)
    is_last = torch.cat([pairs.diff() > 0, pairs.new_ones(min(len(pairs), 1), dtype=torch.bool)])
    rows = order[is_last].sort().values
    rows = rows[users[rows].argsort(stable=True)]
    lengths = torch.bincount(users[rows], minlength=num_users)
    if max_length is not None:
        after = lengths.cumsum(0)[users[rows]] - torch.arange(len(rows), device=rows.device)
        rows, lengths = rows[after <= max_length], lengths.clamp(max=max_length)
    return Jagged(items[rows], torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]))
