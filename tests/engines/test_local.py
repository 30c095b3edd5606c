from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from recsys_emb.encoding.encoder import FeatureEncoder
from recsys_emb.engines.engine import watched
from recsys_emb.engines.local import Local
from recsys_emb.errors import DataError, EngineError
from recsys_emb.schema import Categorical, Schema


def fail(number: int) -> int:
    raise ValueError(number)


def test_values_come_in_the_order_of_the_handles() -> None:
    with Local(3) as engine:
        handles = [engine.submit(abs, -number)[0] for number in range(50)]
        assert list(engine.gather(handles)) == list(range(50))
        assert list(engine.gather([])) == []


def test_handles_stand_for_their_values_among_the_arguments() -> None:
    with Local(1) as engine:
        ten, (quotient, rest) = engine.put(10), engine.submit(divmod, 47, 10, returns=2)
        (shifted,) = engine.submit(pow, ten, quotient)
        assert list(engine.gather([ten, quotient, rest, shifted])) == [10, 4, 7, 10_000]


def test_what_is_put_is_not_copied() -> None:
    with Local(2) as engine:
        value = object()
        assert next(engine.gather(engine.submit(id, engine.put(value)))) == id(value)


def test_the_error_of_the_first_handle_is_raised() -> None:
    with Local(2) as engine:
        handles = [engine.submit(fail if number else abs, number)[0] for number in range(4)]
        values = engine.gather(handles)
        assert next(values) == 0
        with pytest.raises(ValueError, match=r"^1$"):
            next(values)


def test_what_has_not_begun_when_one_fails_is_called_off() -> None:
    started, release = [], threading.Event()

    def fail_or_wait(number: int) -> None:
        started.append(number)
        if not number:
            raise ValueError(number)
        release.wait(10)

    with Local(1) as engine:
        handles = [engine.submit(fail_or_wait, number)[0] for number in range(5)]
        with pytest.raises(ValueError, match=r"^0$"):
            list(engine.gather(handles))
        release.set()
    assert started in ([0], [0, 1])  # the thread may have taken the next before it was called off


def test_another_executor_does_the_work_and_is_left_open() -> None:
    with ThreadPoolExecutor(1, thread_name_prefix="mine") as pool:
        with Local(executor=pool) as engine:
            (handle,) = engine.submit(lambda: threading.current_thread().name)
            assert next(engine.gather([handle])).startswith("mine")
        assert pool.submit(abs, -1).result() == 1


def test_no_workers_are_refused() -> None:
    with pytest.raises(DataError) as caught:
        Local(0)
    assert str(caught.value) == "Local: expected workers to be an integer of at least 1, got 0. Give workers=1 or more."


def test_a_bar_is_shown_when_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with Local(1) as engine:
        handles = [engine.submit(abs, -number)[0] for number in range(3)]
        assert list(watched(engine, handles, "fit", None)) == list(watched(engine, handles, "fit", False)) == [0, 1, 2]
        assert capsys.readouterr().err == ""
        assert list(watched(engine, handles, "fit", True)) == [0, 1, 2]
        shown = capsys.readouterr().err
        assert shown.startswith("\rfit:")
        assert "3/3" in shown


@pytest.mark.parametrize("engine", [2, "ray", Local])
def test_what_is_no_engine_is_refused(engine: Any) -> None:
    encoder = FeatureEncoder(Schema(user=Categorical("user")))
    with pytest.raises(DataError) as caught:
        encoder.fit({"user": [1]}, engine=engine)
    assert str(caught.value) == f"engine: expected an engine, got {engine!r}. Pass Local(2) or Ray()."


def test_an_engine_that_was_closed_says_so() -> None:
    with Local(1) as engine:
        pass
    with pytest.raises(EngineError) as caught:
        FeatureEncoder(Schema(user=Categorical("user"))).fit({"user": [1]}, engine=engine)
    assert str(caught.value) == (
        "Local: expected an engine that is open, got one that was closed. Make another: Local()."
    )
