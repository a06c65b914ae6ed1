"""Fencing by order: a person takes a broker out of service, until that is taken back.

A dynamic config of the broker holds the order (`BROKER_FENCE`), so the store keeps it, and it
outlives restarts of the broker and of controllers. The broker is fenced as one that is dead, though
its process goes on: it leads nothing, is in no in-sync set and gets nothing new, and copies on what
it holds, so that it is in sync soon after the order is taken back.

Unlike a death it is refused where it would do harm: where too few replicas in sync, or none, would
be left (I19).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import AlterConfigs, Decision, FenceByOrder
from fairlead_controller.decisions.leadership import remove_from_partitions
from fairlead_controller.decisions.registration import (
    LEFT_PER_DECISION_MAX,
    partitions_to_take,
    parts_max,
)
from fairlead_controller.decisions.state import BrokerLeaving, ControllerState
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import BrokerChanged
from fairlead_model.configs.config_values import BROKER_FENCE
from fairlead_model.ids import BrokerId
from fairlead_model.session.calls import (
    AlterableResource,
    AlterConfigsCall,
    AlterOperation,
    ConfigAlteration,
    ResourceType,
)
from fairlead_model.session.refusals import RefusalCode, RefusedError

NAMED_MAX: Final = 5
"""Partitions that a refusal names."""


def fence_by_order(broker_id: BrokerId, reason: str | None) -> AlterConfigs:
    """Return the event that gives the order, or with None takes it back."""
    operation = AlterOperation.DELETE if reason is None else AlterOperation.SET
    alteration = ConfigAlteration(name=BROKER_FENCE, operation=operation, value=reason)
    resource = AlterableResource(
        resource_type=ResourceType.BROKER, name=str(broker_id), alterations=[alteration]
    )
    call = AlterConfigsCall(resources=[resource], validate_only=False, incremental=True)
    return AlterConfigs(call)


def check_fence(state: ControllerState, broker_id: BrokerId) -> None:
    """Raise RefusedError, which names partitions, if they need the broker in service."""
    obstacles = list(find_obstacles(state, broker_id))
    if not obstacles:
        return
    named = "; ".join(obstacles[:NAMED_MAX])
    more = len(obstacles) - NAMED_MAX
    raise RefusedError(
        RefusalCode.POLICY_VIOLATION,
        f"broker {broker_id} cannot be fenced, because partitions need it: {named}"
        + (f"; and {more} more" if more > 0 else ""),
    )


def find_obstacles(state: ControllerState, broker_id: BrokerId) -> Iterator[str]:
    """Walk the partitions that need a broker in service, and say why."""
    for topic, index in state.image.replicas_of(broker_id):
        partition = topic.partitions[index]
        name = f"{topic.name}-{index}"
        if broker_id in partition.isr:
            serves = state.electability(topic.topic_id, index)
            left = sum(serves(each) for each in partition.isr if each != broker_id)
            needed = partition.effective_min_isr
            if not left:
                yield f"{name} has no other replica in sync"
            elif left < needed:
                yield f"{name} would have {left} in sync, and needs {needed} (min.insync.replicas)"
        elif not partition.has_leader and broker_id in {*partition.elr, *partition.last_known_elr}:
            yield f"{name} has no leader, and this broker may be the one that can lead it"


def follow_fence(draft: Draft, broker_id: BrokerId, *, was_ordered: bool) -> None:
    """Fence a broker that is ordered out of service from now on.

    A broker whose order was cancelled comes into service when it next reports that it is ready.
    """
    is_ordered = broker_id in draft.state.ordered_out
    known = draft.state.image.brokers[broker_id]
    if was_ordered and not is_ordered:
        draft.explain(f"broker {broker_id} may be in service again")
        if broker_id in draft.state.leaving:
            draft.add(BrokerLeaving(broker_id, is_leaving=False))
    if was_ordered or not is_ordered or known.fenced:
        return
    _carry_out(draft, known, parts_max(draft.state, broker_id))


def decide_ordered_fencing(state: ControllerState, event: FenceByOrder) -> Decision:
    """Go on to fence a broker, unless its order was taken back, or it is out of service."""
    draft = Draft(state)
    known = state.image.brokers.get(event.broker_id)
    if known is None or known.broker_epoch != event.broker_epoch or known.fenced:
        return draft.decision({})
    if event.broker_id in state.ordered_out:
        _carry_out(draft, known, event.parts_left)
    return draft.decision({})


def _carry_out(draft: Draft, known: BrokerRegistration, parts_left: int) -> None:
    """Fence a broker, or take some of its partitions from it first if it has very many.

    The order is durable before anything else is: a controller that ends between two parts leaves
    the others to the next one (`decide_elections`).
    """
    broker_id = known.broker_id
    cause = f"broker {broker_id} is fenced by order"
    held = partitions_to_take(draft.state, broker_id)
    now, later = held[:LEFT_PER_DECISION_MAX], held[LEFT_PER_DECISION_MAX:]
    if parts_left > 0 and later:
        if broker_id not in draft.state.leaving:
            draft.add(BrokerLeaving(broker_id))
        lost = remove_from_partitions(draft, broker_id, cause, partitions=now)
        draft.leave(FenceByOrder(broker_id, known.broker_epoch, parts_left - 1))
        draft.explain(
            f"broker {broker_id} is about to be fenced by order; {lost} partitions change leader, "
            f"{len(later)} come later"
        )
        return
    draft.add(BrokerChanged(replace(known, fenced=True)))
    lost = remove_from_partitions(draft, broker_id, cause)
    draft.explain(f"{cause}; {lost} partitions change leader")
