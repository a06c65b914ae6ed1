"""Draining for good: all that a broker holds moves to others, and nothing new comes to it.

A dynamic config of the broker asks for it (`BROKER_DRAIN`), so the store keeps the order, and it
survives restarts and new disks of the broker until somebody cancels it. `progress` carries it out,
step by step. Kafka has the second half, `cordoned.log.dirs` (KIP-1066): a broker with only cordoned
directories gets no new replicas either, and keeps those that it has (`ControllerState.shut`).
"""

from collections.abc import Collection, Iterator, Sequence

from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import (
    CallMovesBack,
    Decision,
    DrainLeaders,
    MoveOff,
    PartitionMove,
)
from fairlead_controller.decisions.leader_election import ElectionReason, Outcome
from fairlead_controller.decisions.leadership import (
    ELECTED_PER_DECISION_MAX,
    elect_in,
    is_irreplaceable,
    moved,
)
from fairlead_controller.decisions.reassignment.progress import reverted
from fairlead_controller.decisions.state import ControllerState
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import TopicImage
from fairlead_model.ids import BrokerId
from fairlead_model.session.refusals import RefusalCode, RefusedError


def check_drain(state: ControllerState, broker_id: BrokerId) -> None:
    """Raise RefusedError, which says why, if others cannot take what a broker holds."""
    receivers = find_receivers(state, {broker_id})
    obstacle = find_obstacle(state, {broker_id}, receivers)
    if not receivers:
        obstacle = "no other broker is in service, and neither being drained nor cordoned"
    if obstacle:
        raise RefusedError(
            RefusalCode.POLICY_VIOLATION, f"broker {broker_id} cannot be drained: {obstacle}"
        )


def find_receivers(
    state: ControllerState, leaving: Collection[BrokerId]
) -> list[BrokerRegistration]:
    """Return the brokers in service that could take what the leaving ones hold."""
    return [
        broker
        for broker_id, broker in sorted(state.image.brokers.items())
        if broker.may_lead and broker_id not in state.closed and broker_id not in leaving
    ]


def find_obstacle(
    state: ControllerState,
    leaving: Collection[BrokerId],
    receivers: Collection[BrokerRegistration],
) -> str:
    """Say which partition has more replicas than brokers would be left for it; empty if none."""
    free = {broker.broker_id for broker in receivers}
    gone = {*leaving, *state.cordoned}
    for topic, index, base in held_by(state, leaving):
        if len(free.difference(base)) < len(gone.intersection(base)):
            who = f"only {_listed(sorted(free))}" if free else "no broker"
            return (
                f"partition {topic.name}-{index} has {len(base)} replicas, and besides {who} could "
                "have them; add a broker, or lower the topic's replication factor"
            )
    return ""


def held_by(
    state: ControllerState, leaving: Collection[BrokerId]
) -> Iterator[tuple[TopicImage, int, tuple[BrokerId, ...]]]:
    """Walk the partitions that leaving brokers keep, with the replicas that they shall have."""
    seen: set[tuple[bytes, int]] = set()
    for broker_id in sorted(leaving):
        for topic, index in state.image.replicas_of(broker_id):
            partition = topic.partitions[index]
            base = partition.queued_target or partition.target_replicas
            if broker_id in base and (topic.topic_id, index) not in seen:
                seen.add((topic.topic_id, index))
                yield topic, index, base


def _listed(brokers: list[BrokerId]) -> str:
    names = ", ".join(map(str, brokers))
    return f"broker {names}" if len(brokers) == 1 else f"brokers {names}"


def follow_drain(draft: Draft, broker_id: BrokerId, *, was_drained: bool) -> None:
    """Move the leaders of a broker that is drained from now on; call back what moves if not."""
    is_drained = broker_id in draft.state.cordoned
    if is_drained and not was_drained:
        begin_drain(draft, (broker_id,))
    elif was_drained and not is_drained:
        end_drain(draft, {broker_id})


def begin_drain(draft: Draft, brokers: Collection[BrokerId]) -> None:
    """Move the leaders off brokers that are drained from now on; of very many leave some."""
    moves: list[PartitionMove] = []
    for broker_id in sorted(brokers):
        for topic, index in draft.state.image.replicas_of(broker_id):
            if topic.partitions[index].leader != broker_id:
                continue
            if is_irreplaceable(draft.state, topic, index):
                continue
            if len(moves) >= ELECTED_PER_DECISION_MAX:
                draft.leave(DrainLeaders(tuple(sorted(brokers))))
                draft.move(moves)
                return
            outcome = elect_in(draft.state, topic, index)
            moves += moved(topic, index, outcome, f"broker {broker_id} is being drained")
    draft.move(moves)


def decide_drained_leaders(state: ControllerState, event: DrainLeaders) -> Decision:
    """Move more leaders off the brokers that are still drained."""
    draft = Draft(state)
    begin_drain(draft, state.cordoned.intersection(event.brokers))
    return draft.decision({})


def end_drain(draft: Draft, brokers: Collection[BrokerId]) -> None:
    """Call back what moves off these brokers, and off no other; of very many moves leave some."""
    moving: list[MoveOff] = []
    for broker_id in sorted(brokers):
        for topic, index in draft.state.image.replicas_of(broker_id):
            partition = topic.partitions[index]
            removing = partition.removing_replicas
            # A partition that leaves several of them is visited with the last one.
            if set(removing) <= set(brokers) and broker_id == max(removing, default=None):
                moving.append(MoveOff(topic.topic_id, index, partition.adding_replicas, removing))
    _call_back(draft, moving)


def _call_back(draft: Draft, moving: Sequence[MoveOff]) -> None:
    """Call back moves that are still the same, while their brokers are not drained again."""
    state = draft.state
    moves: list[PartitionMove] = []
    for each in moving[:ELECTED_PER_DECISION_MAX]:
        topic = state.image.topic_by_id(each.topic_id)
        if topic is None or not state.cordoned.isdisjoint(each.removing):
            continue
        partition = topic.partitions[each.index]
        present = (partition.adding_replicas, partition.removing_replicas)
        if present != (each.adding, each.removing):
            continue
        record = reverted(state, topic, each.index)
        if record is not None:
            outcome = Outcome(record, ElectionReason.FIRST_IN_SYNC)
            cause = f"broker {max(each.removing)} is not drained any more"
            moves += moved(topic, each.index, outcome, cause)
    if later := moving[ELECTED_PER_DECISION_MAX:]:
        draft.leave(CallMovesBack(tuple(later)))
    draft.move(moves)


def decide_moves_back(state: ControllerState, event: CallMovesBack) -> Decision:
    """Call back more of what moves off brokers that are not drained any more."""
    draft = Draft(state)
    _call_back(draft, event.moves)
    return draft.decision({})
