"""A vocabulary on its way to a worker, with its tables: where memory is shared they are mapped, not built again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from recsys_emb.schema.tables import Unknown
from recsys_emb.vocabulary.key_index import KeyIndex
from recsys_emb.vocabulary.partitioned import PartitionedVocabulary
from recsys_emb.vocabulary.storage import Indices
from recsys_emb.vocabulary.vocabulary import Vocabulary


@dataclass(frozen=True)
class Shipped:
    """Carries a vocabulary; between threads it is the same one.

    One that lies in files travels as the place where they are. The pickle belongs to this version of the library and
    to running workers: nobody should keep it.

    Examples
    --------
    >>> import pickle
    >>> shipped = Shipped(Vocabulary.from_values(["red", "blue", "red"]))
    >>> pickle.loads(pickle.dumps(shipped)).vocabulary.encode(["blue", "green"])
    tensor([4, 2])
    """

    vocabulary: Vocabulary

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the tables too, as buffers that a store can share."""
        own = self.vocabulary
        if isinstance(own, PartitionedVocabulary):
            return Shipped, (own,)
        index = KeyIndex(own.values, unknown_rows=own.unknown.rows) if own.index.is_lazy else own.index
        return _unpacked, (own.name, own.values, own.counts, own.unknown, index)


def _unpacked(name: str, values: pa.Array, counts: Indices, unknown: Unknown, index: KeyIndex) -> Shipped:
    return Shipped(Vocabulary(name, values, counts, unknown, index=index))
