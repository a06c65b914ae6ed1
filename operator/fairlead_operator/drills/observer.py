"""Observes everything that a drill's next step depends on: resources, controller, drill's pod."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fairlead_kube.client import KubeClient
from fairlead_kube.informer import Informer
from fairlead_kube.kinds import BROKER_POOL, LOG_CLUSTER, POD
from fairlead_model.resources.failover_drill import FailoverDrillSpec
from fairlead_operator.controller_client import ControllerClient, ControllerError
from fairlead_operator.drills.agent_client import AgentAddress, AgentClient, AgentError
from fairlead_operator.drills.agent_pod import agent_pod_name, agent_token, describe_pod_problem
from fairlead_operator.drills.observations import (
    AgentState,
    ClusterObservation,
    ControllerAccess,
    DrillObservations,
    Loss,
    PodState,
    observe_cluster,
    read_loss,
)
from fairlead_operator.drills.steps import ACTIVE, FINAL
from fairlead_operator.schedule import ScheduleError, next_time

Manifest = Mapping[str, Any]


@dataclass(slots=True)
class Sight:
    """The observations, and the objects behind them for the steps."""

    seen: DrillObservations
    log_cluster: Manifest | None
    pools: Sequence[Manifest]
    agent_address: AgentAddress | None


class Observer:
    """Observes; remembers only since when a pod has not answered."""

    def __init__(
        self,
        client: KubeClient,
        controller: ControllerClient,
        agents: AgentClient,
        drills: Informer,
        controller_access: ControllerAccess,
    ) -> None:
        self._client = client
        self._controller = controller
        self._agents = agents
        self._drills = drills
        self._controller_access = controller_access
        self._answered_at: dict[str, float] = {}

    async def look(self, drill: Manifest, spec: FailoverDrillSpec) -> Sight:
        """Observe once; ApiError or ApiUnavailableError if the API server does not answer."""
        namespace = drill["metadata"]["namespace"]
        phase = (drill.get("status") or {}).get("phase")
        log_cluster = await self._client.find(LOG_CLUSTER, namespace, spec.cluster_name)
        pod = await self._find_own_pod(drill)
        pools: list[dict[str, Any]] = []
        cluster: ClusterObservation | None = None
        if log_cluster is not None and phase not in FINAL:
            listed = await self._client.list(BROKER_POOL, namespace)
            pools = [
                pool for pool in listed.items if pool["spec"]["clusterName"] == spec.cluster_name
            ]
            cluster = await self._observe_cluster(namespace, spec, log_cluster, pools)
        state = pod_state(pod)
        address, agent = None, None
        if pod is not None and state == "Running" and phase in ACTIVE:
            address = (str(pod["status"]["podIP"]), agent_token(drill))
            agent = await self._ask_agent(drill, address)
        due, problem = find_due(drill, spec)
        seen = DrillObservations(
            namespace=namespace,
            controller_access=self._controller_access,
            cluster=cluster,
            is_cluster_declared=log_cluster is not None,
            other_drill=find_other_drill(drill, spec, list(self._drills.objects.values())),
            pod=state,
            pod_age_s=_age_s(pod),
            pod_problem=describe_pod_problem(pod) if pod is not None else "",
            agent=agent,
            agent_silent_s=self._silent_s(drill),
            late_ms=0 if due is None else round((datetime.now(UTC) - due).total_seconds() * 1000),
            schedule_problem=problem,
            loss=await self._foretell(namespace, spec, cluster, phase),
            now_ms=time.time_ns() // 1_000_000,
        )
        return Sight(seen, log_cluster, pools, address)

    def forget(self, drill: Manifest) -> None:
        """Forget a finished drill."""
        self._answered_at.pop(drill["metadata"]["uid"], None)

    async def _find_own_pod(self, drill: Manifest) -> dict[str, Any] | None:
        metadata = drill["metadata"]
        pod = await self._client.find(POD, metadata["namespace"], agent_pod_name(metadata["name"]))
        if pod is None:
            return None
        owners = pod["metadata"].get("ownerReferences") or ()
        return pod if any(owner["uid"] == metadata["uid"] for owner in owners) else None

    async def _observe_cluster(
        self, namespace: str, spec: FailoverDrillSpec, log_cluster: Manifest, pools: list[Any]
    ) -> ClusterObservation | None:
        try:
            status = await self._controller.cluster_status(namespace, spec.cluster_name)
        except ControllerError:
            return None
        return observe_cluster(log_cluster, pools, status)

    async def _foretell(
        self,
        namespace: str,
        spec: FailoverDrillSpec,
        cluster: ClusterObservation | None,
        phase: str | None,
    ) -> Loss | None:
        if cluster is None or not spec.target.is_of_several or (phase or "Pending") != "Pending":
            return None
        brokers = cluster.find_brokers(spec.target)
        if not brokers:
            return None
        try:
            answer = await self._controller.loss(namespace, spec.cluster_name, brokers)
        except ControllerError:
            return None
        return read_loss(answer)

    async def _ask_agent(self, drill: Manifest, address: AgentAddress) -> AgentState | None:
        uid = drill["metadata"]["uid"]
        self._answered_at.setdefault(uid, time.monotonic())
        try:
            state = await self._agents.state(address)
        except AgentError:
            return None
        self._answered_at[uid] = time.monotonic()
        return state

    def _silent_s(self, drill: Manifest) -> float:
        answered_at = self._answered_at.get(drill["metadata"]["uid"])
        return 0.0 if answered_at is None else time.monotonic() - answered_at


def find_due(drill: Manifest, spec: FailoverDrillSpec) -> tuple[datetime | None, str]:
    """Return when the schedule is due, for this drill or the next one; and why that is unknown."""
    if spec.schedule is None:
        return None, ""
    status = drill.get("status") or {}
    if status.get("startedAt") and not status.get("endedAt"):
        return read_time(status.get("dueAt") or status["startedAt"]), ""
    after = read_time(status.get("endedAt") or drill["metadata"]["creationTimestamp"])
    try:
        return next_time(spec.schedule, after, spec.time_zone or "UTC"), ""
    except ScheduleError as error:
        return None, str(error)


def read_time(text: str) -> datetime:
    """Parse a time of Kubernetes."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def find_other_drill(drill: Manifest, spec: FailoverDrillSpec, drills: Sequence[Manifest]) -> str:
    """Return the drill of the same cluster that comes first: one in progress, or an older one."""

    def age(manifest: Manifest) -> tuple[str, str]:
        metadata = manifest["metadata"]
        return metadata["creationTimestamp"], metadata["name"]

    rivals = []
    for other in drills:
        phase = (other.get("status") or {}).get("phase") or "Pending"
        is_same_cluster = (
            other["metadata"]["namespace"] == drill["metadata"]["namespace"]
            and (other.get("spec") or {}).get("clusterName") == spec.cluster_name
        )
        if not is_same_cluster or other["metadata"]["name"] == drill["metadata"]["name"]:
            continue
        its_spec, its_status = other.get("spec") or {}, other.get("status") or {}
        is_due = not its_spec.get("schedule") or its_status.get("startedAt")
        waits = phase == "Pending" and not its_spec.get("suspend") and is_due
        if phase in ACTIVE or (waits and age(other) < age(drill)):
            rivals.append((phase not in ACTIVE, age(other), other["metadata"]["name"]))
    return str(min(rivals)[-1]) if rivals else ""


def pod_state(pod: Manifest | None) -> PodState:
    """Describe the state of a pod in one word."""
    if pod is None:
        return "Absent"
    status = pod.get("status") or {}
    if status.get("phase") in {"Failed", "Succeeded"}:
        return "Ended"
    return "Running" if status.get("phase") == "Running" and status.get("podIP") else "Starting"


def _age_s(pod: Manifest | None) -> float:
    if pod is None:
        return 0.0
    return time.time() - read_time(pod["metadata"]["creationTimestamp"]).timestamp()
