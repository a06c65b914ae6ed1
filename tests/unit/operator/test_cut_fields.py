"""Definitions of an earlier release drop status fields; what they drop is not written for ever."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from fake_groups import FakeStore, sight
from prometheus_client import CollectorRegistry

from fairlead_kube.object_changes import ObjectChange
from fairlead_operator.consumer_groups.group_scope import Followed, GroupScope
from fairlead_operator.consumer_groups.group_status import FOLLOWED, build_group_status
from fairlead_operator.consumer_groups.status_writer import GroupStatusWriter
from fairlead_operator.cut_fields import CutFields
from fairlead_operator.live_objects import LiveObjects
from fairlead_operator.rebalances.runner import RebalanceRunner
from fairlead_operator.rebalances.status import RebalanceStatusDraft
from fairlead_operator.stream_jobs.job_status import JobProgress, JobStatus, QueryProgress
from fairlead_operator.stream_jobs.metrics import StreamJobMetrics
from fairlead_operator.stream_jobs.runner import StreamJobRunner
from fairlead_operator.topics.work_queue import WorkQueue
from fairlead_operator.users.reconciler import UserReconciler
from fairlead_operator.users.user_scope import UserScope

KEY = ("ns", "it")
NOW = datetime(2026, 11, 30, tzinfo=UTC)


class OlderStore(FakeStore):
    """Drops one field of statuses."""

    def __init__(self, dropped: str) -> None:
        super().__init__()
        self.dropped = dropped
        self.asked = 0

    async def patch(
        self, _kind: Any, namespace: str, name: str, body: dict[str, Any], subresource: str = ""
    ) -> dict[str, Any]:
        self.asked += 1
        status = {each: value for each, value in body["status"].items() if each != self.dropped}
        body = body | {"status": status}
        return await super().patch(_kind, namespace, name, body, subresource)

    async def write_status(
        self, kind: Any, namespace: str, name: str, status: Any, *, uid: str
    ) -> Any:
        body = {"metadata": {"uid": uid}, "status": status}
        return await self.patch(kind, namespace, name, body, "status")


def manifest(kind: str, uid: str = "u-1") -> dict[str, Any]:
    return {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": kind,
        "metadata": {"namespace": KEY[0], "name": KEY[1], "uid": uid, "generation": 1},
        "spec": {"clusterName": "demo"},
    }


def test_a_stream_job_settles() -> None:
    async def story() -> None:
        store: Any = OlderStore("executors")
        job = store.put(manifest("StreamJob"))
        runner = StreamJobRunner(
            store,
            store,
            clusters=LiveObjects(store, (), lambda _: None),
            operator_namespace="fairlead",
            default_image="image",
            metrics=StreamJobMetrics(CollectorRegistry()),
        )
        runner._jobs._objects[KEY] = job

        async def look(executors: int, lag: int = 0) -> int:
            query = QueryProgress("q", "q", 7, 10, lag)
            status = JobStatus(job)
            status.run_on(
                JobProgress((query,)), driver="d", executors=executors, problem="", now=NOW
            )
            await runner._write(KEY, job, status)
            return int(store.asked)

        assert await look(2) == 1
        assert "executors" not in job["status"]
        assert await look(2) == 1
        assert await look(3) == 2
        # Figures alone are still written now and then, not at each look.
        assert await look(3, lag=5) == 2
        runner._on_job(ObjectChange(KEY, job, None))
        assert await look(3) == 3

    asyncio.run(story())


def test_a_consumer_group_settles() -> None:
    async def story() -> None:
        store: Any = OlderStore("committedPartitions")
        scope = GroupScope()
        scope.take(KEY, store.put(manifest("ConsumerGroup")))
        writer = GroupStatusWriter(store, scope, store)

        async def look(**committed: int) -> int:
            followed: Followed = scope.groups[KEY]
            before = followed.manifest.get("status") or {}
            seen = sight("app", **committed)
            after = build_group_status(
                followed.resource, before, FOLLOWED, NOW, sight=seen, record=None
            )
            await writer.write(followed, after)
            return int(store.asked)

        assert await look(a=3) == 1
        assert "committedPartitions" not in store.objects[KEY]["status"]
        assert await look(a=3) == 1
        assert await look(a=3, b=4) == 2
        assert await look(a=3, b=4) == 2
        assert await look(a=3) == 3, "what was written before is not forgotten with another value"

    asyncio.run(story())


def test_a_rebalance_settles() -> None:
    async def story() -> None:
        store: Any = OlderStore("progress")
        rebalance = store.put(manifest("Rebalance"))
        nobody: Any = SimpleNamespace()
        runner = RebalanceRunner(store, nobody, store)
        runner._rebalances._objects[KEY] = rebalance

        async def look(done: int) -> int:
            draft = RebalanceStatusDraft(rebalance)
            draft.tell("Moving", "moves go on", NOW, progress={"done": done})
            await runner._write(rebalance, draft)
            return int(store.asked)

        assert await look(1) == 1
        assert "progress" not in rebalance["status"]
        assert await look(1) == 1
        assert await look(2) == 2

    asyncio.run(story())


def test_a_user_settles() -> None:
    async def story() -> None:
        store: Any = OlderStore("observedGeneration")
        scope, nobody = UserScope(), SimpleNamespace()
        user = manifest("User") | {"spec": {"clusterName": "gone"}}
        scope.take(KEY, store.put(user))
        answerless: Any = nobody
        reconciler = UserReconciler(
            store,
            answerless,
            scope,
            WorkQueue(lambda: 0.0),
            secrets=answerless,
            events=store,
            wall_clock=lambda: NOW,
        )

        async def look(generation: int) -> int:
            live = store.objects[KEY]
            live["metadata"]["generation"] = generation
            scope.take(KEY, live)
            await reconciler._reconcile((KEY[0], "gone"), [KEY])
            return int(store.asked)

        assert await look(1) == 1
        assert "observedGeneration" not in store.objects[KEY]["status"]
        assert await look(1) == 1
        assert await look(2) == 2
        assert await look(2) == 2
        reconciler.forget(KEY)
        assert await look(2) == 3

    asyncio.run(story())


def test_what_a_server_keeps_is_compared_again() -> None:
    cut = CutFields()
    cut.note(KEY, "u-1", {"a": 1, "b": [2]}, {"b": []})
    assert cut.without_cut(KEY, "u-1", {"a": 1, "b": [2], "c": 3}, {"b": []}) == {"c": 3}
    assert cut.without_cut(KEY, "u-1", {"b": [2]}, {"b": [5]}) == {"b": [2]}, "somebody wrote"
    assert cut.without_cut(KEY, "u-2", {"a": 1}, {}) == {"a": 1}, "another object of this name"
    # The definition is a newer one by now.
    cut.note(KEY, "u-1", {"a": 2, "b": [3]}, {"a": 2, "b": [3]})
    assert not cut._cut
