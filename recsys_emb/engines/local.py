"""`Local`: threads of this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from recsys_emb.engines.engine import Engine, Handle
from recsys_emb.errors import DataError, EngineError, at_least


class Local:
    """Threads of this process, which share its memory: reading, counting and looking up need no interpreter lock.

    Parameters
    ----------
    workers
        Threads; None takes the processors that this process may use.
    executor
        Where to run instead: any `concurrent.futures.Executor`, for instance a ``ProcessPoolExecutor``, whose
        processes get a copy of what they need with every piece. It is not shut down here.

    Raises
    ------
    DataError
        When ``workers`` is no integer of at least 1.

    Examples
    --------
    >>> with Local(2) as engine:
    ...     tens = engine.put(10)
    ...     handles = [engine.submit(divmod, number, tens, returns=2)[1] for number in (17, 29)]
    ...     list(engine.gather(handles))
    [7, 9]
    """

    def __init__(self, workers: int | None = None, *, executor: Executor | None = None) -> None:
        self.workers = _processors() if workers is None else at_least("Local", "workers", workers, 1)
        self._is_own, self._is_closed = executor is None, False
        self._executor = executor or ThreadPoolExecutor(self.workers, thread_name_prefix="engine")

    def put(self, value: Any) -> Handle:
        """Hold a value."""
        future: Future[Any] = Future()
        future.set_result(value)
        return _Held(future)

    def submit(self, function: Callable[..., Any], *arguments: Any, returns: int = 1, name: str = "") -> list[Handle]:
        """Have a function called; waits for the values of handles among the arguments."""
        del name
        if self._is_closed:
            raise EngineError("Local: expected an engine that is open, got one that was closed. Make another: Local().")
        values = [one.value() if isinstance(one, _Held) else one for one in arguments]
        future = self._executor.submit(function, *values)
        return [_Held(future)] if returns == 1 else [_Held(future, place) for place in range(returns)]

    def gather(self, handles: Sequence[Handle]) -> Iterator[Any]:
        """Yield the values; what was not begun when one fails is called off."""
        try:
            for handle in handles:
                yield handle.value()
        finally:
            for handle in handles:
                handle.call_off()

    def close(self) -> None:
        """End the threads; asking for more is an `EngineError`."""
        self._is_closed = True
        if self._is_own:
            self._executor.shutdown()

    def __enter__(self) -> Local:
        """Use it for a while."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


@contextmanager
def threads_unless(engine: Engine | None) -> Iterator[Engine]:
    """Give an engine, or threads for a while where there is none.

    Raises
    ------
    DataError
        When it is something else.
    """
    if engine is None:
        with Local() as own:
            yield own
        return
    if isinstance(engine, type) or not hasattr(engine, "submit"):
        raise DataError(f"engine: expected an engine, got {engine!r}. Pass Local(2) or Ray().")
    yield engine


class _Held:
    """The value of a future, or one of several."""

    def __init__(self, future: Future[Any], place: int | None = None) -> None:
        self._future, self._place = future, place

    def value(self) -> Any:
        result = self._future.result()
        return result if self._place is None else result[self._place]

    def call_off(self) -> None:
        self._future.cancel()


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
