"""Another number of replicas for the partitions of a topic that a resource declares. Pure.

The rules are those of `fairlead topic alter --replication-factor`: new replicas go to other
machines, then other racks, then to the brokers with the fewest replicas; those that miss records go
first, and never a partition's first one. Copies take their turn like those of all reassignments.

A resource may change or cancel a change that it has begun:

    2 replicas, 3 wanted            one is added
    then 2 again, it is not there   the reassignment is cancelled, or leaves the queue
    then 2 again, it is there       one is taken away

A partition that another reassignment moves keeps its number of replicas until it has moved.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.leader_election import ElectionReason, Outcome
from fairlead_controller.decisions.leadership import moved
from fairlead_controller.decisions.reassignment.planning import Holdings
from fairlead_controller.decisions.reassignment.progress import Slots, begun, reverted
from fairlead_model.cluster import TopicImage
from fairlead_model.partition import PartitionRegistration
from fairlead_model.session.refusals import RefusalCode, RefusedError

if TYPE_CHECKING:
    from fairlead_controller.decisions.events import PartitionMove

PARTITIONS_PER_DECISION_MAX: Final = 1_000
"""Partitions that one decision resizes; the caller asks again for the rest."""


@dataclass(slots=True)
class Unresized:
    """How many partitions have another number of replicas yet, by the reason."""

    busy: int = 0
    """Another reassignment moves them, or they wait for it."""
    short: int = 0
    """There are too few brokers for them."""
    left: int = 0
    """It is not their turn."""


def needs_resizing(topic: TopicImage, factor: int) -> bool:
    """Tell whether some partition has, and shall have, another number of replicas."""
    return any(
        len(partition.queued_target or partition.target_replicas) != factor
        for partition in topic.partitions
    )


class Resizer:
    """The topics that one decision resizes; what earlier ones get counts for later ones."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._holdings: Holdings | None = None
        self._slots = Slots(draft.state)
        self._left = PARTITIONS_PER_DECISION_MAX

    def resize(self, topic: TopicImage, factor: int) -> Unresized:
        """Begin or queue what a topic lacks; RefusedError if it does not fit the tables."""
        unresized = Unresized()
        moves: list[PartitionMove] = []
        for index, partition in enumerate(topic.partitions):
            if len(partition.queued_target or partition.target_replicas) == factor:
                continue
            if not self._left:
                unresized.left += 1
                continue
            record = self._next(topic, index, factor, unresized)
            if record is not None:
                self._left -= 1
                cause = f"Topic {topic.header.resource} asks for {factor} replicas"
                moves += moved(topic, index, Outcome(record, ElectionReason.FIRST_IN_SYNC), cause)
        self._draft.move(moves)
        if moves:
            self._draft.explain(
                f"{len(moves)} partitions of topic {topic.name} get {factor} replicas"
            )
        return unresized

    def _next(
        self, topic: TopicImage, index: int, factor: int, unresized: Unresized
    ) -> PartitionRegistration | None:
        """Return the next record of a partition; None, and counted, if it has to wait."""
        state, partition = self._draft.state, topic.partitions[index]
        target = partition.target_replicas
        if partition.queued_target:
            if len(target) == factor:
                return partition.changed(queued_target=())
            if len(partition.queued_target) == len(target):
                unresized.busy += 1
                return None
        elif partition.is_being_reassigned:
            original = len(partition.original_replicas)
            record = reverted(state, topic, index) if original == factor else None
            if record is not None:
                return record
            if len(target) == original or original == factor:
                unresized.busy += 1
                return None
        if self._holdings is None:
            self._holdings = Holdings(state)
        resized = self._holdings.resized(target, factor, partition.isr)
        if resized is None:
            unresized.short += 1
            return None
        self._holdings.note(partition.queued_target or target, resized)
        return self._begun_or_queued(topic, index, resized)

    def _begun_or_queued(
        self, topic: TopicImage, index: int, target: tuple[int, ...]
    ) -> PartitionRegistration:
        partition = topic.partitions[index]
        additions = [each for each in target if each not in partition.replicas]
        may_begin = partition.is_being_reassigned or not additions
        if may_begin or (partition.has_leader and self._slots.has_room_for(partition, additions)):
            record = begun(self._draft.state, topic, index, target)
            self._slots.take(record)
            return record
        return partition.changed(queued_target=target)


def require_resized(topic: TopicImage, factor: int, unresized: Unresized) -> None:
    """Raise RefusedError if partitions have to wait before they can have so many replicas."""
    count = len(topic.partitions)
    if unresized.short:
        raise RefusedError(
            RefusalCode.INVALID_REPLICATION_FACTOR,
            f"{factor} replicas need as many brokers that are up, and neither being drained nor "
            f"cordoned: {unresized.short} of {count} partitions of topic {topic.name!r} cannot get "
            "them",
        )
    if unresized.busy:
        raise RefusedError(
            RefusalCode.REASSIGNMENT_IN_PROGRESS,
            f"{unresized.busy} of {count} partitions of topic {topic.name!r} are being moved by "
            f"somebody else; they get {factor} replicas after that",
        )
    if unresized.left:
        raise RefusedError(
            RefusalCode.REASSIGNMENT_IN_PROGRESS,
            f"{unresized.left} of {count} partitions of topic {topic.name!r} get {factor} replicas "
            "when those before them have been asked for",
        )
