"""One drill on a local cluster: prepare, cause and undo faults, read back, judge.

The workload and the probes write to the drill's own topic, never to a user's: a target like
`leader:orders/0` only selects the broker for the fault.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fairlead_cli.drill.controller_watch import ControllerWatch
from fairlead_cli.drill.danger import find_rack, foretell
from fairlead_cli.drill.faults import FaultInjector, FaultKind
from fairlead_cli.drill.load import (
    BALANCE_TIMEOUT_S,
    POLL_S,
    QUIET_S,
    SETTLE_TIMEOUT_S,
    DrillLoad,
    LoadPlan,
)
from fairlead_cli.drill.stalls import Stalls
from fairlead_cli.drill.targets import NotResolvedError, Target, TargetKind, resolve_broker
from fairlead_cli.drill.timings import RunTimings, to_ms
from fairlead_cli.drill.topic import REPLICATION_FACTOR_MAX, TOPIC_PREFIX
from fairlead_cli.drill.watch import ClusterWatch
from fairlead_cli.errors import CliError
from fairlead_cli.local.control import find_broker, require_cluster, wait_until_replaced

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from fairlead_cli.drill.checker import Findings
    from fairlead_cli.drill.observation import Observation
    from fairlead_cli.local.cluster_file import ProcessEntry
    from fairlead_cli.local.process_table import ProcessId

Result = TypeVar("Result")
PARTITIONS_PER_BROKER = 2
RECOVERY_TIMEOUT_S = 30.0
# How long to watch after a fault that does not last: a second effect would be visible by then.
OBSERVE_S = 1.0


@dataclass(frozen=True, slots=True)
class DrillPlan:
    """The parameters of a drill."""

    targets: tuple[Target, ...]
    kind: FaultKind
    runs: int = 3
    rate: int = 1000
    record_size: int = 256
    hold_s: float = 10.0
    stalls: Stalls = field(default_factory=Stalls)
    """How long a slow process stops and runs in turn."""
    allows_unsafe: bool = False
    """Hit several brokers at once, whatever the effect on partitions."""
    partitions: int | None = None
    """By default two for each broker."""
    replication_factor: int | None = None
    """By default the number of brokers, at most three."""
    steady_s: float = 0.0
    """How long the load goes on before the first fault."""
    producer_settings: dict[str, Any] = field(default_factory=dict)

    @property
    def foretells(self) -> bool:
        """Whether several brokers are lost at once, so that a forecast is useful."""
        return self.is_broker and self.kind not in (FaultKind.SLOW, FaultKind.ROLL)

    @property
    def is_broker(self) -> bool:
        return any(target.kind is not TargetKind.CONTROLLER for target in self.targets)

    @property
    def is_controller(self) -> bool:
        return any(target.kind is TargetKind.CONTROLLER for target in self.targets)


@dataclass(slots=True)
class DrillOutcome:
    """The results of a drill."""

    topic: str
    partitions: int
    runs: list[RunTimings]
    findings: Findings
    client_errors: dict[str, int]
    probe_refusals: dict[str, int]
    seconds: float
    started_at: float = 0.0
    """Unix time."""


class Drill:
    """Runs once. `say` is called with a line for people about every step."""

    def __init__(
        self, data: Path, plan: DrillPlan, admin: AdminClient, say: Callable[[str], None]
    ) -> None:
        self.data = data
        self.plan = plan
        self.admin = admin
        self.say = say
        self.cluster = cluster = require_cluster(data)
        brokers = len(cluster.brokers)
        watch = ClusterWatch(
            f"{TOPIC_PREFIX}{secrets.token_hex(4)}",
            [(broker.host, broker.port) for broker in cluster.brokers],
        )
        watch.controller = ControllerWatch(
            lambda: self.cluster.controller, lambda: watch.interval_s
        )
        load = LoadPlan(
            topic=watch.topic,
            bootstrap=cluster.bootstrap,
            partitions=plan.partitions or PARTITIONS_PER_BROKER * brokers,
            replication_factor=plan.replication_factor or min(REPLICATION_FACTOR_MAX, brokers),
            rate=plan.rate,
            record_size=plan.record_size,
            producer_settings=plan.producer_settings,
        )
        self.load = DrillLoad(load, admin, watch)

    async def run(self) -> DrillOutcome:
        """Run from preparation to verdict; the faults are undone in any case."""
        started, started_at = time.monotonic(), time.time()
        load = self.load
        with FaultInjector(self.cluster, self.plan.kind, self.plan.stalls) as injector:
            runs: list[RunTimings] = []
            try:
                await load.prepare()
                try:
                    await load.start()
                    await asyncio.sleep(self.plan.steady_s)
                    for number in range(1, self.plan.runs + 1):
                        runs.append(await self._run_once(number, injector))
                finally:
                    try:
                        injector.heal()
                    finally:
                        await load.stop()
            finally:
                await load.watch.stop()
            self.say("reading everything back")
            findings = await asyncio.to_thread(load.read_back)
        return DrillOutcome(
            load.plan.topic,
            load.plan.partitions,
            runs,
            findings,
            load.client_errors(),
            load.probe_refusals(),
            time.monotonic() - started,
            started_at,
        )

    def clean_up(self) -> None:
        """Delete the topic, unless records are wrong; also after `run` was interrupted."""
        if not self.load.delete_topic():
            self.say(f"topic {self.load.plan.topic} is kept")

    async def _run_once(self, number: int, injector: FaultInjector) -> RunTimings:
        """Wait until all is well, cause the fault, measure, undo it, wait until all is well."""
        load = self.load
        await load.settle()
        entries = await self._resolve_all()
        broker_ids = {entry.id for entry in entries if entry.id is not None}
        run = RunTimings([entry.name for entry in entries])
        if self.plan.foretells:
            run.forecast = await asyncio.to_thread(
                foretell, self.cluster.bootstrap, broker_ids, allows_unsafe=self.plan.allows_unsafe
            )
        self.say(
            f"run {number} of {self.plan.runs}: {self.plan.kind} of {' and '.join(run.target)}"
        )
        load.forget_answers()
        load.watch.is_fast = True
        await asyncio.sleep(QUIET_S)
        observation = load.begin(run, broker_ids)
        if self.plan.kind is FaultKind.ROLL:
            await self._roll(run, entries, injector)
            observation.end()
            self.say(describe(run))
            return run
        # A signal, or HTTP to the proxy: neither waits for the target.
        processes = injector.inject(entries)
        healed_at = await self._observe(observation, injector)
        await self._wait_for_replacements(run, entries, processes)
        try:
            await load.wait_until(lambda: load.is_well, "not every replica is in sync again")
            run.healed_ms = to_ms(time.monotonic() - healed_at)
        except CliError as error:
            run.problem = run.problem or error.message
        # Only now: leaders move back meanwhile, and a client that seldom asks widens the gap.
        observation.end(healed_at if self.plan.kind.lasts else None)
        load.watch.is_fast = False
        run.problem = run.problem or load.fatal
        self.say(describe(run))
        return run

    async def _roll(
        self, run: RunTimings, entries: list[ProcessEntry], injector: FaultInjector
    ) -> None:
        """Restart the targets one by one, each when all replicas are in sync again."""
        load = self.load
        try:
            for entry in entries:
                processes = injector.inject([entry])
                await self._wait_for_replacements(run, [entry], processes)
                what = f"not every replica is in sync after the restart of {entry.name}"
                await load.wait_until(lambda: load.is_well, what)
        except CliError as error:
            run.problem = error.message
        run.problem = run.problem or load.fatal

    async def _observe(self, observation: Observation, injector: FaultInjector) -> float:
        """Watch until the fault is over and all its effects have been seen.

        Return the moment when the fault was undone.
        """
        # Measured from here, because it takes a while to fill a large disk.
        hold_until = time.monotonic() + (self.plan.hold_s if self.plan.kind.lasts else OBSERVE_S)
        give_up_at = hold_until + RECOVERY_TIMEOUT_S
        healed_at = 0.0
        while True:
            observation.look()
            now = time.monotonic()
            if now >= hold_until and not healed_at:
                injector.heal()
                healed_at = now
            if healed_at and observation.is_recovered:
                return healed_at
            if now >= give_up_at:
                observation.run.problem = (
                    f"no new acknowledgement {RECOVERY_TIMEOUT_S:.0f} s after the fault"
                )
                return healed_at
            await asyncio.sleep(POLL_S)

    async def _resolve_all(self) -> list[ProcessEntry]:
        """Return the processes of all targets; wait until each target has one.

        The drill's topic may be healthy before a user's topic is.
        """
        give_up_at = time.monotonic() + BALANCE_TIMEOUT_S
        context = click.get_current_context(silent=True)
        while True:
            try:
                return await asyncio.to_thread(in_context_of(context, self._resolve))
            except NotResolvedError:
                if time.monotonic() > give_up_at:
                    raise
            await asyncio.sleep(POLL_S)

    def _resolve(self) -> list[ProcessEntry]:
        """Return the present processes of the targets."""
        from fairlead_cli.client.cluster_state import read_cluster
        from fairlead_cli.client.connection import fetch_metadata

        self.cluster = require_cluster(self.data)
        metadata = fetch_metadata(self.admin)
        names: dict[str, ProcessEntry] = {}
        for target in self.plan.targets:
            if target.kind is TargetKind.CONTROLLER:
                found = [self.cluster.controller]
            elif target.kind is TargetKind.ALL:
                found = list(self.cluster.brokers)
            elif target.kind is TargetKind.RACK:
                state = read_cluster(self.cluster.bootstrap).state
                found = [find_broker(self.cluster, it) for it in find_rack(state, target.rack)]
            elif target.broker_ids:
                found = [find_broker(self.cluster, it) for it in target.broker_ids]
            else:
                broker_id = resolve_broker(self._named(target), metadata)
                found = [find_broker(self.cluster, broker_id)]
            names |= {entry.name: entry for entry in found}
        return list(names.values())

    async def _wait_for_replacements(
        self, run: RunTimings, entries: list[ProcessEntry], old: list[ProcessId]
    ) -> None:
        """Wait for the successors of the processes that ended.

        The supervisor also replaces a controller that does not answer.
        """
        for entry, process in zip(entries, old, strict=True):
            if not self.plan.kind.ends_process:
                if process.is_alive:
                    continue
                run.replaced.append(entry.name)
            await asyncio.to_thread(
                wait_until_replaced, self.data, entry.name, process, SETTLE_TIMEOUT_S
            )

    def _named(self, target: Target) -> Target:
        """Return the target; without a topic, it refers to the drill's topic."""
        is_own = target.kind in (TargetKind.LEADER, TargetKind.FOLLOWER) and not target.topic
        return replace(target, topic=self.load.plan.topic) if is_own else target


def in_context_of(
    context: click.Context | None, call: Callable[[], Result]
) -> Callable[[], Result]:
    """Return the call for use in another thread, where errors also name the cluster."""

    def wrapped() -> Result:
        with nullcontext() if context is None else context.scope(cleanup=False):
            return call()

    return wrapped


def describe(run: RunTimings) -> str:
    """Return one line about one run."""
    parts = [
        f"{name} {value} ms"
        for name, value in (
            ("detected", run.detection_ms),
            ("elected", run.election_ms),
            ("recovered", run.recovery_ms),
            ("commit p99", run.commit_p99_ms),
            ("out of the in-sync set after", run.left_isr_ms),
            ("commits fast again after", run.fast_again_ms),
            ("healed", run.healed_ms),
        )
        if value is not None
    ]
    if run.longest_gap_ms is not None:
        parts.append(
            f"longest gap {run.longest_gap_ms} ms (partition {run.longest_gap_partition}, "
            f"from {run.longest_gap_began_ms} ms)"
        )
    if run.replaced:
        parts.append(f"the supervisor replaced {' and '.join(run.replaced)}")
    problem = [f"FAILED: {run.problem}"] if run.problem else []
    return "  " + ", ".join([*parts, *problem])
