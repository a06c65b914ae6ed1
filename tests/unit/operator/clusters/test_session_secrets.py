"""A session Secret that somebody deletes comes back, with what brokers and controllers go by."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from fake_resource_server import FakeResourceServer
from operator_views import cluster_view

from fairlead_kube.client import KubeClient
from fairlead_kube.credentials import Credentials
from fairlead_kube.kinds import POD
from fairlead_operator.clusters.api_writer import ApiWriter
from fairlead_operator.clusters.session_secrets import LOOK_S, SessionSecrets
from fairlead_operator.live_objects import LiveObjects
from fairlead_operator.metrics import OperatorMetrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CLUSTER = cluster_view()
KEY = ("shop", "demo")
SECRETS = "/api/v1/namespaces/shop/secrets"
NAME = "demo-session"


class World:
    """One operator process after another, and an API server."""

    def __init__(self, server: FakeResourceServer, client: KubeClient) -> None:
        self.server, self.client = server, client
        self.now = 100.0
        self.told: list[str] = []
        self.live = LiveObjects(client, ("shop",), lambda _: None)
        self.writer = ApiWriter(client, self.live, OperatorMetrics())
        self.events: Any = SimpleNamespace(emit=self._emit)
        self.begin_process()

    def begin_process(self) -> None:
        self.secrets = SessionSecrets(
            self.live, self.writer, self.events, monotonic=lambda: self.now
        )

    async def look(self, *, uid: str = "c-1") -> bool:
        self.now += LOOK_S
        return await self.secrets.ensure(replace(CLUSTER, uid=uid))

    def start_broker(self) -> None:
        labels = {"fairlead.io/cluster": "demo"}
        metadata = {"namespace": "shop", "name": "demo-main-0", "labels": labels}
        self.live.informers[POD]._objects["shop", "demo-main-0"] = {"metadata": metadata}

    @property
    def secret(self) -> dict[str, Any] | None:
        return self.server.objects.get(SECRETS, {}).get(NAME)

    def content(self) -> Any:
        assert self.secret is not None
        return self.secret["data"]

    async def delete(self) -> None:
        await self.server.remove(SECRETS, NAME)

    async def _emit(self, _object: Any, reason: str, _message: str, _type: str) -> None:
        self.told.append(reason)


@asynccontextmanager
async def begun() -> AsyncIterator[World]:
    server = FakeResourceServer()
    await server.start()
    client = KubeClient(Credentials(server.url, None), request_timeout_s=10.0)
    try:
        yield World(server, client)
    finally:
        await client.close()
        await server.stop()


def test_a_deleted_secret_comes_back_with_its_content() -> None:
    async def story() -> None:
        async with begun() as world:
            assert await world.look()
            before = world.content()
            assert await world.look()
            assert world.told == []
            await world.delete()
            assert await world.look()
            assert world.content() == before
            assert world.told == ["SessionSecretRestored"]
            # Also one that an operator process before this one made.
            world.begin_process()
            assert await world.look()
            await world.delete()
            assert await world.look()
            assert world.content() == before

    asyncio.run(story())


def test_what_somebody_has_written_comes_back() -> None:
    async def story() -> None:
        async with begun() as world:
            await world.look()
            by_hand = world.content() | {"secret": "YnkgaGFuZA=="}
            world.server.objects[SECRETS][NAME]["data"] = by_hand
            await world.look()
            assert world.content() == by_hand, "it is never overwritten"
            await world.delete()
            await world.look()
            assert world.content() == by_hand

    asyncio.run(story())


def test_a_new_secret_under_running_brokers_is_told() -> None:
    async def story() -> None:
        async with begun() as world:
            await world.look()
            before = world.content()
            world.start_broker()
            await world.delete()
            world.begin_process()
            assert await world.look()
            assert world.content() != before
            assert world.told == ["SessionSecretReplaced"]

    asyncio.run(story())


def test_another_cluster_of_the_name_gets_a_secret_of_its_own() -> None:
    async def story() -> None:
        async with begun() as world:
            await world.look()
            before = world.content()
            assert not await world.look(uid="c-2"), "Kubernetes deletes it first"
            await world.delete()
            assert await world.look(uid="c-2")
            assert world.content() != before
            assert world.secret is not None
            assert world.secret["metadata"]["ownerReferences"][0]["uid"] == "c-2"
            world.secrets.forget(KEY)
            assert not world.secrets._held
            assert world.told == []

    asyncio.run(story())
