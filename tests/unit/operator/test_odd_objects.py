"""What nobody foresaw about one object ends nothing, and keeps no other object waiting."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from fake_groups import FakeGroups, FakeStore
from waiting import until

from fairlead_kube.object_changes import ObjectChange
from fairlead_operator.consumer_groups.sync import GroupSync
from fairlead_operator.controller_client import TopicChanges
from fairlead_operator.topics import cluster_topics
from fairlead_operator.topics.cluster_topics import ClusterTopics
from fairlead_operator.topics.kafka_topic_resources import MirrorWriter, TopicPlace
from fairlead_operator.topics.reconciler import TopicReconciler
from fairlead_operator.topics.status_writer import TopicStatusWriter
from fairlead_operator.topics.topic_scope import TopicScope
from fairlead_operator.topics.unserved_namespaces import UnservedNamespaces
from fairlead_operator.topics.work_queue import WorkQueue
from fairlead_operator.users import sync as sync_of_users
from fairlead_operator.users.sync import UserSync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

CLUSTER = ("ns", "demo")
NOBODY: Any = None
ODD_CONDITION = {"type": "Ready", "status": "False", "reason": "A", "message": ""}
"""It lacks the time that every condition of ours has."""
ODD_RESET = {
    "id": "one",
    "phase": "Committing",
    "at": "2026-01-01T00:00:00Z",
    "topics": [{"name": "a", "offsets": "zero"}],
}


class Server:
    """The API server and the controller, which remember what they were asked to write."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.applied: list[list[str]] = []

    async def write_status(self, _kind: Any, _namespace: str, name: str, *_: Any, **__: Any) -> Any:
        self.written.append(name)

    async def create(self, _kind: Any, _namespace: str, manifest: dict[str, Any]) -> None:
        self.written.append(manifest["spec"]["topicName"])

    async def emit(self, about: dict[str, Any], *_: Any, **__: Any) -> None:
        self.written.append(about["metadata"]["name"])

    async def apply_topics(self, _ns: str, _name: str, request: dict[str, Any]) -> dict[str, Any]:
        names = [each["reference"] for each in request["apply"]]
        self.applied.append(names)
        odd = {"reason": "Applied"}  # without a state
        return {name: odd if name == "odd" else odd | {"state": "ok"} for name in names}


@asynccontextmanager
async def working(run: Coroutine[Any, Any, Any]) -> AsyncIterator[asyncio.Task[Any]]:
    task = asyncio.create_task(run)
    try:
        yield task
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def metadata(name: str) -> dict[str, Any]:
    created = "2026-01-01T00:00:00Z"
    return {
        "name": name,
        "namespace": "ns",
        "uid": name,
        "generation": 1,
        "resourceVersion": "1",
        "creationTimestamp": created,
    }


def topic_scope(server: Server, queue: WorkQueue[Any], *names: str) -> TopicScope:
    scope = TopicScope(server, queue)  # type: ignore[arg-type]
    scope.set_cluster(CLUSTER, {"metadata": {"name": "demo"}, "spec": {}})
    scope.views[CLUSTER] = SimpleNamespace(is_started=True, entries={})  # type: ignore[assignment]
    for name in names:
        status = {"conditions": [ODD_CONDITION]} if name == "odd" else {}
        spec = {"clusterName": "demo"}
        scope.take(
            ("ns", name),
            {"kind": "Topic", "metadata": metadata(name), "spec": spec, "status": status},
        )
        answer = {"state": "failed", "reason": "Refused", "message": ""}
        scope.results["ns", name] = (name, 1, answer)
    return scope


def told_once(caplog: pytest.LogCaptureFixture) -> None:
    told = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert len(told) == 1
    assert told[0].exc_info is not None


def test_the_status_of_one_topic(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        server, queue = Server(), WorkQueue[Any](lambda: 0.0)
        scope = topic_scope(server, queue, "odd", "well")
        writer = TopicStatusWriter(
            server,  # type: ignore[arg-type]
            scope,
            server,  # type: ignore[arg-type]
            queue,
            now=lambda: 0.0,
            wall_clock=lambda: datetime.now(UTC),
        )
        queue.add(("ns", "odd"))
        queue.add(("ns", "well"))
        async with working(writer.run()):
            await until(lambda: "well" in server.written)
            await until(lambda: len(queue) == 1)
            assert "odd" not in server.written

    asyncio.run(story())
    told_once(caplog)


def test_a_topic_that_cannot_be_shown(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        server, queue = Server(), WorkQueue[TopicPlace](lambda: 0.0)
        scope = topic_scope(server, NOBODY)
        well = {
            "name": "well",
            "origin": "kafka",
            "resource": "",
            "isInternal": False,
            "partitions": 1,
            "replicationFactor": 1,
            "configs": {},
        }
        scope.views[CLUSTER].entries.update({"odd": {"name": "odd"}, "well": well})
        for name in ("odd", "well"):
            queue.add((*CLUSTER, name))
        async with working(MirrorWriter(server, scope, queue).run()):  # type: ignore[arg-type]
            await until(lambda: server.written == ["well"])
            await until(lambda: len(queue) == 1)

    asyncio.run(story())
    told_once(caplog)


def test_an_answer_about_one_topic(caplog: pytest.LogCaptureFixture) -> None:
    """It is in a batch with others: they are tried one by one then."""

    async def story() -> None:
        server, queue = Server(), WorkQueue[Any](time.monotonic)
        scope = topic_scope(server, queue, "odd", "well", "fine")
        scope.results.clear()
        statuses = WorkQueue[Any](time.monotonic)
        reconciler = TopicReconciler(NOBODY, scope, queue, statuses, NOBODY)
        for name in ("odd", "well", "fine"):
            queue.add(("ns", name))
        async with working(reconciler.run()):
            await until(lambda: len(server.applied) == 4)
            assert server.applied == [["odd", "well", "fine"], ["odd"], ["well"], ["fine"]]
            await until(lambda: set(statuses.take(9)) == {("ns", "well"), ("ns", "fine")})
            assert len(queue) == 1

    asyncio.run(story())
    told_once(caplog)


def test_an_answer_about_one_clusters_topics(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it all is asked for again: what came with it may not have been passed on."""
    monkeypatch.setattr(cluster_topics, "UNEXPECTED_DELAY_S", 0.0)
    asked: list[str] = []
    passed_on: list[str] = []

    class Odd:
        async def topics(
            self, namespace: str, cluster: str, *, since: str = "", wait_ms: int = 0
        ) -> TopicChanges:
            asked.append(since)
            if len(asked) == 4:
                await asyncio.Event().wait()
            return TopicChanges(f"{len(asked)}", len(asked) != 2, [{"name": "a"}], [])

        async def apply_topics(self, *_: Any) -> dict[str, Any]:
            return {}

    def on_change(_cluster: Any, names: Any) -> None:
        passed_on.extend(names)
        if len(passed_on) == 2:
            raise KeyError("resource")

    async def story() -> None:
        view = ClusterTopics(
            CLUSTER,
            Odd(),
            complete_request=lambda _: {},
            on_start=lambda _: None,
            on_change=on_change,
            on_health=lambda _: None,
        )
        async with working(view.run()):
            await until(lambda: len(asked) == 4)

    asyncio.run(story())
    assert asked == ["", "1", "", "3"]
    told_once(caplog)


def test_the_namespaces_of_one_cluster(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        server = Server()
        clusters = {
            ("ns", name): {"metadata": metadata(name), "spec": {"topicNamespaces": listed}}
            for name, listed in (("odd", [{}]), ("well", [{"name": "elsewhere"}]))
        }
        watch = UnservedNamespaces(
            server,  # type: ignore[arg-type]
            clusters.get,
            served=["ns"],
            closed=[],
            now=lambda: 0.0,
        )
        for key in clusters:
            watch.look_at(key)
        async with working(watch.run()):
            await until(lambda: server.written == ["well"])

    asyncio.run(story())
    told_once(caplog)


def consumer_group(name: str, cluster: str) -> dict[str, Any]:
    spec = {"clusterName": cluster, "refreshSeconds": 3600}
    status = {"lastReset": ODD_RESET} if name == "odd" else {}
    return {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": "ConsumerGroup",
        "metadata": metadata(name),
        "spec": spec,
        "status": status,
    }


@pytest.mark.parametrize("cluster", ["demo", "missing"])
def test_the_status_of_one_consumer_group(cluster: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        store, brokers = FakeStore(), FakeGroups({}, {})
        for name in ("odd", "well"):
            store.put(consumer_group(name, cluster))
        sync = GroupSync(store, store, connect=lambda _: brokers, now=lambda: 0.0)  # type: ignore[arg-type]
        sync._on_cluster(ObjectChange(CLUSTER, None, {"metadata": metadata("demo"), "spec": {}}))
        for key in list(store.objects):
            sync._on_resource(ObjectChange(key, None, await store.get(None, *key)))
        async with working(sync._work_on_strays()), asyncio.TaskGroup() as tasks:
            sync._group = tasks
            sync._route_all()
            await until(lambda: store.objects["ns", "well"]["status"])
            await until(lambda: caplog.records)
            if cluster == "demo":
                queue = sync._clusters[CLUSTER][0].queue
                await until(lambda: queue._due.keys() == {("ns", "odd"), ("ns", "well")})
                # The odd one is read again after its back-off; the other one when it is due.
                assert queue._due["ns", "odd"] < 1.0 < queue._due["ns", "well"]
            sync._end(CLUSTER)

    asyncio.run(story())
    told_once(caplog)


def test_the_users_of_one_cluster(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_of_users, "LOOK_S", 600.0)

    class Odd:
        async def state(self) -> Any:
            reign = SimpleNamespace(controller_epoch=7)
            clusters = {"ns/odd": reign, "ns/well": reign}
            return SimpleNamespace(is_active=True, clusters=clusters)

        async def apply_users(self, _ns: str, name: str, _request: Any) -> dict[str, Any]:
            if name == "odd":
                raise ValueError("an answer that nobody understands")
            return {}

    async def story() -> None:
        sync = UserSync(NOBODY, Odd(), NOBODY)
        for name in ("odd", "well"):
            sync.scope.clusters["ns", name] = {"metadata": metadata(name), "spec": {}}
        async with working(sync._follow_reigns()):
            await until(lambda: sync.scope.epochs == {("ns", "well"): 7})

    asyncio.run(story())
    told_once(caplog)
