"""How one member moves to its target assignment (KIP-848; Kafka's `CurrentAssignmentBuilder`).

Pure. A member changes only within its own heartbeats. It first learns which partitions to give up,
and stays at its epoch until it no longer reports them. It gets new partitions once no other member
has them. So no partition ever belongs to two members (G12).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairlead_broker.group.records.consumer_records import CurrentAssignment, MemberState
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from fairlead_broker.group.assignors.assignment import TopicIdPartition
    from fairlead_broker.group.records.consumer_records import AssignedPartitions, Target
    from fairlead_model.ids import TopicId


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """A member that shall be moved.

    `owned` is what it says it has now, None where it said nothing. `holders` are the members that
    have partitions of the group, assigned or not yet given up. `topic_ids` are the topics that it
    subscribes to; `has_changed_subscription` if that is news of this very request.
    """

    member_id: str
    current: CurrentAssignment
    assignment_epoch: int
    target: Target
    topic_ids: Collection[TopicId]
    holders: Mapping[TopicIdPartition, str]
    owned: frozenset[TopicIdPartition] | None
    has_changed_subscription: bool = False

    def result(self) -> CurrentAssignment:
        """Return what the member has from now on; the very same where nothing changes.

        KafkaError FENCED_MEMBER_EPOCH if a later version of Kafka left it in a state that this
        broker does not know, and it does not join again.
        """
        current = self.current
        state = current.state
        if state is MemberState.STABLE:
            if current.member_epoch != self.assignment_epoch:
                return self._compute()
            return self._drop_unsubscribed() if self.has_changed_subscription else current
        if state is MemberState.UNREVOKED_PARTITIONS:
            if self._owns_any(current.pending_revocation):
                return self._drop_unsubscribed() if self.has_changed_subscription else current
            return self._compute()
        if state is MemberState.UNKNOWN and (self.owned is None or self.owned):
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "the member is in a state that only a later version knows; it must join again",
            )
        return self._compute()

    def _compute(self) -> CurrentAssignment:
        current, epoch, holders = self.current, self.assignment_epoch, self.holders
        target = {each for each in self.target if each.topic_id in self.topic_ids}
        kept = {each: since for each, since in current.assigned.items() if each in target}
        revoked = {each: since for each, since in current.assigned.items() if each not in target}
        if revoked and self._owns_any(revoked):
            return current._replace(
                state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=revoked
            )
        added = [each for each in target if each not in kept]
        free = [each for each in added if holders.get(each, self.member_id) == self.member_id]
        kept.update(dict.fromkeys(free, epoch))
        is_complete = len(free) == len(added)
        has_moved = epoch != current.member_epoch
        moved = CurrentAssignment(
            epoch,
            current.member_epoch if has_moved else current.previous_member_epoch,
            MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS,
            kept,
            {},
        )
        return current if moved == current else moved

    def _drop_unsubscribed(self) -> CurrentAssignment:
        """Take away at once what it does not subscribe to any more (KAFKA-19431)."""
        current = self.current
        kept = {each: at for each, at in current.assigned.items() if each[0] in self.topic_ids}
        if len(kept) == len(current.assigned):
            return current
        dropped = {each: at for each, at in current.assigned.items() if each not in kept}
        pending = {**current.pending_revocation, **dropped}
        if self._owns_any(pending):
            return current._replace(
                state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=pending
            )
        return current._replace(assigned=kept)

    def _owns_any(self, partitions: AssignedPartitions) -> bool:
        """Whether the member may still read one of these: it has not said that it doesn't."""
        return self.owned is None or not self.owned.isdisjoint(partitions)
