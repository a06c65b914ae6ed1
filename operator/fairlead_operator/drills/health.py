"""Whether a cluster may be broken on purpose now, and if not, why. Pure."""

from dataclasses import dataclass

from fairlead_model.failover_drill import FailoverDrillSpec
from fairlead_operator.drills.observations import ClusterObservation


@dataclass(frozen=True, slots=True)
class Objection:
    """Why not: `reason` in one word for machines, and a sentence that says what to do."""

    reason: str
    message: str


def find_objection(spec: FailoverDrillSpec, cluster: ClusterObservation) -> Objection | None:
    """Give the first thing that speaks against a fault; None if nothing does."""
    name = spec.cluster_name
    if not cluster.is_enabled:
        return Objection(
            "DrillsDisabled",
            f"LogCluster {name} does not allow drills: set its spec.drills.enabled to true",
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
    if spec.target.broker_id is not None and spec.target.broker_id not in cluster.live:
        brokers = ", ".join(map(str, sorted(cluster.live)))
        return Objection(
            "UnknownBroker", f"there is no broker {spec.target.broker_id}; there are {brokers}"
        )
    return None


def find_ailment(name: str, cluster: ClusterObservation) -> Objection | None:
    """Give what a cluster suffers from before anything was done to it."""
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
