"""Rolling restarts: which broker may restart next, if any. Pure.

One broker restarts at a time, and only while every partition has all its replicas in sync: then no
partition loses its last in-sync replica, whichever broker stops. Its leaders are moved away first.
Brokers of all pools count, even those that do not restart. Anything unknown stops a restart
(`Wait`), because it is always safe to wait.

A broker that neither serves nor recovers (its image cannot be pulled, its settings are refused)
comes first and does not wait for the others, nor for a maintenance window: a restart cannot make it
worse.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

OUTSIDE_WINDOW: Final = "OutsideWindow"
"""Reason of a wait for a maintenance window."""
DRAIN_S_MAX: Final = 15.0
"""Leaders that have not moved by then cannot move: their partitions have one replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """One broker, from its pod and the controller."""

    broker_id: int
    pod: str
    pod_uid: str | None
    """None: the broker has no pod."""
    is_outdated: bool
    """The pod runs with another template than the pool's present one."""
    is_terminating: bool = False
    is_ready: bool = False
    is_live: bool = False
    """The controller has a session with it, and it serves."""
    is_recovering: bool | None = False
    """It reads its logs after a crash; None if it did not answer the question."""
    failure: str = ""
    """Why its pod does not start, in the broker's or Kubernetes' words."""
    leaders: int = 0
    is_fenced: bool = False
    """It was fenced by an order, and is left unchanged."""
    is_leaving: bool = False
    """Its pool gives it up: it is emptied, and then its pod is deleted."""
    draining_s: float | None = None
    """How long it has been draining; None if it is not draining."""
    unsaid_volumes: tuple[int, ...] = ()
    """Volumes that a new pod would not have, and that it has not reported as empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollObserved:
    """All brokers of a cluster, and its partitions; counts are None if unknown."""

    brokers: Sequence[BrokerState]
    under_replicated: int | None
    offline: int | None
    hold: str = ""
    """Why no broker in service may restart now, whatever its template; empty if one may."""
    is_settled: bool = True
    """The StatefulSet controller has seen the present templates."""
    others_away: Sequence[str] = ()
    """Pods of brokers that are not in `brokers` and do not serve: their pool is being deleted,
    cannot be read, or is left alone, or gives them up."""


@dataclass(frozen=True, slots=True)
class NothingToRoll:
    """All pods run with the present template."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing now; look again."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Move the leaders off a broker."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class Undrain:
    """Let leaders return: the broker has restarted, or need not restart after all."""

    broker_id: int
    is_put_off: bool = False
    """It restarts in the next maintenance window."""


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Restart a broker: delete its pod, and the StatefulSet creates it again."""

    broker_id: int
    pod: str
    pod_uid: str
    message: str


RollAction: TypeAlias = NothingToRoll | Wait | Drain | Undrain | DeletePod


def decide_roll_action(observed: RollObserved) -> RollAction:
    """Return the next step of a rolling restart."""
    outdated = [broker for broker in observed.brokers if _has_to_restart(broker)]
    returned = [
        broker
        for broker in observed.brokers
        if broker.draining_s is not None and not broker.is_outdated and _serves(broker)
    ]
    if returned:
        return Undrain(returned[0].broker_id)
    if not outdated:
        return NothingToRoll()
    if observed.under_replicated is None or observed.offline is None:
        return Wait("ControllerNotReachable", "the controller could not be asked for partitions")
    if not observed.is_settled:
        return Wait("TemplateNotSeen", "the StatefulSet's controller has not seen the change yet")
    leaving = [broker for broker in observed.brokers if broker.is_terminating]
    if leaving:
        return Wait("BrokerStopping", f"broker {leaving[0].broker_id} is stopping")
    stuck = next((broker for broker in outdated if _is_stuck(broker)), None)
    if stuck is not None:
        return _delete(stuck, "it does not serve, and gets a pod with the present settings")
    if observed.hold:
        return _put_off(outdated, observed.hold)
    obstacle = find_obstacle(observed)
    if obstacle is not None:
        return obstacle
    unsaid = next((broker for broker in outdated if broker.unsaid_volumes), None)
    if unsaid is not None:
        return Wait(
            "VolumeInUse",
            f"broker {unsaid.broker_id} has not confirmed that it holds nothing on volume "
            f"{unsaid.unsaid_volumes[0]}, which its next pod does not have",
        )
    return _next_step(outdated)


def _put_off(outdated: Sequence[BrokerState], hold: str) -> RollAction:
    """Return leaders to a broker that was about to restart when the window ended, then wait."""
    begun = next((broker for broker in outdated if broker.draining_s is not None), None)
    if begun is not None:
        return Undrain(begun.broker_id, is_put_off=True)
    return Wait(OUTSIDE_WINDOW, hold)


def _next_step(outdated: Sequence[BrokerState]) -> RollAction:
    """Continue with the broker that is draining, else choose the one with the fewest leaders."""
    broker = min(
        outdated,
        key=lambda candidate: (
            candidate.draining_s is None,
            candidate.leaders,
            candidate.broker_id,
        ),
    )
    if broker.draining_s is None:
        return Drain(broker.broker_id)
    if not broker.leaders:
        return _delete(broker, "its leaders have moved")
    if broker.draining_s < DRAIN_S_MAX:
        return Wait(
            "LeadersMoving", f"{broker.leaders} leaders are moving off broker {broker.broker_id}"
        )
    return _delete(
        broker, f"{broker.leaders} leaders could not move: their partitions have no other replica"
    )


def find_obstacle(observed: RollObserved) -> Wait | None:
    """Return why no broker in service may restart now."""
    absent = next((broker for broker in observed.brokers if not _serves(broker)), None)
    if absent is not None:
        what = "recovers its logs" if absent.is_recovering else "does not serve"
        what = "is fenced by order" if absent.is_fenced else what
        return Wait("BrokerNotReady", f"broker {absent.broker_id} {what}")
    if observed.others_away:
        return Wait("BrokerNotReady", f"the broker of pod {observed.others_away[0]} does not serve")
    if observed.under_replicated or observed.offline:
        return Wait(
            "PartitionsNotInSync",
            f"{observed.under_replicated} partitions are under-replicated, "
            f"{observed.offline} offline",
        )
    return None


def _has_to_restart(broker: BrokerState) -> bool:
    """Tell whether a pod has an old template, unless it leaves anyway or has to stay unchanged."""
    if not broker.is_outdated or not broker.pod_uid or broker.is_fenced:
        return False
    return not broker.is_leaving or not _serves(broker) or broker.draining_s is not None


def _serves(broker: BrokerState) -> bool:
    return broker.is_ready and broker.is_live and not broker.is_terminating


def _is_stuck(broker: BrokerState) -> bool:
    return not broker.is_ready and not broker.is_live and broker.is_recovering is False


def _delete(broker: BrokerState, message: str) -> RollAction:
    if broker.pod_uid is None:
        return Wait("BrokerNotReady", f"broker {broker.broker_id} has no pod")
    return DeletePod(broker.broker_id, broker.pod, broker.pod_uid, message)
