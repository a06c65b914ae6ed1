"""Draining: leaders move off a broker that is about to stop, while it still serves.

A draining broker stays unfenced and in sync, and leads only partitions that no other broker can
lead. A person, a rolling restart, the deletion of its pod or an unschedulable node asks for it. The
store does not keep it, because the requester also asks the next controller.
"""

from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import Decision, DrainBrokers, PartitionMove
from fairlead_controller.decisions.leadership import (
    ELECTED_PER_DECISION_MAX,
    elect_in,
    is_irreplaceable,
    moved,
)
from fairlead_controller.decisions.state import BrokerDraining, ControllerState
from fairlead_model.ids import BrokerId


def decide_drain(state: ControllerState, event: DrainBrokers) -> Decision:
    """Move the leaders of draining brokers to other in-sync replicas; let others lead again.

    The caller asks again while leaders remain, because more replicas may have come in sync, or
    there are very many of them: one decision moves at most `ELECTED_PER_DECISION_MAX`. The reply
    has the number that remains, by broker. All draining brokers are decided together, so that no
    leader moves from one of them to another.
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
    left = ELECTED_PER_DECISION_MAX
    for broker_id, reason in sorted(event.reasons.items()):
        lost, staying, put_off = _move_leaders(draft, broker_id, left)
        left -= lost
        remaining[broker_id] = staying + put_off
        if lost or broker_id in fresh:
            draft.explain(
                f"broker {broker_id} is being drained: {reason}; {lost} partitions change leader, "
                f"{staying} have nobody else in sync" + (f", {put_off} come later" * bool(put_off))
            )
    return draft.decision({"remaining_leaders": remaining})


def _move_leaders(draft: Draft, broker_id: BrokerId, most: int) -> tuple[int, int, int]:
    """Move what can be moved; return how many leaders move, stay, and are not looked at."""
    moves: list[PartitionMove] = []
    looked_at = put_off = 0
    for topic, index in draft.state.image.replicas_of(broker_id):
        if topic.partitions[index].leader != broker_id:
            continue
        if len(moves) >= most:
            put_off += 1
            continue
        looked_at += 1
        if is_irreplaceable(draft.state, topic, index):
            continue
        outcome = elect_in(draft.state, topic, index)
        moves += moved(topic, index, outcome, f"broker {broker_id} is being drained")
    lost = draft.move(moves)
    return lost, looked_at - lost, put_off
