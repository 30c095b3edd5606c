"""The hash of what a vocabulary means: its values in order, their kinds, and the rule for unknown ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_emb.schema.tables import Unknown
from recsys_emb.vocabulary.identity import split
from recsys_emb.vocabulary.kinds import DECIMAL, FLOAT, INTEGER, UNSIGNED, Kind, Part

_ORDER = (INTEGER, UNSIGNED, FLOAT, DECIMAL)  # in which the numbers of one array are split


def kinds_in(pieces: Iterable[pa.Array], where: str) -> list[Kind]:
    """Name the kinds of key in arrays that follow one another, in the order in which `split` gives those of one."""
    found = list(dict.fromkeys(part.kind for piece in pieces for part in split(piece, where)))
    return sorted(found, key=lambda kind: _ORDER.index(kind) if kind in _ORDER else 0)


def fingerprint_of(read: Callable[[], Iterable[pa.Array]], unknown: Unknown, where: str) -> str:
    """Hash values; ``read`` gives them, in pieces of one type, as often as it is called.

    >>> from recsys_emb.schema.tables import UnknownRow
    >>> whole, cut = pa.array([1.5, 2.0, 7.0]), [pa.array([1.5]), pa.array([2.0, 7.0])]
    >>> fingerprint_of(lambda: [whole], UnknownRow(), "size") == fingerprint_of(lambda: cut, UnknownRow(), "size")
    True
    """
    digest = hashlib.sha256(json.dumps(["vocabulary 1", unknown.kind, unknown.rows]).encode())
    for kind in kinds_in(read(), where):
        present = np.concatenate([_present(_part(piece, kind, where)) for piece in read()])
        digest.update(f"{kind.name} {len(present)} ".encode())
        digest.update(np.packbits(present).tobytes())
        # Of byte strings, all lengths come before all bytes.
        for place in range(len(kind.storage.content(pa.array([], kind.storage.arrow_type)))):
            for piece in read():
                digest.update(kind.storage.content(_part(piece, kind, where).keys.drop_null())[place])
    return digest.hexdigest()


def _part(piece: pa.Array, kind: Kind, where: str) -> Part:
    absent = Part(kind, pa.nulls(len(piece), kind.storage.arrow_type))
    return next((part for part in split(piece, where) if part.kind is kind), absent)


def _present(part: Part) -> npt.NDArray[np.bool_]:
    """Whether each key is there."""
    if not part.keys.null_count:
        return np.ones(len(part.keys), bool)
    return np.asarray(part.keys.is_valid().to_numpy(zero_copy_only=False))
