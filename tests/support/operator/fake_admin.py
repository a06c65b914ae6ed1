"""A controller's admin socket for tests of the operator, with answers that the test sets."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web
from waiting import DEADLINE_S

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class FakeAdmin:
    """The fake controller's answers; a test changes them as it goes."""

    is_active: bool = True
    clusters: list[str] = field(default_factory=list)
    brokers: list[dict[str, Any]] = field(default_factory=list)
    under_replicated: int = 0
    offline: int = 0
    refusal: tuple[int, str] | None = None
    """Status and message with which every order is refused."""
    problem: str = ""
    """Why brokers that leave a pool cannot be drained."""
    configs: dict[str, str] = field(default_factory=dict)
    """Dynamic configs that the LogCluster has declared."""
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    """Method, path and body of every request except those for state and status."""

    def scale_down(self, pool: str, leaving: list[int], staying: list[int]) -> None:
        """Note the drained brokers, as the controller does if nothing prevents it."""
        for each in self.brokers:
            if each["id"] in leaving and not self.problem:
                each |= {"isDrained": True, "leavesPool": pool}
            if each["id"] in staying:
                each |= {"isDrained": False, "leavesPool": None}

    def unregister(self, broker_id: int) -> None:
        """Forget a broker."""
        self.brokers = [each for each in self.brokers if each["id"] != broker_id]

    def status(self) -> dict[str, Any]:
        return {
            "clusterId": "fake-cluster-id",
            "controller": {"pid": 1, "epoch": 7},
            "partitions": {
                "partitions": 12,
                "underReplicated": self.under_replicated,
                "underMinIsr": 0,
                "offline": self.offline,
                "lossPossible": 0,
            },
            "brokers": self.brokers,
            "topics": [{"name": "orders"}],
            "declaredConfigs": self.configs,
        }


def broker(broker_id: int, *, leaders: int = 0, replicas: int = 0) -> dict[str, Any]:
    """A live broker as the status shows it."""
    return {"id": broker_id, "state": "live", "leaders": leaders, "replicas": replicas}


class FakeAdminServer:
    """Serves a FakeAdmin on a unix socket, in its own thread."""

    def __init__(self, admin: FakeAdmin, socket: Path) -> None:
        self._admin = admin
        self._socket = socket
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runner: web.AppRunner | None = None

    def __enter__(self) -> FakeAdmin:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(DEADLINE_S)
        return self._admin

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(DEADLINE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()

    async def _start(self) -> None:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=2.0)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(self._socket)).start()

    async def _stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        admin, path = self._admin, request.path
        if path == "/v1/state":
            reigns = {
                name: {"controllerEpoch": 7, "storeAvailable": True} for name in admin.clusters
            }
            role = "active" if admin.is_active else "standby"
            return web.json_response({"role": role, "identity": "fake-0", "clusters": reigns})
        if not admin.is_active:
            return web.json_response({"role": "standby"}, status=503)
        if path.endswith("/status"):
            return web.json_response(admin.status())
        if path.endswith("/topics") and request.method == "GET":
            await asyncio.sleep(min(float(request.query.get("wait_ms", "0")) / 1000, 0.5))
            is_full = "since" not in request.query
            topics: list[Any] = []
            return web.json_response(
                {"position": "7.1", "isFull": is_full, "topics": topics, "removed": topics}
            )
        if path.endswith("/intents") and request.method == "GET":
            return web.json_response({"intents": []})
        if path.endswith("/users"):
            return web.json_response({"results": {}})
        body: Any = await request.json() if request.can_read_body else None
        if admin.refusal is not None:
            status, message = admin.refusal
            return web.json_response({"message": message}, status=status)
        admin.requests.append((request.method, path, body))
        if path.endswith("/topics"):
            return web.json_response({"results": {}})
        if path.endswith("/configs"):
            admin.configs = body["configs"]
        if path.endswith("/fence"):
            for each in admin.brokers:
                if each["id"] == int(path.split("/")[-2]):
                    each |= {
                        "fencedBy": body["reason"],
                        "state": "fenced" if body["reason"] else "live",
                    }
        if path.endswith("/scale-down"):
            admin.scale_down(path.split("/")[-2], **body)
            return web.json_response({"problem": admin.problem})
        if request.method == "DELETE" and "/brokers/" in path:
            admin.unregister(int(path.split("/")[-1]))
        return web.json_response({"id": "intent-1"})
