"""Clocks: seconds of works that take turns, and the peak memory of a process of its own."""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import random
import statistics
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

ROUNDS, MOST_ROUNDS = 5, 15
# Seconds: of one measurement, at least; of more than `ROUNDS` rounds together, at most.
SHORTEST, PATIENCE = 0.02, 5.0

Work: TypeAlias = Callable[[], Any]
Name = TypeVar("Name", bound=Hashable)


class Clock:
    """Elapsed seconds, or, on a machine that others use too, those that this process had a core."""

    read: Callable[[], float] = staticmethod(time.perf_counter)


class Timed(NamedTuple):
    """What a work returns that keeps its own time, because only a part of it is meant."""

    seconds: float
    answer: Any = None


def seconds(work: Work) -> float:
    """Time one call."""
    start = Clock.read()
    work()
    return Clock.read() - start


def answer_of(returned: Any) -> Any:
    return returned.answer if isinstance(returned, Timed) else returned


def rounds(works: Mapping[Name, Work]) -> dict[Name, list[float]]:
    """Seconds of every work in every round; they take turns, in an order drawn anew for each round."""
    # What is there already is no garbage: looking through it before each measurement would take longer than many.
    gc.collect()
    gc.freeze()
    counts = {name: _count(work) for name, work in works.items()}
    times: dict[Name, list[float]] = {name: [] for name in works}
    order, draw, start = list(works), random.Random(0), time.perf_counter()
    for done in range(MOST_ROUNDS):
        if done >= ROUNDS and time.perf_counter() - start > PATIENCE:
            break
        draw.shuffle(order)
        for name in order:
            times[name].append(_once(works[name], counts[name]))
    gc.unfreeze()
    return times


def _once(work: Work, count: int) -> float:
    """Seconds per call, over ``count`` calls in a row."""
    gc.collect()
    own, start = 0.0, Clock.read()
    for _ in range(count):
        returned = work()
        own += returned.seconds if isinstance(returned, Timed) else 0.0
    elapsed = Clock.read() - start
    return (own or elapsed) / count


def _count(work: Work) -> int:
    """How many calls make a measurement that the clock can resolve."""
    count = 1
    while (taken := _once(work, count) * count) < SHORTEST:
        count = max(2 * count, round(1.2 * count * SHORTEST / max(taken, 1e-9)))
    return count


def ratio(times: list[float], ours: list[float]) -> float:
    """Median over the rounds of the ratio within a round."""
    return statistics.median(one / own for one, own in zip(times, ours, strict=True))


def in_figures(number: float) -> str:
    """Write a number with three digits, or all that stand before the point.

    >>> in_figures(0.71234), in_figures(4449.37)
    ('0.712', '4,449')
    """
    return f"{number:.3g}" if number < 1000 else f"{number:,.0f}"


def in_words(seconds: float) -> str:
    """Write a time with three digits and a unit.

    >>> in_words(0.00123456)
    '1.23 ms'
    """
    scale, unit = next((s, u) for s, u in ((1, "s"), (1e3, "ms"), (1e6, "µs")) if seconds * s >= 1 or u == "µs")
    return f"{seconds * scale:.3g} {unit}"


def use_threads(count: int) -> None:
    """Give torch and Arrow this many threads; peers are told where they are called."""
    importlib.import_module("torch").set_num_threads(count)
    arrow = importlib.import_module("pyarrow")
    arrow.set_cpu_count(count)
    arrow.set_io_thread_count(count)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use so many threads inside, and one after."""
    use_threads(count)
    try:
        yield
    finally:
        use_threads(1)


def added_memory(job: Callable[..., Any], *arguments: Any) -> float:
    """Peak memory in MiB that a function of a module adds to a fresh process which has imported that module."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_added_here, job, *arguments).result()


def _added_here(job: Callable[..., Any], *arguments: Any) -> float:
    use_threads(1)
    before = _peak()
    job(*arguments)
    return _peak() - before


def _peak() -> float:
    """Peak memory of this process in MiB."""
    if sys.platform == "linux":
        # Not ru_maxrss, which a process inherits from the one that started it.
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 2**10
    resource = importlib.import_module("resource")
    peak: int = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2 ** (20 if sys.platform == "darwin" else 10)
