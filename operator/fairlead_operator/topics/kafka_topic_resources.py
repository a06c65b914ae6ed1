"""Keeps the resources that show topics made over Kafka in line with those topics."""

import asyncio
import logging
from typing import Final

from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError, ApiUnavailableError
from fairlead_kube.kinds import TOPIC
from fairlead_operator.topics.kafka_origin import build_mirror, build_mirror_patch, is_shown
from fairlead_operator.topics.plan import ClusterPresence
from fairlead_operator.topics.topic_resource import TopicResource, mirror_name
from fairlead_operator.topics.topic_scope import TopicScope
from fairlead_operator.topics.work_queue import UNEXPECTED_DELAY_S, WorkQueue

logger = logging.getLogger(__name__)

MIRROR_WRITERS: Final = 4
UNPROCESSABLE: Final = 422

TopicPlace = tuple[str, str, str]
"""Namespace, cluster, topic's name."""


class MirrorWriter:
    """Takes topics from its queue."""

    def __init__(self, client: KubeClient, scope: TopicScope, queue: WorkQueue[TopicPlace]) -> None:
        self._client = client
        self._scope = scope
        self._queue = queue

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(MIRROR_WRITERS):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            for place in await self._queue.batch(1):
                try:
                    await self._mirror(place)
                    self._queue.succeeded(place)
                except (ApiError, ApiUnavailableError) as error:
                    if isinstance(error, ApiError) and (error.is_conflict or error.is_not_found):
                        # The informer is behind, or the namespace is being deleted: try again.
                        logger.debug("the Topic that shows %s: %s", place, error)
                    else:
                        logger.warning("the Topic that shows %s: %s", place, error)
                    self._queue.retry(place)
                except Exception:
                    # The error concerns only this topic: the others go on.
                    logger.exception("the Topic that shows %s: an unexpected error", place)
                    self._queue.retry(place, backoff_s_max=UNEXPECTED_DELAY_S)
                finally:
                    self._queue.finish(place)

    async def _mirror(self, place: TopicPlace) -> None:
        namespace, cluster, topic_name = place
        where = (namespace, cluster)
        is_present = self._scope.presence(where) is ClusterPresence.PRESENT
        if not is_present or not self._scope.is_started(where):
            return
        name = mirror_name(cluster, topic_name)
        resource = self._scope.resources.get((namespace, name))
        if resource is not None and not (resource.is_mirror and resource.is_managed):
            return
        entry = self._scope.entry(where, topic_name)
        is_claimed = self._scope.claims.owner(place) is not None
        if entry is None or not is_shown(entry, is_claimed=is_claimed):
            if resource is not None and not resource.is_deleting:
                await self._remove(resource)
            return
        if resource is None:
            await self._client.create(TOPIC, namespace, build_mirror(where, entry))
            return
        if resource.is_deleting:
            return
        patch = build_mirror_patch(self._scope.manifests[resource.key], entry)
        if not patch:
            return
        try:
            await self._client.patch(TOPIC, namespace, name, patch)
        except ApiError as error:
            if error.status != UNPROCESSABLE:
                raise
            # Its topic was created again with fewer partitions, or somebody added to the resource.
            await self._remove(resource)

    async def _remove(self, resource: TopicResource) -> None:
        """Delete the resource that shows a topic unless protected, never a topic of its name.

        The resource's policy is for people who delete it. This deletion is different: the topic has
        been created again since, or another resource declares it.
        """
        if resource.is_protected:
            return  # an admission policy would refuse it again and again
        if resource.reclaim_policy == "Delete":
            patch = {"metadata": {"uid": resource.uid}, "spec": {"reclaimPolicy": "Retain"}}
            await self._client.patch(TOPIC, *resource.key, patch)
        await self._client.delete(TOPIC, *resource.key, uid=resource.uid)
