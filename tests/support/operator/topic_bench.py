"""A controller in this process with brokers that only register, and an operator of its topics.

The operator calls the controller directly; calls pass through JSON, to show that they can be sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any, TypeVar

from controller_bench import CLUSTER, create_log_cluster, let_go, running_controller

from fairlead_controller.decisions.events import (
    CreateTopics,
    RegisterBroker,
    UnfenceBroker,
)
from fairlead_controller.kubernetes.topic_feed import TopicFeed
from fairlead_controller.kubernetes.topic_resource_calls import TopicDefaults, apply_topics
from fairlead_kube.kinds import TOPIC
from fairlead_model.broker import BrokerRegistration, Endpoint
from fairlead_operator.controller_client import ControllerUnavailableError, TopicChanges
from fairlead_operator.events import EventWriter
from fairlead_operator.topics.sync import TopicSync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from fairlead_controller.controller import Controller
    from fairlead_kube.client import KubeClient

DEADLINE_S = 60.0

T = TypeVar("T")


class InProcessController:
    """The controller's calls as at the admin socket, for its only cluster."""

    def __init__(self, controller: Controller, namespace: str) -> None:
        self.controller = controller
        self.namespace = namespace
        self.feed = TopicFeed(controller)
        self.calls = 0
        self.is_silent = False

    async def topics(
        self, namespace: str, cluster: str, *, since: str = "", wait_ms: int = 0
    ) -> TopicChanges:
        if self.is_silent or namespace != self.namespace:
            raise ControllerUnavailableError("silent")
        answer = json.loads(json.dumps(await self.feed.changes(since, wait_ms / 1000)))
        return TopicChanges(
            answer["position"], answer["isFull"], answer["topics"], answer["removed"]
        )

    async def apply_topics(
        self, namespace: str, cluster: str, request: dict[str, Any]
    ) -> dict[str, Any]:
        self.calls += 1
        reply = await apply_topics(
            self.controller, json.loads(json.dumps(request)), TopicDefaults(2, 3)
        )
        results: dict[str, Any] = json.loads(json.dumps(reply["results"]))
        return results


async def start_broker(controller: Controller, broker_id: int) -> None:
    registration = BrokerRegistration(
        broker_id,
        endpoints=(
            Endpoint("CLIENT", "127.0.0.1", 9092),
            Endpoint("INTERNAL", "127.0.0.1", 9094, is_internal=True),
        ),
        host_name=f"host-{broker_id}",
        directory_id=f"disk-{broker_id}",
        start_id=f"start-{broker_id}",
    )
    reply = await controller.submit(RegisterBroker(registration, ""))
    await controller.submit(UnfenceBroker(broker_id, reply["broker_epoch"]))


class Bench:
    """A namespace with a LogCluster, its controller, and an operator that can be restarted."""

    def __init__(self, kube: KubeClient, namespace: str, remote: InProcessController) -> None:
        self.kube = kube
        self.operators_kube = kube
        self.namespace = namespace
        self.watched: tuple[str, ...] = (namespace,)
        """Namespaces that the operator sees: never all, because other tests have Topics, too."""
        self.remote = remote
        self.sync: TopicSync
        self._task: asyncio.Task[None] | None = None

    async def start_operator(self) -> None:
        self.sync = TopicSync(
            self.operators_kube,
            self.remote,
            EventWriter(self.operators_kube),
            namespaces=self.watched,
        )
        self._task = asyncio.create_task(self.sync.run())

    async def stop_operator(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def create(self, name: str, **spec: Any) -> dict[str, Any]:
        spec = {"clusterName": CLUSTER, "partitions": 3, "replicationFactor": 3, **spec}
        return await self.kube.create(TOPIC, self.namespace, topic(name, **spec))

    async def patch(self, name: str, **spec: Any) -> None:
        await self.kube.patch(TOPIC, self.namespace, name, {"spec": spec})

    async def delete(self, name: str) -> None:
        await self.kube.delete(TOPIC, self.namespace, name)

    async def get(self, name: str) -> dict[str, Any] | None:
        for item in (await self.kube.list(TOPIC, self.namespace)).items:
            if item["metadata"]["name"] == name:
                return item
        return None

    async def until(self, name: str, reason: str, **status: Any) -> dict[str, Any]:
        """Wait until Ready has a reason for the present generation; return the manifest."""

        async def matches() -> dict[str, Any] | None:
            item = await self.get(name)
            if item is None or reason_of(item) != reason:
                return None
            shown = item["status"]
            is_current = shown["observedGeneration"] == item["metadata"]["generation"]
            fits = all(shown.get(field) == value for field, value in status.items())
            return item if is_current and fits else None

        return await eventually(matches, lambda: f"{name} to be {reason} {status}")

    async def until_gone(self, name: str) -> None:
        async def is_gone() -> bool:
            return await self.get(name) is None

        await eventually(is_gone, lambda: f"{name} to be gone")

    def topic(self, name: str) -> Any:
        return self.remote.controller.committed.image.topic(name)


def topic(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": TOPIC.api_version,
        "kind": TOPIC.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def reason_of(item: dict[str, Any]) -> str:
    for condition in item.get("status", {}).get("conditions", []):
        if condition["type"] == "Ready":
            return str(condition["reason"])
    return ""


async def eventually(check: Callable[[], Awaitable[T | None]], what: Callable[[], str]) -> T:
    deadline = time.monotonic() + DEADLINE_S
    while not (found := await check()):
        assert time.monotonic() < deadline, f"waited for {what()}"
        await asyncio.sleep(0.05)
    return found


@contextlib.asynccontextmanager
async def bench(
    kube: KubeClient, namespace: str, directory: Path, *, brokers: int = 3
) -> AsyncIterator[Bench]:
    async with running_controller(directory) as controller:
        for broker_id in range(brokers):
            await start_broker(controller, broker_id)
        await create_log_cluster(kube, namespace)
        world = Bench(kube, namespace, InProcessController(controller, namespace))
        await world.start_operator()
        try:
            yield world
        finally:
            await world.stop_operator()
            await let_go(kube, TOPIC, namespace)


def play(
    run: Any,
    kube: KubeClient,
    namespace: str,
    directory: Path,
    story: Callable[[Bench], Awaitable[None]],
    *,
    brokers: int = 3,
) -> None:
    async def played() -> None:
        async with bench(kube, namespace, directory, brokers=brokers) as world:
            await story(world)

    run(played())


async def create_over_kafka(world: Bench, name: str, partitions: int = 3) -> None:
    wanted = {"name": name, "partitions": partitions, "replication_factor": 3}
    call = {
        "topics": [{**wanted, "assignments": {}, "configs": {"retention.ms": "7"}}],
        "validate_only": False,
        "default_partitions": 1,
        "default_replication_factor": 1,
    }
    reply = await world.remote.controller.submit(CreateTopics(call))  # type: ignore[arg-type]
    assert reply["topics"][0]["error_code"] == 0


async def is_released(world: Bench, name: str) -> bool:
    return bool(world.topic(name).header.resource == "")


async def versions(world: Bench) -> dict[str, str]:
    items = (await world.kube.list(TOPIC, world.namespace)).items
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}
