"""The load of a drill in a cluster, and its observations of each fault.

The operator causes faults and reports them: `begin` right before, `note_injected` right after. The
faults are stored here, so that an operator that restarts in between can read them.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from fairlead_cli.drill.load import POLL_S, QUIET_S
from fairlead_cli.drill.probe import first_answer_after, longest_gap_after
from fairlead_cli.drill.timings import RunTimings, to_ms
from fairlead_cli.errors import CliError

if TYPE_CHECKING:
    from fairlead_cli.drill.checker import Findings
    from fairlead_cli.drill.load import DrillLoad
    from fairlead_cli.drill.observation import Observation


class AgentPhase(StrEnum):
    """The phase of a drill."""

    PREPARING = "preparing"
    SETTLING = "settling"
    STEADY = "steady"
    OBSERVING = "observing"
    VERIFYING = "verifying"
    VERIFIED = "verified"
    FAILED = "failed"


@dataclass
class ObservedRun:
    """The observations of one fault."""

    number: int
    observation: Observation
    memo: dict[str, Any]
    """Data of the operator, which it reads back."""
    is_injected: bool = False
    ended_at: float | None = None
    was_broken: bool = False
    whole_at: float | None = None

    @property
    def now(self) -> float:
        """The present time, or that of the end."""
        return time.monotonic() if self.ended_at is None else self.ended_at

    def look(self, *, is_well: bool) -> None:
        """Note the effects that are seen for the first time."""
        self.observation.look()
        if not is_well:
            self.was_broken, self.whole_at = True, None
        elif self.was_broken and self.whole_at is None:
            self.whole_at = time.monotonic()

    def as_json(self) -> dict[str, Any]:
        """Return times in milliseconds since the fault."""
        seen, fault_at = self.observation, self.observation.fault_at
        probes = seen.probes
        firsts = {
            str(number): to_ms(first_answer_after(probes[number].answers, fault_at))
            for number in sorted(seen.hit)
        }
        gaps = {
            str(p.partition): to_ms(longest_gap_after(p.answers, fault_at, self.now).length)
            for p in probes
        }
        whole_at = self.whole_at
        return {
            "number": self.number,
            "memo": self.memo,
            "isInjected": self.is_injected,
            "isEnded": self.ended_at is not None,
            "sinceFaultMs": to_ms(self.now - fault_at),
            "partitionsLed": seen.run.partitions_led,
            "electionMs": seen.run.election_ms,
            "firstAcknowledgedMs": firsts,
            "clientRecoveryMs": seen.run.client_recovery_ms,
            "gapMs": gaps,
            "wholeMs": None if whole_at is None else to_ms(whole_at - fault_at),
            "isRecovered": seen.is_recovered,
            "commitBeforeP99Ms": seen.run.commit_before_p99_ms,
            "commitP99Ms": seen.run.commit_p99_ms,
            "leftIsrMs": seen.run.left_isr_ms,
            "fastAgainMs": seen.run.fast_again_ms,
        }


@dataclass
class AgentDrill:
    """Runs until cancelled; meanwhile the other methods are called over HTTP."""

    load: DrillLoad
    phase: AgentPhase = AgentPhase.PREPARING
    problem: str | None = None
    current: ObservedRun | None = None
    verdict: dict[str, Any] | None = None
    is_topic_gone: bool = False
    _since: float = field(default_factory=time.monotonic)
    _verify: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Prepare, keep the load going, and judge on request."""
        try:
            await self._work()
        except CliError as error:
            self.problem = error.message
            self._enter(AgentPhase.FAILED)
        finally:
            await self.load.stop()
            await self.load.watch.stop()

    async def clean_up(self) -> None:
        """Delete the topic, unless records are wrong."""
        self.is_topic_gone = await asyncio.to_thread(self.load.delete_topic)

    def begin(self, number: int, broker_ids: set[int], memo: dict[str, Any]) -> None:
        """Begin a run, before the fault of these brokers; a repeated call begins it again."""
        if self.phase not in (AgentPhase.STEADY, AgentPhase.OBSERVING):
            raise CliError(f"no fault can be measured while {self.phase}")
        observation = self.load.begin(RunTimings([]), broker_ids)
        self.current = ObservedRun(number, observation, memo)
        self._enter(AgentPhase.OBSERVING)

    def note_injected(self, number: int) -> None:
        """Note that the fault was injected."""
        self._require(number).is_injected = True

    def end(self, number: int) -> None:
        """End the run, and prepare for the next fault."""
        run = self._require(number)
        if run.ended_at is None:
            run.ended_at = time.monotonic()
            run.observation.end(float(run.memo.get("holdMs") or 0) / 1000)
            self.load.watch.is_fast = False
            self._enter(AgentPhase.SETTLING)

    def forget(self, number: int) -> None:
        """Drop the run's measurements, and prepare for the same fault again."""
        if self.current is not None and self.current.number == number:
            self.current = None
            self._enter(AgentPhase.SETTLING)

    def verify(self) -> None:
        """Read everything back: there are no more faults."""
        self._verify.set()

    def as_json(self) -> dict[str, Any]:
        """Return everything that the operator needs to know."""
        views = self.load.watch.partitions
        return {
            "phase": self.phase.value,
            "problem": self.problem or self.load.fatal,
            "sinceMs": to_ms(time.monotonic() - self._since),
            "isWell": self.load.is_well,
            "partitions": {
                str(number): {"leader": view.leader, "isr": list(view.isr)}
                for number, view in sorted(views.items())
            },
            "run": None if self.current is None else self.current.as_json(),
            "verdict": self.verdict,
            "isTopicGone": self.is_topic_gone,
        }

    def _require(self, number: int) -> ObservedRun:
        if self.current is None or self.current.number != number:
            raise CliError(f"run {number} has not begun")
        return self.current

    def _enter(self, phase: AgentPhase) -> None:
        self.phase, self._since = phase, time.monotonic()

    async def _work(self) -> None:
        await self.load.prepare()
        await self.load.start()
        self._enter(AgentPhase.SETTLING)
        while not self._verify.is_set():
            if self.phase is AgentPhase.SETTLING:
                await self.load.settle()
                self.load.watch.is_fast = True
                await asyncio.sleep(QUIET_S)
                self._enter(AgentPhase.STEADY)
            if self.phase is AgentPhase.OBSERVING and self.current is not None:
                self.current.look(is_well=self.load.is_well)
            await asyncio.sleep(POLL_S)
        self._enter(AgentPhase.VERIFYING)
        await self.load.stop()
        findings = await asyncio.to_thread(self.load.read_back)
        self.verdict = self._judge(findings)
        await self.clean_up()
        self._enter(AgentPhase.VERIFIED)

    def _judge(self, findings: Findings) -> dict[str, Any]:
        return asdict(findings) | {
            "clientErrors": self.load.client_errors(),
            "probeRefusals": self.load.probe_refusals(),
        }
