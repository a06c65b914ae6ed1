"""The status of a LogCluster and of its BrokerPools. Pure.

Counts come from the controller; while it cannot be asked, the last ones stay and the conditions say
so. The same facts give the same status, so that nothing is written when nothing happened.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from fairlead_operator.cluster_plan import PoolPlan
from fairlead_operator.conditions import Condition, set_condition, without_condition
from fairlead_operator.rolling import (
    BrokerState,
    DeletePod,
    Drain,
    NothingToRoll,
    RollAction,
    Undrain,
    Wait,
)
from fairlead_operator.specs.names import CLIENT_PORT, bootstrap_service_name, pool_selector

Status = dict[str, Any]
_COUNTS: Final = ("brokers", "brokersReady", "topics", "partitions", "underReplicated", "offline")


REFUSED: Final = "Refused"
"""Reason of what the API server does not take."""
CLUSTER_NOT_FOUND: Final = "ClusterNotFound"
DELETING: Final = "Deleting"
"""Reason of a deletion that takes its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """What a LogCluster's status is made of."""

    name: str
    namespace: str
    generation: int
    problem: tuple[str, str] | None = None
    """Reason and message of what keeps the cluster from being reconciled."""
    refused: str = ""
    """What the API server would not take for the cluster's parts, and what to do."""
    is_paused: bool = False
    wanted: int = 0
    brokers: Sequence[BrokerState] = ()
    controller: Mapping[str, Any] | None = None
    """The controller's status; None where it cannot be asked."""
    controller_problem: str = ""
    controller_pod: str = ""
    store_available: bool | None = None
    store_problem: str = ""
    roll: RollAction = field(default_factory=NothingToRoll)


def build_cluster_status(facts: ClusterFacts, previous: Status, now: datetime) -> Status:
    """Give the status of a LogCluster."""
    status: Status = {name: previous[name] for name in _COUNTS if name in previous}
    ready = sum(broker.is_ready and broker.is_live for broker in facts.brokers)
    status |= {
        "observedGeneration": facts.generation,
        "brokers": facts.wanted,
        "brokersReady": ready,
    }
    if facts.problem is not None:
        # Nobody has looked; what runs goes on as it was.
        status |= {name: previous[name] for name in ("brokers", "brokersReady") if name in previous}
    status |= {
        "bootstrap": f"{bootstrap_service_name(facts.name)}.{facts.namespace}.svc:{CLIENT_PORT}",
    }
    for name in ("controller", "clusterId"):
        if name in previous:
            status[name] = previous[name]
    if facts.controller is not None:
        counts = facts.controller["partitions"]
        status |= {
            "topics": len(facts.controller["topics"]),
            "partitions": counts["partitions"],
            "underReplicated": counts["underReplicated"],
            "offline": counts["offline"],
            "clusterId": facts.controller["clusterId"],
            "controller": {
                "pod": facts.controller_pod,
                "epoch": facts.controller["controller"]["epoch"],
            },
        }
    conditions: list[Condition] = list(previous.get("conditions") or ())
    for type, (claim, reason, message) in _cluster_claims(facts, status).items():
        conditions = set_condition(
            conditions, type, claim, reason, message, generation=facts.generation, now=now
        )
    status["conditions"] = conditions
    return status


_Claim = tuple[bool | None, str, str]


def _cluster_claims(facts: ClusterFacts, status: Status) -> dict[str, _Claim]:
    return {
        "Ready": _ready_claim(facts, status),
        "Progressing": _progress_claim(facts, status["brokersReady"]),
        "StoreAvailable": _store_claim(facts),
        "Degraded": _degraded_claim(facts, status),
    }


def _ready_claim(facts: ClusterFacts, status: Status) -> _Claim:
    if facts.problem is not None:
        return (False, *facts.problem)
    if facts.refused:
        return (False, REFUSED, facts.refused)
    if facts.controller is None:
        return (None, "ControllerNotReachable", facts.controller_problem or "not asked yet")
    if not facts.wanted:
        return (False, "NoBrokers", "no BrokerPool brings brokers to this cluster: make one")
    if status["offline"]:
        return (False, "PartitionsOffline", f"{status['offline']} partitions have no leader")
    if status["brokersReady"] < facts.wanted:
        return (False, *unready_brokers(status["brokersReady"], facts.wanted, facts.brokers))
    return (True, "Ready", f"{facts.wanted} brokers are ready")


def unready_brokers(ready: int, wanted: int, brokers: Sequence[BrokerState]) -> tuple[str, str]:
    """Give reason and message of brokers that are not ready, with what one that fails says."""
    message = f"{ready} of {wanted} brokers are ready"
    failing = [broker for broker in brokers if broker.failure]
    absent = next((broker for broker in brokers if broker.pod_uid is None), None)
    if not failing and absent is not None:
        stateful_set = absent.pod.rpartition("-")[0]
        message += (
            f"; broker {absent.broker_id} has no pod yet: if that stays, "
            f"`kubectl describe statefulset {stateful_set}` says why"
        )
    if not failing:
        return "BrokersNotReady", message
    more = f" (and {len(failing) - 1} more)" if len(failing) > 1 else ""
    worst = failing[0]
    text = f"{message}; broker {worst.broker_id} (pod {worst.pod}){more}: {worst.failure}"
    return "BrokersFailing", text


def _progress_claim(facts: ClusterFacts, ready: int) -> _Claim:
    if facts.is_paused:
        return (False, "Paused", "spec.pauseReconciliation is on; elections go on")
    if facts.problem is not None:
        reason = facts.problem[0]
        is_deleting = reason == DELETING
        what = "it is being deleted" if is_deleting else "it waits for a spec without mistakes"
        return (False, reason, what)
    message = describe_roll(facts.roll)
    if message:
        return (True, "Rolling", message)
    if ready < facts.wanted:
        return (True, "StartingBrokers", f"{ready} of {facts.wanted} brokers are ready")
    if facts.refused:
        return (False, REFUSED, facts.refused)
    return (False, "Settled", "everything is as the resources say")


def _store_claim(facts: ClusterFacts) -> _Claim:
    if facts.store_available is None:
        return (None, "ControllerNotReachable", facts.controller_problem or "not asked yet")
    if facts.store_available:
        return (True, "Available", "metadata can be read and written")
    return (False, "Frozen", facts.store_problem or "metadata cannot be written: leaders serve on")


def _degraded_claim(facts: ClusterFacts, status: Status) -> _Claim:
    if facts.controller is None:
        return (None, "ControllerNotReachable", facts.controller_problem or "not asked yet")
    under, offline = status["underReplicated"], status["offline"]
    if offline:
        return (True, "PartitionsOffline", f"{offline} partitions have no leader")
    if under:
        return (True, "UnderReplicated", f"{under} partitions lack replicas in sync")
    return (False, "InSync", "all partitions have all replicas in sync")


def describe_roll(action: RollAction) -> str:
    """Say what a rolling restart is at; empty if there is none."""
    match action:
        case NothingToRoll():
            return ""
        case Wait():
            return f"brokers have to restart, and wait: {action.message}"
        case Drain():
            return f"broker {action.broker_id} has to restart; its leaders move first"
        case Undrain():
            return f"broker {action.broker_id} has restarted; its leaders may come back"
        case DeletePod():
            return f"broker {action.broker_id} restarts: {action.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """What a BrokerPool's status is made of."""

    generation: int
    plan: PoolPlan | None = None
    """None where the spec could not be read, or the cluster is not there."""
    problem: tuple[str, str] | None = None
    brokers: Sequence[BrokerState] = ()
    roll: RollAction = field(default_factory=NothingToRoll)


def build_pool_status(facts: PoolFacts, previous: Status, now: datetime) -> Status:
    """Give the status of a BrokerPool."""
    pods = [broker for broker in facts.brokers if broker.pod_uid is not None]
    ready = sum(broker.is_ready and broker.is_live for broker in facts.brokers)
    status: Status = {
        "observedGeneration": facts.generation,
        "replicas": len(pods),
        "readyReplicas": ready,
        "updatedReplicas": sum(not broker.is_outdated for broker in pods),
    }
    kept = ["selector", "brokerIds", "storageSize"]
    if facts.problem is not None and facts.problem[0] != CLUSTER_NOT_FOUND:
        # Nobody has looked; what runs goes on as it was.
        kept += ["replicas", "readyReplicas", "updatedReplicas"]
    status |= {name: previous[name] for name in kept if name in previous}
    if facts.plan is not None:
        pool = facts.plan.pool
        selector = pool_selector(pool.spec.cluster_name, pool.name)
        status["selector"] = ",".join(f"{name}={value}" for name, value in selector.items())
        status["brokerIds"] = list(pool.broker_ids(facts.plan.replicas))
        if facts.plan.growth.held_size:
            status["storageSize"] = facts.plan.growth.held_size
    status["conditions"] = _pool_conditions(facts, previous, ready, now)
    return status


def _pool_conditions(
    facts: PoolFacts, previous: Status, ready: int, now: datetime
) -> list[Condition]:
    conditions: list[Condition] = list(previous.get("conditions") or ())

    def claim(type: str, value: bool | None, reason: str, message: str) -> list[Condition]:
        return set_condition(
            conditions, type, value, reason, message, generation=facts.generation, now=now
        )

    problem = pool_problem(facts)
    wanted = facts.plan.replicas if facts.plan is not None else 0
    is_starting = ready < wanted and (problem is None or problem[0] != REFUSED)
    if is_starting:
        conditions = claim("Ready", False, *unready_brokers(ready, wanted, facts.brokers))
    elif problem is not None:
        conditions = claim("Ready", False, *problem)
    else:
        conditions = claim("Ready", True, "Ready", f"{ready} brokers are ready")
    outdated = sum(broker.is_outdated for broker in facts.brokers)
    if outdated:
        image = facts.plan.image if facts.plan is not None else ""
        message = (
            f"{outdated} brokers run with earlier settings or another image than {image}. "
            f"{describe_roll(facts.roll)}"
        )
        conditions = claim("Progressing", True, "Rolling", message.strip())
    elif is_starting:
        message = f"{ready} of {wanted} brokers are ready"
        conditions = claim("Progressing", True, "StartingBrokers", message)
    elif problem is not None:
        message = "the pool stays as it is until that is put right"
        conditions = claim("Progressing", False, problem[0], message)
    else:
        conditions = claim("Progressing", False, "Settled", "all brokers run with these settings")
    if problem is not None:
        return claim("Blocked", True, *problem)
    return without_condition(conditions, "Blocked")


def pool_problem(facts: PoolFacts) -> tuple[str, str] | None:
    """Give what keeps a pool from becoming what its spec says: reason and message."""
    if facts.problem is not None:
        return facts.problem
    if facts.plan is not None and facts.plan.blocked:
        return facts.plan.blocked_reason, facts.plan.blocked
    return None
