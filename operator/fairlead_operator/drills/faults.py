"""Breaks a broker or the active controller, and makes sure that it is healed.

A paused broker is woken by its supervisor's own clock, a paused controller by a process that does
nothing else, so neither needs this one to live on.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fairlead_controller.kube.client import KubeClient
from fairlead_controller.kube.kinds import POD
from fairlead_model.failover_drill import FailoverDrillSpec
from fairlead_operator.controller_client import ControllerClient
from fairlead_operator.drills.observations import NO_LEADER, AgentState

_log = logging.getLogger(__name__)
_WAKER: Final = (
    "import os, sys, time\n"
    "time.sleep(float(sys.argv[1]))\n"
    "try:\n"
    "    os.kill(int(sys.argv[2]), 18)\n"
    "except ProcessLookupError:\n"
    "    pass\n"
)


class TargetError(Exception):
    """What was to be broken cannot be found now; the text says why."""


@dataclass(frozen=True, slots=True)
class ChosenTarget:
    """What is broken; `broker_id` is None for the controller."""

    text: str
    broker_id: int | None
    pod_name: str = ""


async def choose_target(
    spec: FailoverDrillSpec,
    namespace: str,
    agent: AgentState,
    pools: Sequence[Mapping[str, Any]],
    controller: ControllerClient,
) -> ChosenTarget:
    """Find what the drill's target is at this moment."""
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
    """Give the leader, or the first follower in sync; NO_LEADER if there is none."""
    if target_type == "Leader":
        return leader
    return next((broker for broker in in_sync if broker != leader), NO_LEADER)


def broker_pod_name(cluster: str, pools: Sequence[Mapping[str, Any]], broker_id: int) -> str:
    """Name the pod of a broker; empty if no pool has such a broker."""
    for pool in pools:
        ordinal = broker_id - int(pool["spec"].get("idBase") or 0)
        if 0 <= ordinal < int(pool["spec"].get("replicas") or 0):
            return f"{cluster}-{pool['metadata']['name']}-{ordinal}"
    return ""


class FaultInjector:
    """`prepare` whatever takes time; what it gives breaks the target at once."""

    def __init__(self, client: KubeClient, controller: ControllerClient) -> None:
        self._client = client
        self._controller = controller

    async def prepare(
        self, spec: FailoverDrillSpec, namespace: str, target: ChosenTarget
    ) -> Callable[[], Awaitable[None]]:
        """Look up what has to be known; nothing is broken yet."""
        if spec.fault.type == "Delete":
            return await self._prepare_deletion(spec, namespace, target)
        if target.broker_id is None:
            return await self._prepare_controller_fault(spec, namespace)
        broker_id = target.broker_id
        fault = "kill" if spec.fault.type == "Kill" else "pause"

        async def break_broker() -> None:
            await self._controller.inject_fault(
                namespace,
                spec.cluster_name,
                broker_id,
                fault,  # type: ignore[arg-type]  # one of two of its literals
                duration_ms=spec.fault.duration_seconds * 1000 if fault == "pause" else 0,
            )

        return break_broker

    async def _prepare_deletion(
        self, spec: FailoverDrillSpec, namespace: str, target: ChosenTarget
    ) -> Callable[[], Awaitable[None]]:
        home = namespace
        if target.broker_id is None:
            home = os.environ.get("POD_NAMESPACE", "")
        if not target.pod_name:
            raise TargetError(f"{target.text} has no pod that is known")
        pod = await self._client.get(POD, home, target.pod_name)
        uid = str(pod["metadata"]["uid"])

        async def delete_pod() -> None:
            await self._client.delete(POD, home, target.pod_name, uid=uid)

        return delete_pod

    async def _prepare_controller_fault(
        self, spec: FailoverDrillSpec, namespace: str
    ) -> Callable[[], Awaitable[None]]:
        """The active controller is in this pod: kopf runs only beside it."""
        status = await self._controller.cluster_status(namespace, spec.cluster_name)
        pid = int(status["controller"]["pid"])

        async def break_controller() -> None:
            if spec.fault.type == "Kill":
                os.kill(pid, signal.SIGKILL)
                return
            await start_waker(pid, spec.fault.duration_seconds)
            os.kill(pid, signal.SIGSTOP)

        return break_controller


async def start_waker(pid: int, after_s: float) -> None:
    """Start a process that outlives this one and lets another one go on."""
    await asyncio.create_subprocess_exec(
        sys.executable, "-S", "-c", _WAKER, str(after_s), str(pid), start_new_session=True
    )
