"""Users of many clusters: one whose controller does not answer holds up no other."""

import asyncio
import time
from datetime import UTC, datetime
from functools import partial
from typing import Any

from waiting import until

from fairlead_operator.controller_client import CandidateState, ReignState
from fairlead_operator.topics.topic_resource import ClusterKey, ResourceKey
from fairlead_operator.topics.work_queue import WorkQueue
from fairlead_operator.users.reconciler import UserReconciler
from fairlead_operator.users.sync import UserSync
from fairlead_operator.users.user_scope import UserScope

STUCK, WELL = ("ns", "stuck"), ("ns", "well")


class OneStuck:
    """A controller that answers nothing for one cluster until it is let go."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.forgotten: list[tuple[ClusterKey, list[str]]] = []

    async def apply_users(
        self, namespace: str, cluster: str, request: dict[str, Any]
    ) -> dict[str, Any]:
        self.forgotten.append(((namespace, cluster), request["forget"]))
        if (namespace, cluster) == STUCK:
            await self.released.wait()
        return {name: {"state": "ok", "reason": "Forgotten"} for name in request["forget"]}


def test_a_cluster_that_makes_nothing_durable_holds_up_no_other() -> None:
    async def story() -> None:
        controller, scope = OneStuck(), UserScope()
        queue: WorkQueue[ResourceKey] = WorkQueue(time.monotonic)
        nobody: Any = None
        reconciler = UserReconciler(
            nobody,
            controller,
            scope,
            queue,
            secrets=nobody,
            events=nobody,
            wall_clock=lambda: datetime.now(UTC),
        )
        for cluster in (STUCK, WELL):
            scope.clusters[cluster] = {"metadata": {"name": cluster[1]}, "spec": {}}
            scope.epochs[cluster] = 1

        def delete(name: str, cluster: ClusterKey) -> None:
            metadata = {"name": name, "namespace": "ns", "uid": name}
            scope.take(("ns", name), {"metadata": metadata, "spec": {"clusterName": cluster[1]}})
            scope.take(("ns", name), None)
            queue.add(("ns", name))

        working = asyncio.create_task(reconciler.run())
        try:
            delete("a", STUCK)
            await until(lambda: (STUCK, ["a"]) in controller.forgotten)
            for name in ("b", "c"):
                delete(name, WELL)
                await until(partial(controller.forgotten.__contains__, (WELL, [name])))
            delete("d", STUCK)
            controller.released.set()
            await until(lambda: not scope.gone)
            assert controller.forgotten.count((STUCK, ["a"])) == 1
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    asyncio.run(story())


def test_a_reign_of_one_cluster_is_told_while_that_of_another_does_not_answer() -> None:
    class Reigning(OneStuck):
        async def state(self) -> CandidateState:
            reign = ReignState(controller_epoch=7, store_available=True)
            return CandidateState("active", "a", {"ns/stuck": reign, "ns/well": reign})

        async def apply_users(
            self, namespace: str, cluster: str, request: dict[str, Any]
        ) -> dict[str, Any]:
            return await super().apply_users(namespace, cluster, request | {"forget": []})

    async def story() -> None:
        nobody: Any = None
        sync = UserSync(nobody, Reigning(), nobody)
        for cluster in (STUCK, WELL):
            sync.scope.clusters[cluster] = {"metadata": {"name": cluster[1]}, "spec": {}}
        following = asyncio.create_task(sync._follow_reigns())
        try:
            await until(lambda: sync.scope.epochs == {WELL: 7})
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    asyncio.run(story())
