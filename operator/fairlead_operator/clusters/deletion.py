"""What has to happen before a LogCluster or a BrokerPool is deleted; kopf holds their finalizers.

A LogCluster's brokers stop first, in all its pools. Under `reclaimPolicy: Delete` its volumes are
deleted then. Its metadata is marked. The controller deletes it, because only the controller knows
when its reign over the cluster has ended; if it dies, the next controller does. Under Retain
volumes and metadata stay, and a new LogCluster of the same name uses them.

A protected LogCluster is not deleted, and its brokers go on, until the protection is removed or its
namespace is deleted. The namespace deletes the volumes in any case, so holding the LogCluster back
would save nothing.

Topics do not delay it: their finalizers are removed when their LogCluster is being deleted.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import (
    BROKER_POOL,
    LOG_CLUSTER,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STATEFUL_SET,
)
from fairlead_operator.clusters.api_writer import ApiWriter
from fairlead_operator.clusters.pool_decisions import PoolTraces, count_brokers
from fairlead_operator.clusters.scale_down import NAMED_MAX, named_brokers, read_holdings
from fairlead_operator.clusters.status import DELETING, DELETION_HELD, ClusterFacts
from fairlead_operator.clusters.status_writer import StatusWriter
from fairlead_operator.controller_client import ControllerClient, ControllerError
from fairlead_operator.live_objects import (
    ClusterKey,
    LiveObjects,
    Manifest,
    cluster_of,
    is_left_alone,
)
from fairlead_operator.specs.names import POOL_LABEL, is_claim_name, stateful_set_name
from fairlead_operator.specs.stateful_set import count_replicas, running_ids
from fairlead_operator.specs.views import is_going, is_protected

RECLAIM_DELETE: Final = "Delete"
PODS_NAMED_MAX: Final = 3
NAMESPACE_LOOK_S: Final = 10.0
"""How often the API server is asked whether the namespace of a protected LogCluster is going."""


class Deletions:
    """Takes the next step of a deletion; level-triggered and idempotent."""

    def __init__(
        self,
        live: LiveObjects,
        writer: ApiWriter,
        *,
        controller: ControllerClient,
        statuses: StatusWriter,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._live = live
        self._writer = writer
        self._controller = controller
        self._statuses = statuses
        self._now = now
        self._stays_until: dict[str, float] = {}
        """By namespace that was not being deleted: until when that counts."""

    async def delete_cluster(self, key: ClusterKey, body: Mapping[str, Any]) -> str:
        """Stop the brokers, then delete the rest; return what it waits for, empty if done."""
        held = self._live.get(LOG_CLUSTER, *key)
        if _is_let_go(held, body):
            return ""
        # The handler's own copy dates from the beginning of the deletion.
        body = held or body
        if is_left_alone(body):
            return ""
        if is_protected(body) and not await self._is_namespace_going(key[0]):
            return DELETION_HELD
        for stateful_set in self._live.of_cluster(STATEFUL_SET, key):
            if "deletionTimestamp" not in stateful_set["metadata"]:
                await self._writer.delete(STATEFUL_SET, stateful_set)
        pods = self._live.of_cluster(POD, key)
        await self._stop_orphans(pods)
        if pods:
            names = ", ".join(pod["metadata"]["name"] for pod in pods[:PODS_NAMED_MAX])
            return (
                f"{len(pods)} brokers are stopping: {names}; if a node is gone for good, remove "
                "its pod by `kubectl delete pod NAME --grace-period=0 --force`"
            )
        if self._live.of_cluster(STATEFUL_SET, key):
            return "Kubernetes deletes the StatefulSets"
        if (body.get("spec") or {}).get("reclaimPolicy") != RECLAIM_DELETE:
            return ""
        for claim in self._live.of_cluster(PERSISTENT_VOLUME_CLAIM, key):
            if is_broker_claim(claim, key[1]) and "deletionTimestamp" not in claim["metadata"]:
                await self._writer.delete(PERSISTENT_VOLUME_CLAIM, claim)
        await self._writer.mark_tables(*key, uid=body["metadata"]["uid"])
        return ""

    async def _is_namespace_going(self, namespace: str) -> bool:
        """Tell whether a namespace is being deleted, as known for a while if it was not."""
        if self._now() < self._stays_until.get(namespace, float("-inf")):
            return False
        if await self._writer.is_namespace_going(namespace):
            return True
        self._stays_until[namespace] = self._now() + NAMESPACE_LOOK_S
        return False

    async def tell_waiting(self, key: ClusterKey, waiting_for: str) -> None:
        """Write into a LogCluster's status what its deletion waits for."""
        manifest = self._live.get(LOG_CLUSTER, *key)
        if manifest is None or not is_going(manifest):
            return  # the reconciler writes it for a protected cluster
        generation = int(manifest["metadata"].get("generation", 1))
        facts = ClusterFacts(
            name=key[1], namespace=key[0], generation=generation, problem=(DELETING, waiting_for)
        )
        try:
            await self._statuses.write_cluster(manifest, facts)
        except ApiError as error:
            if not (error.is_not_found or error.is_conflict):
                raise

    async def delete_pool(self, namespace: str, body: Mapping[str, Any]) -> str:
        """Return what a pool's deletion waits for, empty if the pool may be deleted.

        Its brokers stop when it is deleted. While their LogCluster exists, none may hold a replica,
        nor get one before it has stopped.
        """
        held = self._live.get(BROKER_POOL, namespace, body["metadata"]["name"])
        if _is_let_go(held, body):
            return ""
        # The handler's own copy dates from the beginning of the deletion.
        body = held or body
        if is_left_alone(body):
            return ""
        key = (namespace, cluster_of(dict(body, kind=BROKER_POOL.kind)))
        cluster = self._live.get(LOG_CLUSTER, *key)
        if cluster is None or is_going(cluster):
            return ""
        name = stateful_set_name(key[1], body["metadata"]["name"])
        # Another cluster may have a StatefulSet of this name.
        sets = {each["metadata"]["name"]: each for each in self._live.of_cluster(STATEFUL_SET, key)}
        live = sets.pop(name, None)
        pods = [
            pod
            for pod in self._live.of_cluster(POD, key)
            if (pod["metadata"].get("labels") or {}).get(POOL_LABEL) == body["metadata"]["name"]
        ]
        traces = PoolTraces.find(
            name,
            pods=[pod["metadata"]["name"] for pod in pods],
            claims=[
                claim["metadata"]["name"]
                for claim in self._live.of_cluster(PERSISTENT_VOLUME_CLAIM, key)
            ],
        )
        if live is None and not traces.pods and not traces.claims:
            return ""
        running = running_ids(sets.values())
        id_base = int(body["spec"].get("idBase", 0))
        try:
            brokers = read_holdings(await self._controller.cluster_status(*key)) or {}
            replicas = {broker_id: each.replicas for broker_id, each in brokers.items()}
            live_replicas = None if live is None else count_replicas(live)
            count = count_brokers(id_base, live_replicas, traces, replicas, running)
            own = [each for each in range(id_base, id_base + count) if each in brokers]
            holding = [f"{each} ({replicas[each]})" for each in own if replicas[each]]
            if holding:
                names = ", ".join(holding[:NAMED_MAX])
                message = f"brokers hold replicas: {names}; move these partitions first"
                return await self._tell(namespace, body, message)
            # New partitions go to the brokers with the fewest replicas.
            fresh = [each for each in own if not brokers[each].is_drained]
            if fresh:
                pool = body["metadata"]["name"]
                await self._controller.scale_down(*key, pool, leaving=fresh, staying=())
                return f"nothing more is placed on {named_brokers(fresh)} from now on"
        except ControllerError as error:
            return await self._tell(namespace, body, f"the controller cannot be asked: {error}")
        await self._stop_orphans(pods)
        return ""

    async def _stop_orphans(self, pods: Iterable[Manifest]) -> None:
        """Delete pods that no StatefulSet owns any more, because nobody else would."""
        for pod in pods:
            metadata = pod["metadata"]
            if not metadata.get("ownerReferences") and "deletionTimestamp" not in metadata:
                await self._writer.delete(POD, pod)

    async def _tell(self, namespace: str, body: Mapping[str, Any], message: str) -> str:
        manifest = self._live.get(BROKER_POOL, namespace, body["metadata"]["name"])
        if manifest is not None:
            try:
                await self._statuses.write_pool_problem(manifest, "ReplicasRemain", message)
            except ApiError as error:
                if not (error.is_not_found or error.is_conflict):
                    raise
        return message


def _is_let_go(held: Manifest | None, body: Mapping[str, Any]) -> bool:
    """Tell whether the finalizer was removed, and another object has the name by now.

    The handler of the deletion does not notice that, and would continue with the new object.
    """
    return held is not None and held["metadata"]["uid"] != body["metadata"]["uid"]


def is_broker_claim(claim: Manifest, cluster: str) -> bool:
    """Tell whether a volume claim of a cluster belongs to one of its brokers.

    Other claims may have the cluster's label, too: that of the chart's metadata backups outlives
    it.
    """
    pool = (claim["metadata"].get("labels") or {}).get(POOL_LABEL)
    return pool is not None and is_claim_name(claim["metadata"]["name"], cluster, pool)
