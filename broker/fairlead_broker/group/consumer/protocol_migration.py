"""How a group with members goes from one protocol to the other while they read (KIP-848).

Pure. At an upgrade every member keeps the assignment of its leader, with the generation as its
epoch. At a downgrade every member has the partitions that it reads, and the generation is the group
epoch that members know, so that they can commit before they join again. So no generation falls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.group.consumer.classic_members import assignment_bytes, known_partitions
from fairlead_broker.group.consumer.target_assignment import metadata_hash
from fairlead_broker.group.consumer_protocol import (
    ConsumerSubscription,
    decode_assignment,
    decode_subscription,
)
from fairlead_broker.group.records.classic_records import GroupValue, MemberRecord
from fairlead_broker.group.records.consumer_records import (
    ClassicMember,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    MemberState,
    RecordType,
    RecordValue,
    TargetMetadata,
)
from fairlead_broker.group.records.consumer_state import FIRST_EPOCH
from fairlead_broker.group.subscription import CONSUMER_PROTOCOL_TYPE
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairlead_broker.group.assignors.assignment import TopicIdPartition
    from fairlead_broker.group.group_types import MigratingMember
    from fairlead_broker.group.records.consumer_state import ConsumerGroupState
    from fairlead_model.cluster import ClusterImage

Records = list[tuple[RecordType, RecordValue, str]]
"""Kind and value of each, and the member that it is of."""


def upgraded(
    protocol_type: str,
    generation_id: int,
    members: Sequence[MigratingMember],
    image: ClusterImage,
) -> Records:
    """Return the records of a classic group in the protocol of KIP-848.

    KafkaError GROUP_ID_NOT_FOUND if that would lose something: members that are no consumers, or
    whose assignor keeps data of its own in assignments.
    """
    if protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _refused(f"its members are of type {protocol_type}")
    epoch = max(generation_id, FIRST_EPOCH)
    metadata: Records = []
    targets: Records = []
    currents: Records = []
    names: set[str] = set()
    owned: dict[str, frozenset[TopicIdPartition]] = {}
    for member in members:
        record = member.record
        subscription = _subscription(member)
        owned[record.member_id] = known_partitions(subscription.owned, image)
        names.update(subscription.topics)
        metadata.append(
            (
                RecordType.MEMBER_METADATA,
                MemberMetadata(
                    record.group_instance_id,
                    subscription.rack_id,
                    record.client_id,
                    record.client_host,
                    subscription.topics,
                    "",
                    record.rebalance_timeout_ms,
                    None,
                    ClassicMember(record.session_timeout_ms, member.protocols),
                ),
                record.member_id,
            )
        )
    for member_id, target in _kept_partitions(members, owned, image).items():
        targets.append((RecordType.TARGET_MEMBER, target, member_id))
        current = CurrentAssignment(
            epoch, epoch, MemberState.STABLE, dict.fromkeys(target, epoch), {}
        )
        currents.append((RecordType.CURRENT_ASSIGNMENT, current, member_id))
    group_epoch = GroupEpoch(epoch, metadata_hash(names, image))
    return [
        *metadata,
        (RecordType.EPOCH, group_epoch, ""),
        *targets,
        (RecordType.TARGET_METADATA, TargetMetadata(epoch), ""),
        *currents,
    ]


def _subscription(member: MigratingMember) -> ConsumerSubscription:
    record = member.record
    try:
        return decode_subscription(record.subscription or member.protocols[0][1])
    except ValueError as error:
        raise _refused(f"of member {record.member_id}: {error}") from error


def _kept_partitions(
    members: Sequence[MigratingMember],
    owned: Mapping[str, frozenset[TopicIdPartition]],
    image: ClusterImage,
) -> dict[str, frozenset[TopicIdPartition]]:
    """Return what each member reads: what it was given last, and what it owned when it joined.

    Cooperative members read that on until they are told of what they were given; and a rebalance
    that ends before its leader has assigned anything gives them nothing.
    """
    kept: dict[str, frozenset[TopicIdPartition]] = {}
    taken: set[TopicIdPartition] = set()
    for record, _ in members:
        try:
            assignment = decode_assignment(record.assignment)
        except ValueError as error:
            raise _refused(f"of member {record.member_id}: {error}") from error
        if assignment.user_data:
            raise _refused("its assignor keeps data of its own in assignments")
        mine = known_partitions(assignment.partitions, image)
        if not taken.isdisjoint(mine):
            raise _refused("two of its members have the same partition")
        taken |= mine
        kept[record.member_id] = mine
    for member_id, mine in owned.items():
        kept[member_id] |= mine - taken
        taken |= mine
    return kept


def can_downgrade(state: ConsumerGroupState, size_max: int) -> bool:
    """Whether no member uses the protocol of KIP-848 any more, and there is room."""
    return 0 < len(state.members) <= size_max and all(
        member.classic is not None for member in state.members.values()
    )


def downgraded(
    state: ConsumerGroupState, former_epoch: int, image: ClusterImage, *, now_wall_ms: int
) -> GroupValue:
    """Return the record of a group whose members all use the classic protocol.

    Its generation is the group epoch before the change that brings this (Kafka's
    `ClassicGroup.fromConsumerGroup`). It has no leader if partitions have yet to be assigned.
    """
    protocol = _common_protocol(state)
    members = tuple(_classic_records(state, image, protocol))
    is_settled = state.epoch == former_epoch and _is_settled(state)
    return GroupValue(
        CONSUMER_PROTOCOL_TYPE,
        former_epoch,
        protocol,
        members[0].member_id if is_settled else None,
        now_wall_ms,
        members,
    )


def _classic_records(
    state: ConsumerGroupState, image: ClusterImage, protocol: str
) -> Iterator[MemberRecord]:
    for member_id, member in state.members.items():
        if member.classic is not None:
            subscription = dict(member.classic.protocols).get(protocol, b"")
            current = state.current(member_id)
            # All partitions that it reads, and not its target (as Kafka writes): if these differ,
            # all members join again. If the group changes back before that, no partition may look
            # free that is not.
            read = {*current.assigned, *current.pending_revocation}
            yield MemberRecord(
                member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                subscription,
                assignment_bytes(member.classic.protocols[0][1], read, image),
            )


def _is_settled(state: ConsumerGroupState) -> bool:
    """Whether every member has what the present epoch gives it: nothing has to be assigned."""
    return all(
        state.current(member_id).member_epoch == state.epoch
        and state.current(member_id).assigned.keys() == state.target(member_id)
        for member_id in state.members
    )


def _common_protocol(state: ConsumerGroupState) -> str:
    """Return the first on the list of the first member that all others have on theirs."""
    lists = [
        [name for name, _ in member.classic.protocols]
        for member in state.members.values()
        if member.classic is not None
    ]
    return next(name for name in lists[0] if all(name in each for each in lists))


def _refused(reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"the group cannot leave the classic protocol: {reason}"
    )
