"""Moving leaders and members of many partitions in one decision."""

from collections.abc import Callable, Iterable

from fairlead_controller.draft import Draft
from fairlead_controller.election import (
    ElectionReason,
    IsElectable,
    Outcome,
    elect,
    excluding,
    with_leader,
)
from fairlead_controller.events import PartitionMove
from fairlead_controller.membership import Members, members_without, present_members
from fairlead_controller.state import ControllerState
from fairlead_model.cluster import TopicImage
from fairlead_model.ids import BrokerId


def elect_in(
    state: ControllerState,
    topic: TopicImage,
    index: int,
    members: Members | None = None,
    *,
    without: BrokerId | None = None,
    allows_unclean: bool | None = None,
) -> Outcome:
    """Elect in one partition with all that the controller knows of it.

    `members` None leaves them as they are; `without` cannot lead; `allows_unclean` None asks the
    topic's config.
    """
    partition = topic.partitions[index]
    is_electable: IsElectable = state.electability(topic.topic_id, index)
    if without is not None:
        is_electable = excluding(without, is_electable)
    if allows_unclean is None:
        allows_unclean = state.allows_unclean_election(topic)
    if members is None:
        members = present_members(partition)
    spared = state.draining.intersection(members.isr)
    if spared:
        # Only among those in sync: a draining broker leads rather than that anything is given up.
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


def remove_from_partitions(
    draft: Draft,
    broker_id: BrokerId,
    cause: str,
    *,
    is_unclean: Callable[[TopicImage, int], bool] = lambda topic, index: False,
    keeps_leading: Callable[[TopicImage, int], bool] = lambda topic, index: False,
    partitions: Iterable[tuple[TopicImage, int]] | None = None,
) -> int:
    """Take a broker out of ISR and leadership, of all its partitions; give how many leaders change.

    Where it `is_unclean` it leaves the eligible replicas too, and even as the last in-sync one.
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
        outcome = elect_in(state, topic, index, members, without=broker_id)
        moves += moved(topic, index, outcome, cause)
    return draft.move(moves)


def elect_on(draft: Draft, broker_id: BrokerId, cause: str) -> int:
    """Elect leaders for the leaderless partitions of a broker that has become electable."""
    return elect_leaderless(draft, draft.state.image.replicas_of(broker_id), cause)


def elect_leaderless(draft: Draft, partitions: Iterable[tuple[TopicImage, int]], cause: str) -> int:
    """Elect leaders for those of some partitions that have none; give how many have one now."""
    state = draft.state
    moves: list[PartitionMove] = []
    for topic, index in partitions:
        if not topic.partitions[index].has_leader:
            moves += moved(topic, index, elect_in(state, topic, index), cause)
    return draft.move(moves)


def prefer_leader(state: ControllerState, topic: TopicImage, index: int) -> Outcome | None:
    """Give the next record under the preferred leader; None if that one cannot lead now."""
    partition = topic.partitions[index]
    preferred = partition.preferred_leader
    may_lead = state.electability(topic.topic_id, index)
    if preferred not in partition.isr or preferred in state.draining or not may_lead(preferred):
        return None
    record = with_leader(partition, present_members(partition), preferred)
    return Outcome(record, ElectionReason.PREFERRED)


def moved(topic: TopicImage, index: int, outcome: Outcome, cause: str) -> list[PartitionMove]:
    """Give the move to an outcome; none if that is the present record."""
    before, after = topic.partitions[index], outcome.partition
    if after is before:
        return []
    why = str(outcome.reason) if before.leader != after.leader else ""
    return [PartitionMove(topic.name, topic.topic_id, index, before, after, cause, why)]
