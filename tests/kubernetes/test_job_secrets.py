"""Jobs of another namespace than their LogCluster, on an API server: by whose Secret they log in,
and what of others there they leave alone.

The User, its Secret and the job are carried out by the operator's own code in this process. No node
takes the drivers: what counts is whether they are made, and of what.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from controller_bench import CLUSTER
from prometheus_client import CollectorRegistry
from topic_bench import eventually
from user_bench import Bench, bench

from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import (
    CONFIG_MAP,
    NAMESPACE,
    NETWORK_POLICY,
    POD,
    SECRET,
    SERVICE_ACCOUNT,
    STREAM_JOB,
)
from fairlead_operator.events import EventWriter
from fairlead_operator.live_objects import LiveObjects
from fairlead_operator.stream_jobs import steps
from fairlead_operator.stream_jobs.metrics import StreamJobMetrics
from fairlead_operator.stream_jobs.runner import StreamJobRunner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
    from pathlib import Path

    from fairlead_kube.client import KubeClient

pytestmark = pytest.mark.kubernetes

JOB = "late"
LOGIN = {"type": "scram-sha-512", "secretName": "copied"}


@pytest.fixture
def elsewhere(only_operator: None, kube: Any, run: Any, namespace: str) -> Iterator[str]:
    """A namespace for jobs, with the account of their drivers."""
    name = f"{namespace}-jobs"
    run(kube.create(NAMESPACE, None, {"metadata": {"name": name}}))
    account = {"metadata": {"name": f"{CLUSTER}-spark"}}
    run(kube.create(SERVICE_ACCOUNT, name, account))
    yield name
    run(kube.delete(NAMESPACE, None, name))


class Jobs:
    """The namespace of jobs, as a story sees it."""

    def __init__(self, world: Bench, namespace: str) -> None:
        self.kube, self.world, self.namespace = world.kube, world, namespace

    async def create(self, **spec: Any) -> None:
        manifest = {
            "apiVersion": STREAM_JOB.api_version,
            "kind": STREAM_JOB.kind,
            "metadata": {"name": JOB},
            "spec": {
                "clusterNamespace": self.world.namespace,
                "clusterName": CLUSTER,
                "application": {"file": "/job.py"},
                "checkpoint": {"ephemeral": True},
                "restartPolicy": {"backoffSeconds": 1},
                "template": {"nodeSelector": {"example.com/there-is": "no-such-node"}},
                **spec,
            },
        }
        await self.kube.create(STREAM_JOB, self.namespace, manifest)

    async def until(self, reason: str) -> str:
        """Wait until Ready has a reason; the message."""
        seen: dict[str, Any] = {}

        async def message() -> str | None:
            job = await self.kube.get(STREAM_JOB, self.namespace, JOB)
            for each in (job.get("status") or {}).get("conditions") or ():
                seen[each["type"]] = each
            ready = seen.get("Ready", {})
            return ready["message"] if ready.get("reason") == reason else None

        return str(await eventually(message, lambda: f"{reason}, not {seen}"))

    async def until_looked_at(self, *, retries: int) -> None:
        """Change what makes no other driver, and wait until the job was looked at since."""
        change = {"spec": {"restartPolicy": {"retries": retries}}}
        changed = await self.kube.patch(STREAM_JOB, self.namespace, JOB, change)

        async def is_looked_at() -> bool:
            job = await self.kube.get(STREAM_JOB, self.namespace, JOB)
            return bool(job["status"]["observedGeneration"] >= changed["metadata"]["generation"])

        await eventually(is_looked_at, lambda: "a look at the job")

    async def copy(self, *but: str) -> None:
        """Copy the User's Secret as its owner would, without some keys."""
        held = await self.world.secret("app")
        assert held is not None
        data = {key: text for key, text in held["data"].items() if key not in but}
        secret = {"metadata": {"name": "copied"}, "data": data}
        with contextlib.suppress(ApiError):
            await self.kube.delete(SECRET, self.namespace, "copied")
        await self.kube.create(SECRET, self.namespace, secret)

    async def secrets(self) -> set[str]:
        items = (await self.kube.list(SECRET, self.namespace)).items
        return {item["metadata"]["name"] for item in items}

    async def drivers(self) -> list[dict[str, Any]]:
        return (await self.kube.list(POD, self.namespace)).items


@contextlib.asynccontextmanager
async def running_jobs(world: Bench, namespace: str) -> AsyncIterator[Jobs]:
    namespaces = (world.namespace, namespace)
    live = LiveObjects(world.kube, namespaces, lambda _: None)
    runner = StreamJobRunner(
        world.kube,
        EventWriter(world.kube),
        clusters=live,
        operator_namespace="fairlead-system",
        default_image="localhost/fairlead-not-there:test",
        namespaces=namespaces,
        metrics=StreamJobMetrics(CollectorRegistry()),
    )
    watching = asyncio.create_task(live.run())
    await live.synced()
    acting = asyncio.create_task(runner.run())
    try:
        yield Jobs(world, namespace)
    finally:
        for task in (acting, watching):
            task.cancel()
        await asyncio.gather(acting, watching, return_exceptions=True)


def play(run: Any, kube: Any, places: tuple[str, str], directory: Path, story: Any) -> None:
    async def played() -> None:
        spark = {"namespaces": [places[1]]}
        async with (
            bench(kube, places[0], directory, spark=spark) as world,
            running_jobs(world, places[1]) as jobs,
        ):
            await world.create("app")
            await world.until("app", "Ready")
            await story(jobs)

    run(played())


async def from_refusal_to_rotation(jobs: Jobs) -> None:
    await jobs.create(user="app")
    said = await jobs.until("UserNotFound")
    assert f"copied from {jobs.world.namespace} to {jobs.namespace}" in said
    before = await jobs.secrets()
    assert "app" not in before
    change = {"spec": {"user": None, "authentication": LOGIN}}
    await jobs.kube.patch(STREAM_JOB, jobs.namespace, JOB, change)
    said = await jobs.until("SecretNotFound")
    assert f"Secret copied is not in the namespace {jobs.namespace}" in said
    assert await jobs.secrets() == before, "the operator copies none"
    await jobs.copy("librdkafka.config")
    assert "has no librdkafka.config" in await jobs.until("SecretIncomplete")
    assert await jobs.drivers() == []
    await jobs.copy()
    await jobs.until("Starting")
    (driver,) = await eventually(jobs.drivers, lambda: "a driver")
    (volume,) = (each for each in driver["spec"]["volumes"] if "secret" in each)
    assert volume["secret"]["secretName"] == "copied"
    config = await jobs.kube.get(CONFIG_MAP, jobs.namespace, f"{JOB}-driver")
    document = json.loads(config["data"]["job.json"])
    assert document["bootstrap"] == f"{CLUSTER}-bootstrap.{jobs.world.namespace}.svc:9093"
    assert document["clientConfig"] == "/etc/fairlead/user/librdkafka.config"
    # Another password, and no Secret at all: a driver that runs is left alone.
    await jobs.copy("sasl.jaas.config")
    await jobs.kube.delete(SECRET, jobs.namespace, "copied")
    await jobs.until_looked_at(retries=9)
    assert [each["metadata"]["uid"] for each in await jobs.drivers()] == [driver["metadata"]["uid"]]
    # The next one is not made without it, and is as soon as it is there.
    await jobs.kube.delete(POD, jobs.namespace, f"{JOB}-driver")
    await jobs.until("SecretNotFound")
    await jobs.copy()
    (second,) = await eventually(jobs.drivers, lambda: "the next driver")
    assert second["metadata"]["annotations"]["fairlead.io/run"] == "2"


async def refused_at_once(jobs: Jobs) -> None:
    with pytest.raises(ApiError, match="set user or authentication, not both"):
        await jobs.create(user="app", authentication=LOGIN)
    with pytest.raises(ApiError, match=r"authentication\.type"):
        await jobs.create(authentication=LOGIN | {"type": "oauth"})


async def beside_parts_of_others(jobs: Jobs) -> None:
    def named(name: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "labels": {"app": "somebody-else"}}}

    policy = named(f"{JOB}-spark") | {"spec": {"podSelector": {}}}
    config = named(f"{JOB}-driver") | {"data": {"theirs": "kept"}}
    await jobs.kube.create(NETWORK_POLICY, jobs.namespace, policy)
    await jobs.kube.create(CONFIG_MAP, jobs.namespace, config)
    await jobs.copy()
    await jobs.create(authentication=LOGIN, networkPolicy={"enabled": False})
    said = await jobs.until("BackingOff")
    assert f"ConfigMap {JOB}-driver was there before StreamJob {JOB}" in said
    there = await jobs.kube.get(CONFIG_MAP, jobs.namespace, f"{JOB}-driver")
    assert there["data"] == {"theirs": "kept"}
    await jobs.kube.delete(CONFIG_MAP, jobs.namespace, f"{JOB}-driver")
    await jobs.until("Starting")
    await jobs.kube.get(NETWORK_POLICY, jobs.namespace, f"{JOB}-spark")


@pytest.mark.parametrize(
    "story",
    [from_refusal_to_rotation, refused_at_once, beside_parts_of_others],
    ids=lambda each: each.__name__,
)
def test_stories(
    run: Callable[[Coroutine[Any, Any, Any]], Any],
    kube: KubeClient,
    namespace: str,
    elsewhere: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    story: Callable[[Jobs], Awaitable[None]],
) -> None:
    monkeypatch.setattr(steps, "SECRET_LOOK", timedelta(seconds=0.2))
    play(run, kube, (namespace, elsewhere), tmp_path, story)
