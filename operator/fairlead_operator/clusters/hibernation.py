"""A cluster that sleeps: when its brokers may stop, and what is said of it until it is awake. Pure.

All brokers of a cluster stop at once, each in good order, so that none has to recover its logs, and
each goes on where it stopped, in whatever order they come back. This is only true of brokers that
serve: a broker that recovers after a crash, or has replicas that are not in sync, would come back
with a log that may lack records. So hibernation begins only once every broker serves, every replica
is in sync, and nothing moves. A hibernation that has begun goes on whatever happens meanwhile: the
StatefulSets record it (`is_asleep`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from fairlead_model.resources.hibernation import ASLEEP, STOPPING, WAKING
from fairlead_operator.clusters.rolling import BrokerState, RollObserved, find_obstacle
from fairlead_operator.clusters.scale_down import named_brokers


class HibernationPhase(Enum):
    """How far a cluster is on its way into sleep or out of it."""

    AWAKE = "awake"
    WAITING = "waiting"
    """It shall hibernate, and something prevents it."""
    STOPPING = "stopping"
    ASLEEP = "asleep"
    WAKING = "waking"


@dataclass(frozen=True, slots=True)
class Hibernation:
    """The decision about a cluster's hibernation, and its condition."""

    phase: HibernationPhase = HibernationPhase.AWAKE
    sleeps: bool = False
    """Whether its brokers are to be stopped, or remain stopped."""
    reason: str = ""
    message: str = ""

    @property
    def is_down(self) -> bool:
        """Whether no brokers are expected: they are stopping on purpose, or have stopped."""
        return self.phase in {HibernationPhase.STOPPING, HibernationPhase.ASLEEP}

    @property
    def is_about_to_sleep(self) -> bool:
        """Whether nothing new may begin that would delay hibernation."""
        return self.phase is HibernationPhase.WAITING


@dataclass(frozen=True, slots=True, kw_only=True)
class HibernationSight:
    """The facts of the decision."""

    is_wanted: bool
    is_begun: bool
    """A StatefulSet of the cluster records that its brokers hibernate."""
    was_asleep: bool = False
    """The status says that it hibernated and is not yet awake."""
    is_paused: bool = False
    paused_pools: Sequence[str] = ()
    pods: Sequence[str] = ()
    """Names of the brokers' pods that exist."""
    brokers: Sequence[BrokerState] = ()
    controller: Mapping[str, Any] | None = None
    drill: str = ""
    """The name of a drill of the cluster that is under way."""


def decide_hibernation(sight: HibernationSight) -> Hibernation:
    """Decide whether a cluster hibernates."""
    if sight.is_paused:
        return _leave_as_it_is(sight)
    if not sight.is_wanted:
        return _wake(sight)
    if sight.is_begun:
        return _go_on(sight)
    obstacle = _find_obstacle(sight)
    if obstacle is None:
        return _go_on(sight)
    reason, message = obstacle
    if sight.was_asleep:
        message = f"the cluster wakes first, and sleeps again after that: {message}"
        return Hibernation(HibernationPhase.WAKING, reason=WAKING, message=message)
    return Hibernation(
        HibernationPhase.WAITING, reason=reason, message=f"brokers stop later: {message}"
    )


def _leave_as_it_is(sight: HibernationSight) -> Hibernation:
    """Decide for a paused cluster, whose brokers stay as they are."""
    if sight.is_begun:
        message = "spec.paused is true: brokers stay asleep until it is false"
        phase = HibernationPhase.STOPPING if sight.pods else HibernationPhase.ASLEEP
        return Hibernation(phase, True, STOPPING if sight.pods else ASLEEP, message)
    if sight.is_wanted:
        message = "brokers stop later: spec.paused is true"
        return Hibernation(HibernationPhase.WAITING, reason="Paused", message=message)
    return _wake(sight)


def _go_on(sight: HibernationSight) -> Hibernation:
    if sight.pods and sight.paused_pools:
        message = f"BrokerPool {sight.paused_pools[0]} is paused: its brokers keep running"
        return Hibernation(HibernationPhase.STOPPING, True, STOPPING, message)
    if sight.pods:
        many = f"{len(sight.pods)} brokers stop" if len(sight.pods) > 1 else "1 broker stops"
        return Hibernation(HibernationPhase.STOPPING, True, STOPPING, f"{many} in good order")
    message = "no broker runs until spec.hibernated is false; volumes and metadata are kept"
    return Hibernation(HibernationPhase.ASLEEP, True, ASLEEP, message)


def _wake(sight: HibernationSight) -> Hibernation:
    """Decide for a cluster that is not to hibernate: it wakes until all its brokers serve."""
    away = [broker.broker_id for broker in sight.brokers if not _serves(broker)]
    if not sight.is_begun and not (sight.was_asleep and away):
        return Hibernation()
    message = f"{len(away)} brokers start: {named_brokers(away)}" if away else "brokers start"
    if sight.paused_pools and sight.is_begun:
        message = f"BrokerPool {sight.paused_pools[0]} is paused: its brokers stay asleep"
    return Hibernation(HibernationPhase.WAKING, reason=WAKING, message=message)


def _find_obstacle(sight: HibernationSight) -> tuple[str, str] | None:
    """Return reason and message of what has to end before brokers may stop."""
    if not sight.pods and not sight.brokers:
        return None
    if sight.paused_pools:
        return "PoolPaused", f"BrokerPool {sight.paused_pools[0]} is paused"
    orphans = sorted(set(sight.pods) - {broker.pod for broker in sight.brokers})
    if orphans:
        return (
            "PodOfNoPool",
            f"pod {orphans[0]} belongs to no BrokerPool, or to one that is deleted or unreadable",
        )
    if sight.controller is None:
        return "ControllerNotReachable", "the controller could not be asked for partitions"
    if sight.drill:
        return "DrillRunning", f"drill {sight.drill} is under way"
    leaving = [broker.broker_id for broker in sight.brokers if broker.is_leaving]
    if leaving:
        return "Draining", f"{named_brokers(leaving)} will leave, and others take over first"
    moving = sum(int(topic.get("reassigning") or 0) for topic in sight.controller["topics"])
    if moving:
        return "PartitionsMoving", f"replicas of {moving} partitions move"
    drained = next((each for each in sight.brokers if each.draining_s is not None), None)
    if drained is not None:
        return "Rolling", f"leaders come back to broker {drained.broker_id}"
    counts = sight.controller["partitions"]
    wait = find_obstacle(
        RollObserved(
            brokers=sight.brokers,
            under_replicated=counts["underReplicated"],
            offline=counts["offline"],
        )
    )
    return None if wait is None else (wait.reason, wait.message)


def _serves(broker: BrokerState) -> bool:
    return broker.is_ready and broker.is_live
