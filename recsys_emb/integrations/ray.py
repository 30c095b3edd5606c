"""`Ray`: the workers of a Ray cluster, or of one that is started here."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from recsys_emb.engines.engine import Handle
from recsys_emb.errors import DataError, EngineError, MissingDependencyError, RecsysEmbError, at_least


class Ray:
    """Tasks of Ray Core: on one machine, processes that share memory; on a cluster, its machines.

    What is put is kept once per machine and read where it lies. What does not fit into a machine's object store is
    spilled to its disk. A task whose worker is lost is done again, and so is what a lost machine held; results stay
    the same.

    A cluster that is connected to already is used, and left running by `close`. Every machine needs this library in
    the same version, and sees files under the same paths or URIs.

    Parameters
    ----------
    address
        Of a running cluster; ``"auto"`` finds the one of this machine. None starts one here, unless there is a
        connection. Ray listens on all network interfaces of the machines that it runs on.
    workers
        Tasks at a time in a cluster that is started here; None takes all processors.
    object_store_memory
        Bytes of shared memory in a cluster that is started here; None takes what Ray takes.
    retries
        How often a task is done again whose worker was lost.

    Raises
    ------
    MissingDependencyError
        When Ray is not installed.
    DataError
        When ``workers`` or ``object_store_memory`` is given for a cluster that runs already, ``workers`` is below 1,
        or ``retries`` below 0.

    Examples
    --------
    >>> from recsys_emb import FeatureEncoder
    >>> with Ray(workers=2, object_store_memory=2**28) as engine:  # doctest: +SKIP
    ...     encoder = FeatureEncoder(schema).fit("ratings/", engine=engine)
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        object_store_memory: int | None = None,
        retries: int = 3,
    ) -> None:
        at_least("Ray", "retries", retries, 0)
        if workers is not None:
            at_least("Ray", "workers", workers, 1)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self._ray = _ray()
        self._starts = not self._ray.is_initialized()
        sizes = {"num_cpus": workers, "object_store_memory": object_store_memory}
        if any(size is not None for size in sizes.values()) and (address is not None or not self._starts):
            raise DataError(
                "Ray: expected workers= and object_store_memory= for a cluster that is started here, got them for one "
                "that runs. Leave them out."
            )
        if self._starts:
            # Of several errors one is raised, which says what is wrong; Ray would print all the others.
            os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
            self._ray.init(address, include_dashboard=False, logging_level="warning", log_to_driver=False, **sizes)
        self.workers = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self._options = {"max_retries": retries, "num_cpus": 1}
        self._remote: dict[Callable[..., Any], Any] = {}

    def put(self, value: Any) -> Handle:
        """Keep a value in shared memory."""
        return _Held(self._ray.put(value), "put")

    def submit(self, function: Callable[..., Any], *arguments: Any, returns: int = 1, name: str = "") -> list[Handle]:
        """Have a function called as a task."""
        if function not in self._remote:
            self._remote[function] = self._ray.remote(**self._options)(function)
        values = [one.reference if isinstance(one, _Held) else one for one in arguments]
        called = name or function.__name__.strip("_")
        found = self._remote[function].options(num_returns=returns, name=called).remote(*values)
        return [_Held(reference, called) for reference in ([found] if returns == 1 else found)]

    def gather(self, handles: Sequence[Handle]) -> Iterator[Any]:
        """Yield the values; what is not done when one fails, or when the caller stops, is called off."""
        try:
            for handle in handles:
                yield self._value(handle)
        finally:
            self._call_off([handle.reference for handle in handles])

    def _value(self, handle: _Held) -> Any:
        try:
            return self._ray.get(handle.reference)
        except self._ray.exceptions.RayError as error:
            explained = self._explained(error, handle)
            if explained is error:
                raise
            raise explained from error

    def _call_off(self, references: Sequence[Any]) -> None:
        # To ask a cluster that was shut down meanwhile would start one.
        if references and self._ray.is_initialized():
            _, running = self._ray.wait(references, num_returns=len(references), timeout=0, fetch_local=False)
            for one in running:
                self._ray.cancel(one)

    def _explained(self, error: Exception, handle: _Held) -> Exception:
        cause = getattr(error, "cause", None)
        if isinstance(error, self._ray.exceptions.RayTaskError):
            return cause if isinstance(cause, RecsysEmbError) else error
        reason = " ".join(str(error).split()).rstrip(".")
        return EngineError(
            f"Ray: {handle.name}: expected a worker to finish, got {type(error).__name__} after "
            f"{self._options['max_retries']} retries: {reason}. Give workers more memory, or read smaller row groups."
        )

    def close(self) -> None:
        """Shut the cluster down, if it was started here."""
        if self._starts:
            self._ray.shutdown()

    def __enter__(self) -> Ray:
        """Use it for a while."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


class _Held(NamedTuple):
    """A reference to a value, and what messages call the task that makes it."""

    reference: Any
    name: str


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise MissingDependencyError(
            "Ray: expected Ray to be installed, got none. Run: pip install 'recsys-emb[ray]'"
        ) from error
