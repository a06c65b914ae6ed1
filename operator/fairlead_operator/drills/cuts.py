"""Isolates brokers' pods by a NetworkPolicy, and reconnects them whatever happens in between.

Before any object is created, the drill's status records the pods (`status.cut`), and a finalizer
keeps the drill until they are reconnected. So every later operator knows what to undo. A pod has
the drill's label only while the drill's policy exists.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import FAILOVER_DRILL, NETWORK_POLICY, POD
from fairlead_model.resources.failover_drill import FailoverDrillSpec
from fairlead_model.resources.topic_manifest import ManifestError
from fairlead_operator.drills.cut_policy import build_cut_policy, cut_policy_name
from fairlead_operator.drills.faults import ChosenTarget, TargetError
from fairlead_operator.drills.status import DrillStatus
from fairlead_operator.specs.names import CLUSTER_LABEL, CUT_LABEL, REST_PORT
from fairlead_operator.specs.views import ClusterView

_log = logging.getLogger(__name__)
CUT_FINALIZER: Final = "fairlead.io/cut"
CUT_SLACK_MS: Final = 15_000
"""How much longer than its duration a cut may last if the state of the run is unknown."""


class NetworkCuts:
    """Plans, makes and undoes cuts; each of these may be repeated."""

    def __init__(self, client: KubeClient, operator_namespace: str) -> None:
        self._client = client
        self._operator_namespace = operator_namespace

    async def ensure_planned(
        self,
        drill: dict[str, Any],
        spec: FailoverDrillSpec,
        status: DrillStatus,
        number: int,
        targets: Sequence[ChosenTarget],
    ) -> bool:
        """Record in the status which pods will be isolated; tell whether that has changed it."""
        pods = [await self._find_pod(drill, spec, target) for target in targets]
        planned = status.values.get("cut") or {}
        if planned.get("run") == number and planned.get("pods") == pods:
            return False
        await self._hold(drill)
        until_ms = time.time_ns() // 1_000_000 + spec.fault.hold_ms + CUT_SLACK_MS
        status.values["cut"] = {"run": number, "pods": pods, "untilMs": until_ms}
        return True

    async def prepare(
        self, drill: Mapping[str, Any], spec: FailoverDrillSpec, log_cluster: Mapping[str, Any]
    ) -> None:
        """Create the policy, which selects no pod yet."""
        metadata = drill["metadata"]
        try:
            cluster = ClusterView.from_manifest(log_cluster).spec
        except ManifestError as error:
            raise TargetError(f"LogCluster {spec.cluster_name} cannot be read: {error}") from error
        ports = [listener.port for listener in cluster.client_listeners]
        if cluster.rest.enabled:
            ports.append(REST_PORT)
        policy = build_cut_policy(
            drill,
            spec.cluster_name,
            spec.fault.cut or "All",
            client_ports=ports,
            operator_namespace=self._operator_namespace,
        )
        try:
            await self._client.create(NETWORK_POLICY, metadata["namespace"], policy)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            name = policy["metadata"]["name"]
            there = await self._client.get(NETWORK_POLICY, metadata["namespace"], name)
            if not _is_owned(there, drill):
                problem = f"the NetworkPolicy {name} is not this drill's: delete it"
                raise TargetError(problem) from error

    async def cut(self, drill: Mapping[str, Any], planned: Mapping[str, Any]) -> None:
        """Put the pods under the policy."""
        for pod in planned["pods"]:
            await self._label(drill, pod, drill["metadata"]["uid"])

    async def heal(self, drill: dict[str, Any], status: DrillStatus) -> None:
        """Reconnect everything, and remove the plan; the caller then has to write the status."""
        for pod in (status.values.get("cut") or {}).get("pods") or ():
            try:
                await self._label(drill, pod, None)
            except ApiError as error:
                # The label is gone with a deleted pod, and its successor has another uid.
                if not (error.is_not_found or error.is_conflict):
                    raise
        await self._delete_policy(drill)
        status.values["cut"] = None
        _log.info("drill %s/%s: the network is whole again", *_key(drill))

    async def release(self, drill: dict[str, Any]) -> None:
        """Release a drill that is being deleted, once everything is reconnected."""
        metadata = drill["metadata"]
        if CUT_FINALIZER not in (metadata.get("finalizers") or ()):
            return
        await self.heal(drill, DrillStatus(drill))
        kept = [name for name in metadata["finalizers"] if name != CUT_FINALIZER]
        await self._write_finalizers(drill, kept)

    async def _find_pod(
        self, drill: Mapping[str, Any], spec: FailoverDrillSpec, target: ChosenTarget
    ) -> dict[str, str]:
        if not target.pod_name:
            raise TargetError(f"{target.text} has no pod that is known")
        pod = await self._client.get(POD, drill["metadata"]["namespace"], target.pod_name)
        labels = pod["metadata"].get("labels") or {}
        if labels.get(CLUSTER_LABEL) != spec.cluster_name:
            raise TargetError(f"pod {target.pod_name} is none of LogCluster {spec.cluster_name}")
        return {"name": target.pod_name, "uid": str(pod["metadata"]["uid"])}

    async def _label(
        self, drill: Mapping[str, Any], pod: Mapping[str, str], value: str | None
    ) -> None:
        # With the uid, so that another pod of the same name is not changed.
        patch = {"metadata": {"uid": pod["uid"], "labels": {CUT_LABEL: value}}}
        await self._client.patch(POD, drill["metadata"]["namespace"], pod["name"], patch)

    async def _delete_policy(self, drill: Mapping[str, Any]) -> None:
        metadata = drill["metadata"]
        name = cut_policy_name(metadata["name"])
        try:
            there = await self._client.get(NETWORK_POLICY, metadata["namespace"], name)
            if _is_owned(there, drill):
                await self._client.delete(NETWORK_POLICY, metadata["namespace"], name)
        except ApiError as error:
            if not error.is_not_found:
                raise

    async def _hold(self, drill: dict[str, Any]) -> None:
        finalizers = list(drill["metadata"].get("finalizers") or ())
        if CUT_FINALIZER not in finalizers:
            await self._write_finalizers(drill, [*finalizers, CUT_FINALIZER])

    async def _write_finalizers(self, drill: dict[str, Any], finalizers: list[str]) -> None:
        metadata = drill["metadata"]
        version = metadata["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version, "finalizers": finalizers}}
        written = await self._client.patch(FAILOVER_DRILL, *_key(drill), patch)
        metadata["resourceVersion"] = written["metadata"]["resourceVersion"]
        metadata["finalizers"] = finalizers


def _is_owned(policy: Mapping[str, Any], drill: Mapping[str, Any]) -> bool:
    owners = policy["metadata"].get("ownerReferences") or ()
    return drill["metadata"]["uid"] in {owner["uid"] for owner in owners}


def _key(drill: Mapping[str, Any]) -> tuple[str, str]:
    return drill["metadata"]["namespace"], drill["metadata"]["name"]
