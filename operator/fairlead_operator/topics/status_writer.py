"""Writes the statuses of Topics: only changes, and each object at most once a second."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Final

from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError, ApiUnavailableError
from fairlead_kube.kinds import TOPIC
from fairlead_operator.events import EventWriter
from fairlead_operator.topics.plan import ClusterPresence
from fairlead_operator.topics.topic_resource import ResourceKey, TopicResource
from fairlead_operator.topics.topic_scope import TopicScope
from fairlead_operator.topics.topic_status import (
    CLUSTER_HIDDEN,
    Verdict,
    build_hidden_status,
    build_status_patch,
    build_topic_status,
    hidden_message,
    judge,
    protection_message,
    turned_bad,
)
from fairlead_operator.topics.work_queue import UNEXPECTED_DELAY_S, WorkQueue

logger = logging.getLogger(__name__)

WRITERS: Final = 16
"""Statuses written at a time."""
WRITE_INTERVAL_S: Final = 1.0
PLACING_AFTER_S: Final = 3.0
"""A new Topic that the controller does not mention for so long gets a status nevertheless."""
_PLACING: Final[Verdict] = (
    False,
    "Placing",
    "the controller has not answered yet: it may be taking over the cluster, or wait for its store",
)


class TopicStatusWriter:
    """Takes keys from its queue with several workers."""

    def __init__(
        self,
        client: KubeClient,
        scope: TopicScope,
        events: EventWriter,
        queue: WorkQueue[ResourceKey],
        *,
        now: Callable[[], float],
        wall_clock: Callable[[], datetime],
    ) -> None:
        self.written = 0
        """Statuses written, for metrics."""
        self._client = client
        self._scope = scope
        self._events = events
        self._queue = queue
        self._now = now
        self._wall_clock = wall_clock
        self._written_at: dict[ResourceKey, float] = {}
        self._silent_since: dict[ResourceKey, float] = {}
        self._statuses: dict[ResourceKey, tuple[str, Mapping[str, Any]]] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(self._work())

    def seen(self, key: ResourceKey) -> None:
        """Note that the API server has reported an object: it may have a status that we wrote."""
        if key not in self._scope.manifests:
            self._written_at.pop(key, None)
            self._silent_since.pop(key, None)
        self._statuses.pop(key, None)

    async def _work(self) -> None:
        while True:
            for key in await self._queue.batch(1):
                try:
                    await self._consider(key)
                except (ApiError, ApiUnavailableError) as error:
                    is_gone = isinstance(error, ApiError) and error.is_not_found
                    if not (is_gone or (isinstance(error, ApiError) and error.is_conflict)):
                        logger.warning("the status of Topic %s/%s: %s", *key, error)
                    if not is_gone:
                        self._queue.retry(key)
                except Exception:
                    # The error concerns only this Topic: the others go on.
                    logger.exception("the status of Topic %s/%s: an unexpected error", *key)
                    self._queue.retry(key, backoff_s_max=UNEXPECTED_DELAY_S)
                finally:
                    self._queue.finish(key)

    async def _consider(self, key: ResourceKey) -> None:
        resource = self._scope.resources.get(key)
        if resource is None or not self._is_ours(resource):
            return
        manifest = self._scope.manifests[key]
        uid, known = self._statuses.get(key, ("", {}))
        before = known if uid == resource.uid else manifest.get("status") or {}
        if self._scope.is_unknown(resource.cluster_key):
            after = build_hidden_status(resource, before, self._wall_clock())
            message = hidden_message(resource)
            await self._write(
                resource,
                before,
                after,
                lambda: self._events.emit(manifest, CLUSTER_HIDDEN, message, "Warning"),
            )
            return
        verdict, entry = self._judge(resource)
        if verdict is None and not manifest.get("status"):
            verdict = self._silence(key)
        if verdict is None:
            return
        ready = verdict
        after = build_topic_status(
            resource,
            before,
            ready,
            entry,
            self._wall_clock(),
            is_paused=self._scope.is_paused(resource),
        )
        await self._write(
            resource, before, after, lambda: self._tell(resource, manifest, before, ready)
        )

    async def _write(
        self,
        resource: TopicResource,
        before: Mapping[str, Any],
        after: Mapping[str, Any],
        tell: Callable[[], Awaitable[None]],
    ) -> None:
        """Write a status that differs from the present one, and report the change."""
        key = resource.key
        if not build_status_patch(before, after):
            self._queue.succeeded(key)
            return
        wait_s = self._written_at.get(key, -WRITE_INTERVAL_S) + WRITE_INTERVAL_S - self._now()
        if wait_s > 0:
            self._queue.add(key, wait_s)
            return
        self._written_at[key] = self._now()
        await self._client.write_status(TOPIC, *key, dict(after), uid=resource.uid)
        self.written += 1
        self._statuses[key] = (resource.uid, after)
        self._queue.succeeded(key)
        await tell()

    def _silence(self, key: ResourceKey) -> Verdict | None:
        """Return the verdict on a new Topic that the controller does not mention: none at first."""
        since = self._silent_since.setdefault(key, self._now())
        wait_s = since + PLACING_AFTER_S - self._now()
        if wait_s > 0:
            self._queue.add(key, wait_s)
            return None
        return _PLACING

    def _is_ours(self, resource: TopicResource) -> bool:
        if resource.is_deleting:
            is_here = self._scope.presence(resource.cluster_key) is ClusterPresence.PRESENT
            may_be_here = is_here or self._scope.is_unknown(resource.cluster_key)
            return may_be_here and resource.is_protected and resource.has_finalizer
        return resource.is_managed

    def _judge(self, resource: TopicResource) -> tuple[Verdict | None, Mapping[str, Any] | None]:
        uid, generation, result = self._scope.results.get(resource.key, ("", 0, None))
        if (uid, generation) != (resource.uid, resource.generation):
            result = None
        entry = self._scope.entry(resource.cluster_key, resource.topic_name)
        if entry is not None and (entry["resource"] or "") != resource.reference:
            if not resource.is_mirror:
                entry = None  # the topic is not this resource's, or no longer
            elif entry["resource"]:
                entry = None
        presence = self._scope.presence(resource.cluster_key)
        owner = self._scope.owner(resource)
        verdict = judge(
            resource,
            cluster=presence,
            owner=owner,
            result=result,
            entry=entry,
            refusal=self._scope.refusal(resource),
            is_paused=self._scope.is_paused(resource),
            is_asleep=self._scope.is_asleep(resource),
            knows_topics=self._scope.is_started(resource.cluster_key),
        )
        return verdict, entry if presence is ClusterPresence.PRESENT else None

    async def _tell(
        self,
        resource: TopicResource,
        manifest: Mapping[str, Any],
        before: Mapping[str, Any],
        verdict: Verdict,
    ) -> None:
        if resource.is_deleting:
            message = protection_message(resource)
            await self._events.emit(manifest, "DeletionProtected", message, "Warning")
        elif verdict is not _PLACING and turned_bad(before, verdict):
            await self._events.emit(manifest, verdict[1], verdict[2], "Warning")
