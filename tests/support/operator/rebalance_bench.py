"""A controller in this process behind its real socket, with brokers that only register.

No records are copied: the bench decides when an added replica is in sync. An operator of Rebalances
runs beside it, and can be stopped, killed at any of its calls, and started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from controller_bench import CLUSTER, create_log_cluster, let_go, running_controller
from measured_clusters import answer
from topic_bench import DEADLINE_S, eventually, start_broker

from fairlead_controller.decisions.events import (
    AlterConfigs,
    AlterPartition,
    AlterReassignments,
    CreateTopics,
    DeleteTopics,
)
from fairlead_controller.kubernetes.admin_api import AdminApi
from fairlead_controller.reassigner import Reassigner
from fairlead_kube.kinds import FAILOVER_DRILL, LOG_CLUSTER, REBALANCE
from fairlead_model.configs.broker_configs import BROKER_DRAIN
from fairlead_model.session.calls import (
    AlterPartitionCall,
    AlterReassignmentsCall,
    IsrProposal,
    ReassignablePartition,
)
from fairlead_operator.conditions import api_time
from fairlead_operator.controller_client import ControllerClient
from fairlead_operator.events import EventWriter
from fairlead_operator.rebalances.measured_load import LoadReading, MeasuredLoad
from fairlead_operator.rebalances.runner import RebalanceRunner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from fairlead_controller.controller import Controller
    from fairlead_kube.client import KubeClient

LOOK_S = 0.1
COPY_S = 0.05


class ControllerWorld:
    """The controller of one cluster, and the actions of its brokers."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.reign = SimpleNamespace(
            parts=SimpleNamespace(controller=controller), problem="it does not reign yet"
        )
        self.copies = True
        """Whether added replicas come in sync."""

    @property
    def is_silent(self) -> bool:
        """Whether the controller answers nothing about the cluster."""
        return self.reign.parts is None

    @is_silent.setter
    def is_silent(self, wanted: bool) -> None:
        self.reign.parts = None if wanted else SimpleNamespace(controller=self.controller)

    @property
    def image(self) -> Any:
        return self.controller.committed.image

    def replicas(self, topic: str = "t") -> list[tuple[int, ...]]:
        """Return the replicas that the partitions of a topic will have after all moves."""
        partitions = self.image.topic(topic).partitions
        return [each.queued_target or each.target_replicas for each in partitions]

    @property
    def is_moving(self) -> bool:
        return bool(self.controller.committed.moves)

    @property
    def moving(self) -> int:
        """Return how many partitions are moving, or wait for their turn."""
        moves = self.controller.committed.moves
        return len([*moves.running, *moves.queued])

    async def create_topic(self, name: str, *assignments: list[int]) -> None:
        wanted = {"name": name, "partitions": -1, "replication_factor": -1}
        call = {
            "topics": [{**wanted, "assignments": dict(enumerate(assignments)), "configs": {}}],
            "validate_only": False,
            "default_partitions": 1,
            "default_replication_factor": 1,
        }
        reply = await self.controller.submit(CreateTopics(call))  # type: ignore[arg-type]
        assert reply["topics"][0]["error_code"] == 0, reply

    async def delete_topic(self, name: str) -> None:
        call = {"topics": [{"name": name, "topic_id": None}]}
        await self.controller.submit(DeleteTopics(call))  # type: ignore[arg-type]

    async def reassign(self, index: int, replicas: list[int] | None, topic: str = "t") -> None:
        """Let a user move a partition, or call that back."""
        item = ReassignablePartition(topic=topic, index=index, replicas=replicas)
        call = AlterReassignmentsCall(partitions=[item], allow_replication_factor_change=True)
        reply = await self.controller.submit(AlterReassignments(call))
        assert reply["partitions"][0]["error_code"] == 0, reply

    async def drain(self, broker_id: int) -> None:
        """Order a broker to be emptied."""
        alteration = {"name": BROKER_DRAIN, "operation": 0, "value": "true"}
        resource = {"resource_type": 4, "name": str(broker_id), "alterations": [alteration]}
        call = {"resources": [resource], "validate_only": False, "incremental": True}
        await self.controller.submit(AlterConfigs(call))  # type: ignore[arg-type]

    async def copy(self) -> None:
        """Let added replicas become in sync, as long as the bench runs."""
        while True:
            if self.copies:
                for topic_id, index in sorted(self.controller.committed.moves.running):
                    await self._catch_up(topic_id, index)
            await asyncio.sleep(COPY_S)

    async def _catch_up(self, topic_id: bytes, index: int) -> None:
        topic = self.image.topic_by_id(topic_id)
        partition = topic.partitions[index]
        if set(partition.isr) == set(partition.replicas) or not partition.has_leader:
            return
        brokers = self.image.brokers
        proposal = IsrProposal(
            topic_id=topic_id,
            index=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=[[each, brokers[each].broker_epoch] for each in partition.replicas],
        )
        epoch = brokers[partition.leader].broker_epoch
        call = AlterPartitionCall(broker_epoch=epoch, partitions=[proposal])
        await self.controller.submit(AlterPartition(partition.leader, call))


@contextlib.asynccontextmanager
async def controller_world(
    directory: Path, key: tuple[str, str], *, brokers: int = 4
) -> AsyncIterator[tuple[ControllerWorld, Path]]:
    """Run a controller; yield its world, and the socket at which it answers for a cluster."""
    async with running_controller(directory / "store") as controller:
        world = ControllerWorld(controller)
        candidate = SimpleNamespace(is_active=True, find_reign={key: world.reign}.get)
        api, socket = AdminApi(candidate), directory / "controller.sock"
        await api.start(socket)
        for broker_id in range(brokers):
            await start_broker(controller, broker_id)
        work = (Reassigner(controller).run(), world.copy())
        running = [asyncio.create_task(each) for each in work]
        try:
            yield world, socket
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await api.stop()


class OperatorKilledError(BaseException):
    """Raised in place of the death of the operator's process."""


class DeadlyCalls:
    """Passes calls on; at one of them the caller is killed, before or after the call is done."""

    def __init__(self, behind: Any, counted: frozenset[str], count: list[int]) -> None:
        self._behind = behind
        self._counted = counted
        self._count = count
        """Twice the number of calls until death: it may come before or after each call."""

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._behind, name)
        if name not in self._counted:
            return method

        async def call(*arguments: Any, **options: Any) -> Any:
            self._pass()
            answer = await method(*arguments, **options)
            self._pass()
            return answer

        return call

    def _pass(self) -> None:
        self._count[0] -= 1
        if self._count[0] < 0:
            raise OperatorKilledError


WRITES = frozenset({"patch", "alter_reassignments", "elect_preferred"})


class BenchLoads:
    """Every partition weighs the same, if brokers answer at all."""

    def __init__(self) -> None:
        self.size: int | None = None
        """Bytes of a replica; None while no broker answers."""

    async def measure(self, _namespace: str, _cluster: str, state: Any) -> MeasuredLoad:
        reading = LoadReading(state)
        for broker_id in state.image.brokers if self.size is not None else ():
            topics: dict[str, list[list[int]]] = {}
            for topic in state.image.topics():
                for index, partition in enumerate(topic.partitions):
                    if broker_id in partition.replicas:
                        leads = partition.leader == broker_id
                        row = [index, self.size, *([0, 0] if leads else [])]
                        topics.setdefault(topic.name, []).append(row)  # type: ignore[arg-type]
            reading.add(answer(broker_id, topics))
        return reading.finish(datetime.now(UTC))


class RebalanceBench:
    """A namespace with a LogCluster, its controller, and an operator of its Rebalances."""

    def __init__(
        self, kube: KubeClient, namespace: str, world: ControllerWorld, socket: Path
    ) -> None:
        self.kube = kube
        self.namespace = namespace
        self.world = world
        self._socket = socket
        self.loads = BenchLoads()
        self._client: ControllerClient | None = None
        self._task: asyncio.Task[None] | None = None

    async def start_operator(self, *, dies_after: int | None = None) -> None:
        """Start it; with `dies_after` it dies after so many moments before or after writes."""
        self._client = ControllerClient(str(self._socket), retry_s=0.2)
        kube: Any = self.kube
        client: Any = self._client
        if dies_after is not None:
            count = [dies_after]
            kube, client = DeadlyCalls(kube, WRITES, count), DeadlyCalls(client, WRITES, count)
        runner = RebalanceRunner(
            kube,
            client,
            EventWriter(self.kube),
            namespaces=[self.namespace],
            look_s=LOOK_S,
            watch_s=LOOK_S,
            loads=self.loads,
        )
        self._task = asyncio.create_task(_until_killed(runner))

    async def stop_operator(self) -> None:
        if self._task is not None and self._client is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self._client.close()
            self._task = None

    @property
    def is_operator_dead(self) -> bool:
        return self._task is None or self._task.done()

    async def create(self, name: str = "even", **spec: Any) -> None:
        manifest = {
            "apiVersion": REBALANCE.api_version,
            "kind": REBALANCE.kind,
            "metadata": {"name": name},
            "spec": {"clusterName": CLUSTER, **spec},
        }
        await self.kube.create(REBALANCE, self.namespace, manifest)

    async def patch(self, name: str = "even", **spec: Any) -> None:
        await self.kube.patch(REBALANCE, self.namespace, name, {"spec": spec})

    async def set_progressing(self, word: str) -> None:
        """Let the LogCluster say whether a rolling restart goes on."""
        condition = {
            "type": "Progressing",
            "status": word,
            "reason": "RollingRestart",
            "message": "brokers are restarted",
            "lastTransitionTime": api_time(datetime.now(UTC)),
        }
        body = {"status": {"conditions": [condition]}}
        await self.kube.patch(LOG_CLUSTER, self.namespace, CLUSTER, body, subresource="status")

    async def begin_drill(self, name: str) -> None:
        """Let a drill of the cluster run, for which there is no operator here."""
        manifest = {
            "apiVersion": FAILOVER_DRILL.api_version,
            "kind": FAILOVER_DRILL.kind,
            "metadata": {"name": name},
            "spec": {
                "clusterName": CLUSTER,
                "target": {"type": "Leader"},
                "fault": {"type": "Kill"},
            },
        }
        await self.kube.create(FAILOVER_DRILL, self.namespace, manifest)
        body = {"status": {"phase": "Running"}}
        await self.kube.patch(FAILOVER_DRILL, self.namespace, name, body, subresource="status")

    async def end_drill(self, name: str) -> None:
        body = {"status": {"phase": "Finished"}}
        await self.kube.patch(FAILOVER_DRILL, self.namespace, name, body, subresource="status")

    async def delete(self, name: str = "even") -> None:
        await self.kube.delete(REBALANCE, self.namespace, name)

    async def get(self, name: str = "even") -> dict[str, Any] | None:
        for item in (await self.kube.list(REBALANCE, self.namespace)).items:
            if item["metadata"]["name"] == name:
                return item
        return None

    async def until(
        self, phase: str, reason: str | None = None, *, name: str = "even"
    ) -> dict[str, Any]:
        """Wait for a phase, and a reason of the condition Complete; return the status."""
        last: dict[str, Any] = {}

        async def matches() -> dict[str, Any] | None:
            nonlocal last
            item = await self.get(name)
            last = (item or {}).get("status") or {}
            is_there = last.get("phase") == phase
            return last if is_there and reason in (None, complete(last)["reason"]) else None

        return await eventually(matches, lambda: f"{name} to be {phase} {reason}: {summary(last)}")

    async def until_gone(self, name: str = "even") -> None:
        async def is_gone() -> bool:
            return await self.get(name) is None

        await eventually(is_gone, lambda: f"{name} to be gone")

    async def until_without_finalizer(self, name: str = "even") -> None:
        async def is_free() -> bool:
            item = await self.get(name)
            return item is not None and not item["metadata"].get("finalizers")

        await eventually(is_free, lambda: f"the finalizer of {name} to be dropped")

    async def propose(self, name: str = "even") -> dict[str, Any]:
        """Create a Rebalance, wait for its plan, and return it."""
        await self.create(name)
        plan: dict[str, Any] = (await self.until("ProposalReady", name=name))["plan"]
        return plan


async def _until_killed(runner: RebalanceRunner) -> None:
    with contextlib.suppress(OperatorKilledError):
        await runner.run()


def complete(status: dict[str, Any]) -> dict[str, Any]:
    """Return the condition Complete; empty texts before there is one."""
    for each in status.get("conditions") or ():
        if each["type"] == "Complete":
            return dict(each)
    return {"status": "", "reason": "", "message": ""}


def summary(status: dict[str, Any]) -> str:
    return f"{status.get('phase')}, {complete(status)}, {status.get('progress')}"


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def rebalance_bench(
    kube: KubeClient, namespace: str, directory: Path, *, brokers: int = 4
) -> AsyncIterator[RebalanceBench]:
    """Run brokers; the first three have twelve partitions of the topic t with two replicas."""
    async with controller_world(directory, (namespace, CLUSTER), brokers=brokers) as found:
        world, socket = found
        await world.create_topic("t", *([index % 3, (index + 1) % 3] for index in range(12)))
        await create_log_cluster(kube, namespace)
        bench = RebalanceBench(kube, namespace, world, socket)
        await bench.start_operator()
        try:
            yield bench
        finally:
            await bench.stop_operator()
            await let_go(kube, REBALANCE, namespace)


def play(
    run: Any,
    kube: KubeClient,
    namespace: str,
    directory: Path,
    story: Callable[[RebalanceBench], Awaitable[None]],
) -> None:
    async def played() -> None:
        async with rebalance_bench(kube, namespace, directory) as bench:
            await story(bench)

    run(played())
