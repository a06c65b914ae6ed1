"""What has to happen before a LogCluster or a BrokerPool may go; kopf holds their finalizers.

A LogCluster's brokers stop first, whichever pool they are of. Under `reclaimPolicy: Delete` its
volumes go then; its metadata is marked, and deleted by the controller, which alone knows when its
reign over the cluster has ended, or by the next controller if that one dies. Under Retain both
stay, and a LogCluster of the same name takes them up.
Topics are not waited for: whoever keeps them lets go when their LogCluster is going.
"""

from collections.abc import Mapping
from typing import Any, Final

from fairlead_controller.kube.errors import ApiError
from fairlead_controller.kube.kinds import (
    BROKER_POOL,
    LOG_CLUSTER,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STATEFUL_SET,
)
from fairlead_operator.api_writer import ApiWriter
from fairlead_operator.cluster_status import DELETING, ClusterFacts
from fairlead_operator.controller_client import ControllerClient, ControllerError
from fairlead_operator.live_objects import ClusterKey, LiveObjects, cluster_of, is_left_alone
from fairlead_operator.status_writer import StatusWriter

RECLAIM_DELETE: Final = "Delete"
PODS_NAMED_MAX: Final = 3


class Deletions:
    """Takes the next step of a deletion; level-triggered and idempotent."""

    def __init__(
        self,
        live: LiveObjects,
        writer: ApiWriter,
        *,
        controller: ControllerClient,
        statuses: StatusWriter,
    ) -> None:
        self._live = live
        self._writer = writer
        self._controller = controller
        self._statuses = statuses

    async def delete_cluster(self, key: ClusterKey, body: Mapping[str, Any]) -> str:
        """Stop the brokers and delete what has to go; give what is waited for, empty if done."""
        if is_left_alone(body):
            return ""
        for stateful_set in self._live.of_cluster(STATEFUL_SET, key):
            if "deletionTimestamp" not in stateful_set["metadata"]:
                await self._writer.delete(STATEFUL_SET, stateful_set)
        pods = self._live.of_cluster(POD, key)
        if pods:
            names = ", ".join(pod["metadata"]["name"] for pod in pods[:PODS_NAMED_MAX])
            return (
                f"{len(pods)} brokers are stopping: {names}; where a node is gone for good, "
                "`kubectl delete pod NAME --grace-period=0 --force` lets its broker go"
            )
        if self._live.of_cluster(STATEFUL_SET, key):
            return "StatefulSets are going"
        if (body.get("spec") or {}).get("reclaimPolicy") != RECLAIM_DELETE:
            return ""
        for claim in self._live.of_cluster(PERSISTENT_VOLUME_CLAIM, key):
            if "deletionTimestamp" not in claim["metadata"]:
                await self._writer.delete(PERSISTENT_VOLUME_CLAIM, claim)
        await self._writer.mark_tables(*key, uid=body["metadata"]["uid"])
        return ""

    async def tell_waiting(self, key: ClusterKey, waiting_for: str) -> None:
        """Say on a LogCluster what its deletion waits for."""
        manifest = self._live.get(LOG_CLUSTER, *key)
        if manifest is None:
            return
        generation = int(manifest["metadata"].get("generation", 1))
        facts = ClusterFacts(
            name=key[1], namespace=key[0], generation=generation, problem=(DELETING, waiting_for)
        )
        try:
            await self._statuses.write_cluster(manifest, facts)
        except ApiError as error:
            if not error.is_not_found:
                raise

    async def delete_pool(self, namespace: str, body: Mapping[str, Any]) -> str:
        """Tell what a pool's deletion waits for, empty if it may go.

        Its brokers stop when it is gone. While their LogCluster lives, none may hold a replica.
        """
        if is_left_alone(body):
            return ""
        key = (namespace, cluster_of(dict(body, kind=BROKER_POOL.kind)))
        cluster = self._live.get(LOG_CLUSTER, *key)
        if cluster is None or "deletionTimestamp" in cluster["metadata"]:
            return ""
        spec = body["spec"]
        name = f"{key[1]}-{body['metadata']['name']}"
        stateful_set = self._live.get(STATEFUL_SET, namespace, name)
        if stateful_set is None:
            return ""
        id_base = int(spec.get("idBase", 0))
        ids = range(id_base, id_base + int(stateful_set["spec"].get("replicas", 1)))
        try:
            status = await self._controller.cluster_status(*key)
        except ControllerError as error:
            return await self._tell(namespace, body, f"the controller cannot be asked: {error}")
        holding = [
            f"{broker['id']} ({broker['replicas']})"
            for broker in status["brokers"]
            if int(broker["id"]) in ids and int(broker["replicas"]) > 0
        ]
        if not holding:
            return ""
        message = f"brokers hold replicas: {', '.join(holding[:10])}; move these partitions first"
        return await self._tell(namespace, body, message)

    async def _tell(self, namespace: str, body: Mapping[str, Any], message: str) -> str:
        manifest = self._live.get(BROKER_POOL, namespace, body["metadata"]["name"])
        if manifest is not None:
            try:
                await self._statuses.write_pool_problem(manifest, "ReplicasRemain", message)
            except ApiError as error:
                if not error.is_not_found:
                    raise
        return message
