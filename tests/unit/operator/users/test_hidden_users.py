"""What a reign is told of Users: not before they can be read, and whatever becomes of another."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from waiting import until

from fairlead_kube.client import ObjectList
from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import LOG_CLUSTER, USER, ResourceKind
from fairlead_operator.controller_client import (
    CandidateState,
    ControllerUnavailableError,
    ReignState,
)
from fairlead_operator.users.sync import UserSync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PLACE = {"namespace": "shop", "uid": "u", "resourceVersion": "1", "generation": 1}
CREATED = {"creationTimestamp": "2026-01-01T00:00:00Z"}
OBJECTS: dict[ResourceKind, dict[str, Any]] = {
    LOG_CLUSTER: {"kind": "LogCluster", "metadata": PLACE | {"name": "demo"}, "spec": {}},
    USER: {
        "kind": "User",
        "metadata": PLACE | CREATED | {"name": "app"},
        "spec": {"clusterName": "demo", "authentication": {"type": "scram-sha-512"}},
    },
}


class Server:
    """Has one cluster and one User; while `is_forbidden`, the latter may not be read."""

    def __init__(self) -> None:
        self.is_forbidden = True
        self.refusals = 0

    async def list(self, kind: ResourceKind, namespace: str, **_: Any) -> ObjectList:
        if namespace != "shop" or kind not in OBJECTS:
            return ObjectList([], "1")
        if kind is USER and self.is_forbidden:
            self.refusals += 1
            raise ApiError(403, "Forbidden", "not here")
        return ObjectList([{**OBJECTS[kind], "metadata": dict(OBJECTS[kind]["metadata"])}], "1")

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield

    def __getattr__(self, name: str) -> Any:
        async def refuse(*_: Any, **__: Any) -> None:
            raise ApiError(409, "Conflict", "")

        return refuse


class Controller:
    """Has begun with the cluster; notes what it is told."""

    def __init__(self) -> None:
        self.looks = 0
        self.told: list[dict[str, Any]] = []

    async def state(self) -> CandidateState:
        self.looks += 1
        return CandidateState("active", "me", {"shop/demo": ReignState(3, True)})

    async def apply_users(self, *place_and_request: Any) -> dict[str, Any]:
        self.told.append(place_and_request[-1])
        return {}


def test_a_reign_is_told_which_users_there_are_once_they_may_be_read() -> None:
    async def story() -> None:
        server, controller = Server(), Controller()
        events: Any = SimpleNamespace()
        sync = UserSync(server, controller, events, namespaces=("a", "shop"))  # type: ignore[arg-type]
        task = asyncio.create_task(sync.run())
        try:
            await until(lambda: controller.looks > 1 and server.refusals > 1)
            assert not controller.told
            server.is_forbidden = False
            await until(lambda: controller.told)
            assert controller.told[0] == {"isComplete": True, "keep": ["app"]}
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(story())


class TwoClusters(Server):
    """Has a cluster in the other namespace, too, which is found first."""

    async def list(self, kind: ResourceKind, namespace: str, **_: Any) -> ObjectList:
        if kind is not LOG_CLUSTER or namespace == "shop":
            return await super().list(kind, namespace)
        metadata = PLACE | {"namespace": namespace, "name": "stuck", "uid": "v"}
        return ObjectList([{"kind": "LogCluster", "metadata": metadata, "spec": {}}], "1")


class HalfController(Controller):
    """Can make nothing durable in the other namespace."""

    async def state(self) -> CandidateState:
        self.looks += 1
        reign = ReignState(3, True)
        return CandidateState("active", "me", {"a/stuck": reign, "shop/demo": reign})

    async def apply_users(self, *place_and_request: Any) -> dict[str, Any]:
        if place_and_request[0] == "a":
            raise ControllerUnavailableError("no answer in time")
        return await super().apply_users(*place_and_request)


def test_a_cluster_that_takes_nothing_holds_up_no_users_of_another() -> None:
    async def story() -> None:
        server, controller = TwoClusters(), HalfController()
        server.is_forbidden = False
        events: Any = SimpleNamespace()
        sync = UserSync(server, controller, events, namespaces=("a", "shop"))  # type: ignore[arg-type]
        task = asyncio.create_task(sync.run())
        try:
            await until(lambda: controller.looks > 2)
            assert list(sync.scope.clusters) == [("a", "stuck"), ("shop", "demo")]
            assert controller.told[0] == {"isComplete": True, "keep": ["app"]}
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(story())
