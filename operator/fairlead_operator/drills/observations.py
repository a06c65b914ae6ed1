"""The observations of a drill and its cluster, as values. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from fairlead_model.resources.failover_drill import DrillTarget
from fairlead_operator.conditions import is_asleep

PodState = Literal["Absent", "Starting", "Running", "Ended"]
NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class AgentRun:
    """The fault that the drill's pod measures, or the last one that it has measured."""

    number: int
    is_injected: bool
    is_ended: bool
    since_fault_ms: int
    is_recovered: bool
    memo: Mapping[str, Any]
    figures: Mapping[str, Any]
    """All figures, as the pod reported them."""


@dataclass(frozen=True, slots=True)
class AgentState:
    """The state of the drill's pod."""

    phase: str
    since_ms: int
    is_well: bool
    problem: str
    partitions: Mapping[str, Any]
    run: AgentRun | None = None
    verdict: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ClusterObservation:
    """The cluster, by its resources and by its controller."""

    is_enabled: bool = True
    """Whether `LogCluster.spec.drills` allows drills."""
    is_changing: bool = False
    """Whether a rolling restart or another change is in progress."""
    brokers_expected: int = 0
    live: frozenset[int] = frozenset()
    not_live: Mapping[int, str] = field(default_factory=dict)
    under_replicated: int = 0
    offline: int = 0
    controller_epoch: int = 0
    is_paused: bool = False
    """Whether the operator leaves the cluster unchanged."""
    is_hibernated: bool = False
    """Whether the cluster hibernates, or is to."""
    epochs: Mapping[int, int] = field(default_factory=dict)
    """The broker epoch of each broker: it changes with each start."""
    nodes: Mapping[int, str] = field(default_factory=dict)
    zones: Mapping[int, str] = field(default_factory=dict)

    def find_brokers(self, target: DrillTarget) -> list[int]:
        """Return the live brokers of a node or a zone."""
        places, name = (
            (self.nodes, target.node) if target.type == "Node" else (self.zones, target.zone)
        )
        return sorted(broker for broker in self.live if places.get(broker) == name)


@dataclass(frozen=True, slots=True)
class Loss:
    """The controller's forecast for a loss of brokers, in partitions."""

    leaders_move: int = 0
    without_leader: int = 0
    below_minimum: int = 0
    last_copies: int = 0

    @property
    def is_safe(self) -> bool:
        """Whether every partition keeps a leader, its min.insync.replicas and another copy."""
        return not (self.without_leader or self.below_minimum or self.last_copies)

    @property
    def text(self) -> str:
        """The forecast as a message."""
        return (
            f"{self.without_leader} partitions would lose their leader, {self.below_minimum} their "
            f"min.insync.replicas, {self.last_copies} their last copy"
        )


def read_loss(answer: Mapping[str, Any]) -> Loss:
    """Read the controller's answer."""
    names = ("leadersMove", "withoutLeader", "belowMinimum", "lastCopies")
    return Loss(*(int(answer[name]) for name in names))


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerAccess:
    """Who may break the controller, which decides for the LogClusters of all namespaces."""

    is_allowed: bool = False
    """Whether the operator's installation allows it; a namespace cannot allow it itself."""
    operator_namespace: str = ""
    """The only namespace whose drills may break it."""


@dataclass(frozen=True, slots=True)
class DrillObservations:
    """Everything that the next step depends on."""

    namespace: str = ""
    """The drill's own namespace."""
    controller_access: ControllerAccess = field(default_factory=ControllerAccess)
    cluster: ClusterObservation | None = None
    """None if there is no such LogCluster, or its controller does not answer."""
    is_cluster_declared: bool = True
    other_drill: str = ""
    """Name of another drill that is in progress, or is older and also waits."""
    pod: PodState = "Absent"
    pod_age_s: float = 0.0
    pod_problem: str = ""
    agent: AgentState | None = None
    """None if the pod does not answer."""
    agent_silent_s: float = 0.0
    loss: Loss | None = None
    """What the loss of a node's or a zone's brokers would do now, while the drill waits."""
    late_ms: int = 0
    """How long ago the schedule was due, for this drill or the next one; negative before that.

    It is 0 for a drill without a schedule.
    """
    schedule_problem: str = ""
    now_ms: int = 0
    """Unix time."""


def observe_cluster(
    log_cluster: Mapping[str, Any],
    pools: Sequence[Mapping[str, Any]],
    controller_status: Mapping[str, Any],
) -> ClusterObservation:
    """Combine what the resources want and what the controller reports."""
    spec = log_cluster.get("spec") or {}
    conditions = (log_cluster.get("status") or {}).get("conditions") or []
    brokers = controller_status["brokers"]
    states = {int(broker["id"]): str(broker["state"]) for broker in brokers}
    counts = controller_status["partitions"]
    wanted = _wanted_ids(pools)
    return ClusterObservation(
        is_enabled=bool((spec.get("drills") or {}).get("enabled", True)),
        is_changing=any(
            entry.get("type") == "Progressing" and entry.get("status") == "True"
            for entry in conditions
        ),
        brokers_expected=len(wanted),
        live=frozenset(broker for broker, state in states.items() if state == "live"),
        # The controller still has brokers that were scaled down; the drill does not wait for them.
        not_live={
            broker: state
            for broker, state in states.items()
            if state != "live" and broker in wanted
        },
        under_replicated=int(counts["underReplicated"]),
        offline=int(counts["offline"]),
        controller_epoch=int(controller_status["controller"]["epoch"]),
        is_paused=spec.get("paused") is True or spec.get("pauseReconciliation") is True,
        is_hibernated=spec.get("hibernated") is True or is_asleep(log_cluster),
        epochs={int(broker["id"]): int(broker.get("epoch", 0)) for broker in brokers},
        nodes={int(broker["id"]): str(broker.get("hostName") or "") for broker in brokers},
        zones={int(broker["id"]): str(broker.get("rack") or "") for broker in brokers},
    )


def _wanted_ids(pools: Sequence[Mapping[str, Any]]) -> set[int]:
    """Return the ids of the brokers that pools want."""
    wanted: set[int] = set()
    for pool in pools:
        first = int(pool["spec"].get("idBase") or 0)
        wanted.update(range(first, first + int(pool["spec"].get("replicas") or 0)))
    return wanted
