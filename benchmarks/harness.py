"""Time this library against others on equal terms, and keep what came out.

The contestants of a race take turns, in an order drawn anew for each round. The first round warms up and is discarded,
there; at least five count. What is reported is the ratio of times within a round, its median over the rounds: a ratio
survives a machine that is slow for a minute, a time does not. Answers are compared before anything is timed. A peer
that is not installed, or that fails here, is left out with a line that says so.

A script makes one `Bench` and holds races with it. Every result is one line of JSON in ``out/bench/<script>.json``,
which ``report.py`` turns into tables and pictures. Import this module before numpy or torch: it sets the threads.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import machine

OUT = Path(__file__).resolve().parents[1] / "out" / "bench"
ROUNDS, MOST_ROUNDS = 5, 15
# Seconds: of one measurement, at least; of a race with more than `ROUNDS` rounds, at most.
SHORTEST, PATIENCE = 0.02, 10.0

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ[_variable] = "1"

Work: TypeAlias = Callable[[], Any]
Arguments: TypeAlias = Sequence[Any]


class MissingPeerError(Exception):
    """A peer cannot take part here."""


def needs(module: str) -> ModuleType:
    """Import a peer's module, or say that it cannot be had."""
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise MissingPeerError(f"{module} cannot be imported ({type(error).__name__}: {error})") from error


class Timed(NamedTuple):
    """What a work returns that keeps its own time, because only a part of it is meant."""

    seconds: float
    answer: Any = None


@dataclass(frozen=True)
class Entry:
    """One way to do the work of a race.

    Parameters
    ----------
    name
        What the report calls it.
    start
        Called once, not timed; gives the work, a function that is timed.
    package
        Distribution whose version is reported.
    share
        Part of our work that one call does: a slow peer may do less. Its time is divided by it.
    goal
        Least ratio wanted: this one's time ÷ ours.
    agrees
        Takes our answer and this one's; raises AssertionError where they should be equal and are not.
    note
        What a reader must know to judge the ratio.
    """

    name: str
    start: Callable[[], Work]
    package: str | None = None
    share: float = 1.0
    goal: float | None = None
    agrees: Callable[[Any, Any], None] | None = None
    note: str = ""


class Bench:
    """A script's races: reads the command line, runs them, writes the results."""

    def __init__(self, name: str, doc: str) -> None:
        parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        sizes = parser.add_mutually_exclusive_group()
        sizes.add_argument("--full", action="store_true", help="larger sizes, for hours when the machine is yours")
        sizes.add_argument("--tiny", action="store_true", help="sizes that prove nothing but that the script runs")
        chosen = parser.parse_args()
        self.name = name
        self._level = 2 if chosen.full else 0 if chosen.tiny else 1
        self._file = (OUT / "tiny" if chosen.tiny else OUT) / f"{name}.json"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.unlink(missing_ok=True)
        use_threads(1)
        described = machine.describe()
        self._write("machine", **described, full=chosen.full)
        print(f"{name}: {machine.in_words(described)}", flush=True)

    def size(self, tiny: int, default: int, full: int) -> int:
        """Choose a size by what the command line asks for."""
        return (tiny, default, full)[self._level]

    def race(self, case: str, about: str, ours: Entry, *peers: Entry) -> None:
        """Time our work and the peers', and report their time ÷ ours."""
        print(f"\n{self.name} / {case}: {about}")
        works, answer = {}, None
        for entry in (ours, *peers):
            try:
                work = entry.start()
                got = _answer(work())
            except Exception as error:
                if entry is ours:
                    raise
                self.skip(case, entry.name, error)
                continue
            works[entry] = work
            answer = got if entry is ours else answer
            if entry.agrees is not None:
                entry.agrees(answer, got)
        del answer, got
        times = _rounds(works)
        for entry in works:
            self._report(case, about, entry, times[entry], times[ours])

    def _report(self, case: str, about: str, entry: Entry, times: list[float], ours: list[float]) -> None:
        ratio = statistics.median(one / own for one, own in zip(times, ours, strict=True))
        version = machine.version(entry.package)
        label = f"{entry.name} {version}".strip()
        goal = "" if entry.goal is None else f"goal {entry.goal:g}"
        note = f"; {entry.note}" if entry.note else ""
        print(f"  × {ratio:8.2f}  {goal:10} {label:44} {_spread(times)}{note}", flush=True)
        self._write(
            "race", case=case, about=about, name=entry.name, version=version, ratio=ratio, goal=entry.goal,
            seconds=statistics.median(times), low=min(times), high=max(times), rounds=len(times), share=entry.share,
            ours=times is ours, note=entry.note,
        )  # fmt: skip

    def growth(self, case: str, about: str, *, change: str, small: Work, large: Work, goal: float) -> None:
        """Time the work after a change of size ÷ before; at most ``goal`` is wanted."""
        small(), large()
        before, after = Entry("before", lambda: small), Entry("after", lambda: large)
        times = _rounds({before: small, after: large})
        ratio = statistics.median(b / a for a, b in zip(times[before], times[after], strict=True))
        values = {"before": statistics.median(times[before]), "after": statistics.median(times[after])}
        self._grown(case, about, change=change, quantity="time", ratio=ratio, goal=goal, unit="s", **values)

    def memory(
        self, case: str, about: str, *, change: str, job: Callable[..., Any], small: Arguments, large: Arguments,
        goal: float,
    ) -> None:  # fmt: skip
        """Compare the peak memory of a job after and before a change of size, each in fresh processes."""
        peaks = [(alone(_peak_of, job, *small), alone(_peak_of, job, *large)) for _ in range(3)]
        before, after = (statistics.median(peak) for peak in zip(*peaks, strict=True))
        values = {"unit": "MiB", "before": before, "after": after}
        self._grown(case, about, change=change, quantity="peak memory", ratio=after / before, goal=goal, **values)

    def _grown(self, case: str, about: str, **fields: Any) -> None:
        print(f"\n{self.name} / {case}: {about}")
        print(
            "  × {ratio:8.2f}  at most {goal:g}: {quantity}, {change}, {before:.4g} {unit} to {after:.4g} {unit}".format(
                **fields
            ),
            flush=True,
        )
        self._write("growth", case=case, about=about, **fields)

    def skip(self, case: str, name: str, reason: object) -> None:
        """Note that a peer, or a whole case, is left out."""
        said = str(reason) if isinstance(reason, (str, MissingPeerError)) else f"{type(reason).__name__}: {reason}"
        said = " ".join(said.split())[:160]
        print(f"  skipped    {name}: {said}", flush=True)
        self._write("skipped", case=case, name=name, reason=said)

    def _write(self, kind: str, **fields: Any) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps({"kind": kind, "benchmark": self.name, **fields}) + "\n")


# --- timing ------------------------------------------------------------------------------------------------------


def _answer(returned: Any) -> Any:
    return returned.answer if isinstance(returned, Timed) else returned


def _once(work: Work, count: int) -> float:
    """Seconds per call, over ``count`` calls in a row."""
    gc.collect()
    own, start = 0.0, time.perf_counter()
    for _ in range(count):
        returned = work()
        own += returned.seconds if isinstance(returned, Timed) else 0.0
    elapsed = time.perf_counter() - start
    return (own or elapsed) / count


def _rounds(works: dict[Entry, Work]) -> dict[Entry, list[float]]:
    """Seconds of every round; the works are warm."""
    counts = {entry: _count(work) for entry, work in works.items()}
    times: dict[Entry, list[float]] = {entry: [] for entry in works}
    order, draw, start = list(works), random.Random(0), time.perf_counter()
    for done in range(MOST_ROUNDS):
        if done >= ROUNDS and time.perf_counter() - start > PATIENCE:
            break
        draw.shuffle(order)
        for entry in order:
            times[entry].append(_once(works[entry], counts[entry]) / entry.share)
    return times


def _count(work: Work) -> int:
    """How many calls make a measurement that the clock can resolve; doubles until they do."""
    count = 1
    while (seconds := _once(work, count) * count) < SHORTEST:
        count = max(2 * count, round(SHORTEST / max(seconds, 1e-9) * count * 1.2))
    return count


def _spread(times: list[float]) -> str:
    scale, unit = next((s, u) for s, u in ((1, "s"), (1e3, "ms"), (1e6, "µs")) if min(times) * s >= 1 or u == "µs")
    low, middle, high = (scale * one for one in (min(times), statistics.median(times), max(times)))
    return f"{middle:7.4g} {unit} ({low:.4g} to {high:.4g}, {len(times)} rounds)"


# --- threads and processes ---------------------------------------------------------------------------------------


def use_threads(count: int) -> None:
    """Give torch and Arrow this many threads; the other peers are told where they are called."""
    needs("torch").set_num_threads(count)
    arrow = needs("pyarrow")
    arrow.set_cpu_count(count)
    arrow.set_io_thread_count(max(1, count))


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use so many threads inside, and one after."""
    use_threads(count)
    try:
        yield
    finally:
        use_threads(1)


def alone(job: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function of a module in a fresh process and give what it returns."""
    pools, processes = needs("concurrent.futures"), needs("multiprocessing")
    with pools.ProcessPoolExecutor(1, mp_context=processes.get_context("spawn")) as pool:
        return pool.submit(job, *arguments).result()


def _peak_of(job: Callable[..., Any], *arguments: Any) -> float:
    """Peak memory of this process after a job, in MiB."""
    use_threads(1)
    job(*arguments)
    if sys.platform == "linux":
        # Not ru_maxrss, which a process inherits from the one that started it.
        text = Path("/proc/self/status").read_text()
        return int(text.split("VmHWM:")[1].split()[0]) / 2**10
    peak: int = needs("resource").getrusage(0).ru_maxrss
    return peak / 2 ** (20 if sys.platform == "darwin" else 10)
