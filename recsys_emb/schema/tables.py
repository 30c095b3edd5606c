"""Which rows unknown values take, and which table turns an index into a vector."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from recsys_emb.schema.checks import STRICT, check_at_least

if TYPE_CHECKING:
    from pydantic import ConfigDict


@dataclass(frozen=True)
class UnknownRow:
    """All unknown values share one row, `UNKNOWN_INDEX`."""

    kind: Literal["unknown_row"] = dataclasses.field(default="unknown_row", repr=False)
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    @property
    def rows(self) -> int:
        """Rows reserved for unknown values."""
        return 1


@dataclass(frozen=True)
class UnknownBuckets:
    """Unknown values are spread over ``count`` rows by a hash of the value that never changes.

    >>> UnknownBuckets(4).rows
    4
    """

    count: int
    kind: Literal["unknown_buckets"] = dataclasses.field(default="unknown_buckets", repr=False)
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        check_at_least("UnknownBuckets", "count", self.count, 1)

    @property
    def rows(self) -> int:
        """Rows reserved for unknown values."""
        return self.count


@dataclass(frozen=True)
class RefuseUnknown:
    """Unknown values raise `UnknownValueError`, which lists them. The row stays reserved, so indices agree."""

    kind: Literal["refuse_unknown"] = dataclasses.field(default="refuse_unknown", repr=False)
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    @property
    def rows(self) -> int:
        """Rows reserved for unknown values."""
        return 1


Unknown: TypeAlias = UnknownRow | UnknownBuckets | RefuseUnknown


@dataclass(frozen=True)
class Lookup:
    """One row per index: `CategoryEmbedding`."""

    kind: Literal["lookup"] = dataclasses.field(default="lookup", repr=False)
    __pydantic_config__: ClassVar[ConfigDict] = STRICT


@dataclass(frozen=True)
class OneHot:
    """One-hot × matrix, the same numbers the slow way: `OneHotProjection`.

    Parameters
    ----------
    dense_limit
        Bytes that a dense one-hot matrix of one batch may take; above, the product is computed as a gather.
    """

    dense_limit: int = 64 * 2**20
    kind: Literal["one_hot"] = dataclasses.field(default="one_hot", repr=False)
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        check_at_least("OneHot", "dense_limit", self.dense_limit, 0)


@dataclass(frozen=True)
class Hashed:
    """Sum of ``num_hashes`` rows of a small table (Serrà & Karatzoglou, 2017): `HashedEmbedding`."""

    num_embeddings: int
    num_hashes: int = 2
    kind: Literal["hashed"] = dataclasses.field(default="hashed", repr=False)
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        check_at_least("Hashed", "num_embeddings", self.num_embeddings, 1)
        check_at_least("Hashed", "num_hashes", self.num_hashes, 1)


@dataclass(frozen=True)
class QuotientRemainder:
    """Product of a quotient row and a remainder row (Shi et al., 2020): `QuotientRemainderEmbedding`."""

    buckets: int
    kind: Literal["quotient_remainder"] = dataclasses.field(default="quotient_remainder", repr=False)
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        check_at_least("QuotientRemainder", "buckets", self.buckets, 1)


Table: TypeAlias = Lookup | OneHot | Hashed | QuotientRemainder
