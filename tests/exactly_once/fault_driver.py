"""Carries out a plan of faults on a live cluster and its applications, and heals each of them."""

import os
import random
import signal
import struct
import time
from collections.abc import Callable, Sequence
from typing import Final

from applications import Application, Instance
from fault_plan import Fault, Kind, Target
from partition_mover import PartitionMover

from fairlead_bench.loads.coordinator_lookup import KeyType, find_coordinator
from fairlead_bench.peers.cluster_state import ask_metadata
from fairlead_bench.peers.fairlead_cluster import FairleadCluster
from fairlead_bench.peers.kafka_cluster import KafkaCluster

LiveCluster = FairleadCluster | KafkaCluster
TEND_S: Final = 0.05
HEAL_TIMEOUT_S: Final = 90


class NotHealedError(Exception):
    """The cluster did not become whole again; the text says what is missing."""


class FaultDriver:
    """The faults of one run. The process of a target is found only when the fault begins."""

    def __init__(
        self,
        cluster: LiveCluster,
        applications: Sequence[Application],
        seed: int,
        say: Callable[[str], None],
        mover: PartitionMover,
    ) -> None:
        self._cluster, self._applications, self._say = cluster, applications, say
        self._mover = mover
        self._chance = random.Random(seed)
        self._down: dict[int, Kind] = {}
        """By broker index: what was done to that broker."""
        self._controller: Kind | None = None
        """What was done to the controller, if it is a separate process."""
        self._instances: dict[Instance, Kind] = {}

    def carry_out(self, plan: Sequence[Fault]) -> None:
        """Carry out the faults one after the other; after each, wait until the cluster is whole."""
        for fault in plan:
            self.tend_for(fault.after_ms / 1000)
            try:
                names = []
                for target in fault.targets:
                    names += self._hit(target, fault.kind)
                    self.tend_for(fault.apart_ms / 1000)
                self._say(f"{fault}: {', '.join(names)}")
                self.tend_for(fault.hold_ms / 1000)
            finally:
                self.heal()
            self.wait_until_whole()

    def tend_for(self, seconds: float) -> None:
        """Wait, and restart applications that end meanwhile."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.tend()
            time.sleep(min(TEND_S, left))

    def tend(self) -> None:
        for application in self._applications:
            application.tend()

    def heal(self) -> None:
        """Start what was killed, and resume what was paused."""
        for index, kind in self._down.items():
            if kind is Kind.KILL:
                self._cluster.start_broker(index)
            else:
                os.kill(self._cluster.brokers[index].pid, signal.SIGCONT)
        for instance, kind in self._instances.items():
            if kind is Kind.KILL:
                instance.start()
            else:
                instance.resume()
        if isinstance(self._cluster, FairleadCluster):
            if self._controller is Kind.KILL:
                self._cluster.start_controller()
            elif self._controller is Kind.PAUSE:
                os.kill(self._cluster.controller.pid, signal.SIGCONT)
        self._controller = None
        self._down.clear()
        self._instances.clear()

    def wait_until_whole(self) -> None:
        """Wait until every broker reports all replicas of all partitions in sync.

        No move begins meanwhile, because an added replica is not in sync at first.
        """
        self._mover.pause()
        self._wait_until_all_are_in_sync()
        self._mover.resume()

    def _wait_until_all_are_in_sync(self) -> None:
        deadline = time.monotonic() + HEAL_TIMEOUT_S
        waiting, state = list(self._cluster.ports), ""
        while waiting:
            if failure := self._cluster.failure():
                raise NotHealedError(failure)
            if time.monotonic() > deadline:
                raise NotHealedError(state)
            try:
                reply = ask_metadata(waiting[0])
                state = reply.summary
                is_known = reply.brokers_count == len(self._cluster.ports)
                if is_known and reply.in_sync_count == reply.partitions_count:
                    waiting.pop(0)
                    continue
            except (OSError, struct.error) as error:
                state = repr(error)
            self.tend_for(TEND_S)

    def _hit(self, target: Target, kind: Kind) -> list[str]:
        if target is Target.APPLICATION:
            index = self._chance.randrange(len(self._applications[0].instances))
            for application in self._applications:
                instance = application.instances[index]
                if instance in self._instances:
                    continue  # both targets of the fault may be the application
                self._instances[instance] = kind
                instance.kill() if kind is Kind.KILL else instance.pause()
            return [f"instances {index}"]
        if target is Target.CONTROLLER and isinstance(self._cluster, FairleadCluster):
            return self._hit_controller(self._cluster, kind)
        broker = self._find_broker(target)
        if broker not in self._down:
            self._down[broker] = kind
            if kind is Kind.KILL:
                self._cluster.kill_broker(broker)
            else:
                os.kill(self._cluster.brokers[broker].pid, signal.SIGSTOP)
        return [f"broker {self._cluster.broker_id(broker)}"]

    def _hit_controller(self, cluster: FairleadCluster, kind: Kind) -> list[str]:
        if self._controller is None:
            self._controller = kind
            if kind is Kind.KILL:
                cluster.controller.kill()
            else:
                os.kill(cluster.controller.pid, signal.SIGSTOP)
        return ["its process"]

    def _find_broker(self, target: Target) -> int:
        """Return the index of the target's broker; a random one if the target has none now."""
        application = self._chance.choice(self._applications)
        any_index = self._chance.randrange(len(self._cluster.ports))
        if target is Target.CONTROLLER and (index := self._cluster.controller_index()) is not None:
            return index
        ask: Callable[[int], int | None] = {
            Target.BROKER: lambda _port: None,
            Target.CONTROLLER: lambda _port: None,
            Target.LEADER: lambda port: leader_of(port, application.trial.output),
            Target.GROUP_COORDINATOR: lambda port: find_coordinator(
                port, application.trial.group, KeyType.GROUP
            ),
            # Kafka Streams uses other ids; a coordinator is found for this one, too.
            Target.TRANSACTION_COORDINATOR: lambda port: find_coordinator(
                port, f"{application.trial.group}-0", KeyType.TRANSACTION
            ),
        }[target]
        for index, port in enumerate(self._cluster.ports):
            if index in self._down:
                continue
            try:
                broker_id = ask(port)
            except (OSError, struct.error):
                continue
            if broker_id is not None:
                return broker_id - self._cluster.broker_id(0)
        return any_index


def leader_of(port: int, topic: str) -> int | None:
    return ask_metadata(port, [topic]).leaders.get((topic, 0))
