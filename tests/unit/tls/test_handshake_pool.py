"""Steps of handshakes: who needs one no more takes it along, and newcomers hear of room."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import closing

import pytest
from waiting import until

from fairlead_tls import handshake_pool
from fairlead_tls.engine import TlsRefusedError
from fairlead_tls.handshake_pool import HANDSHAKE_THREADS, HandshakePool


class Steps:
    """Steps that take until they may go on, and what became of them."""

    def __init__(self) -> None:
        self.rooms = 0
        self.pool = HandshakePool(asyncio.get_running_loop(), self.on_room)
        self.may_go_on = threading.Event()
        self.ran: list[int] = []
        self.told: list[Future[int]] = []

    def on_room(self) -> None:
        assert self.pool.has_room
        self.rooms += 1

    def run(self, number: int) -> Future[int]:
        def step() -> int:
            self.ran.append(number)
            self.may_go_on.wait(30)
            return number

        return self.pool.run(step, self.told.append)


def play(story: Callable[[Steps], Awaitable[None]]) -> None:
    async def run() -> None:
        steps = Steps()
        with closing(steps.pool):
            try:
                await story(steps)
            finally:
                steps.may_go_on.set()

    asyncio.run(run())


def test_a_step_that_was_taken_back_does_not_run_and_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handshake_pool, "HANDSHAKES_WAITING_MAX", 10)

    async def story(steps: Steps) -> None:
        running = [steps.run(number) for number in range(HANDSHAKE_THREADS)]
        await until(lambda: len(steps.ran) == HANDSHAKE_THREADS)
        waiting = [steps.run(number) for number in range(100, 109)]
        assert not steps.pool.has_room
        assert [step.cancel() for step in running] == [False, False]
        assert waiting[0].cancel()
        assert (steps.pool.has_room, steps.rooms) == (False, 0)
        assert waiting[1].cancel() and waiting[2].cancel()
        assert (steps.pool.has_room, steps.rooms) == (True, 1)
        steps.may_go_on.set()
        await until(lambda: len(steps.told) == 8)
        assert sorted(step.result() for step in steps.told) == [0, 1, *range(103, 109)]
        assert sorted(steps.ran) == [0, 1, *range(103, 109)]
        assert steps.rooms == 1

    play(story)


def test_a_step_that_fails_counts_as_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_pool, "HANDSHAKES_WAITING_MAX", 1)

    def fail() -> int:
        raise ValueError("no")

    async def story(steps: Steps) -> None:
        steps.pool.run(fail, steps.told.append)
        assert not steps.pool.has_room
        await until(lambda: steps.told)
        assert isinstance(steps.told[0].exception(), TlsRefusedError)
        assert steps.rooms == 1

    play(story)


class PanicError(BaseException):
    """What a library in Rust raises is no Exception either."""


@pytest.mark.parametrize("error", [RuntimeError("odd"), MemoryError(), PanicError("odd")])
def test_a_step_that_fails_with_anything_is_a_refusal(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing else ends a connection before its time is over."""

    def fail() -> int:
        raise error

    async def story(steps: Steps) -> None:
        for _ in range(2):
            steps.pool.run(fail, steps.told.append)
        await until(lambda: len(steps.told) == 2)
        for future in steps.told:
            with pytest.raises(TlsRefusedError, match="its step failed"):
                future.result()

    play(story)
    (line,) = caplog.records
    assert line.exc_info is not None and line.exc_info[1] is error
