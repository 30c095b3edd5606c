"""`Engine`: the small door behind which work is done, by threads of this process or by a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from tqdm import tqdm

Handle: TypeAlias = Any
"""Stands for a value that an engine holds, or will hold; what it is, only the engine knows."""


class Engine(Protocol):
    """Runs functions on workers.

    What is asked of it gives the same bits with any number of workers, in any order, and when a worker is lost and
    its work is done again: the functions that it is given depend on their arguments alone.
    """

    @property
    def workers(self) -> int:
        """How many functions run at the same time; 1 or more."""

    def put(self, value: Any) -> Handle:
        """Keep a value where every worker reaches it, once for all the work that needs it."""

    def submit(self, function: Callable[..., Any], *arguments: Any, returns: int = 1, name: str = "") -> list[Handle]:
        """Have ``function`` called with ``arguments``, of which handles stand for their values.

        Parameters
        ----------
        function
            Of a module that workers can import.
        arguments
            Values that can be pickled, and handles.
        returns
            With 1, the handle is of what the function returns; with more, it returns a sequence of so many, and each
            gets a handle of its own, so that a worker fetches only the one that it needs.
        name
            What messages call it, if the function's name does not say enough.

        Returns
        -------
        list
            ``returns`` handles.
        """

    def gather(self, handles: Sequence[Handle]) -> Iterator[Any]:
        """Yield the values in the order of the handles, as they are there.

        Raises
        ------
        Exception
            What the function raised: of several errors, that of the first handle.
        EngineError
            When workers were lost too often.
        """

    def close(self) -> None:
        """Let go of everything; nothing can be asked afterwards."""


def watched(engine: Engine, handles: Sequence[Handle], what: str, progress: bool | None) -> Iterator[Any]:
    """Gather under a progress bar called ``what``: True shows it, None only on a terminal, False not."""
    disabled = None if progress is None else not progress
    yield from tqdm(engine.gather(handles), total=len(handles), desc=what, unit="piece", disable=disabled)
