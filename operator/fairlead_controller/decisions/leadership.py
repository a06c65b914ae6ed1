"""Changes of leaders and members of many partitions in one decision.

One decision looks at so many partitions that it holds up the loop for a quarter of a second or so,
in which the controller hears nobody and renews no Lease. What it leaves (`Draft.leave`) is decided
next. What is left is not durable: a controller that follows elects on each broker that it hears.
"""

from collections.abc import Callable, Iterable
from typing import Final

from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import Decision, ElectLeaderless, PartitionMove
from fairlead_controller.decisions.leader_election import (
    ElectionReason,
    IsElectable,
    Outcome,
    elect,
    excluding,
    with_leader,
)
from fairlead_controller.decisions.membership import Members, members_without, present_members
from fairlead_controller.decisions.restored_holders import awaits_testimony
from fairlead_controller.decisions.state import ControllerState
from fairlead_model.cluster import TopicImage
from fairlead_model.ids import BrokerId
from fairlead_model.partition import PartitionRegistration

ELECTED_PER_DECISION_MAX: Final = 5_000
"""Partitions without a leader that one decision looks at, and leaders that one moves."""


def elect_in(
    state: ControllerState,
    topic: TopicImage,
    index: int,
    members: Members | None = None,
    *,
    partition: PartitionRegistration | None = None,
    without: BrokerId | None = None,
    allows_unclean: bool | None = None,
) -> Outcome:
    """Elect in one partition, with all that the controller knows of it.

    `members` None leaves them as they are; `partition` stands for the present record; `without`
    cannot lead; `allows_unclean` None uses the topic's config.
    """
    if partition is None:
        partition = topic.partitions[index]
    is_electable: IsElectable = state.electability(topic.topic_id, index)
    if without is not None:
        is_electable = excluding(without, is_electable)
    if allows_unclean is None:
        allows_unclean = state.allows_unclean_election(topic)
    if members is None:
        members = present_members(partition)
    if not (allows_unclean or members.isr or members.elr) and awaits_testimony(state):
        # The holder of the fullest log may be a broker that is still to say so.
        is_electable = nobody
    if allows_unclean and is_anybody_awaited(state, members):
        # It holds every acknowledged record, and is heard or fenced within a session timeout.
        allows_unclean = False
    full = state.observations.full_replicas(topic.topic_id, index)
    spared = (state.spared | full).intersection(members.isr)
    if spared:
        # Only in-sync replicas: a draining broker leads before records are given up, and a broker
        # with a full disk leads before the partition cannot be read.
        outcome = elect(
            partition,
            members,
            lambda broker_id: broker_id not in spared and is_electable(broker_id),
        )
        if outcome.reason in {ElectionReason.STAYS, ElectionReason.FIRST_IN_SYNC}:
            return outcome
    return elect(
        partition,
        members,
        is_electable,
        allows_unclean=allows_unclean,
        logs=state.log_facts(topic.topic_id, index, partition),
    )


def is_irreplaceable(state: ControllerState, topic: TopicImage, index: int) -> bool:
    """Tell whether a leader can stay, and no other replica in sync can lead in its place.

    This costs a fraction of the election that would find it out. A broker may lead ten thousands of
    such partitions while the others are down, and whoever drains it asks again and again.
    """
    partition = topic.partitions[index]
    may_lead = state.electability(topic.topic_id, index)
    if partition.leader not in partition.isr or not may_lead(partition.leader):
        return False
    others = [each for each in partition.isr if each != partition.leader and may_lead(each)]
    if not others:
        return True
    full = state.observations.full_replicas(topic.topic_id, index)
    return state.spared.union(full).issuperset(others)


def is_anybody_awaited(state: ControllerState, members: Members) -> bool:
    """Tell whether a member is in service, as far as known, and has only not been heard yet."""
    return any(
        state.image.is_live(broker_id)
        for broker_id in state.unconfirmed.intersection((*members.isr, *members.elr))
    )


def nobody(broker_id: BrokerId) -> bool:
    """Tell of no broker that it may lead."""
    return False


def remove_from_partitions(
    draft: Draft,
    broker_id: BrokerId,
    cause: str,
    *,
    is_unclean: Callable[[TopicImage, int], bool] = lambda topic, index: False,
    keeps_leading: Callable[[TopicImage, int], bool] = lambda topic, index: False,
    partitions: Iterable[tuple[TopicImage, int]] | None = None,
    all_or_none: bool = False,
) -> int:
    """Remove a broker from all ISRs and leaderships; return how many leaders change.

    Where it `is_unclean` it leaves the eligible replicas too, and even as the last in-sync one.
    `all_or_none` as in `Draft.move`: where a replica that stayed in sync might lack records.
    """
    state = draft.state
    held = state.image.replicas_of(broker_id) if partitions is None else partitions
    moves: list[PartitionMove] = []
    for topic, index in held:
        partition = topic.partitions[index]
        unclean = is_unclean(topic, index)
        is_member = broker_id in partition.isr or (unclean and broker_id in partition.elr)
        if not is_member or keeps_leading(topic, index):
            continue
        members = members_without(partition, broker_id, is_unclean=unclean)
        is_waiting = not partition.has_leader and members == present_members(partition)
        if is_waiting and not state.allows_unclean_election(topic):
            continue  # For this broker, and only an unclean election could make another one lead.
        outcome = elect_in(state, topic, index, members, without=broker_id)
        moves += moved(topic, index, outcome, cause)
    return draft.move(moves, all_or_none=all_or_none)


def elect_on(draft: Draft, broker_id: BrokerId, cause: str) -> int:
    """Elect leaders for the leaderless partitions of a broker that has become electable."""
    return elect_leaderless(draft, draft.state.image.replicas_of(broker_id), cause)


def elect_leaderless(draft: Draft, partitions: Iterable[tuple[TopicImage, int]], cause: str) -> int:
    """Elect leaders for partitions that have none; return how many have one now.

    Of very many partitions the first ones are looked at, and the others are left.
    """
    state = draft.state
    moves: list[PartitionMove] = []
    waiting = [each for each in partitions if not each[0].partitions[each[1]].has_leader]
    for topic, index in waiting[:ELECTED_PER_DECISION_MAX]:
        moves += moved(topic, index, elect_in(state, topic, index), cause)
    if later := waiting[ELECTED_PER_DECISION_MAX:]:
        keys = tuple([(topic.topic_id, index) for topic, index in later])
        draft.leave(ElectLeaderless(keys, cause))
    return draft.move(moves)


def decide_further_elections(state: ControllerState, event: ElectLeaderless) -> Decision:
    """Look at more of the partitions that a decision before has left."""
    draft = Draft(state)
    present = [
        (topic, index)
        for topic_id, index in event.partitions
        if (topic := state.image.topic_by_id(topic_id)) is not None
    ]
    elected = elect_leaderless(draft, present, event.cause)
    if elected:
        draft.explain(f"{event.cause}; leaders of {elected} more partitions are elected")
    return draft.decision({})


def prefer_leader(state: ControllerState, topic: TopicImage, index: int) -> Outcome | None:
    """Return the next record under the preferred leader; None if it cannot lead now."""
    if preference_problem(state, topic, index):
        return None
    partition = topic.partitions[index]
    record = with_leader(partition, present_members(partition), partition.preferred_leader)
    return Outcome(record, ElectionReason.PREFERRED)


def preference_problem(state: ControllerState, topic: TopicImage, index: int) -> str:
    """Say why the preferred leader of a partition cannot lead now; empty if it can."""
    partition, name = topic.partitions[index], f"{topic.name}-{index}"
    broker = f"broker {partition.preferred_leader}"
    preferred = partition.preferred_leader
    if preferred in partition.adding_replicas:
        return f"{broker} is only being added to {name}: ask again when its reassignment has ended"
    if not state.is_electable(preferred):
        return f"{broker} is not in service"
    if preferred in state.observations.offline_replicas(topic.topic_id, index):
        return f"{broker} cannot use its replica of {name}"
    if preferred not in partition.isr:
        return f"{broker} is not in sync for {name}"
    if preferred in state.spared:
        return f"{broker} is being drained"
    if preferred in state.observations.full_replicas(topic.topic_id, index):
        return f"the disk of {broker} has no room for records of {name}"
    return ""


def moved(topic: TopicImage, index: int, outcome: Outcome, cause: str) -> list[PartitionMove]:
    """Return the move to an outcome, or no move if the record stays the same."""
    before, after = topic.partitions[index], outcome.partition
    if after is before:
        return []
    why = str(outcome.reason) if before.leader != after.leader else ""
    return [PartitionMove(topic.name, topic.topic_id, index, before, after, cause, why)]
