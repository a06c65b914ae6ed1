"""Some clusters' reigns in one candidate, against an API server in memory."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fake_api_server import FakeApiServer

from fairlead_controller.decisions.events import AllocateProducerIds
from fairlead_controller.kubernetes.reign import Surroundings
from fairlead_controller.kubernetes.reigns import Reigns
from fairlead_controller.kubernetes.session_gate import build_gate
from fairlead_kube.client import KubeClient
from fairlead_kube.credentials import Credentials

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from fairlead_controller.kubernetes.reign import Reign
    from fairlead_kube.kinds import ResourceKind

NAMESPACE = "shop"
SECRET = b"a secret of tests only"
DEADLINE_S = 60.0


class Candidate:
    """The parts of a candidate's process that its reigns need."""

    def __init__(self, server: FakeApiServer, client: KubeClient, *clusters: str) -> None:
        self.server = server
        self.client = client
        self.confirmations = 0
        self.secret: bytes | None = SECRET
        """The session Secret of each cluster."""
        self.surroundings = Surroundings(
            client=client,
            gate=build_gate(lambda _: SECRET),
            check_lease=lambda: None,
            confirm_lease=self._confirm_lease,
            find_secret=lambda _: self.secret,
            locate=lambda asking: asking,
            plan_drains=lambda _: lambda _: {},
            expected_brokers=lambda _: frozenset(),
        )
        self.reigns = Reigns(
            {
                (NAMESPACE, name): {"metadata": {"name": name, "uid": f"uid-of-{name}"}, "spec": {}}
                for name in clusters
            },
            lambda: True,
            self.surroundings,
            namespaces=[NAMESPACE],
        )

    async def _confirm_lease(self) -> None:
        self.confirmations += 1

    def reign(self, cluster: str) -> Reign:
        return self.reigns.by_key[(NAMESPACE, cluster)]

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not is_so():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def reigning(self, cluster: str, *, after: int = 0) -> int:
        """Wait for a reign with a higher epoch than `after`; return its epoch."""
        key = (NAMESPACE, cluster)
        await self.until(
            lambda: key in self.reigns.by_key and self.reign(cluster).controller_epoch > after
        )
        return self.reign(cluster).controller_epoch

    async def decide(self, cluster: str) -> dict[str, Any]:
        """Let a cluster's controller write its ClusterState."""
        parts = self.reign(cluster).parts
        assert parts is not None
        return dict(await parts.controller.submit(AllocateProducerIds(0)))

    def path(self, kind: ResourceKind) -> str:
        return f"/apis/{kind.api_version}/namespaces/{NAMESPACE}/{kind.plural}"

    def objects(self, kind: ResourceKind) -> dict[str, Any]:
        return self.server.objects[self.path(kind)]

    async def touch(self, kind: ResourceKind, name: str) -> None:
        """Label an object, as a user might."""
        found = self.objects(kind)[name]
        metadata = found["metadata"]
        labels = {**metadata.get("labels", {}), "backup": "yes"}
        await self.client.replace(
            kind, NAMESPACE, name, {**found, "metadata": {**metadata, "labels": labels}}
        )


def play(story: Callable[[Candidate], Awaitable[None]], *clusters: str) -> None:
    @asynccontextmanager
    async def candidate() -> AsyncIterator[Candidate]:
        server = FakeApiServer()
        await server.start()
        client = KubeClient(
            Credentials(server.url, None), request_timeout_s=10.0, connect_timeout_s=5.0
        )
        try:
            yield Candidate(server, client, *clusters)
        finally:
            await client.close()
            await server.stop()

    async def run() -> None:
        async with asyncio.timeout(2 * DEADLINE_S), candidate() as one:
            running = asyncio.create_task(one.reigns.run())
            try:
                await story(one)
                assert not running.done(), "no reign ends the others"
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())
