"""Rules that every record of a group keeps; checked before it is written. Pure.

A record that breaks a rule is a defect in the state machine. A replay would refuse it, or build a
group that no client has seen (R22). So it is not written, and its operation fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.group.records.consumer_records import (
    CurrentAssignment,
    GroupEpoch,
    RecordKey,
    TargetMetadata,
)
from fairlead_model.invariants import violated

if TYPE_CHECKING:
    from fairlead_broker.group.records.classic_records import GroupValue
    from fairlead_broker.group.records.consumer_records import RecordValue
    from fairlead_broker.group.records.consumer_state import ConsumerGroupState


def require_group_record(
    record: GroupValue | None, *, member_count: int, recorded_generation_id: int
) -> None:
    """Require of a group's next record that it is one, and may follow the one before it.

    Its generation does not fall, each member and static instance is in it once, and one of the
    members leads (G6). None, a tombstone, may be written only for a group without members (G7).
    """
    if record is None:
        if member_count:
            violated("{} members of a group that is deleted", member_count)
        return
    if record.generation_id < recorded_generation_id:
        violated("generation {} after {}", record.generation_id, recorded_generation_id)
    members = record.members
    ids = {each.member_id for each in members}
    if len(ids) != len(members) or "" in ids:
        violated("a member of generation {} is there twice", record.generation_id)
    instances = [each.group_instance_id for each in members if each.group_instance_id is not None]
    if len(set(instances)) != len(instances):
        violated("a static instance of generation {} is there twice", record.generation_id)
    if (record.leader not in ids) if members else (record.leader is not None):
        violated("{} leads generation {} and is no member", record.leader, record.generation_id)


def require_consumer_record(key: RecordKey, value: RecordValue, state: ConsumerGroupState) -> None:
    """Require of a record of a group of KIP-848 that it may follow those before it.

    No epoch of the group falls, none is ahead of the epoch that it is made for, and no partition of
    a member belongs to another member (G12, G13).
    """
    if isinstance(value, GroupEpoch) and state.is_logged:
        if value.epoch < state.epoch:
            violated("group epoch {} after {}", value.epoch, state.epoch)
    elif isinstance(value, TargetMetadata):
        if not state.assignment_epoch <= value.assignment_epoch <= state.epoch:
            violated(
                "assignment epoch {} after {}, in group epoch {}",
                value.assignment_epoch,
                state.assignment_epoch,
                state.epoch,
            )
    elif isinstance(value, CurrentAssignment):
        if key.name not in state.members:
            violated("an assignment of {}, who is no member", key.name)
        if value.member_epoch > state.assignment_epoch:
            violated("{} is ahead of epoch {}", key.name, state.assignment_epoch)
        for partitions in (value.assigned, value.pending_revocation):
            for partition in partitions:
                holder = state.holders.get(partition, key.name)
                if holder != key.name:
                    violated("{} is given {}, which {} has", key.name, partition, holder)
