"""ConsumerGroup resources between the API server and the brokers of their clusters.

There are no kopf handlers here, as for Topics: an informer reports resources, and each cluster with
a ConsumerGroup gets one client and one task. Deleting a resource leaves its group unchanged, so
there is no finalizer.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError, ApiUnavailableError
from fairlead_kube.informer import Informer
from fairlead_kube.kinds import CONSUMER_GROUP, LOG_CLUSTER
from fairlead_kube.object_changes import ObjectChange
from fairlead_operator.consumer_groups.cluster_groups import ClusterGroups
from fairlead_operator.consumer_groups.group_client import GroupClient
from fairlead_operator.consumer_groups.group_resource import (
    ClusterKey,
    GroupResource,
    ResourceKey,
    differs_for_us,
)
from fairlead_operator.consumer_groups.group_scope import Followed, GroupScope
from fairlead_operator.consumer_groups.group_status import Verdict, build_group_status, turned_bad
from fairlead_operator.consumer_groups.renewed_client import RenewedClient, connect_inside
from fairlead_operator.consumer_groups.reset_record import read_reset_record
from fairlead_operator.consumer_groups.status_writer import GroupStatusWriter
from fairlead_operator.events import EventWriter
from fairlead_operator.specs.views import is_cluster_paused, is_going
from fairlead_operator.topics.work_queue import UNEXPECTED_DELAY_S, WorkQueue

logger = logging.getLogger(__name__)
STRAYS_AT_A_TIME: Final = 20


def _wall_clock() -> datetime:
    return datetime.now(UTC)


class GroupSync:
    """Made in a running loop; `namespace` is the watch scope, empty for all."""

    def __init__(
        self,
        client: KubeClient,
        events: EventWriter,
        *,
        namespaces: Collection[str] = (),
        connect: Callable[[ClusterKey], GroupClient] | None = None,
        now: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], datetime] = _wall_clock,
    ) -> None:
        self.scope = GroupScope()
        self.statuses = GroupStatusWriter(client, self.scope, events)
        self.looks = {"ok": 0, "failed": 0}
        """Finished reads of clusters, by result."""
        self._client = client
        self._connect = connect or self._connect_inside
        self._now = now
        self._wall_clock = wall_clock
        self._strays: WorkQueue[ResourceKey] = WorkQueue(now)
        self._clusters: dict[ClusterKey, tuple[ClusterGroups, asyncio.Task[None]]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._log_clusters = Informer(
            client, LOG_CLUSTER, namespaces=namespaces, on_change=self._on_cluster
        )
        self._resources = Informer(
            client, CONSUMER_GROUP, namespaces=namespaces, on_change=self._on_resource
        )

    async def run(self) -> None:
        """Work until cancelled; every client is closed then."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._log_clusters.run())
            group.create_task(self._resources.run())
            await self._log_clusters.synced()
            await self._resources.synced()
            self._group = group
            self._route_all()
            group.create_task(self._work_on_strays())

    def _connect_inside(self, cluster: ClusterKey) -> GroupClient:
        return RenewedClient(
            lambda: connect_inside(self._client, cluster[0], self.scope.clusters[cluster])
        )

    def _on_resource(self, change: ObjectChange) -> None:
        known = self.scope.groups.get(change.key)
        before = None if known is None else self.scope.cluster_of(known.resource)
        uid = None if change.new is None else change.new["metadata"].get("uid")
        if known is not None and known.resource.uid != uid:
            self.scope.take(change.key, None)
        if change.new is None:
            self.statuses.forget(change.key)
        self.scope.take(change.key, change.new)
        if change.old is None or change.new is None or differs_for_us(change.old, change.new):
            self._route(change.key)
        if before is not None and not self.scope.of_cluster(before):
            self._end(before)

    def _on_cluster(self, change: ObjectChange) -> None:
        is_there = change.new is not None and not is_going(change.new)
        was_there = change.key in self.scope.clusters
        if change.new is not None and is_there:
            self.scope.clusters[change.key] = change.new
        else:
            self.scope.clusters.pop(change.key, None)
            self._end(change.key)
        has_more = _ready_brokers(change.new) > _ready_brokers(change.old)
        goes_on = is_cluster_paused(change.old or {}) and not is_cluster_paused(change.new or {})
        if is_there != was_there or has_more or goes_on:
            self._route_all(change.key[0])

    def _route_all(self, namespace: str | None = None) -> None:
        for key in list(self.scope.groups):
            if namespace is None or key[0] == namespace:
                self._route(key)

    def _route(self, key: ResourceKey) -> None:
        """Pass a resource to the task of its cluster."""
        followed = self.scope.groups.get(key)
        if self._group is None or followed is None or not followed.resource.is_ours:
            return
        cluster = self.scope.cluster_of(followed.resource)
        if cluster is None or not followed.resource.cluster:
            self._strays.add(key)
            return
        if cluster not in self._clusters:
            groups = ClusterGroups(
                cluster,
                lambda: self._connect(cluster),
                self.scope,
                self.statuses,
                looks=self.looks,
                now=self._now,
                wall_clock=self._wall_clock,
            )
            task = self._group.create_task(groups.run())
            self._clusters[cluster] = groups, task
        self._clusters[cluster][0].queue.add(key)

    def _end(self, cluster: ClusterKey) -> None:
        """End the task of a cluster that was deleted, or has no followed group any more."""
        _, task = self._clusters.pop(cluster, (None, None))
        if task is not None:
            task.cancel()

    async def _work_on_strays(self) -> None:
        """Write the cluster into resources that name none; report to the others if none exists."""
        while True:
            for key in await self._strays.batch(STRAYS_AT_A_TIME):
                try:
                    followed = self.scope.groups.get(key)
                    if followed is not None and followed.resource.is_ours:
                        await self._attend_stray(followed)
                    self._strays.succeeded(key)
                except (ApiError, ApiUnavailableError) as error:
                    if not (isinstance(error, ApiError) and error.is_not_found):
                        logger.debug("ConsumerGroup %s/%s: %s", *key, error)
                        self._strays.retry(key)
                except Exception:
                    # The error concerns only this ConsumerGroup: the others go on.
                    logger.exception("ConsumerGroup %s/%s: an unexpected error", *key)
                    self._strays.retry(key, backoff_s_max=UNEXPECTED_DELAY_S)
                finally:
                    self._strays.finish(key)

    async def _attend_stray(self, followed: Followed) -> None:
        resource = followed.resource
        cluster = self.scope.cluster_of(resource)
        if cluster is not None:
            if not resource.cluster:
                patch = {"spec": {"clusterName": cluster[1]}}
                await self._client.patch(CONSUMER_GROUP, *resource.key, patch)
            return
        ready = _no_cluster(resource)
        status = followed.manifest.get("status") or {}
        after = build_group_status(
            resource,
            status,
            ready,
            self._wall_clock(),
            sight=None,
            record=read_reset_record(status),
            is_paused=self.scope.is_paused(resource),
        )
        written = await self.statuses.write(followed, after)
        if turned_bad(status, ready):
            await self.statuses.warn(written, ready.reason, ready.message)


def _no_cluster(resource: GroupResource) -> Verdict:
    if resource.cluster:
        text = (
            f"spec.clusterName: LogCluster {resource.namespace}/{resource.cluster} does not exist"
        )
    else:
        text = (
            f"spec.clusterName: name one of the LogClusters in namespace {resource.namespace}; it "
            "may be left out only where there is exactly one"
        )
    return Verdict(False, "ClusterNotFound", text)


def _ready_brokers(log_cluster: Mapping[str, Any] | None) -> int:
    status = {} if log_cluster is None else log_cluster.get("status") or {}
    return int(status.get("brokersReady") or 0)
