"""Passes over the resources of many clusters, so that no cluster waits for another one's.

The controller of a cluster that can make nothing durable answers late, or not at all. What is due
of that cluster waits for its pass, of which there is one at a time; all others go on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from fairlead_operator.topics.topic_resource import ClusterKey, ResourceKey
from fairlead_operator.topics.work_queue import WorkQueue

BATCH_MAX: Final = 100
GATHER_S: Final = 0.02
"""How long a batch collects keys that come together."""


class ClusterPasses:
    """Takes keys from `queue`, and hands them to `reconcile`, each with those of its cluster.

    `cluster_of` tells whose a key is; None for one that is gone. `to_forget` names clusters that
    have something to do without any key: the controller has to hear of what is gone.
    """

    def __init__(
        self,
        queue: WorkQueue[ResourceKey],
        *,
        cluster_of: Callable[[ResourceKey], ClusterKey | None],
        to_forget: Callable[[], Iterable[ClusterKey]],
        reconcile: Callable[[ClusterKey, list[ResourceKey]], Awaitable[None]],
    ) -> None:
        self._queue = queue
        self._cluster_of = cluster_of
        self._to_forget = to_forget
        self._reconcile = reconcile
        self._due: dict[ClusterKey, list[ResourceKey]] = {}
        """What was taken from the queue and waits for its cluster's pass."""
        self._under_way: set[ClusterKey] = set()
        """Clusters that have a pass now."""

    async def run(self) -> None:
        """Work until cancelled; an error of a pass ends it, inside an exception group."""
        async with asyncio.TaskGroup() as passes:
            while True:
                keys = await self._queue.batch(BATCH_MAX, GATHER_S)
                for cluster, due in self._by_cluster(keys).items():
                    self._due.setdefault(cluster, []).extend(due)
                    if cluster not in self._under_way:
                        self._under_way.add(cluster)
                        passes.create_task(self._pass(cluster))

    def _by_cluster(self, keys: Iterable[ResourceKey]) -> dict[ClusterKey, list[ResourceKey]]:
        due: dict[ClusterKey, list[ResourceKey]] = {each: [] for each in self._to_forget()}
        for key in keys:
            cluster = self._cluster_of(key)
            if cluster is None:
                self._queue.finish(key)
            else:
                due.setdefault(cluster, []).append(key)
        return due

    async def _pass(self, cluster: ClusterKey) -> None:
        """Reconcile what is due of a cluster, some at a time, until nothing is."""
        try:
            while (due := self._due.pop(cluster, None)) is not None:
                keys, later = due[:BATCH_MAX], due[BATCH_MAX:]
                if later:
                    self._due[cluster] = later
                try:
                    await self._reconcile(cluster, self._still_of(cluster, keys))
                finally:
                    for key in keys:
                        self._queue.finish(key)
        finally:
            self._under_way.discard(cluster)

    def _still_of(self, cluster: ClusterKey, keys: Iterable[ResourceKey]) -> list[ResourceKey]:
        """Return those that mean a cluster still; one that means another has its turn there."""
        still = []
        for key in keys:
            now = self._cluster_of(key)
            if now == cluster:
                still.append(key)
            elif now is not None:
                self._queue.add(key)
        return still
