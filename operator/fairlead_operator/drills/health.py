"""Whether a cluster may be broken on purpose now, and if not, why. Pure."""

from dataclasses import dataclass
from typing import Final

from fairlead_model.resources.failover_drill import FailoverDrillSpec
from fairlead_operator.drills.observations import ClusterObservation, ControllerAccess, Loss

CLUSTER_HIBERNATED: Final = "ClusterHibernated"


@dataclass(frozen=True, slots=True)
class Objection:
    """Why not: `reason` is one word for machines, and a sentence says what to do."""

    reason: str
    message: str


def find_trespass(
    spec: FailoverDrillSpec, namespace: str, access: ControllerAccess
) -> Objection | None:
    """Return why a drill of this namespace may not break its target, whatever the target's state.

    All clusters share the controller: a user who may create drills in one namespace may not stop
    it.
    """
    if spec.target.type != "Controller":
        return None
    home = access.operator_namespace
    if not access.is_allowed:
        return Objection(
            "ControllerDrillsDisabled",
            "target.type Controller breaks the controller of every LogCluster, which the operator "
            "does not allow: set drills.controller to true in the values of its chart, and make "
            f"the drill in its namespace, {home}",
        )
    if namespace != home:
        return Objection(
            "NotInOperatorNamespace",
            "target.type Controller breaks the controller of every LogCluster, so that only the "
            f"operator's own namespace may ask for it: make the drill, and a LogCluster for it, "
            f"in {home}",
        )
    return None


def find_objection(spec: FailoverDrillSpec, cluster: ClusterObservation) -> Objection | None:
    """Return the first objection to a fault now; None if there is none."""
    name = spec.cluster_name
    if not cluster.is_enabled:
        return Objection(
            "DrillsDisabled",
            f"LogCluster {name} does not allow drills: set its spec.drills.enabled to true",
        )
    if cluster.is_hibernated:
        return Objection(
            CLUSTER_HIBERNATED,
            f"LogCluster {name} sleeps, or is about to: set its spec.hibernated to false, and wait "
            "until it is awake",
        )
    unhealthy = find_ailment(name, cluster)
    if unhealthy is not None:
        return unhealthy
    if spec.workload.replication_factor > len(cluster.live):
        return Objection(
            "TooFewBrokers",
            f"workload.replicationFactor is {spec.workload.replication_factor}, and there are "
            f"{len(cluster.live)} brokers: lower it, or scale the cluster up",
        )
    if spec.target.is_of_several and not cluster.find_brokers(spec.target):
        places = cluster.nodes if spec.target.type == "Node" else cluster.zones
        known = ", ".join(sorted(set(places.values()) - {""})) or "none that is known"
        return Objection(
            f"Unknown{spec.target.type}",
            f"no broker is in {spec.target.type} {spec.target.node or spec.target.zone}; there "
            f"are brokers in {known}",
        )
    if spec.fault.type == "RollingRestart" and cluster.is_paused:
        return Objection(
            "ClusterPaused", f"LogCluster {name} is paused, so that nobody restarts its brokers"
        )
    if spec.target.broker_id is not None and spec.target.broker_id not in cluster.live:
        brokers = ", ".join(map(str, sorted(cluster.live)))
        return Objection(
            "UnknownBroker", f"there is no broker {spec.target.broker_id}; there are {brokers}"
        )
    return None


def find_danger(spec: FailoverDrillSpec, loss: Loss | None) -> Objection | None:
    """Return why several brokers must not be broken at once; empty if they may."""
    if spec.allow_unsafe or loss is None or loss.is_safe:
        return None
    return Objection(
        "WouldLoseAvailability",
        f"{loss.text}: give their topics more replicas in other places, or set allowUnsafe to true",
    )


def find_ailment(name: str, cluster: ClusterObservation) -> Objection | None:
    """Return what is wrong with a cluster before any fault was injected."""
    advice = f"wait until `kubectl fairlead status {name}` has no complaint, then make a new drill"
    if cluster.not_live:
        broker, state = min(cluster.not_live.items())
        return Objection("ClusterUnhealthy", f"broker {broker} is {state}: {advice}")
    if len(cluster.live) < cluster.brokers_expected:
        return Objection(
            "ClusterUnhealthy",
            f"{len(cluster.live)} of {cluster.brokers_expected} brokers are there: {advice}",
        )
    if not cluster.live:
        return Objection("ClusterUnhealthy", f"there is no broker: {advice}")
    if cluster.offline or cluster.under_replicated:
        return Objection(
            "ClusterUnhealthy",
            f"{cluster.offline} partitions are offline and {cluster.under_replicated} "
            f"under-replicated: {advice}",
        )
    if cluster.is_changing:
        return Objection(
            "ClusterChanging", f"a rolling restart or another change goes on: {advice}"
        )
    return None
