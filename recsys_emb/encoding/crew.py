"""Threads for learners that do not depend on each other: most of their time they need no interpreter."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")

# Fewer rows than this are learned before the threads have started.
_WORTH_IT = 2**16


class Crew:
    """Does things at once that could be done one after another, with the same results in the same order."""

    def __init__(self, pool: ThreadPoolExecutor | None) -> None:
        self._pool = pool

    def map(
        self, function: Callable[[T], R], items: Iterable[T], *, cost: Callable[[T], float] | None = None
    ) -> list[R]:
        """Apply ``function`` to each item, those of the greatest ``cost`` first, so that no thread is left with one.

        Results come in the order of the items; of several errors, the one of the first item is raised.
        """
        waiting = list(items)
        if self._pool is None:
            return [function(item) for item in waiting]
        order = range(len(waiting)) if cost is None else sorted(range(len(waiting)), key=lambda p: -cost(waiting[p]))
        futures = {place: self._pool.submit(function, waiting[place]) for place in order}
        return [futures[place].result() for place in range(len(waiting))]

    def ahead(self, stream: Iterable[T]) -> Iterator[T]:
        """Iterate while the next item is being made."""
        return iter(stream) if self._pool is None else _ahead(self._pool, stream, 1)


ALONE = Crew(None)


def ahead(stream: Iterable[T], depth: int) -> Iterator[T]:
    """Iterate while the next ``depth`` items are being made on a thread of their own; with 0, without one.

    >>> list(ahead([1, 2, 3], 2))
    [1, 2, 3]
    """
    if not depth:
        yield from stream
        return
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as pool:
        yield from _ahead(pool, stream, depth)


def _ahead(pool: ThreadPoolExecutor, stream: Iterable[T], depth: int) -> Iterator[T]:
    """Only one thread at a time may ask an iterator, so the pool has one, or ``depth`` is 1."""
    wrapped = ([item] for item in stream)
    nothing: list[T] = []
    coming = deque(pool.submit(next, wrapped, nothing) for _ in range(depth))
    try:
        while item := coming.popleft().result():
            coming.append(pool.submit(next, wrapped, nothing))
            yield from item
    finally:
        for one in coming:
            one.cancel()


@contextmanager
def crew(num_rows: int | None, threads: int | None = None) -> Iterator[Crew]:
    """Hire as many threads as torch uses, or ``threads``; none for so few rows that it would not pay.

    >>> with crew(None, threads=2) as hands:
    ...     hands.map(abs, [-1, 2]), list(hands.ahead([3, 4]))
    ([1, 2], [3, 4])
    """
    count = torch.get_num_threads() if threads is None else threads
    if count < 2 or (num_rows is not None and num_rows < _WORTH_IT):
        yield Crew(None)
        return
    with ThreadPoolExecutor(count) as pool:
        yield Crew(pool)
