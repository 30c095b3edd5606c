"""Time this library against others on equal terms, and keep what came out.

The contestants of a race take turns, in an order drawn anew for each round. A first call of each warms up and is
discarded; then at least five rounds count. What is reported is the ratio of times within a round, its median over the
rounds: a ratio survives a machine that is slow for a minute, a time does not. Answers are compared before anything is
timed. A peer that is not installed, or that fails here, is left out with a line that says so.

A script makes one `Bench` and holds races with it. Every result is one line of JSON in ``out/bench/<script>.json``,
which ``report.py`` turns into tables and pictures. Import this module before numpy or torch: it sets the threads.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import machine
from timing import Clock, Timed, Work, added_memory, answer_of, in_words, ratio, rounds, threads, use_threads

__all__ = ["OUT", "Agrees", "Bench", "Entry", "MissingPeerError", "Timed", "Work", "needs"]

OUT = Path(__file__).resolve().parents[1] / "out" / "bench"

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ[_variable] = "1"

Agrees: TypeAlias = Callable[[Any, Any], None]
Arguments: TypeAlias = Sequence[Any]


class MissingPeerError(Exception):
    """A peer cannot take part here."""


def needs(module: str) -> ModuleType:
    """Import a peer's module, or say that it cannot be had."""
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise MissingPeerError(f"{module} cannot be imported ({type(error).__name__}: {error})") from error


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
    agrees: Agrees | None = None
    note: str = ""

    @property
    def label(self) -> str:
        """Name and version."""
        return f"{self.name} {machine.version(self.package)}".strip()


class Bench:
    """A script's races: reads the command line, runs them, writes the results."""

    def __init__(self, name: str, doc: str | None) -> None:
        parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        sizes = parser.add_mutually_exclusive_group()
        sizes.add_argument("--full", action="store_true", help="larger sizes, for an hour when the machine is yours")
        sizes.add_argument("--tiny", action="store_true", help="sizes that show that the script runs, and no more")
        parser.add_argument("--cpu", action="store_true", help="count CPU time: on a machine that others use too")
        chosen = parser.parse_args()
        self.name = name
        self._level = 2 if chosen.full else 0 if chosen.tiny else 1
        self._file = (OUT / "tiny" if chosen.tiny else OUT) / f"{name}.json"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.unlink(missing_ok=True)
        warnings.simplefilter("ignore")  # peers warn of what will change in their own dependencies
        use_threads(1)
        if chosen.cpu:
            Clock.read = time.process_time
        described = {**machine.describe(), "clock": "CPU time" if chosen.cpu else "elapsed time", "full": chosen.full}
        self._write("machine", **described)
        print(f"{name}: {machine.in_words(described)}", flush=True)

    def size(self, tiny: int, default: int, full: int) -> int:
        """Choose a size by what the command line asks for."""
        return (tiny, default, full)[self._level]

    def race(self, case: str, about: str, ours: Entry, *peers: Entry) -> None:
        """Time our work and the peers', and report their time ÷ ours."""
        self._say(case, about)
        mine = ours.start()
        answer = answer_of(mine())
        works = {ours: mine}
        for peer in peers:
            try:
                work = peer.start()
                theirs = answer_of(work())
            except Exception as error:
                self.skip(case, peer.name, error)
                continue
            if peer.agrees is not None:
                peer.agrees(answer, theirs)
            works[peer] = work
        answer = theirs = None  # large ones would weigh on what is timed
        times = {entry: [one / entry.share for one in own] for entry, own in rounds(works).items()}
        for entry, own in times.items():
            self._report(case, about, entry, own, times[ours])

    def growth(self, case: str, about: str, *, change: str, small: Work, large: Work, goal: float) -> None:
        """Time a work after a change of size ÷ before; at most ``goal`` is wanted."""
        small(), large()
        times = rounds({"before": small, "after": large})
        values = {name: statistics.median(own) for name, own in times.items()}
        factor = ratio(times["after"], times["before"])
        self._grown(case, about, change=change, quantity="time", ratio=factor, goal=goal, unit="s", **values)

    def second_thread(self, case: str, about: str, work: Work, *, goal: float) -> None:
        """Time a work with two threads ÷ with one."""

        def with_two() -> Any:
            with threads(2):
                return work()

        if Clock.read is time.process_time:
            self.skip(case, "2 threads", "CPU time does not say what they bring")
        else:
            self.growth(case, about, change="threads 1 to 2", small=work, large=with_two, goal=goal)

    def memory(
        self, case: str, about: str, *, change: str, job: Callable[..., Any], small: Arguments, large: Arguments,
        goal: float,
    ) -> None:  # fmt: skip
        """Compare the peak memory that a job adds after a change of size ÷ before, each in fresh processes."""
        pairs = [(added_memory(job, *small), added_memory(job, *large)) for _ in range(3)]
        before, after = (statistics.median(peaks) for peaks in zip(*pairs, strict=True))
        values = {"unit": "MiB", "before": before, "after": after}
        self._grown(case, about, change=change, quantity="peak memory", ratio=after / before, goal=goal, **values)

    def skip(self, case: str, name: str, reason: object) -> None:
        """Note that a peer, or a whole case, is left out."""
        said = str(reason) if isinstance(reason, (str, MissingPeerError)) else f"{type(reason).__name__}: {reason}"
        said = " ".join(said.split())[:160]
        print(f"  left out   {name}: {said}", flush=True)
        self._write("skipped", case=case, name=name, reason=said)

    # --- results -------------------------------------------------------------------------------------------------

    def _say(self, case: str, about: str) -> None:
        print(f"\n{self.name}, {case}: {about}", flush=True)

    def _report(self, case: str, about: str, entry: Entry, times: list[float], ours: list[float]) -> None:
        factor, middle = ratio(times, ours), statistics.median(times)
        goal = "" if entry.goal is None else f"goal {entry.goal:g}"
        spread = f"{in_words(middle)} ({in_words(min(times))} to {in_words(max(times))}, {len(times)} rounds)"
        note = f"; {entry.note}" if entry.note else ""
        print(f"  × {factor:8.2f}  {goal:10} {entry.label:44} {spread}{note}", flush=True)
        fields = {"name": entry.name, "version": machine.version(entry.package), "ours": times is ours}
        fields |= {"ratio": factor, "goal": entry.goal, "share": entry.share, "note": entry.note}
        fields |= {"seconds": middle, "low": min(times), "high": max(times), "rounds": len(times)}
        self._write("race", case=case, about=about, **fields)

    def _grown(self, case: str, about: str, **fields: Any) -> None:
        self._say(case, about)
        line = "  × {ratio:8.2f}  at most {goal:g}: {quantity}, {change}, {before:.4g} to {after:.4g} {unit}"
        print(line.format(**fields), flush=True)
        self._write("growth", case=case, about=about, **fields)

    def _write(self, kind: str, **fields: Any) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps({"kind": kind, "benchmark": self.name, **fields}) + "\n")
