"""Breaks a broker or the active controller, and makes sure that it is healed.

The supervisor's own timer resumes a paused process and empties a full disk; this process is not
needed for that.
"""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from fairlead_kube.client import KubeClient
from fairlead_kube.kinds import POD
from fairlead_model.resources.failover_drill import FailoverDrillSpec
from fairlead_operator.controller_client import ControllerClient
from fairlead_operator.drills.observations import NO_LEADER, AgentState
from fairlead_operator.drills.observer import Sight
from fairlead_operator.specs.names import CLUSTER_LABEL

PROCESS_FAULTS: Final[Mapping[str, Literal["kill", "pause", "slow", "fill"]]] = {
    "Kill": "kill",
    "Pause": "pause",
    "Slow": "slow",
    "DiskFull": "fill",
}


class TargetError(Exception):
    """The target of a drill cannot be found now; the text says why."""


@dataclass(frozen=True, slots=True)
class ChosenTarget:
    """The target of a fault; `broker_id` is None for the controller."""

    text: str
    broker_id: int | None
    pod_name: str = ""


async def choose_targets(
    spec: FailoverDrillSpec, namespace: str, sight: Sight, controller: ControllerClient
) -> list[ChosenTarget]:
    """Find the drill's present targets: several only for a node, a zone and the cluster."""
    agent, cluster = sight.seen.agent, sight.seen.cluster
    if agent is None or cluster is None:
        raise TargetError("the drill's pod or the controller cannot be asked now")
    if not spec.target.is_of_several and spec.target.type != "Cluster":
        return [await _choose_target(spec, namespace, agent, sight.pools, controller)]
    ids = sorted(cluster.live)
    if spec.target.is_of_several:
        ids = cluster.find_brokers(spec.target)
    if not ids:
        raise TargetError(f"no broker is in {spec.target.type} now")
    return [
        ChosenTarget(f"broker {it}", it, broker_pod_name(spec.cluster_name, sight.pools, it))
        for it in ids
    ]


def describe_targets(spec: FailoverDrillSpec, targets: Sequence[ChosenTarget]) -> str:
    """Return a name for the targets of a run."""
    if spec.target.type == "Cluster":
        return f"all {len(targets)} brokers"
    if not spec.target.is_of_several:
        return targets[0].text
    ids = ", ".join(str(target.broker_id) for target in targets)
    return f"{spec.target.type.lower()} {spec.target.node or spec.target.zone} (broker {ids})"


async def _choose_target(
    spec: FailoverDrillSpec,
    namespace: str,
    agent: AgentState,
    pools: Sequence[Mapping[str, Any]],
    controller: ControllerClient,
) -> ChosenTarget:
    target = spec.target
    if target.type == "Controller":
        pod = os.environ.get("POD_NAME", "")
        return ChosenTarget(f"controller {pod}".rstrip(), None, pod)
    if target.broker_id is not None:
        broker_id = target.broker_id
    elif target.topic is None:
        view = agent.partitions.get("0") or {}
        broker_id = pick_replica(target.type, view.get("leader", NO_LEADER), view.get("isr") or ())
    else:
        told = await controller.explain(
            namespace, spec.cluster_name, target.topic, target.partition or 0
        )
        in_sync = [
            replica["broker"] for replica in told["replicas"] if replica["role"] == "in sync"
        ]
        broker_id = pick_replica(target.type, int(told["leader"]), in_sync)
    if broker_id == NO_LEADER:
        raise TargetError(f"the partition has no {target.type.lower()} in sync now")
    return ChosenTarget(
        f"broker {broker_id}", broker_id, broker_pod_name(spec.cluster_name, pools, broker_id)
    )


def pick_replica(target_type: str, leader: int, in_sync: Sequence[int]) -> int:
    """Return the leader, or the first in-sync follower; NO_LEADER if there is none."""
    if target_type == "Leader":
        return leader
    return next((broker for broker in in_sync if broker != leader), NO_LEADER)


def broker_pod_name(cluster: str, pools: Sequence[Mapping[str, Any]], broker_id: int) -> str:
    """Return the name of a broker's pod; empty if no pool has such a broker."""
    for pool in pools:
        ordinal = broker_id - int(pool["spec"].get("idBase") or 0)
        if 0 <= ordinal < int(pool["spec"].get("replicas") or 0):
            return f"{cluster}-{pool['metadata']['name']}-{ordinal}"
    return ""


class FaultInjector:
    """Injects faults: `prepare` does what takes time, and its result breaks the target at once."""

    def __init__(self, client: KubeClient, controller: ControllerClient) -> None:
        self._client = client
        self._controller = controller

    async def prepare(
        self, spec: FailoverDrillSpec, namespace: str, target: ChosenTarget
    ) -> Callable[[], Awaitable[None]]:
        """Read what has to be known; break nothing yet."""
        if spec.fault.type == "Delete":
            return await self._prepare_deletion(spec, namespace, target)
        duration_ms = spec.fault.hold_ms
        if target.broker_id is None:
            # The active controller is in this pod: kopf acts only beside it.
            own: Literal["kill", "pause"] = "kill" if spec.fault.type == "Kill" else "pause"
            return partial(self._controller.break_controller, own, duration_ms=duration_ms)
        return partial(
            self._controller.inject_fault,
            namespace,
            spec.cluster_name,
            target.broker_id,
            PROCESS_FAULTS[spec.fault.type],
            duration_ms=duration_ms,
            turns=(spec.fault.stall_ms, spec.fault.run_ms),
        )

    async def _prepare_deletion(
        self, spec: FailoverDrillSpec, namespace: str, target: ChosenTarget
    ) -> Callable[[], Awaitable[None]]:
        home = namespace
        if target.broker_id is None:
            home = os.environ.get("POD_NAMESPACE", "")
        if not target.pod_name:
            raise TargetError(f"{target.text} has no pod that is known")
        pod = await self._client.get(POD, home, target.pod_name)
        cluster = (pod["metadata"].get("labels") or {}).get(CLUSTER_LABEL)
        if target.broker_id is not None and cluster != spec.cluster_name:
            raise TargetError(f"pod {target.pod_name} is none of LogCluster {spec.cluster_name}")
        uid = str(pod["metadata"]["uid"])

        async def delete_pod() -> None:
            await self._client.delete(POD, home, target.pod_name, uid=uid)

        return delete_pod
