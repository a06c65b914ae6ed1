"""Topics of many clusters: each cluster's pass is its own, and one has no two at a time."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import until

from fairlead_operator.controller_client import ControllerStandbyError
from fairlead_operator.topics.cluster_passes import BATCH_MAX
from fairlead_operator.topics.reconciler import TopicReconciler
from fairlead_operator.topics.topic_resource import ClusterKey, ResourceKey
from fairlead_operator.topics.topic_scope import TopicScope
from fairlead_operator.topics.work_queue import WorkQueue

STUCK, WELL = ("ns", "stuck"), ("ns", "well")


class OneStuck:
    """A controller that answers nothing for one cluster until it is let go."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.calls: list[tuple[ClusterKey, list[str]]] = []
        self.forgotten: list[str] = []
        self.at_once = 0

    async def apply_topics(
        self, namespace: str, cluster: str, request: dict[str, Any]
    ) -> dict[str, Any]:
        names = [each["reference"] for each in request["apply"]]
        self.calls.append(((namespace, cluster), names))
        self.forgotten += [each["resource"] for each in request["forget"]]
        if (namespace, cluster) == STUCK:
            self.at_once += 1
            assert self.at_once == 1, "a cluster's calls follow one another"
            await self.released.wait()
            self.at_once -= 1
        return {name: {"state": "ok", "reason": "Applied", "message": ""} for name in names}

    def applied(self, cluster: ClusterKey) -> list[str]:
        return [name for place, names in self.calls if place == cluster for name in names]


class World:
    """A reconciler of the Topics of both clusters."""

    def __init__(self) -> None:
        self.controller = OneStuck()
        self.queue: WorkQueue[ResourceKey] = WorkQueue(time.monotonic)
        self.scope = TopicScope(self.controller, self.queue)  # type: ignore[arg-type]
        for cluster in (STUCK, WELL):
            self.scope.set_cluster(cluster, {"metadata": {"name": cluster[1]}, "spec": {}})
            self.scope.views[cluster] = SimpleNamespace(is_started=True, entries={})  # type: ignore[assignment]
        nobody: Any = None
        statuses: WorkQueue[ResourceKey] = WorkQueue(time.monotonic)
        self.reconciler = TopicReconciler(nobody, self.scope, self.queue, statuses, nobody)

    def change(self, name: str, cluster: ClusterKey, generation: int = 1) -> None:
        metadata = {"name": name, "namespace": "ns", "uid": name, "generation": generation}
        key = ("ns", name)
        self.scope.take(key, {"metadata": metadata, "spec": {"clusterName": cluster[1]}})
        self.queue.add(key)

    def delete(self, name: str) -> None:
        self.scope.take(("ns", name), None)
        self.queue.add(("ns", name))


def test_a_cluster_that_makes_nothing_durable_holds_up_no_other() -> None:
    async def story() -> None:
        world = World()
        working = asyncio.create_task(world.reconciler.run())
        try:
            world.change("a", STUCK)
            await until(lambda: world.controller.applied(STUCK) == ["a"])
            for number in range(3 * BATCH_MAX):
                world.change(f"s{number}", STUCK)
            world.change("b", WELL)
            await until(lambda: world.controller.applied(WELL) == ["b"])
            world.change("b", WELL, generation=2)
            await until(lambda: world.controller.applied(WELL) == ["b", "b"])
            assert world.controller.applied(STUCK) == ["a"]
            world.change("a", STUCK, generation=2)
            world.delete("s0")
            world.change("s1", WELL)  # It names the other cluster by the time that it is its turn.
            world.controller.released.set()
            await until(lambda: world.controller.applied(STUCK).count("a") == 2)
            await until(lambda: set(world.controller.forgotten) == {"s0", "s1"})
            await until(lambda: len(world.controller.applied(STUCK)) == 3 * BATCH_MAX)
            assert "s1" in world.controller.applied(WELL)
            assert all(len(names) <= BATCH_MAX for _, names in world.controller.calls)
            assert not world.scope.gone
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    asyncio.run(story())


def test_a_reign_that_is_over_ends_the_passes_of_all_clusters() -> None:
    async def story() -> None:
        world = World()

        async def standby(*_: Any) -> dict[str, Any]:
            raise ControllerStandbyError("not active")

        world.change("a", STUCK)
        working = asyncio.create_task(world.reconciler.run())
        await until(lambda: bool(world.controller.calls))
        world.controller.apply_topics = standby  # type: ignore[method-assign, assignment]
        world.change("b", WELL)
        with pytest.raises(ExceptionGroup) as raised:
            async with asyncio.timeout(60):
                await working
        assert raised.group_contains(ControllerStandbyError)

    asyncio.run(story())
