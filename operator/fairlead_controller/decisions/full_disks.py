"""Replicas without room for records: a disk that is full, of a broker that lives.

Such a replica serves readers, and takes no records until its broker reports room again. So it
leaves the in-sync replicas, and another replica leads, if one is in sync and has room. If there is
none, the replica stays as it is: its partition can be read but not written.
"""

from collections.abc import Iterator, Sequence

from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import (
    Decision,
    PartitionMove,
    RelieveReplicas,
    ReportOffline,
)
from fairlead_controller.decisions.leader_election import Outcome
from fairlead_controller.decisions.leadership import ELECTED_PER_DECISION_MAX, elect_in, moved
from fairlead_controller.decisions.membership import Members, members_with_isr, present_members
from fairlead_controller.decisions.observations import PartitionKey, ReplicasFull
from fairlead_controller.decisions.state import ControllerState
from fairlead_model.cluster import TopicImage
from fairlead_model.ids import BrokerId
from fairlead_model.session.calls import LocatedPartition, ReportOfflineCall


def decide_room_report(state: ControllerState, event: ReportOffline) -> Decision:
    """Note all replicas of a broker that lack room, and relieve them where others have room.

    Partitions that have room again are looked at, too: their leader may be full meanwhile. A report
    in several calls leaves, with each of them, what the others are about as it is.
    """
    broker_id, call = event.broker_id, event.call
    draft = Draft(state)
    named = {_key(item) for item in call["partitions"]}
    full = frozenset(
        (topic.topic_id, index)
        for topic, index in _held(state, sorted(named))
        if broker_id in topic.partitions[index].replicas
    )
    known = state.observations.full.get(broker_id, frozenset())
    before = _concerned(known, call)
    if full != before:
        draft.add(ReplicasFull(broker_id, call["broker_epoch"], known - before | full))
    changed = _relieve_some(draft, broker_id, sorted(full | before))
    if full != before:
        draft.explain(
            f"broker {broker_id} has no room for records of {len(full)} replicas; "
            f"{changed} partitions change leader"
        )
    return draft.decision({})


def _concerned(known: frozenset[PartitionKey], call: ReportOfflineCall) -> frozenset[PartitionKey]:
    """Return those of the replicas that a call is about: all, unless it is one of several calls."""
    after, until = call.get("after"), call.get("until")
    if after is not None:
        first = _key(after)
        known = frozenset([key for key in known if key > first])
    if until is not None:
        last = _key(until)
        known = frozenset([key for key in known if key <= last])
    return known


def _key(located: LocatedPartition) -> PartitionKey:
    return located["topic_id"], located["index"]


def decide_relief(state: ControllerState, event: RelieveReplicas) -> Decision:
    """Relieve more of the replicas that lack room, unless they have room again."""
    draft = Draft(state)
    changed = _relieve_some(draft, event.broker_id, event.partitions)
    if changed:
        draft.explain(
            f"broker {event.broker_id} has no room for records; {changed} more partitions change "
            "leader"
        )
    return draft.decision({})


def _relieve_some(draft: Draft, broker_id: BrokerId, keys: Sequence[PartitionKey]) -> int:
    """Relieve replicas, and of very many leave some; return how many leaders change."""
    moves: list[PartitionMove] = []
    cause = f"broker {broker_id} has no room for records"
    for number, key in enumerate(keys):
        if len(moves) >= ELECTED_PER_DECISION_MAX:
            draft.leave(RelieveReplicas(broker_id, tuple(keys[number:])))
            break
        for topic, index in _held(draft.state, [key]):
            outcome = relieve(draft.state, topic, index, present_members(topic.partitions[index]))
            if outcome is not None:
                moves += moved(topic, index, outcome, cause)
    return draft.move(moves)


def relieve(
    state: ControllerState, topic: TopicImage, index: int, members: Members
) -> Outcome | None:
    """Return the next record without the members that lack room; None if nothing can change.

    Nothing does where none of them lacks room, or none of those with room can lead now.
    """
    full = state.observations.full_replicas(topic.topic_id, index)
    if full.isdisjoint(members.isr):
        return None
    may_lead = state.electability(topic.topic_id, index)
    rest = [broker_id for broker_id in members.isr if broker_id not in full]
    if not any(may_lead(broker_id) for broker_id in rest):
        return None
    partition = topic.partitions[index]
    return elect_in(state, topic, index, members_with_isr(partition, members, rest))


def _held(state: ControllerState, keys: list[PartitionKey]) -> Iterator[tuple[TopicImage, int]]:
    for topic_id, index in keys:
        topic = state.image.topic_by_id(topic_id)
        if topic is not None and index < len(topic.partitions):
            yield topic, index
