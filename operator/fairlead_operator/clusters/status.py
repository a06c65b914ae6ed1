"""The status of a LogCluster and of its BrokerPools. Pure.

Counts come from the controller. While it cannot be reached, the last counts stay and the conditions
say so. The same facts give the same status, so nothing is written when nothing has changed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from fairlead_model.resources.hibernation import ASLEEP, HIBERNATED, STOPPING, WAKING
from fairlead_operator.clusters.fencing import FenceReport, describe_fences
from fairlead_operator.clusters.hibernation import Hibernation, HibernationPhase
from fairlead_operator.clusters.plan import PoolPlan
from fairlead_operator.clusters.rolling import (
    OUTSIDE_WINDOW,
    BrokerState,
    DeletePod,
    Drain,
    NothingToRoll,
    RollAction,
    Undrain,
    Wait,
)
from fairlead_operator.clusters.scale_down import named_brokers
from fairlead_operator.conditions import (
    PAUSED,
    Condition,
    set_condition,
    set_paused,
    without_condition,
)
from fairlead_operator.resources.listener import DEFAULT_LISTENER
from fairlead_operator.specs.names import bootstrap_service_name, pool_selector

Status = dict[str, Any]
_KEPT: Final = ("controller", "clusterId", "brokerImage", "configGeneration")
_COUNTS: Final = ("brokers", "brokersReady", "topics", "partitions", "underReplicated", "offline")


REFUSED: Final = "Refused"
"""Reason for a part that the API server refuses."""
CLUSTER_NOT_FOUND: Final = "ClusterNotFound"
STORE_ROLLED_BACK: Final = "StoreRolledBack"
"""Reason for a cluster whose metadata objects are older than an earlier state that was seen."""
BROKERS_FAILING: Final = "BrokersFailing"
BROKERS_FENCED: Final = "BrokersFenced"
VOLUMES_FAILED: Final = "VolumesFailed"
"""Condition of a pool whose brokers run without a volume; reason of a degraded LogCluster."""
UPGRADE_AVAILABLE: Final = "UpgradeAvailable"
"""Condition that exists while brokers run another image than the operator's release."""
DRAINING: Final = "Draining"
"""Reason for brokers that are emptied because their pool shall have fewer."""
WAITING_FOR_WINDOW: Final = "WaitingForWindow"
"""Reason for brokers that restart in the next maintenance window."""
CERTIFICATES_READY: Final = "CertificatesReady"
CERTIFICATE_PROBLEM: Final = "CertificateProblem"
DELETING: Final = "Deleting"
"""Reason for a deletion that has not finished."""
CLUSTER_PAUSED: Final = "the LogCluster is paused; elections go on"
POOL_PAUSED: Final = "the pool is paused: changes wait until spec.paused is false; elections go on"
POOL_ASLEEP: Final = "changes take effect once the brokers are awake"
DELETION_HELD: Final = (
    "somebody has deleted the LogCluster, but it is protected and its brokers keep running: set "
    "spec.deletionProtection to false to let the deletion proceed"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """The facts from which a LogCluster's status is built."""

    name: str
    namespace: str
    generation: int
    problem: tuple[str, str] | None = None
    """Reason and message of a problem that stops the reconciliation of the cluster."""
    refused: str = ""
    """What the API server refused of the cluster's parts, and what to do."""
    is_secured: bool = False
    """Whether the cluster uses certificates."""
    certificate_problems: Sequence[str] = ()
    rotation: str = ""
    """The step of a rotation of the authority."""
    is_paused: bool = False
    hibernation: Hibernation = field(default_factory=Hibernation)
    is_deletion_held: bool = False
    """Somebody has requested to delete a protected cluster."""
    wanted: int = 0
    brokers: Sequence[BrokerState] = ()
    controller: Mapping[str, Any] | None = None
    """The controller's status; None if it cannot be reached."""
    controller_problem: str = ""
    controller_pod: str = ""
    store_available: bool | None = None
    store_problem: str = ""
    store_rolled_back: bool = False
    """Whether the tables are older than an earlier state that was seen; then nothing is decided."""
    failed_volumes: Mapping[int, Mapping[int, str]] = field(default_factory=dict)
    """By broker: its failed volumes, and how they failed."""
    leaving: Sequence[int] = ()
    """Brokers that are emptied because their pool shall have fewer."""
    fences: FenceReport = field(default_factory=FenceReport)
    roll: RollAction = field(default_factory=NothingToRoll)
    next_window: str = ""
    """When the next maintenance window begins; empty while brokers may restart."""
    is_config_in_force: bool = False
    """Whether all brokers use the settings of this generation."""
    config_problem: str = ""
    """Why the controller refuses settings."""
    image: str = ""
    """The brokers' image."""
    bootstrap_port: int = DEFAULT_LISTENER.port
    """Port of the bootstrap Service that clients inside Kubernetes use first."""
    upgrade_hint: str = ""
    """How brokers get the operator's release; empty if they have it."""


_Claim = tuple[bool | None, str, str]


def build_cluster_status(facts: ClusterFacts, previous: Status, now: datetime) -> Status:
    """Return the status of a LogCluster."""
    status: Status = {name: previous[name] for name in _COUNTS if name in previous}
    ready = sum(broker.is_ready and broker.is_live for broker in facts.brokers)
    status |= {
        "observedGeneration": facts.generation,
        "brokers": facts.wanted,
        "brokersReady": ready,
    }
    if facts.problem is not None:
        # The brokers were not checked; those that run continue unchanged.
        status |= {name: previous[name] for name in ("brokers", "brokersReady") if name in previous}
    service = f"{bootstrap_service_name(facts.name)}.{facts.namespace}.svc"
    status |= {"bootstrap": f"{service}:{facts.bootstrap_port}"}
    status |= {name: previous[name] for name in _KEPT if name in previous}
    if facts.is_config_in_force:
        status["configGeneration"] = facts.generation
    if facts.next_window and is_put_off(facts.roll):
        status["restartsWaitUntil"] = facts.next_window
    if facts.image:
        status["brokerImage"] = facts.image
    if facts.controller is not None:
        status |= _counted(facts.controller, facts.controller_pod)
    conditions: list[Condition] = list(previous.get("conditions") or ())
    for type, (claim, reason, message) in _cluster_claims(facts, status).items():
        conditions = set_condition(
            conditions, type, claim, reason, message, generation=facts.generation, now=now
        )
    conditions = set_paused(
        conditions,
        CLUSTER_PAUSED if facts.is_paused else "",
        generation=facts.generation,
        now=now,
    )
    if facts.is_deletion_held:
        conditions = set_condition(
            conditions,
            DELETING,
            False,
            "DeletionProtected",
            DELETION_HELD,
            generation=facts.generation,
            now=now,
        )
    if facts.problem is None and not facts.is_secured and not facts.is_paused:
        conditions = without_condition(conditions, CERTIFICATES_READY)
    for type, part in _passing_claims(facts).items():
        if part is not None:
            conditions = set_condition(
                conditions, type, *part, generation=facts.generation, now=now
            )
        elif facts.problem is None:
            conditions = without_condition(conditions, type)
    status["conditions"] = conditions
    return status


def _passing_claims(facts: ClusterFacts) -> dict[str, _Claim | None]:
    """Return the conditions that exist only while they have something to report."""
    upgrade = (True, "NewerImage", facts.upgrade_hint) if facts.upgrade_hint else None
    claims: dict[str, _Claim | None] = {UPGRADE_AVAILABLE: upgrade}
    if facts.controller is not None and not facts.is_paused:
        claims[BROKERS_FENCED] = describe_fences(facts.fences)
    hibernation = facts.hibernation
    claims[HIBERNATED] = (
        (hibernation.reason == ASLEEP, hibernation.reason, hibernation.message)
        if hibernation.phase is not HibernationPhase.AWAKE
        else None
    )
    return claims


def _counted(controller: Mapping[str, Any], pod: str) -> Status:
    """Return what the controller knows of a cluster."""
    counts = controller["partitions"]
    return {
        "topics": len(controller["topics"]),
        "partitions": counts["partitions"],
        "underReplicated": counts["underReplicated"],
        "offline": counts["offline"],
        "clusterId": controller["clusterId"],
        "controller": {"pod": pod, "epoch": controller["controller"]["epoch"]},
    }


def _cluster_claims(facts: ClusterFacts, status: Status) -> dict[str, _Claim]:
    claims = {
        "Ready": _ready_claim(facts, status),
        "Progressing": _progress_claim(facts, status["brokersReady"]),
        "StoreAvailable": _store_claim(facts),
        "Degraded": _degraded_claim(facts, status),
    }
    if facts.is_secured:
        claims[CERTIFICATES_READY] = _certificates_claim(facts)
    return claims


def _certificates_claim(facts: ClusterFacts) -> _Claim:
    if facts.certificate_problems:
        first, *others = facts.certificate_problems
        more = f" (and {len(others)} more)" if others else ""
        return (False, CERTIFICATE_PROBLEM, first + more)
    if facts.rotation:
        return (True, "Rotating", facts.rotation)
    return (True, "Issued", "all listeners with TLS have certificates")


def _ready_claim(facts: ClusterFacts, status: Status) -> _Claim:
    if facts.problem is not None:
        return (False, *facts.problem)
    if facts.refused:
        return (False, REFUSED, facts.refused)
    if facts.store_rolled_back:
        return (False, STORE_ROLLED_BACK, facts.store_problem)
    if facts.hibernation.is_down:
        return (False, HIBERNATED, facts.hibernation.message)
    if facts.controller is None:
        return (None, "ControllerNotReachable", facts.controller_problem or "not asked yet")
    if facts.hibernation.phase is HibernationPhase.WAKING:
        reason, message = unready_brokers(status["brokersReady"], facts.wanted, facts.brokers)
        return (False, reason if reason == BROKERS_FAILING else WAKING, message)
    if not facts.wanted:
        return (False, "NoBrokers", "no BrokerPool adds brokers to this cluster: create one")
    if status["offline"]:
        return (False, "PartitionsOffline", f"{status['offline']} partitions have no leader")
    if status["brokersReady"] < facts.wanted:
        return (False, *unready_brokers(status["brokersReady"], facts.wanted, facts.brokers))
    return (True, "Ready", f"{facts.wanted} brokers are ready")


def unready_brokers(ready: int, wanted: int, brokers: Sequence[BrokerState]) -> tuple[str, str]:
    """Return reason and message for brokers that are not ready, with a failing broker's message."""
    message = f"{ready} of {wanted} brokers are ready"
    failing = [broker for broker in brokers if broker.failure]
    absent = next((broker for broker in brokers if broker.pod_uid is None), None)
    fenced = [broker.broker_id for broker in brokers if broker.is_fenced]
    if fenced:
        message += f"; fenced by order: {named_brokers(fenced)}"
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
    return BROKERS_FAILING, text


def _progress_claim(facts: ClusterFacts, ready: int) -> _Claim:
    if facts.is_paused:
        return (False, PAUSED, CLUSTER_PAUSED)
    if facts.problem is not None:
        reason = facts.problem[0]
        is_deleting = reason == DELETING
        what = "it is being deleted" if is_deleting else "it waits until its spec is corrected"
        return (False, reason, what)
    if facts.hibernation.is_down:
        is_stopping = facts.hibernation.phase is HibernationPhase.STOPPING
        reason = STOPPING if is_stopping else HIBERNATED
        return (is_stopping, reason, facts.hibernation.message)
    message = describe_roll(facts.roll)
    if message:
        return (True, _roll_reason(facts.roll), message)
    if ready < facts.wanted:
        return (True, "StartingBrokers", f"{ready} of {facts.wanted} brokers are ready")
    if facts.leaving:
        message = f"{named_brokers(facts.leaving)} will be removed: other brokers take over first"
        return (True, DRAINING, message)
    if facts.refused:
        return (False, REFUSED, facts.refused)
    if facts.config_problem:
        return (True, "ConfigNotInForce", facts.config_problem)
    return (False, "Settled", "everything is as the resources say")


def _store_claim(facts: ClusterFacts) -> _Claim:
    if facts.store_rolled_back:
        return (False, STORE_ROLLED_BACK, facts.store_problem)
    if facts.store_available is None:
        return (None, "ControllerNotReachable", facts.controller_problem or "not asked yet")
    if facts.store_available:
        return (True, "Available", "metadata can be read and written")
    problem = "metadata cannot be written: leaders keep serving, and nothing moves"
    return (False, "Frozen", facts.store_problem or problem)


def _degraded_claim(facts: ClusterFacts, status: Status) -> _Claim:
    if facts.hibernation.is_down:
        return (False, HIBERNATED, "no broker is to serve")
    if facts.controller is None:
        return (None, "ControllerNotReachable", facts.controller_problem or "not asked yet")
    under, offline = status["underReplicated"], status["offline"]
    if offline:
        return (True, "PartitionsOffline", f"{offline} partitions have no leader")
    if facts.failed_volumes:
        lacking = f"; {under} partitions are under-replicated" if under else ""
        return (True, VOLUMES_FAILED, describe_failed_volumes(facts.failed_volumes) + lacking)
    if under:
        return (True, "UnderReplicated", f"{under} partitions are under-replicated")
    return (False, "InSync", "all partitions have all replicas in sync")


def describe_failed_volumes(failed: Mapping[int, Mapping[int, str]]) -> str:
    """Name brokers and their failed volumes."""
    said = [
        f"volume {volume} has failed broker {broker_id}: {why}"
        for broker_id, volumes in sorted(failed.items())
        for volume, why in sorted(volumes.items())
    ]
    more = f" (and {len(said) - 3} more)" if len(said) > 3 else ""
    return "; ".join(said[:3]) + more


def is_put_off(action: RollAction) -> bool:
    """Tell whether brokers have to restart and wait for a maintenance window."""
    return isinstance(action, Wait) and action.reason == OUTSIDE_WINDOW


def _roll_reason(action: RollAction) -> str:
    return WAITING_FOR_WINDOW if is_put_off(action) else "Rolling"


def describe_roll(action: RollAction) -> str:
    """Describe a rolling restart; empty if there is none."""
    match action:
        case NothingToRoll():
            return ""
        case Wait():
            return f"brokers have to restart, and wait: {action.message}"
        case Drain():
            return f"broker {action.broker_id} has to restart; its leaders move first"
        case Undrain(is_put_off=True):
            return (
                f"the maintenance window is over before broker {action.broker_id} could restart; "
                "its leaders may come back"
            )
        case Undrain():
            return f"broker {action.broker_id} has restarted; its leaders may come back"
        case DeletePod():
            return f"broker {action.broker_id} restarts: {action.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """The facts from which a BrokerPool's status is built."""

    generation: int
    plan: PoolPlan | None = None
    """None if the spec could not be read, or the cluster does not exist."""
    problem: tuple[str, str] | None = None
    brokers: Sequence[BrokerState] = ()
    roll: RollAction = field(default_factory=NothingToRoll)
    failed_volumes: Mapping[int, Mapping[int, str]] = field(default_factory=dict)
    """By broker: its failed volumes, and how they failed."""
    drained_volumes: Mapping[int, Collection[int]] = field(default_factory=dict)
    """By broker: the volumes that get no replica and hold none."""


def build_pool_status(facts: PoolFacts, previous: Status, now: datetime) -> Status:
    """Return the status of a BrokerPool."""
    pods = [broker for broker in facts.brokers if broker.pod_uid is not None]
    ready = sum(broker.is_ready and broker.is_live for broker in facts.brokers)
    status: Status = {
        "observedGeneration": facts.generation,
        "replicas": len(pods),
        "readyReplicas": ready,
        "updatedReplicas": sum(not broker.is_outdated for broker in pods),
    }
    kept = ["selector", "brokerIds", "storageSize", "volumes"]
    if facts.problem is not None and facts.problem[0] != CLUSTER_NOT_FOUND:
        # The brokers were not checked; those that run continue unchanged.
        kept += ["replicas", "readyReplicas", "updatedReplicas"]
    status |= {name: previous[name] for name in kept if name in previous}
    if facts.plan is not None:
        if not facts.plan.pool.spec.storage.volumes:
            status.pop("volumes", None)
        pool = facts.plan.pool
        selector = pool_selector(pool.spec.cluster_name, pool.name)
        status["selector"] = ",".join(f"{name}={value}" for name, value in selector.items())
        status["brokerIds"] = list(pool.broker_ids(facts.plan.replicas))
        if facts.plan.leaving:
            status["draining"] = list(facts.plan.leaving)
        status |= _volume_status(facts)
    status["conditions"] = _pool_conditions(facts, previous, ready, now)
    return status


def _volume_status(facts: PoolFacts) -> Status:
    """Return the state of the pool's volumes; one entry for each if it names several."""
    if facts.plan is None:
        return {}
    status: Status = {}
    for held in facts.plan.volumes.held:
        if held.volume == 0:
            status["storageSize"] = held.size
    if facts.plan.pool.spec.storage.volumes and facts.plan.volumes.held:
        status["volumes"] = [
            {"id": held.volume, "size": held.size, "claims": held.claims, "bound": held.bound}
            | _brokers_that("failedOn", facts.failed_volumes, held.volume)
            | _brokers_that("drainedOn", facts.drained_volumes, held.volume)
            for held in facts.plan.volumes.held
        ]
    return status


def _brokers_that(name: str, volumes: Mapping[int, Collection[int]], volume: int) -> Status:
    """Return a field with the brokers that have an entry for a volume; empty without any."""
    brokers = sorted(each for each, told in volumes.items() if volume in told)
    return {name: brokers} if brokers else {}


def _volume_conditions(facts: PoolFacts, previous: Status, now: datetime) -> list[Condition]:
    """Return the previous conditions, with what is known of failed volumes now."""
    conditions: list[Condition] = list(previous.get("conditions") or ())
    if facts.failed_volumes:
        return set_condition(
            conditions,
            VOLUMES_FAILED,
            True,
            "LogDirectoryOffline",
            describe_failed_volumes(facts.failed_volumes),
            generation=facts.generation,
            now=now,
        )
    return conditions if facts.plan is None else without_condition(conditions, VOLUMES_FAILED)


def _pool_conditions(
    facts: PoolFacts, previous: Status, ready: int, now: datetime
) -> list[Condition]:
    conditions = _volume_conditions(facts, previous, now)

    def claim(type: str, value: bool | None, reason: str, message: str) -> list[Condition]:
        return set_condition(
            conditions, type, value, reason, message, generation=facts.generation, now=now
        )

    is_paused = facts.plan is not None and facts.plan.pool.spec.paused
    conditions = set_paused(
        conditions, POOL_PAUSED if is_paused else "", generation=facts.generation, now=now
    )
    problem = pool_problem(facts)
    wanted = facts.plan.replicas if facts.plan is not None else 0
    is_asleep = facts.plan is not None and facts.plan.is_asleep
    is_starting = ready < wanted and (problem is None or problem[0] != REFUSED) and not is_asleep
    if is_asleep:
        message = f"{wanted} brokers sleep until spec.hibernated of the LogCluster is false"
        conditions = claim("Ready", False, HIBERNATED, message)
    elif is_starting:
        conditions = claim("Ready", False, *unready_brokers(ready, wanted, facts.brokers))
    elif problem is not None:
        conditions = claim("Ready", False, *problem)
    else:
        conditions = claim("Ready", True, "Ready", f"{ready} brokers are ready")
    outdated = sum(broker.is_outdated for broker in facts.brokers)
    if is_paused:
        conditions = claim("Progressing", False, PAUSED, POOL_PAUSED)
    elif is_asleep:
        conditions = claim("Progressing", False, HIBERNATED, POOL_ASLEEP)
    elif outdated:
        image = facts.plan.image if facts.plan is not None else ""
        message = (
            f"{outdated} brokers run with earlier settings or another image than {image}. "
            f"{describe_roll(facts.roll)}"
        )
        conditions = claim("Progressing", True, _roll_reason(facts.roll), message.strip())
    elif is_starting:
        message = f"{ready} of {wanted} brokers are ready"
        conditions = claim("Progressing", True, "StartingBrokers", message)
    elif problem is None and facts.plan is not None and facts.plan.leaving:
        message = f"{named_brokers(facts.plan.leaving)} will be removed: {facts.plan.progress}"
        conditions = claim("Progressing", True, DRAINING, message)
    elif problem is not None:
        message = "the pool stays as it is until the problem in Blocked is solved"
        conditions = claim("Progressing", False, problem[0], message)
    else:
        conditions = claim("Progressing", False, "Settled", "all brokers run with these settings")
    if problem is not None:
        return claim("Blocked", True, *problem)
    return without_condition(conditions, "Blocked")


def pool_problem(facts: PoolFacts) -> tuple[str, str] | None:
    """Return what keeps a pool from its spec: reason and message."""
    if facts.problem is not None:
        return facts.problem
    if facts.plan is not None and facts.plan.blocked:
        return facts.plan.blocked_reason, facts.plan.blocked
    return None
