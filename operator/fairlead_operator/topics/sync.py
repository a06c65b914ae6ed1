"""Topics between the API server and the controller.

There are no kopf handlers here, because kopf writes twice to each object that it handles. An
informer reports resources; their keys wait in queues; the reconciler calls the controller for many
resources at a time. The controller's long poll reports topics, from which statuses are written, and
resources for topics that were made over Kafka. When nothing changes, nothing is written.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from fairlead_kube.client import KubeClient
from fairlead_kube.informer import Informer
from fairlead_kube.kinds import LOG_CLUSTER, TOPIC
from fairlead_kube.object_changes import ObjectChange
from fairlead_model.resources.topic_claims import read_reference
from fairlead_operator.conditions import is_asleep
from fairlead_operator.events import EventWriter
from fairlead_operator.specs.views import is_cluster_paused, is_going
from fairlead_operator.topics.cluster_topics import ClusterTopics, TopicController
from fairlead_operator.topics.kafka_topic_resources import MirrorWriter, TopicPlace
from fairlead_operator.topics.reconciler import TopicReconciler
from fairlead_operator.topics.status_writer import TopicStatusWriter
from fairlead_operator.topics.topic_resource import (
    ClusterKey,
    ResourceKey,
    differs_for_us,
    mirror_name,
)
from fairlead_operator.topics.topic_scope import TopicScope
from fairlead_operator.topics.topic_status import is_off_size
from fairlead_operator.topics.unserved_namespaces import UnservedNamespaces
from fairlead_operator.topics.work_queue import WorkQueue


def _wall_clock() -> datetime:
    return datetime.now(UTC)


def _was_paused(change: ObjectChange) -> bool:
    """Tell whether a LogCluster has just been paused or resumed."""
    before, now = change.old, change.new
    return bool(before and now) and is_cluster_paused(before or {}) != is_cluster_paused(now or {})


def _slept(change: ObjectChange) -> bool:
    """Tell whether a LogCluster has just begun to hibernate, or is awake again."""
    return is_asleep(change.old or {}) != is_asleep(change.new or {})


def _ready_brokers(log_cluster: Mapping[str, Any] | None) -> int:
    status = {} if log_cluster is None else log_cluster.get("status") or {}
    return int(status.get("brokersReady") or 0)


def _rules(log_cluster: Mapping[str, Any] | None) -> Any:
    return None if log_cluster is None else (log_cluster.get("spec") or {}).get("topicNamespaces")


NAMELESS: Final = ""
"""Stands for the cluster of Topics that name none."""


class TopicSync:
    """The synchronization of all Topics; `namespaces` is the watch scope, empty for all.

    `closed` are namespaces that are to be watched too, and do not permit it now: their topics stay.
    `on_health` is called with a cluster when its first topic becomes under-replicated, and when
    none is any more.
    """

    def __init__(
        self,
        client: KubeClient,
        controller: TopicController,
        events: EventWriter,
        *,
        namespaces: Collection[str] = (),
        closed: Collection[str] = (),
        on_health: Callable[[ClusterKey], None] = lambda _: None,
        now: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], datetime] = _wall_clock,
    ) -> None:
        self._on_health = on_health
        self._queue: WorkQueue[ResourceKey] = WorkQueue(now)
        self._statuses: WorkQueue[ResourceKey] = WorkQueue(now)
        self._places: WorkQueue[TopicPlace] = WorkQueue(now)
        self._topics = Informer(
            client,
            TOPIC,
            namespaces=namespaces,
            closed=closed,
            on_change=self._on_topic,
            on_shown=self._notice_orphans,
        )
        self._clusters = Informer(
            client,
            LOG_CLUSTER,
            namespaces=namespaces,
            closed=closed,
            on_change=self._on_cluster,
            on_shown=self._look_at_homeless,
        )
        self.scope = TopicScope(
            controller,
            self._queue,
            is_hidden=self._topics.is_hidden,
            are_clusters_hidden=self._clusters.is_hidden,
        )
        self._reconciler = TopicReconciler(client, self.scope, self._queue, self._statuses, events)
        self.statuses = TopicStatusWriter(
            client, self.scope, events, self._statuses, now=now, wall_clock=wall_clock
        )
        self._mirrors = MirrorWriter(client, self.scope, self._places)
        self._unserved = UnservedNamespaces(
            events, self.scope.clusters.get, served=namespaces, closed=closed, now=now
        )
        self._follows: dict[ClusterKey, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Work until cancelled, or until the controller is no longer active.

        The latter shows as a ControllerStandbyError inside an exception group.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._clusters.run())
            group.create_task(self._topics.run())
            await self._clusters.synced()
            await self._topics.synced()
            self._group = group
            for cluster in list(self.scope.clusters):
                self._follow(cluster)
            group.create_task(self._reconciler.run())
            group.create_task(self.statuses.run())
            group.create_task(self._mirrors.run())
            group.create_task(self._unserved.run())

    def _on_topic(self, change: ObjectChange) -> None:
        is_news = change.old is None or change.new is None or differs_for_us(change.old, change.new)
        known = self.scope.resources.get(change.key)
        concerned = self.scope.take(change.key, change.new)
        self.statuses.seen(change.key)
        if is_news:
            self._queue.add(change.key)
            self._statuses.add(change.key)
        for key in concerned if is_news else ():
            self._queue.add(key)
        for resource in (known, self.scope.resources.get(change.key)):
            if is_news and resource is not None:
                self._places.add(resource.claim)

    def _on_cluster(self, change: ObjectChange) -> None:
        self.scope.set_cluster(change.key, change.new)
        if change.new is None:
            self._unfollow(change.key)
        else:
            self._follow(change.key)
        if _ready_brokers(change.new) > _ready_brokers(change.old):
            self._add_waiting(change.key)
        is_deleting = change.new is None or is_going(change.new)
        has_new_rules = change.old is not None and _rules(change.old) != _rules(change.new)
        is_other = has_new_rules or _was_paused(change) or _slept(change)
        if change.old is None or has_new_rules:
            self._unserved.look_at(change.key)
        if change.old is None or is_deleting or is_other:
            self._add_all(change.key)
            self._add_all((change.key[0], NAMELESS))

    def _follow(self, cluster: ClusterKey) -> None:
        """Follow a cluster's topics at the controller, once all resources are known."""
        if self._group is None or cluster in self._follows:
            return
        view = ClusterTopics(
            cluster,
            self.scope.controller,
            complete_request=self.scope.complete_request,
            on_start=self._add_all,
            on_change=self._on_entries,
            on_health=self._on_health,
        )
        self.scope.views[cluster] = view
        self._follows[cluster] = self._group.create_task(view.run())

    def _unfollow(self, cluster: ClusterKey) -> None:
        task = self._follows.pop(cluster, None)
        if task is not None:
            task.cancel()
        self.scope.views.pop(cluster, None)
        self.scope.gone.pop(cluster, None)

    def _add_all(self, cluster: ClusterKey) -> None:
        for resource in self.scope.claims.of_cluster(cluster):
            self._queue.add(resource.key)
            if resource.is_mirror:
                self._places.add(resource.claim)

    def _add_waiting(self, cluster: ClusterKey) -> None:
        """Have Topics that wait for brokers tried at once, without their back-off."""
        for resource in self.scope.claims.of_cluster(cluster):
            _, _, result = self.scope.results.get(resource.key, ("", 0, {}))
            if result.get("state") == "waiting":
                self._queue.add(resource.key)

    def _on_entries(self, cluster: ClusterKey, names: Iterable[str]) -> None:
        self.scope.forget_counts(cluster)
        for name in names:
            place = (*cluster, name)
            owner = self.scope.claims.owner(place)
            self._notice_orphan(cluster, name)
            mirror = (cluster[0], mirror_name(cluster[1], name))
            if mirror in self.scope.resources:
                self._statuses.add(mirror)
            if owner is None:
                self._places.add(place)
                continue
            self._statuses.add(owner)
            entry = self.scope.entry(cluster, name)
            if entry is None or entry["resource"] != self.scope.resources[owner].reference:
                self._queue.add(owner)
            elif is_off_size(self.scope.resources[owner], entry):
                self._queue.add(owner)  # somebody has cancelled the change of its replicas

    def _look_at_homeless(self) -> None:
        """Check Topics whose clusters do not exist, now that this is known."""
        for key, resource in self.scope.resources.items():
            if resource.cluster_key not in self.scope.clusters:
                self._queue.add(key)

    def _notice_orphans(self) -> None:
        """Release topics that a namespace, which may be read again, no longer declares."""
        for cluster, view in self.scope.views.items():
            for name in view.entries:
                self._notice_orphan(cluster, name)

    def _notice_orphan(self, cluster: ClusterKey, name: str) -> None:
        """Release a topic if the resource that declares it does not exist."""
        orphan = self.scope.find_orphan(cluster, name)
        if orphan:
            self.scope.note_gone(cluster, orphan)
            self._queue.add(read_reference(orphan, cluster_namespace=cluster[0]))
