"""Requests under `/admin` that cannot be removed or read, before a real ensemble."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from decision_world import creatable, create_topics
from kazoo.security import make_digest_acl
from waiting import until
from zookeeper_store import begin_reign, connected, elected_store

from fairlead_controller.controller import Controller, open_controller
from fairlead_controller.stores.zookeeper import ZooKeeperStore
from fairlead_controller.zookeeper.admin_requests import AdminRequests

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kazoo.client import KazooClient
    from zookeeper_ensemble import ZooKeeperEnsemble

    from fairlead_controller.decisions.events import Event
    from fairlead_zookeeper.address import ZooKeeperAccess

ELECTION = "/admin/preferred_replica_election"
PARTITIONS = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[77]}]}'


class World:
    """A controller that carries out requests, and a tool's client beside it."""

    def __init__(self, controller: Controller, requests: AdminRequests, tool: KazooClient) -> None:
        self.controller = controller
        self.requests = requests
        self.tool = tool
        self.asked: Counter[str] = Counter()
        self._submit = controller.submit

    async def submit(self, event: Event) -> Any:
        self.asked[type(event).__name__] += 1
        return await self._submit(event)

    async def be_heard(self) -> None:
        """Return once a request that was made now is carried out, and so all before it."""
        await asyncio.to_thread(self.tool.create, "/admin/delete_topics/nowhere")
        await until(self._is_heard)

    async def _is_heard(self) -> bool:
        return await asyncio.to_thread(self.tool.exists, "/admin/delete_topics/nowhere") is None

    async def create_topic(self) -> None:
        reply = await self._submit(create_topics(creatable("t", partitions=1)))
        assert reply["topics"][0]["error_code"] == 0, reply

    @property
    def has_topic(self) -> bool:
        return self.controller.committed.image.partition("t", 0) is not None


@pytest.fixture
def play(
    zookeeper: ZooKeeperEnsemble,
    zookeeper_chroot: str,
    access: ZooKeeperAccess,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., None]:
    """Tell a story; what `prepare` does is there before requests are carried out."""

    async def tell(story: Callable[[World], Awaitable[None]], tool: KazooClient) -> None:
        async with asyncio.timeout(60), connected(access) as client:
            store = await elected_store(client)
            assert isinstance(store, ZooKeeperStore)
            fence = store._fence
            assert fence is not None
            controller = await open_controller(store, now_ms=lambda: 0)
            running = asyncio.create_task(controller.run())
            await begin_reign(controller)
            world = World(controller, AdminRequests(client, store, controller, fence), tool)
            monkeypatch.setattr(controller, "submit", world.submit)
            await story(world)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await store.close()

    def run(story: Callable[[World], Awaitable[None]]) -> None:
        with zookeeper.client(zookeeper_chroot) as tool:
            asyncio.run(tell(story, tool))

    return run


def test_an_election_that_cannot_be_removed_is_carried_out_once(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """It was carried out without a pause, as fast as ZooKeeper answered."""

    async def story(world: World) -> None:
        world.tool.create(ELECTION, PARTITIONS)
        world.tool.create(f"{ELECTION}/below", b"")
        carrying_out = asyncio.create_task(world.requests.run())
        await until(lambda: world.asked["ElectOnRequest"])
        await world.be_heard()
        assert world.asked["ElectOnRequest"] == 1
        world.tool.delete(f"{ELECTION}/below")
        await world.be_heard()
        assert world.tool.exists(ELECTION) is None
        assert world.asked["ElectOnRequest"] == 1
        carrying_out.cancel()

    play(story)
    (said,) = [each for each in caplog.messages if "cannot be removed" in each]
    assert said == (f"{ELECTION} is carried out, but cannot be removed (NotEmptyError): delete it")


def test_a_request_that_outlives_its_topic_does_not_delete_the_next(
    play: Callable[..., None],
) -> None:
    """Neither the multi that deletes the topic nor another one can remove the request."""

    async def story(world: World) -> None:
        await world.create_topic()
        world.tool.create("/admin/delete_topics/t/below", b"", makepath=True)
        carrying_out = asyncio.create_task(world.requests.run())
        await until(lambda: not world.has_topic)
        await world.be_heard()
        await world.create_topic()
        await world.be_heard()
        assert world.has_topic
        world.tool.delete("/admin/delete_topics/t/below")
        await world.be_heard()
        assert world.tool.exists("/admin/delete_topics/t") is None
        assert world.has_topic
        carrying_out.cancel()

    play(story)


def test_a_request_that_must_not_be_read_holds_up_no_other(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        theirs = make_digest_acl("somebody", "secret", all=True)
        world.tool.create(ELECTION, PARTITIONS, acl=[theirs])
        world.tool.create("/admin/reassign_partitions", PARTITIONS)
        carrying_out = asyncio.create_task(world.requests.run())
        await until(lambda: world.requests.refused["reassign_partitions"])
        await world.be_heard()
        assert world.requests.refused == {
            "reassign_partitions": 1,
            "preferred_replica_election": 1,
        }
        carrying_out.cancel()

    play(story)
    said = [each for each in caplog.messages if each.startswith(ELECTION)]
    assert said == [
        f"{ELECTION} is not carried out, because it cannot be read: {ELECTION}: NoAuthError"
    ]


def test_a_deletion_that_must_not_be_read_holds_up_no_other(
    play: Callable[..., None],
) -> None:
    """Newer servers do not tell anything of it, so that nobody knows whether it is a new one."""

    async def story(world: World) -> None:
        await world.create_topic()
        theirs = make_digest_acl("somebody", "secret", all=True)
        world.tool.create("/admin/delete_topics/t", b"", acl=[theirs])
        world.tool.create(ELECTION, PARTITIONS)
        carrying_out = asyncio.create_task(world.requests.run())
        await until(lambda: world.asked["ElectOnRequest"])
        await world.be_heard()
        assert world.tool.exists(ELECTION) is None
        assert world.has_topic
        assert world.requests.refused == {"delete_topics": 1}
        carrying_out.cancel()

    play(story)
