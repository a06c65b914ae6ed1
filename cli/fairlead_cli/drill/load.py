"""A drill's own topic under load: created, written, watched, balanced, and read back in the end.

This module does not cause faults: a local drill sends signals, and a drill in a pod is told of
faults. Both measure them with an `Observation` on top of this module.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairlead_cli.drill.checker import Findings, check
from fairlead_cli.drill.history import History
from fairlead_cli.drill.observation import Observation
from fairlead_cli.drill.probe import PartitionProbe, ask_producer_id
from fairlead_cli.drill.reader import read_back
from fairlead_cli.drill.topic import create_drill_topic, delete_drill_topic, elect_preferred
from fairlead_cli.drill.workload import Workload
from fairlead_cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka.admin import AdminClient

    from fairlead_cli.drill.timings import RunTimings
    from fairlead_cli.drill.watch import ClusterWatch

POLL_S = 0.01
SETTLE_TIMEOUT_S = 60.0
BALANCE_TIMEOUT_S = 10.0
# Producers must have found their leaders before a fault.
QUIET_S = 0.3


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The parameters of the load."""

    topic: str
    bootstrap: str
    partitions: int
    replication_factor: int
    rate: int
    record_size: int
    producer_settings: dict[str, Any] = field(default_factory=dict)


class DrillLoad:
    """`prepare`, then `settle` and `begin` for each fault, then `stop` and `read_back`."""

    def __init__(self, plan: LoadPlan, admin: AdminClient, watch: ClusterWatch) -> None:
        self.plan = plan
        self.admin = admin
        self.watch = watch
        self.history = History()
        self.probes: list[PartitionProbe] = []
        self.is_topic_made = self.is_topic_kept = False
        self._probing: list[asyncio.Task[None]] = []
        self.workload = Workload(
            plan.bootstrap,
            plan.topic,
            partitions=plan.partitions,
            rate=plan.rate,
            record_size=plan.record_size,
            history=self.history,
            settings=plan.producer_settings,
        )

    @property
    def fatal(self) -> str | None:
        """Why a probe cannot go on, if one has failed."""
        return next((probe.fatal for probe in self.probes if probe.fatal), None)

    @property
    def is_well(self) -> bool:
        """Whether all replicas are in sync, and the controller reports no problem."""
        return (
            self.watch.is_whole
            and len(self.watch.partitions) == self.plan.partitions
            and self.watch.is_everybody_alive
            and self.fatal is None
        )

    async def prepare(self) -> None:
        """Create and watch the topic; return when it has leaders and all its replicas."""
        self.is_topic_made = True
        await asyncio.to_thread(
            create_drill_topic,
            self.admin,
            self.plan.topic,
            partitions=self.plan.partitions,
            replication_factor=self.plan.replication_factor,
        )
        await self.watch.start()
        await self.wait_until(lambda: self.watch.is_whole, "the topic is not replicated")

    async def start(self) -> None:
        """Begin to write, at the full rate and with a probe for each partition."""
        identity = await ask_producer_id(self.watch, SETTLE_TIMEOUT_S)
        for partition in range(self.plan.partitions):
            history = self.history.add_key(f"probe{partition}", partition)
            self.probes.append(PartitionProbe(self.watch, partition, identity, history))
        self.workload.start()
        self._probing = [asyncio.create_task(probe.run()) for probe in self.probes]

    async def settle(self) -> None:
        """Wait until all replicas are in sync, preferred replicas lead, and each probe is answered.

        The application must also have an acknowledgement from every partition: it backs off from a
        broker with which it has recently lost its connection.
        """
        await self.wait_until(lambda: self.is_well, "the cluster is not well before the fault")
        give_up_at = time.monotonic() + BALANCE_TIMEOUT_S
        while not self.watch.is_balanced and time.monotonic() < give_up_at:
            if not await asyncio.to_thread(elect_preferred, self.admin, self.plan.topic):
                break
            await asyncio.sleep(0.1)
        self.forget_answers()
        self.workload.mark()
        await self.wait_until(
            lambda: (
                all(probe.answers for probe in self.probes)
                and len(self.workload.first_after_mark()) == self.plan.partitions
            ),
            "not every partition acknowledges",
        )

    def forget_answers(self) -> None:
        """Forget the acknowledgements so far; they do not belong to the next measurement."""
        for probe in self.probes:
            probe.answers.clear()

    def begin(self, run: RunTimings, broker_ids: set[int]) -> Observation:
        """Begin an observation; the fault of these brokers comes next."""
        self.watch.is_fast = True
        observation = Observation(run, self.watch, self.probes, self.workload, broker_ids)
        observation.begin()
        return observation

    async def stop(self) -> None:
        """Stop writing, and wait for the outstanding answers."""
        if self._probing:
            await asyncio.to_thread(self.workload.stop)
        for task in self._probing:
            task.cancel()
        await asyncio.gather(*self._probing, return_exceptions=True)

    def read_back(self) -> Findings:
        """Read all records with a client that took no part. Blocks."""
        plan = self.plan
        findings = check(self.history, read_back(plan.bootstrap, plan.topic, plan.partitions))
        # If records are wrong, the topic is needed to find out why.
        self.is_topic_kept = not findings.is_clean
        return findings

    def delete_topic(self) -> bool:
        """Delete the topic unless records are wrong; tell whether it is deleted. Blocks."""
        if self.is_topic_made and not self.is_topic_kept:
            delete_drill_topic(self.admin, self.plan.topic)
        return not self.is_topic_kept

    async def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition; CliError, with `what`, if it does not become true in time."""
        give_up_at = time.monotonic() + SETTLE_TIMEOUT_S
        while not condition():
            if self.fatal is not None:
                raise CliError(f"a probe cannot go on: {self.fatal}")
            if time.monotonic() > give_up_at:
                raise CliError(f"{what}, after {SETTLE_TIMEOUT_S:.0f} s")
            await asyncio.sleep(POLL_S)

    def client_errors(self) -> dict[str, int]:
        """Return the errors that the application saw."""
        errors = dict(self.workload.errors)
        if self.workload.unanswered_after_flush:
            errors["no answer at all"] = self.workload.unanswered_after_flush
        return errors

    def probe_refusals(self) -> dict[str, int]:
        """Return the errors that the probes got."""
        total: dict[str, int] = {}
        for probe in self.probes:
            for reason, count in probe.refusals.items():
                total[reason] = total.get(reason, 0) + count
        return dict(sorted(total.items()))
