"""What all lookups of an index share: the range check, the masked padding row, seeded birth, growth."""

from __future__ import annotations

import hashlib
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias, cast

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from recsys_emb.errors import DataError, FitError, IndexRangeError, at_least
from recsys_emb.lookup.growth import Optimizers

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_indices(indices: Tensor, num_embeddings: int, name: str) -> None:
    """Refuse indices outside a table, before any lookup on any device.

    Costs one wait for the device. Exported programs and meta tensors have no values to check and pass.

    Parameters
    ----------
    indices
        Integers of any shape.
    num_embeddings
        Rows of the table, V.
    name
        The feature, for the message.

    Raises
    ------
    IndexRangeError
        When an index is negative or at least V.
    TypeError
        When the indices are not an integer tensor.

    Examples
    --------
    >>> check_indices(torch.tensor([3, 12]), 12, "item_id")
    Traceback (most recent call last):
    ...
    recsys_emb.errors.IndexRangeError: feature 'item_id': expected indices in [0, 12), got 12 (first at position 1). \
Encode the values with the encoder that the table was sized by; num_embeddings counts the reserved rows.
    """
    if not isinstance(indices, Tensor):
        raise TypeError(
            f"feature {name!r}: expected an integer tensor, got {type(indices).__name__}. Wrap it in torch.tensor(...)."
        )
    if indices.dtype not in _INTEGERS:
        raise TypeError(
            f"feature {name!r}: expected an integer tensor, got {indices.dtype}. "
            "Indices never pass through floats; encode the values with a Vocabulary."
        )
    if torch.compiler.is_exporting() or indices.is_meta:
        return
    check = _check_outside_graphs if torch.compiler.is_compiling() else _check_range
    check(indices, num_embeddings, name)


def _check_range(indices: Tensor, num_embeddings: int, name: str) -> None:
    if indices.numel() == 0:
        return
    low, high = torch.stack(indices.aminmax()).tolist()
    if low >= 0 and high < num_embeddings:
        return
    place = tuple(((indices < 0) | (indices >= num_embeddings)).nonzero()[0].tolist())
    shown = place[0] if len(place) == 1 else place
    raise IndexRangeError(
        f"feature {name!r}: expected indices in [0, {num_embeddings}), got {int(indices[place])} "
        f"(first at position {shown}). Encode the values with the encoder that the table was sized by; "
        "num_embeddings counts the reserved rows."
    )


# A compiled graph cannot raise on what it finds in a tensor, so compiled calls leave it for the same check.
# `torch.compiler.disable` would do, but loads the compiler, half a second, when this module is imported.
_Check: TypeAlias = Callable[[Tensor, int, str], None]
_check_outside_graphs = cast("Callable[[_Check], _Check]", _disable_dynamo)(_check_range)


def seeded_generator(seed: int, *parts: str | int) -> torch.Generator:
    """Give a CPU generator that depends on the seed and the parts alone, such as a feature's name.

    >>> seeded_generator(0, "user_id").initial_seed() == seeded_generator(0, "user_id").initial_seed()
    True
    >>> seeded_generator(0, "user_id").initial_seed() == seeded_generator(0, "item_id").initial_seed()
    False
    """
    digest = hashlib.blake2b(repr((operator.index(seed), *parts)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


def normal_rows(shape: tuple[int, int], std: float, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw N(0, std) on the CPU, so that a seed means the same on every device; meta tensors draw nothing."""
    if like.is_meta:
        return torch.empty(shape, dtype=like.dtype, device=like.device)
    return torch.empty(shape, dtype=like.dtype, device="cpu").normal_(0.0, std, generator=generator).to(like.device)


def draw_rows(weight: Tensor, std: float, generator: torch.Generator | None) -> None:
    """Fill ``(V, D)`` with what `normal_rows` gives, without a second copy of a large table."""
    if weight.device.type == "cpu" and weight.is_contiguous():
        weight.normal_(0.0, std, generator=generator)
    else:
        weight.copy_(normal_rows((weight.shape[0], weight.shape[1]), std, weight, generator))


def masked(vectors: Tensor, indices: Tensor, padding_index: int | None) -> Tensor:
    """Replace the vectors of padding by zeros, whatever the table holds there: ``(..., D)``."""
    if padding_index is None:
        return vectors
    return vectors.masked_fill((indices == padding_index).unsqueeze(-1), 0.0)


class IndexLookup(nn.Module, ABC):
    """An index picks a vector: int ``(...)`` to ``(..., D)``, the one thing that all kinds of table do.

    Parameters
    ----------
    num_embeddings
        Indices that exist, V.
    embedding_dim
        D.
    padding_index
        The index whose vector is zero and never learns; None for no such index.
    reserved
        The first rows (padding, missing, unknown), which start at zero.
    init_std
        Standard deviation of the other rows at birth, and of rows that grow later.
    sparse
        Gradients as sparse tensors of the touched rows, for row-sparse optimizers.
    name
        The feature, for messages.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        padding_index: int | None,
        reserved: int,
        init_std: float,
        sparse: bool,
        name: str,
    ) -> None:
        super().__init__()
        where = f"{type(self).__name__}({name!r})"
        self.num_embeddings = at_least(where, "num_categories", num_embeddings, 1)
        self.embedding_dim = at_least(where, "embedding_dim", embedding_dim, 1)
        self.padding_index = padding_index
        self.reserved = at_least(where, "reserved", reserved, 0)
        self.init_std = init_std
        self.sparse = sparse
        self.name = name
        self._given: tuple[Tensor, Tensor] | None = None
        if padding_index is not None and not 0 <= padding_index < num_embeddings:
            raise IndexRangeError(
                f"{where}: expected padding_index in [0, {num_embeddings}), got {padding_index}. Name one of the rows."
            )

    def forward(self, indices: Tensor) -> Tensor:
        """Look up vectors: int ``(...)`` to ``(..., D)``; checks the range first."""
        check_indices(indices, self.num_embeddings, self.name)
        return self.rows(indices)

    @abstractmethod
    def rows(self, indices: Tensor) -> Tensor:
        """Look up vectors of indices known to be in range: int ``(...)`` to ``(..., D)``."""

    @abstractmethod
    def reset_parameters(self, *, init_std: float | None = None, generator: torch.Generator | None = None) -> None:
        """Draw all rows as at birth; ``init_std`` replaces the standard deviation for good."""

    @abstractmethod
    def grow(
        self, num_embeddings: int, *, generator: torch.Generator | None = None, optimizer: Optimizers = None
    ) -> None:
        """Append rows in place, drawn as at birth; old rows and their optimizer state stay bit for bit."""

    def storage(self) -> Tensor | None:
        """View ``(V, D)`` of the parameter, for writing in place; None where no parameter holds a row per index."""
        return None

    @torch.no_grad()
    def give(self, rows: Tensor, vectors: Tensor) -> None:
        """Set some rows for good: now, and whenever the table is reset. The tensors are kept, not copied.

        Parameters
        ----------
        rows
            int64 ``(N,)``. Padding among them stays zero.
        vectors
            ``(N, D)``.

        Raises
        ------
        DataError
            When the table holds no row per index to set.
        """
        if self.storage() is None:
            raise DataError(
                f"feature {self.name!r}: expected a table with a row per index, got a {type(self).__name__}. "
                "Declare the feature with table=Lookup()."
            )
        self._given = rows, vectors
        self._write_given()

    @property
    def given_rows(self) -> Tensor:
        """int64 ``(N,)``, the rows that `give` set."""
        return torch.empty(0, dtype=torch.int64) if self._given is None else self._given[0]

    def _write_given(self) -> None:
        storage = self.storage()
        if self._given is None or storage is None:
            return
        rows, vectors = self._given
        storage[rows.to(storage.device)] = vectors.to(storage)
        if self.padding_index is not None:
            storage[self.padding_index] = 0.0

    def extra_repr(self) -> str:
        """Describe the table in ``print(module)``."""
        padding = "" if self.padding_index is None else f", padding_index={self.padding_index}"
        return f"{self.name!r}, {self.num_embeddings}, {self.embedding_dim}{padding}"

    def _fresh_rows(self, num_embeddings: int) -> int:
        """How many rows growth to ``num_embeddings`` appends."""
        if num_embeddings < self.num_embeddings:
            raise FitError(
                f"feature {self.name!r}: expected at least {self.num_embeddings} rows, got {num_embeddings}. "
                "Tables only grow; use the encoder that partial_fit extended."
            )
        return num_embeddings - self.num_embeddings
