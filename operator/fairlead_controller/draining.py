"""Brokers that are about to go, or to be worked on: leaders move off them while they are well.

A draining broker stays in service and in sync; it only leads what nobody else can lead. That is
asked for by hand, by a rolling restart, when its pod is being deleted or its node is made
unschedulable; it is not kept by the store, because whoever asked asks the next controller too.
"""

from fairlead_controller.draft import Draft
from fairlead_controller.events import Decision, DrainBrokers, PartitionMove
from fairlead_controller.leadership import elect_in, moved
from fairlead_controller.state import BrokerDraining, ControllerState
from fairlead_model.ids import BrokerId


def decide_drain(state: ControllerState, event: DrainBrokers) -> Decision:
    """Move the leaders of all draining brokers to others in sync; let the rest lead again.

    Asked again while leaders remain: others may have come in sync since. The reply holds how many,
    by broker. All at once, so that no leader moves from one that goes to another that goes too.
    """
    draft = Draft(state)
    over = state.draining - event.reasons.keys()
    fresh = event.reasons.keys() - state.draining
    draft.add(
        *(BrokerDraining(broker_id, False) for broker_id in sorted(over)),
        *(BrokerDraining(broker_id, True) for broker_id in sorted(fresh)),
    )
    for broker_id in sorted(over):
        draft.explain(f"broker {broker_id} may lead again")
    remaining = {}
    for broker_id, reason in sorted(event.reasons.items()):
        lost, leading = _move_leaders(draft, broker_id)
        remaining[broker_id] = leading - lost
        if lost or broker_id in fresh:
            draft.explain(
                f"broker {broker_id} is being drained: {reason}; {lost} partitions change leader, "
                f"{leading - lost} have nobody else in sync"
            )
    return draft.decision({"remaining_leaders": remaining})


def _move_leaders(draft: Draft, broker_id: BrokerId) -> tuple[int, int]:
    """Give how many leaders move, of how many."""
    moves: list[PartitionMove] = []
    leading = 0
    for topic, index in draft.state.image.replicas_of(broker_id):
        if topic.partitions[index].leader == broker_id:
            leading += 1
            outcome = elect_in(draft.state, topic, index)
            moves += moved(topic, index, outcome, f"broker {broker_id} is being drained")
    return draft.move(moves), leading
