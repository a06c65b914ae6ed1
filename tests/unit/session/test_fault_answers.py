"""The broker's side of faults that a drill asks for."""

import asyncio
import os
from typing import Any

import pytest

from fairlead_broker.session import supervisor_pipe
from fairlead_broker.session.fault_answers import FaultAnswers
from fairlead_broker.session.supervisor_pipe import (
    DrillFaults,
    SupervisorPipe,
    open_supervisor_pipe,
)
from fairlead_model.configs.setting_sources import read_environment
from fairlead_model.session.session_messages import unpack_message
from fairlead_model.session.session_protocol import SessionProtocolError


class Stage:
    """A link and a supervisor's pipe; what happened on both, in order."""

    def __init__(self, *, is_enabled: bool = True, has_supervisor: bool = True) -> None:
        self.reader, writer = os.pipe()
        self.events: list[Any] = []
        pipe = SupervisorPipe(writer) if has_supervisor else None
        self.faults = DrillFaults(pipe, is_enabled=is_enabled, directories=["/data/a", "/b"])
        self.answers = FaultAnswers(self)
        self._writer = writer

    def refusal(self, fault: str, duration_ms: int, turns: tuple[int, int]) -> str:
        return self.faults.refusal(fault, duration_ms, turns)

    def carry_out(self, fault: str, duration_ms: int, turns: tuple[int, int]) -> None:
        self.faults.carry_out(fault, duration_ms, turns)
        self.events.append(os.read(self.reader, 100).decode())

    async def deliver(self, data: bytes) -> None:
        self.events.append(unpack_message(data))

    def ask(self, **message: Any) -> list[Any]:
        async def story() -> None:
            self.answers.receive(self, {"type": "fault", **message})  # type: ignore[arg-type]
            await asyncio.gather(*self.answers._tasks)

        try:
            asyncio.run(story())
        finally:
            os.close(self.reader)
            os.close(self._writer)
        return self.events


def reply(number: int, error: str = "") -> dict[str, Any]:
    return {"type": "fault_reply", "id": number, "error": error}


def test_a_disk_is_filled_unless_others_use_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_pipe, "find_obstacle", lambda _: "")
    lines = "fill 800 /data/a\nfill 800 /b\n"
    assert Stage().ask(id=7, fault="fill", duration_ms=800) == [reply(7), lines]
    (answer,) = Stage().ask(id=8, fault="fill")
    assert "not 0" in answer["error"]
    monkeypatch.setattr(supervisor_pipe, "find_obstacle", "{} is shared".format)
    refused = [reply(9, "/data/a is shared")]
    assert Stage().ask(id=9, fault="fill", duration_ms=800) == refused


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("kill", "kill\n"),
        ("pause", "pause 800\n"),
        ("resume", "resume\n"),
        ("slow", "slow 800 200 50\n"),
    ],
)
def test_the_answer_goes_before_the_fault(fault: str, line: str) -> None:
    turns = {"stall_ms": 200, "run_ms": 50}
    assert Stage().ask(id=7, fault=fault, duration_ms=800, **turns) == [reply(7), line]


def test_a_broker_without_drills_refuses() -> None:
    text = "drills are not enabled on this broker (fairlead.drills.enable=true)"
    assert Stage(is_enabled=False).ask(id=1, fault="kill", duration_ms=0) == [reply(1, text)]


def test_a_broker_without_supervisor_refuses() -> None:
    text = "this broker runs without the supervisor that carries out faults"
    assert Stage(has_supervisor=False).ask(id=1, fault="kill", duration_ms=0) == [reply(1, text)]


def test_unknown_faults_and_endless_pauses_are_refused() -> None:
    (answer,) = Stage().ask(id=1, fault="melt", duration_ms=0)
    assert answer["error"] == "there is no fault 'melt'; there are kill, pause, resume, slow, fill"
    (answer,) = Stage().ask(id=2, fault="pause", duration_ms=0)
    assert "from 1 to 600000 ms" in answer["error"]
    (answer,) = Stage().ask(id=3, fault="slow", duration_ms=900, stall_ms=200)
    assert answer["error"] == "a turn lasts from 1 to 10000 ms, not 200 and 0"


def test_a_malformed_message_breaks_the_protocol() -> None:
    for message in (
        {"id": "1", "fault": "kill"},
        {"id": 1},
        {"id": 1, "fault": "kill", "duration_ms": "x"},
        {"id": 1, "fault": "slow", "duration_ms": 9, "stall_ms": None},
    ):
        with pytest.raises(SessionProtocolError):
            FaultAnswers(None).receive(None, message)  # type: ignore[arg-type]


def test_a_number_that_is_no_open_pipe_is_no_supervisor() -> None:
    assert open_supervisor_pipe({}) is None
    assert open_supervisor_pipe({"FAIRLEAD_SUPERVISOR_FD": "x"}) is None
    assert open_supervisor_pipe({"FAIRLEAD_SUPERVISOR_FD": "9999"}) is None


def test_what_process_1_puts_into_the_environment_is_no_setting() -> None:
    environment = {"FAIRLEAD_SUPERVISOR_FD": "3", "FAIRLEAD_ID_BASE": "0"}
    assert read_environment(environment) == ({}, [])
