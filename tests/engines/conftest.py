from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from recsys_emb.engines.local import Local


class _Pickling(Executor):
    """Calls at once, but on copies: what goes in and out travels as it would to another process."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        called, copies = pickle.loads(pickle.dumps((function, arguments), protocol=5))
        try:
            future.set_result(pickle.loads(pickle.dumps(called(*copies), protocol=5)))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture
def pickling() -> Local:
    return Local(3, executor=_Pickling())
