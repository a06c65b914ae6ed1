"""A child that stands still is killed, one that wakes in time is not. With stand-in processes."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from fairlead_cli.local import freeze_watch
from fairlead_cli.local.cluster_file import ProcessEntry
from fairlead_cli.local.freeze_watch import FreezeWatch
from fairlead_cli.local.local_process import ChildSpec, LocalProcess
from fairlead_cli.local.readiness import http_get

FAKE = Path(__file__).with_name("fake_process.py")
DEADLINE_S = 60.0
PATIENCE_S = 1.0

Scenario = Callable[["Watched"], Coroutine[Any, Any, None]]


class Watched:
    """One child, the watch over it, and what the watch has said."""

    def __init__(self, child: LocalProcess, patience_s: float) -> None:
        self.child = child
        self.said: list[str] = []
        self.watch = FreezeWatch(child, patience_s, lambda _, text: self.said.append(text))
        self.answers = 0

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.child.running_process().pid, number)

    async def next_answer(self) -> None:
        """Until one more question has been answered."""
        before = self.answers
        deadline = time.monotonic() + DEADLINE_S
        while self.answers == before:
            assert time.monotonic() < deadline, "no answer"
            await asyncio.sleep(0.01)


@pytest.fixture
def patience_s() -> float:
    return PATIENCE_S


@pytest.fixture
def play(
    tmp_path: Path, free_port: int, monkeypatch: pytest.MonkeyPatch, patience_s: float
) -> Callable[[Scenario], Watched]:
    """Start a child, wait until it serves, and let the scenario happen under the watch's eyes."""
    command = [sys.executable, str(FAKE), "controller", str(free_port), str(tmp_path / "notes")]
    spec = ChildSpec((*command, "--stuck-after-usr1"), tmp_path / "output", "/")
    child = LocalProcess(spec, ProcessEntry("controller", "127.0.0.1", 0, free_port))
    watched = Watched(child, patience_s)
    ask = http_get

    async def counted(*arguments: Any, **options: Any) -> tuple[int, bytes] | None:
        reply = await ask(*arguments, **options)
        watched.answers += reply is not None
        return reply

    monkeypatch.setattr(freeze_watch, "http_get", counted)

    async def run(scenario: Scenario) -> None:
        await child.start()
        watching = asyncio.create_task(watched.watch.run())
        try:
            assert await child.wait_until_ready()
            await scenario(watched)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            child.kill()
            await child.running_process().wait()

    def play(scenario: Scenario) -> Watched:
        asyncio.run(asyncio.wait_for(run(scenario), DEADLINE_S))
        return watched

    return play


@pytest.mark.parametrize(
    ("number", "state", "advice"),
    [
        (signal.SIGSTOP, "was stopped by a signal", ""),
        (signal.SIGUSR1, "is stuck, or far too slow", "; the next one is given 2 s"),
    ],
)
def test_it_is_killed_and_the_reason_is_said(
    play: Callable[[Scenario], Watched], number: signal.Signals, state: str, advice: str
) -> None:
    async def scenario(watched: Watched) -> None:
        await watched.next_answer()
        watched.signal(number)
        assert await watched.child.wait() == -signal.SIGKILL

    watched = play(scenario)
    (line,) = watched.said
    assert line.startswith("has not answered for 1.")
    assert line.endswith(
        f"s (fairlead.controller.freeze.timeout.ms), it {state}: "
        f"killing it, so that another takes over{advice}"
    )


def test_patience_may_be_longer_than_a_question_stays_open(
    play: Callable[[Scenario], Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freeze_watch, "ANSWER_TIMEOUT_S", 0.3)

    async def scenario(watched: Watched) -> None:
        await watched.next_answer()
        watched.signal(signal.SIGSTOP)
        assert await watched.child.wait() == -signal.SIGKILL

    assert len(play(scenario).said) == 1


@pytest.mark.parametrize("patience_s", [4.0])
def test_whoever_wakes_in_time_lives_on(play: Callable[[Scenario], Watched]) -> None:
    """The question that was asked while it stood still is answered when it wakes."""

    async def scenario(watched: Watched) -> None:
        for _ in range(2):
            await watched.next_answer()
            watched.signal(signal.SIGSTOP)
            await asyncio.sleep(1.0)
            watched.signal(signal.SIGCONT)
            await watched.next_answer()
        assert watched.child.running_process().returncode is None

    assert play(scenario).said == []


def test_a_successor_is_watched_in_turn(play: Callable[[Scenario], Watched]) -> None:
    async def scenario(watched: Watched) -> None:
        for _ in range(2):
            await watched.next_answer()
            watched.signal(signal.SIGSTOP)
            assert await watched.child.wait() == -signal.SIGKILL
            await watched.child.start()
            assert await watched.child.wait_until_ready()

    assert len(play(scenario).said) == 2


def test_a_start_takes_as_long_as_it_takes(play: Callable[[Scenario], Watched]) -> None:
    async def scenario(watched: Watched) -> None:
        await watched.next_answer()
        watched.child.entry.state = "starting"
        watched.signal(signal.SIGSTOP)
        await asyncio.sleep(2 * PATIENCE_S)
        assert watched.said == []
        watched.child.entry.state = "running"
        assert await watched.child.wait() == -signal.SIGKILL

    assert len(play(scenario).said) == 1
