"""Carries out plans for batches of Topic resources, separately for each cluster."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError, ApiUnavailableError
from fairlead_kube.kinds import TOPIC
from fairlead_operator.controller_client import ControllerRefusedError, ControllerUnavailableError
from fairlead_operator.events import EventWriter
from fairlead_operator.topics.cluster_passes import ClusterPasses
from fairlead_operator.topics.plan import Plan, plan_topic
from fairlead_operator.topics.topic_resource import (
    FINALIZER,
    ClusterKey,
    ResourceKey,
    TopicResource,
    build_request_manifest,
)
from fairlead_operator.topics.topic_scope import TopicScope
from fairlead_operator.topics.work_queue import WorkQueue

logger = logging.getLogger(__name__)

WRITES_IN_FLIGHT_MAX: Final = 16
ARRIVALS_LOOK_S: Final = 0.5
"""How often to check whether brokers of a starting cluster have registered; that takes seconds."""


@dataclass(slots=True)
class _Request:
    """One request to the controller that is being built."""

    apply: list[TopicResource] = field(default_factory=list)
    forget: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    deleting: list[TopicResource] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Farewell:
    """What is reported of a resource that releases its topic."""

    manifest: dict[str, Any]
    message: str


class TopicReconciler:
    """Takes keys from `queue`; passes those with a new result to `statuses`."""

    def __init__(
        self,
        client: KubeClient,
        scope: TopicScope,
        queue: WorkQueue[ResourceKey],
        statuses: WorkQueue[ResourceKey],
        events: EventWriter,
    ) -> None:
        self._client = client
        self._events = events
        self._scope = scope
        self._queue = queue
        self._statuses = statuses
        self._writes = asyncio.Semaphore(WRITES_IN_FLIGHT_MAX)
        self._let_go: dict[ResourceKey, str] = {}
        """Uids of resources that the controller has forgotten, until they are deleted. By its name,
        a topic that was created again meanwhile could otherwise be deleted."""

    async def run(self) -> None:
        """Work until cancelled; a ControllerStandbyError, inside exception groups, ends it."""
        passes = ClusterPasses(
            self._queue,
            cluster_of=self._cluster_of,
            to_forget=lambda: [each for each in self._scope.gone if self._scope.is_started(each)],
            reconcile=self._reconcile,
        )
        await passes.run()

    def _cluster_of(self, key: ResourceKey) -> ClusterKey | None:
        resource = self._scope.resources.get(key)
        if resource is None:
            self._let_go.pop(key, None)
            return None
        return resource.cluster_key

    async def _reconcile(self, cluster: ClusterKey, keys: Iterable[ResourceKey]) -> None:
        request = _Request()
        writes: list[tuple[TopicResource, bool]] = []
        nameless: list[TopicResource] = []
        names = self._scope.gone.get(cluster, ())
        if names and self._scope.is_started(cluster):
            request.forget = {name: {"resource": name, "deleteTopic": False} for name in names}
        for key in keys:
            resource = self._scope.resources[key]
            if self._scope.may_act(resource):
                if self._plan(resource).names_cluster:
                    nameless.append(resource)
                else:
                    self._add(request, writes, resource)
        farewells = self._farewells(resource for resource, is_wanted in writes if not is_wanted)
        await asyncio.gather(*(self._name_cluster(resource) for resource in nameless))
        written = await asyncio.gather(*(self._set_finalizer(*write) for write in writes))
        held_up = {
            resource.key
            for (resource, is_wanted), is_done in zip(writes, written, strict=True)
            if is_wanted and not is_done
        }
        for (resource, is_wanted), is_done in zip(writes, written, strict=True):
            if is_done and not is_wanted:
                await self._tell(farewells.get(resource.key))
        await self._call(cluster, request, held_up)

    def _add(
        self,
        request: _Request,
        writes: list[tuple[TopicResource, bool]],
        resource: TopicResource,
    ) -> None:
        plan = self._plan(resource)
        if resource.is_deleting and self._let_go.get(resource.key) == resource.uid:
            plan = replace(plan, forget=None)
        if plan.adds_finalizer:
            writes.append((resource, True))
        if plan.drops_finalizer and plan.forget is None:
            writes.append((resource, False))
        if plan.forget is not None:
            request.forget[resource.reference] = plan.forget
            request.deleting.append(resource)
        if plan.forget_holder:
            forget = {"resource": plan.forget_holder, "deleteTopic": False}
            request.forget.setdefault(plan.forget_holder, forget)
        if plan.is_applied:
            request.apply.append(resource)
        if plan.has_status and not plan.is_applied:
            self._statuses.add(resource.key)

    def _plan(self, resource: TopicResource) -> Plan:
        return plan_topic(
            resource,
            cluster=self._scope.presence(resource.cluster_key),
            owner=self._scope.owner(resource),
            holder=self._scope.unentitled_holder(resource),
            only_cluster=self._scope.only_cluster(resource),
            refusal=self._scope.refusal(resource),
            is_holder=self._scope.is_holder(resource),
            is_paused=self._scope.is_paused(resource),
        )

    async def _call(
        self, cluster: ClusterKey, request: _Request, held_up: set[ResourceKey]
    ) -> None:
        apply = [resource for resource in request.apply if resource.key not in held_up]
        body = {
            "apply": [
                build_request_manifest(
                    resource,
                    self._scope.manifests[resource.key],
                    may_adopt=self._scope.may_adopt(resource),
                )
                for resource in apply
                if resource.key in self._scope.manifests
            ],
            "forget": list(request.forget.values()),
            "isComplete": False,
        }
        if not body["apply"] and not body["forget"]:
            return
        farewells = self._farewells(request.deleting)
        try:
            results = await self._scope.controller.apply_topics(*cluster, body)
        except (ControllerUnavailableError, ControllerRefusedError) as error:
            logger.info("Topics of %s/%s: %s; asking again", *cluster, error)
            for resource in [*apply, *request.deleting]:
                self._queue.retry(resource.key)
            self._scope.retry_gone(cluster)
            return
        self._scope.gone_told(cluster, request.forget.keys())
        for resource in apply:
            self._take_result(resource, results.get(resource.reference))
        dropped = [
            resource
            for resource in request.deleting
            if (results.get(resource.reference) or {}).get("state") == "ok"
        ]
        self._let_go |= {each.key: each.uid for each in dropped if each.is_deleting}
        await asyncio.gather(*(self._set_finalizer(resource, False) for resource in dropped))
        for resource in dropped:
            await self._tell(farewells.get(resource.key))

    def _farewells(self, resources: Iterable[TopicResource]) -> dict[ResourceKey, _Farewell]:
        """Return what is to be reported of resources once released, while they still exist."""
        return {
            each.key: _Farewell(manifest, message)
            for each in resources
            if (message := self._scope.farewell(each))
            and (manifest := self._scope.manifests.get(each.key)) is not None
        }

    async def _tell(self, farewell: _Farewell | None) -> None:
        """Report that a topic stays: nobody would notice once its resource is deleted."""
        if farewell is None:
            return
        metadata = farewell.manifest["metadata"]
        logger.warning("Topic %s/%s: %s", metadata["namespace"], metadata["name"], farewell.message)
        await self._events.emit(farewell.manifest, "TopicRetained", farewell.message, "Warning")

    def _take_result(self, resource: TopicResource, result: Mapping[str, Any] | None) -> None:
        if result is None:
            return
        if result["reason"] == "WaitingForBrokers":
            self._queue.retry(resource.key, backoff_s_max=ARRIVALS_LOOK_S)
        elif result["state"] == "waiting":
            self._queue.retry(resource.key)
        elif result["reason"] == "Conflict":
            self._queue.retry(resource.key)  # another declaration that is about to be forgotten
        else:
            self._queue.succeeded(resource.key)
        self._scope.results[resource.key] = (resource.uid, resource.generation, result)
        self._statuses.add(resource.key)

    async def _name_cluster(self, resource: TopicResource) -> None:
        """Write the namespace's only cluster into a resource that names none."""
        patch = {"spec": {"clusterName": self._scope.only_cluster(resource)}}
        await self._patch(resource, patch, "its cluster")

    async def _set_finalizer(self, resource: TopicResource, is_wanted: bool) -> bool:
        """Add or remove our finalizer on the version that was read; tell whether that succeeded."""
        manifest = self._scope.manifests.get(resource.key)
        if manifest is None or manifest["metadata"].get("uid") != resource.uid:
            return True
        metadata = manifest["metadata"]
        others = [each for each in metadata.get("finalizers") or () if each != FINALIZER]
        patch = {
            "metadata": {
                "finalizers": [*others, FINALIZER] if is_wanted else others or None,
                "resourceVersion": metadata["resourceVersion"],
            }
        }
        return await self._patch(resource, patch, "its finalizer")

    async def _patch(self, resource: TopicResource, patch: Mapping[str, Any], what: str) -> bool:
        try:
            async with self._writes:
                await self._client.patch(TOPIC, resource.namespace, resource.name, patch)
        except (ApiError, ApiUnavailableError) as error:
            if isinstance(error, ApiError) and error.is_not_found:
                return True
            if not (isinstance(error, ApiError) and error.is_conflict):
                logger.warning("Topic %s/%s: %s: %s", *resource.key, what, error)
            self._queue.retry(resource.key)
            return False
        return True
