"""Give the pieces of a source to an engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

from recsys_emb.engines.engine import Engine, Handle
from recsys_emb.sources.pieces import Piece

Sent: TypeAlias = "Piece | Handle"
"""A piece that is read where it is used, or the handle of one whose rows travel."""

_WAITING = 4  # pieces of rows that travel, for each worker


def sent(engine: Engine, piece: Piece) -> Sent:
    """Put rows that travel into the engine's own memory."""
    return piece if piece.is_file else engine.put(piece)


def submit_pieces(
    engine: Engine, pieces: Iterable[Piece], submit: Callable[[Piece, Sent], list[Handle]]
) -> list[list[Handle]]:
    """Submit work on each piece, and give the handles of each.

    A stream may be larger than memory, so of rows that travel only a few pieces wait at a time; the last handle of
    each must be of something small.
    """
    submitted, waiting = [], deque[Handle]()
    for piece in pieces:
        handles = submit(piece, sent(engine, piece))
        submitted.append(handles)
        if not piece.is_file:
            waiting.append(handles[-1])
            if len(waiting) > _WAITING * engine.workers:
                list(engine.gather([waiting.popleft()]))
    return submitted
