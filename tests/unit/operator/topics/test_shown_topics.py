"""What shows a topic made over Kafka goes without it, unless a person deletes what shows it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from controller_bench import CLUSTER
from fake_api_server import _status
from fake_resource_server import FakeResourceServer
from topic_bench import Bench, bench, create_over_kafka, eventually
from waiting import until

from fairlead_controller.decisions.events import DeleteTopics
from fairlead_kube.client import KubeClient
from fairlead_kube.credentials import Credentials
from fairlead_operator.topics.topic_resource import FINALIZER, mirror_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from aiohttp import web

    from fairlead_model.session.calls import DeletableTopic

MIRROR = mirror_name(CLUSTER, "orders")


class GrowingServer(FakeResourceServer):
    """Refuses fewer partitions, as the definition of Topics does; `is_full` what is deleted, too.

    The latter stands for whatever may go wrong when a finalizer is dropped.
    """

    is_full = False
    refused = 0

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.method == "PATCH" and request.path.endswith(f"/topics/{MIRROR}"):
            place, _, name = request.path.rpartition("/")
            if self.is_full and "deletionTimestamp" in self.objects[place][name]["metadata"]:
                self.refused += 1
                return _status(409, "Conflict")
            spec: dict[str, Any] = (await request.json()).get("spec") or {}
            before = self.objects[place][name]["spec"]["partitions"]
            if spec.get("partitions", before) < before:
                return _status(422, "Invalid")
        return await super()._handle(request)


async def own_topic_that_waits(world: Bench) -> None:
    await declare(world, paused=True)


async def own_topic_that_is_refused(world: Bench) -> None:
    await declare(world, partitions=1)


async def declare(world: Bench, **spec: Any) -> None:
    before = world.topic("orders").topic_id
    await world.create("mine", topicName="orders", **spec)
    await world.until_gone(MIRROR)
    topic = world.topic("orders")
    assert topic is not None and topic.topic_id == before


async def smaller_topic_of_the_name(world: Bench) -> None:
    before = await world.get(MIRROR)
    assert before is not None
    await delete_over_kafka(world)
    await create_over_kafka(world, "orders", partitions=2)

    async def is_another() -> bool:
        item = await world.get(MIRROR)
        return item is not None and item["metadata"]["uid"] != before["metadata"]["uid"]

    await eventually(is_another, lambda: "the new topic to be shown")
    assert len(world.topic("orders").partitions) == 2


async def delete_over_kafka(world: Bench) -> None:
    topics: list[DeletableTopic] = [{"name": "orders", "topic_id": bytes(16)}]
    await world.remote.controller.submit(DeleteTopics({"topics": topics}))


@pytest.mark.parametrize(
    "happen", [own_topic_that_waits, own_topic_that_is_refused, smaller_topic_of_the_name]
)
def test_the_operator_takes_what_shows_a_topic_away_and_never_the_topic(
    tmp_path: Path, happen: Callable[[Bench], Awaitable[None]]
) -> None:
    async def story(world: Bench, _: GrowingServer) -> None:
        await hold(world)
        await happen(world)

    play(tmp_path, story)


async def hold(world: Bench) -> None:
    await world.patch(MIRROR, reclaimPolicy="Delete")

    async def is_held() -> bool:
        item = await world.get(MIRROR)
        return item is not None and FINALIZER in item["metadata"].get("finalizers", ())

    await eventually(is_held, lambda: "a finalizer")


def test_a_topic_that_is_made_anew_while_its_deletion_ends_is_not_deleted(tmp_path: Path) -> None:
    """As by producers that go on writing, where topics are made by use."""

    async def story(world: Bench, server: GrowingServer) -> None:
        await hold(world)
        server.is_full = True
        await world.delete(MIRROR)
        await until(lambda: world.topic("orders") is None)
        await create_over_kafka(world, "orders", partitions=2)
        tried = server.refused
        await until(lambda: server.refused > tried + 1)
        server.is_full = False

        async def is_shown() -> bool:
            item = await world.get(MIRROR)
            return item is not None and item["spec"]["partitions"] == 2

        await eventually(is_shown, lambda: "the new topic to be shown")
        assert world.topic("orders") is not None

    play(tmp_path, story)


def test_what_is_protected_stays_and_says_that_its_topic_is_gone(tmp_path: Path) -> None:
    async def story(world: Bench, _: GrowingServer) -> None:
        await world.patch(MIRROR, deletionProtection=True)
        await world.until(MIRROR, "Ready")
        await delete_over_kafka(world)
        item = await world.until(MIRROR, "TopicGone")
        assert "deletionTimestamp" not in item["metadata"], "as an admission policy has it"
        assert "partitions" not in item["status"]
        await create_over_kafka(world, "orders")
        await world.until(MIRROR, "Ready")
        await world.create("mine", topicName="orders")
        await world.until(MIRROR, "TopicGone")
        await world.patch(MIRROR, deletionProtection=False)
        await world.until_gone(MIRROR)

    play(tmp_path, story)


def play(tmp_path: Path, story: Callable[[Bench, GrowingServer], Awaitable[None]]) -> None:
    """Play a story that begins with a topic made over Kafka, and with what shows it."""

    async def played() -> None:
        server = GrowingServer()
        await server.start()
        kube = KubeClient(
            Credentials(server.url, None), request_timeout_s=10.0, connect_timeout_s=5.0
        )
        try:
            async with bench(kube, "shop", tmp_path) as world:
                await create_over_kafka(world, "orders")
                await world.until(MIRROR, "Ready")
                await story(world, server)
        finally:
            await kube.close()
            await server.stop()

    asyncio.run(played())
