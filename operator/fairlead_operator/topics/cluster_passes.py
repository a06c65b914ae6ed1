"""Passes over the resources of many clusters, so that no cluster waits for another cluster's.

A controller that cannot make a cluster's changes durable answers late, or not at all. The due keys
of that cluster wait for its pass, of which there is one at a time; all other clusters go on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from fairlead_operator.controller_client import ControllerStandbyError
from fairlead_operator.topics.topic_resource import ClusterKey, ResourceKey
from fairlead_operator.topics.work_queue import UNEXPECTED_DELAY_S, WorkQueue

logger = logging.getLogger(__name__)

BATCH_MAX: Final = 100
GATHER_S: Final = 0.02
"""How long a batch collects keys that come together."""


class ClusterPasses:
    """Takes keys from `queue`, and passes them to `reconcile`, grouped by cluster.

    `cluster_of` returns the cluster of a key; None for a deleted resource. `to_forget` names
    clusters that have work without any key: their controllers have to be told of deleted resources.
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
        """Keys that were taken from the queue and wait for their cluster's pass."""
        self._under_way: set[ClusterKey] = set()
        """Clusters with a pass under way."""

    async def run(self) -> None:
        """Work until cancelled; a ControllerStandbyError, inside an exception group, ends it."""
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
        """Reconcile the due keys of a cluster, some at a time, until none is left."""
        try:
            while (due := self._due.pop(cluster, None)) is not None:
                keys, later = due[:BATCH_MAX], due[BATCH_MAX:]
                if later:
                    self._due[cluster] = later
                try:
                    await self._attempt(cluster, keys)
                finally:
                    for key in keys:
                        self._queue.finish(key)
        finally:
            self._under_way.discard(cluster)

    async def _attempt(self, cluster: ClusterKey, keys: list[ResourceKey]) -> None:
        """Reconcile keys together; after an unexpected error each alone, so that it hurts one."""
        try:
            await self._reconcile(cluster, self._still_of(cluster, keys))
        except ControllerStandbyError:
            raise
        except Exception:
            if len(keys) > 1:
                for key in keys:
                    await self._attempt(cluster, [key])
                return
            what = "/".join(keys[0]) if keys else "deleted resources"
            logger.exception(
                "%s of LogCluster %s/%s: trying again after an unexpected error", what, *cluster
            )
            for key in keys:
                self._queue.add(key, UNEXPECTED_DELAY_S)

    def _still_of(self, cluster: ClusterKey, keys: Iterable[ResourceKey]) -> list[ResourceKey]:
        """Return the keys that still name this cluster; the others get their turn at their own."""
        still = []
        for key in keys:
            now = self._cluster_of(key)
            if now == cluster:
                still.append(key)
            elif now is not None:
                self._queue.add(key)
        return still
