"""A controller in this process, and an operator of its Users, on an API server.

The operator calls the controller directly; calls pass through JSON, to show that they can be sent.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from typing import TYPE_CHECKING, Any

from controller_bench import CLUSTER, create_log_cluster, let_go, running_controller
from topic_bench import eventually, reason_of

from fairlead_controller.kubernetes.user_resource_calls import apply_users
from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import EVENT, SECRET, USER
from fairlead_model.security.client_quota import USER as USER_PART
from fairlead_operator.controller_client import CandidateState, ReignState
from fairlead_operator.events import EventWriter
from fairlead_operator.users.sync import UserSync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from fairlead_controller.controller import Controller
    from fairlead_kube.client import KubeClient
    from fairlead_model.security.acl import AclBinding

LISTENERS = [
    {"name": "plain", "type": "Internal", "port": 9092},
    {
        "name": "scram",
        "type": "Internal",
        "port": 9093,
        "authentication": {"type": "scram-sha-512"},
    },
    {
        "name": "tls",
        "type": "Internal",
        "port": 9095,
        "tls": {},
        "authentication": {"type": "tls"},
    },
]


class Sessions:
    """Stands for brokers: those in `behind` never confirm a change."""

    def __init__(self) -> None:
        self.behind: set[int] = set()

    async def until_heard(self, timeout_s: float) -> set[int]:
        return self.behind


class InProcessController:
    """The controller's calls as at the admin socket."""

    def __init__(self, controller: Controller, place: str) -> None:
        self.controller = controller
        self.sessions = Sessions()
        self.requests: list[dict[str, Any]] = []
        self.epoch = 1
        self._place = place

    async def state(self) -> CandidateState:
        return CandidateState("active", "me", {self._place: ReignState(self.epoch, True)})

    async def apply_users(
        self, namespace: str, cluster: str, request: dict[str, Any]
    ) -> dict[str, Any]:
        sent = json.loads(json.dumps(request))
        self.requests.append(sent)
        reply = await apply_users(self.controller, self.sessions, sent)  # type: ignore[arg-type]
        results: dict[str, Any] = json.loads(json.dumps(reply["results"]))
        return results


class Bench:
    """A namespace with a LogCluster, its controller, and an operator that can be restarted."""

    def __init__(self, kube: KubeClient, namespace: str, remote: InProcessController) -> None:
        self.kube = kube
        self.namespace = namespace
        self.remote = remote
        self.sync: UserSync
        self._task: asyncio.Task[None] | None = None

    async def start_operator(self) -> None:
        events = EventWriter(self.kube)
        self.sync = UserSync(self.kube, self.remote, events, namespaces=[self.namespace])
        self._task = asyncio.create_task(self.sync.run())

    async def stop_operator(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def create(self, name: str, **spec: Any) -> dict[str, Any]:
        spec = {"authentication": {"type": "scram-sha-512"}, "acls": [allow("Read")], **spec}
        return await self.kube.create(USER, self.namespace, user(name, **spec))

    async def patch(self, name: str, **spec: Any) -> None:
        await self.kube.patch(USER, self.namespace, name, {"spec": spec})

    async def delete(self, name: str) -> None:
        await self.kube.delete(USER, self.namespace, name)

    async def get(self, name: str) -> dict[str, Any] | None:
        for item in (await self.kube.list(USER, self.namespace)).items:
            if item["metadata"]["name"] == name:
                return item
        return None

    async def until(self, name: str, reason: str) -> dict[str, Any]:
        """Wait until Ready has a reason for the present generation; return the manifest."""
        item: dict[str, Any] | None = None

        async def matches() -> dict[str, Any] | None:
            nonlocal item
            item = await self.get(name)
            if item is None or reason_of(item) != reason:
                return None
            is_current = item["status"]["observedGeneration"] == item["metadata"]["generation"]
            return item if is_current else None

        return dict(await eventually(matches, lambda: f"{name} to be {reason}, not {item}"))

    async def until_gone(self, name: str) -> None:
        async def is_gone() -> bool:
            return await self.get(name) is None

        await eventually(is_gone, lambda: f"{name} to be gone")

    async def secret(self, name: str) -> dict[str, Any] | None:
        try:
            return await self.kube.get(SECRET, self.namespace, name)
        except ApiError as error:
            if not error.is_not_found:
                raise
            return None

    async def data(self, name: str) -> dict[str, str]:
        """Return the decoded data of a Secret."""
        held = await self.secret(name)
        assert held is not None
        return {
            key: base64.b64decode(text).decode(errors="replace")
            for key, text in held["data"].items()
        }

    async def set_data(self, name: str, **data: str) -> None:
        patch = {"data": {key: encoded(text) for key, text in data.items()}}
        await self.kube.patch(SECRET, self.namespace, name, patch)

    async def until_so(self, is_so: Callable[[], Any], what: str) -> None:
        async def check() -> bool:
            answer = is_so()
            return bool(await answer if asyncio.iscoroutine(answer) else answer)

        await eventually(check, lambda: what)

    async def events(self, reason: str) -> list[str]:
        items = (await self.kube.list(EVENT, self.namespace)).items
        return [str(item["note"]) for item in items if item["reason"] == reason]

    @property
    def rules(self) -> set[AclBinding]:
        return set(self.remote.controller.committed.image.acls)

    def operations(self, name: str) -> set[str]:
        """Return operations that a user may do; with `-` those denied, as in -READ."""
        return {
            ("" if rule.permission.name == "ALLOW" else "-") + rule.operation.name
            for rule in self.rules
            if rule.principal == f"User:{name}"
        }

    def quotas(self, name: str) -> dict[str, float]:
        """Return a user's client quotas."""
        known = self.remote.controller.committed.image.client_quotas
        return dict(known.get(((USER_PART, name),), {}))

    @property
    def credentials(self) -> dict[str, Any]:
        known = self.remote.controller.committed.image.credentials
        return {name: known[mechanism, name] for mechanism, name in known}


def user(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": USER.api_version,
        "kind": USER.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def allow(*operations: str, **fields: Any) -> dict[str, Any]:
    return {
        "resource": {"type": "topic", "name": "orders"},
        "operations": list(operations),
        **fields,
    }


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@contextlib.asynccontextmanager
async def bench(
    kube: KubeClient, namespace: str, directory: Path, **cluster: Any
) -> AsyncIterator[Bench]:
    async with running_controller(directory) as controller:
        await create_log_cluster(kube, namespace, listeners=LISTENERS, **cluster)
        world = Bench(kube, namespace, InProcessController(controller, f"{namespace}/{CLUSTER}"))
        await world.start_operator()
        try:
            yield world
        finally:
            await world.stop_operator()
            await let_go(kube, USER, namespace)


def play(
    run: Any,
    kube: KubeClient,
    namespace: str,
    directory: Path,
    story: Callable[[Bench], Awaitable[None]],
    **cluster: Any,
) -> None:
    async def played() -> None:
        async with bench(kube, namespace, directory, **cluster) as world:
            await story(world)

    run(played())
