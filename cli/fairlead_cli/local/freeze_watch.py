"""Kills a controller that has frozen, so that the supervisor starts another.

A local cluster has one controller, and no other can take over while its process exists: its file
store is locked, its ports are taken. So it gets HTTP requests, which its event loop has to answer;
the kernel would accept a connection even for a stopped process. Only SIGKILL works on a stopped
process. It does no harm: the successor seals the metadata tables with a higher controller epoch.

Brokers are not watched. If a broker freezes, the controller moves its leaders within two seconds. A
kill would only add the recovery of its logs, on a machine that may just be busy.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from fairlead_cli.local.freeze_judgement import FreezeJudgement, Look
from fairlead_cli.local.readiness import http_get

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_cli.local.freeze_judgement import Verdict
    from fairlead_cli.local.local_process import LocalProcess
    from fairlead_cli.local.process_table import ProcessId

FREEZE_TIMEOUT_SETTING: Final = "fairlead.controller.freeze.timeout.ms"
LOOK_INTERVAL_S: Final = 0.25
QUESTION_INTERVAL_S: Final = 0.5
ANSWER_TIMEOUT_S: Final = 30.0
"""A request stays open during a stall, so that the first answer counts."""
ALIVE_PATH: Final = "/healthz"


class FreezeWatch:
    """Watches one child while it serves, also after it was replaced by another process."""

    def __init__(
        self, child: LocalProcess, patience_s: float, warn: Callable[[str, str], None]
    ) -> None:
        self._child = child
        self._warn = warn
        self._judgement = FreezeJudgement(patience_s)
        self._watched: ProcessId | None = None
        self._killed: ProcessId | None = None
        self._question: asyncio.Task[None] | None = None
        self._asked_at_s = 0.0

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            while True:
                self._look()
                await asyncio.sleep(LOOK_INTERVAL_S)
        finally:
            self._forget_question()

    def _look(self) -> None:
        entry = self._child.entry
        # A start may take any time, so a process that does not serve yet is not watched.
        process = entry.process if entry.state == "running" else None
        if process != self._watched:
            self._watched = process
            self._judgement.begin()
            self._forget_question()
        if process is None or process == self._killed:
            return
        if self._question is not None and self._question.done():
            question, self._question = self._question, None
            question.result()
        look = see(process, has_answered=False)
        verdict = self._judgement.take(look)
        if verdict is not None:
            self._killed = process
            self._warn(entry.name, explain(verdict))
            self._child.kill()
        elif self._question is None and look.at_s - self._asked_at_s >= QUESTION_INTERVAL_S:
            self._asked_at_s = look.at_s
            self._question = asyncio.create_task(self._ask(process))

    async def _ask(self, process: ProcessId) -> None:
        """Send a request and note the time of its answer, from which silence counts."""
        entry = self._child.entry
        reply = await http_get(entry.host, entry.http_port, ALIVE_PATH, timeout_s=ANSWER_TIMEOUT_S)
        if reply is not None and process == self._watched:
            self._judgement.take(see(process, has_answered=True))

    def _forget_question(self) -> None:
        if self._question is not None:
            self._question.cancel()
            self._question = None


def see(process: ProcessId, *, has_answered: bool) -> Look:
    """Return an observation of the process now."""
    return Look(
        at_s=time.clock_gettime(time.CLOCK_BOOTTIME),
        has_answered=has_answered,
        waited_s=process.waited_s,
        is_stopped=process.is_paused,
    )


def explain(verdict: Verdict) -> str:
    """Return the verdict in words for the live log."""
    if verdict.is_stopped:
        state, advice = "it was stopped by a signal", ""
    else:
        state = "it is stuck, or far too slow"
        advice = f"; the next one is given {verdict.next_patience_s:.0f} s"
    return (
        f"has not answered for {verdict.silent_s:.1f} s ({FREEZE_TIMEOUT_SETTING}), {state}: "
        f"killing it, so that another takes over{advice}"
    )
