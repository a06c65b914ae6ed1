"""The claim of a checkpoint whose job says later that it is to be kept."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fake_resource_server import FakeResourceServer
from prometheus_client import CollectorRegistry
from waiting import until

from fairlead_kube.client import KubeClient
from fairlead_kube.credentials import Credentials
from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import PERSISTENT_VOLUME_CLAIM, STREAM_JOB, ResourceKind
from fairlead_operator.events import EventWriter
from fairlead_operator.live_objects import LiveObjects
from fairlead_operator.stream_jobs.metrics import StreamJobMetrics
from fairlead_operator.stream_jobs.names import claim_name
from fairlead_operator.stream_jobs.runner import StreamJobRunner

CLAIM = claim_name("job")


class RefusingClient(KubeClient):
    """Refuses changes of claims, or to show them, where it is told to."""

    refuses = False
    hides = False

    async def find(self, kind: ResourceKind, *path: Any) -> dict[str, Any] | None:
        if self.hides and kind is PERSISTENT_VOLUME_CLAIM:
            raise ApiError(403, "Forbidden", "a policy of the test")
        return await super().find(kind, *path)

    async def patch(self, kind: ResourceKind, *path: Any, **named: Any) -> dict[str, Any]:
        if self.refuses and kind is PERSISTENT_VOLUME_CLAIM:
            raise ApiError(403, "Forbidden", "a policy of the test")
        return await super().patch(kind, *path, **named)


class World:
    def __init__(self, server: FakeResourceServer, client: RefusingClient) -> None:
        self.server = server
        self.client = client
        self.job: dict[str, Any] = {}

    async def start(self, *others: dict[str, Any]) -> None:
        """Make a job that is suspended, and its claim as a run of it has made it."""
        manifest = {
            "apiVersion": STREAM_JOB.api_version,
            "kind": STREAM_JOB.kind,
            "metadata": {"name": "job"},
            "spec": {
                "application": {"file": "/job.py"},
                "checkpoint": {"claim": {"size": "1Gi"}},
                "suspend": True,
            },
        }
        self.job = await self.client.create(STREAM_JOB, "ns", manifest)
        owner = {"kind": STREAM_JOB.kind, "name": "job", "uid": self.job["metadata"]["uid"]}
        claim = {
            "metadata": {"name": CLAIM, "ownerReferences": [owner, *others]},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        await self.client.create(PERSISTENT_VOLUME_CLAIM, "ns", claim)

    async def retain(self) -> None:
        await self.change(retain=True)

    async def change(self, **claim: Any) -> None:
        patch = {"spec": {"checkpoint": {"claim": claim}}}
        await self.client.patch(STREAM_JOB, "ns", "job", patch)

    @property
    def owners(self) -> list[str]:
        """The names of the claim's owners."""
        claim = self.server.objects["/api/v1/namespaces/ns/persistentvolumeclaims"][CLAIM]
        return [each["name"] for each in claim["metadata"].get("ownerReferences") or ()]

    @property
    def events(self) -> list[str]:
        found = self.server.objects.get("/apis/events.k8s.io/v1/namespaces/ns/events", {})
        return [each["reason"] for each in found.values()]

    async def suspended(self) -> None:
        await until(lambda: (self.jobs["job"].get("status") or {}).get("phase") == "Suspended")

    @property
    def jobs(self) -> dict[str, Any]:
        return self.server.objects["/apis/fairlead.io/v1alpha1/namespaces/ns/streamjobs"]


def play(story: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        server = FakeResourceServer()
        await server.start()
        client = RefusingClient(
            Credentials(server.url, None), request_timeout_s=10.0, connect_timeout_s=5.0
        )
        live = LiveObjects(client, ["ns"], lambda _: None)
        runner = StreamJobRunner(
            client,
            EventWriter(client),
            clusters=live,
            operator_namespace="fairlead",
            default_image="image",
            namespaces=["ns"],
            metrics=StreamJobMetrics(CollectorRegistry()),
        )
        tasks = [asyncio.create_task(each) for each in (live.run(), runner.run())]
        try:
            await story(World(server, client))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.close()
            await server.stop()

    asyncio.run(run())


def test_a_claim_that_is_retained_later_outlives_its_job() -> None:
    async def story(world: World) -> None:
        await world.start()
        await world.suspended()
        assert world.owners == ["job"]
        await world.retain()
        await until(lambda: world.owners == [])
        await world.client.delete(STREAM_JOB, "ns", "job")
        await until(lambda: "job" not in world.jobs)
        assert world.owners == []

    play(story)


def test_a_claim_keeps_its_other_owners() -> None:
    async def story(world: World) -> None:
        await world.start({"kind": "Backup", "name": "nightly", "uid": "b"})
        await world.retain()
        await until(lambda: world.owners == ["nightly"])

    play(story)


def test_a_claim_that_cannot_be_freed_is_told_of() -> None:
    async def story(world: World) -> None:
        world.client.refuses = True
        await world.start()
        await world.retain()
        await until(lambda: "ClaimNotRetained" in world.events)
        await world.suspended()
        assert world.owners == ["job"]

    play(story)


def test_a_job_goes_on_whose_claim_may_not_be_read() -> None:
    async def story(world: World) -> None:
        world.client.hides = True
        await world.start()
        await world.suspended()
        world.client.hides = False
        await world.retain()
        await until(lambda: world.owners == [])

    play(story)


@pytest.mark.parametrize("change", [{"size": "2Gi"}, {"shared": True}], ids=str)
def test_what_a_claim_was_made_without_is_told_of(change: dict[str, Any]) -> None:
    """Nothing happened before, and nobody said so."""

    async def story(world: World) -> None:
        await world.start()
        await world.change(size="1024Mi")
        await world.suspended()
        assert world.events == []
        await world.change(**change)
        await until(lambda: world.events == ["ClaimStays"])

    play(story)
