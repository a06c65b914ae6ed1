"""What the runner knows between a pod that it made and the watch that tells of it."""

import asyncio
from typing import Any

from prometheus_client import CollectorRegistry

from fairlead_controller.kube.errors import ApiError
from fairlead_controller.kube.kinds import POD
from fairlead_controller.kube.object_changes import ObjectChange
from fairlead_operator.stream_jobs.metrics import StreamJobMetrics
from fairlead_operator.stream_jobs.runner import StreamJobRunner

KEY = ("ns", "job")


class NotedClient:
    """Takes every write; `refusal` is what making a pod fails with."""

    def __init__(self, job: dict[str, Any], refusal: ApiError | None = None) -> None:
        self._job = job
        self._refusal = refusal
        self.pods: list[dict[str, Any]] = []

    async def apply(self, *_: Any, **__: Any) -> None:
        return None

    async def create(self, kind: Any, _namespace: str, manifest: dict[str, Any]) -> None:
        if kind is POD and self._refusal is not None:
            raise self._refusal
        if kind is POD:
            self.pods.append(manifest)

    async def patch(self, *path: Any, **_: Any) -> dict[str, Any]:
        status = {**(self._job.get("status") or {}), **path[-1]["status"]}
        metadata = {**self._job["metadata"], "resourceVersion": "2"}
        return {"metadata": metadata, "status": {k: v for k, v in status.items() if v is not None}}


class NotedEvents:
    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    async def emit(self, _object: Any, reason: str, message: str, *_: Any, **__: Any) -> None:
        self.told.append((reason, message))


def looks(count: int, *, refusal: ApiError | None = None, lost: bool = False) -> tuple[Any, Any]:
    """The job and what was told of it after so many looks, no watch telling of the pod. `lost`:
    it tells that the pod was there and is gone, after the first."""
    spec = {"application": {"file": "/job.py"}, "checkpoint": {"ephemeral": True}}
    metadata = {"name": "job", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    job: dict[str, Any] = {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": "StreamJob",
        "metadata": metadata | {"generation": 1, "creationTimestamp": "2026-11-01T00:00:00Z"},
        "spec": spec,
    }
    client, events = NotedClient(job, refusal), NotedEvents()

    async def attend() -> None:
        runner = StreamJobRunner(
            client,  # type: ignore[arg-type]
            events,  # type: ignore[arg-type]
            find_cluster=lambda _namespace, _name: "logs",
            default_image="image",
            metrics=StreamJobMetrics(CollectorRegistry()),
        )
        try:
            runner._jobs._objects[KEY] = job
            for number in range(count):
                await runner._attend(KEY)
                if lost and number == 0:
                    (pod,) = client.pods
                    runner._on_pod(ObjectChange(("ns", pod["metadata"]["name"]), pod, None))
        finally:
            await runner._drivers.close()

    asyncio.run(attend())
    return job, events.told


def test_a_pod_that_was_made_is_there_before_the_watch_tells() -> None:
    job, told = looks(4)
    assert (job["status"]["run"], job["status"]["phase"]) == (1, "Starting")
    assert "endedRun" not in job["status"]
    assert [reason for reason, _ in told] == ["DriverStarted"]


def test_a_pod_that_the_watch_told_of_and_that_is_gone_is_lost() -> None:
    job, told = looks(2, lost=True)
    assert job["status"]["endedRun"] == 1
    assert told[-1][0] == "DriverFailed"
    assert "the driver's pod is gone" in told[-1][1]


def test_a_pod_that_cannot_be_made_is_not_called_lost() -> None:
    refusal = ApiError(403, "Forbidden", "exceeded quota: pods=10")
    job, told = looks(2, refusal=refusal)
    assert "exceeded quota" in job["status"]["lastError"]
    assert [reason for reason, _ in told] == ["DriverNotMade", "DriverFailed"]
