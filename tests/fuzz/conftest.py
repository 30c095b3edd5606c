"""Fuzzing for as long as one likes: ``make fuzz``, or FUZZ_SECONDS for each test and FUZZ_SEED to start elsewhere."""

from __future__ import annotations

import faulthandler
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

_SECONDS = float(os.environ.get("FUZZ_SECONDS", "0.5"))
_SEED = int(os.environ.get("FUZZ_SEED", "0"))
_STUCK = 120  # seconds after the end until a test that does not come back is taken for a hang
_ENOUGH = 2**30  # bytes that no input of a few kilobytes may ask for
Fuzz = Callable[[SearchStrategy, Callable[..., None]], None]


@pytest.fixture
def fuzz() -> Iterator[Fuzz]:
    """Try a check on inputs of a strategy until the time is up; the seed of what failed stands in the failure."""

    def run(inputs: SearchStrategy, check: Callable[..., None]) -> None:
        end = time.monotonic() + _SECONDS
        for number in itertools.count(_SEED):
            _batch(inputs, check, number)
            if time.monotonic() > end:
                return

    faulthandler.dump_traceback_later(_SECONDS + _STUCK, exit=True)
    before = _peak()
    yield run
    faulthandler.cancel_dump_traceback_later()
    assert _peak() - before < _ENOUGH


def _batch(inputs: SearchStrategy, check: Callable[..., None], number: int) -> None:
    """Try some inputs, the same for a number every time."""
    quiet = settings(
        max_examples=25,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    try:
        seed(number)(quiet(given(inputs)(check)))()
    except BaseException as error:
        error.add_note(f"Again: FUZZ_SEED={number} FUZZ_SECONDS=0") if sys.version_info >= (3, 11) else None
        raise


def _peak() -> int:
    """Give the most memory that this process ever held, in bytes; 0 where the system does not say."""
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
