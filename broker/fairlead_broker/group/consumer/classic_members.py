"""Members of the classic protocol in a group of KIP-848: how it answers them.

Pure (Kafka's `classicGroupJoinToConsumerGroup` and its kin). None of them leads: the coordinator
gives each its assignment, its member epoch is its generation, and it is told to join again whenever
a member of the new protocol would get news in a heartbeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.group.assignors.assignment import TopicIdPartition
from fairlead_broker.group.consumer.member_timers import TimerKind
from fairlead_broker.group.consumer_protocol import (
    ConsumerSubscription,
    decode_subscription,
    encode_assignment,
    subscription_version,
)
from fairlead_broker.group.group_types import (
    NO_MEMBER,
    ConsumerHeartbeat,
    JoinResult,
    SyncResult,
)
from fairlead_broker.group.records.consumer_records import (
    ClassicMember,
    MemberMetadata,
    MemberState,
)
from fairlead_broker.group.records.consumer_state import JOINING_EPOCH
from fairlead_broker.group.subscription import CONSUMER_PROTOCOL_TYPE
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_broker.group.consumer.consumer_members import ConsumerMembers, Now
    from fairlead_broker.group.group_types import JoinRequest, SyncRequest
    from fairlead_broker.group.records.consumer_state import ConsumerGroupState
    from fairlead_model.cluster import ClusterImage


def join(members: ConsumerMembers, request: JoinRequest, now: Now) -> JoinResult:
    """Take a JoinGroup. KafkaError where it is refused."""
    _check_protocols(members.latest, request)
    member_id, instance_id = request.member_id, request.group_instance_id
    if member_id == NO_MEMBER:
        member_id = request.new_member_id
        if request.requires_known_member_id and instance_id is None:
            # KIP-394: who never comes back with its id, is never a member.
            return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
    elif instance_id is not None:
        members.check_member(member_id, instance_id)
    subscription = _subscription(request)
    image = members.host.image
    current = members.advance(
        ConsumerHeartbeat(
            member_id,
            JOINING_EPOCH,
            instance_id,
            subscription.rack_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            subscription.topics,
            "",
            None,
            known_partitions(subscription.owned, image),
            _knows_nothing,
            ClassicMember(request.session_timeout_ms, request.protocols),
        ),
        now,
    )
    members.timers.cancel(TimerKind.JOIN, member_id)
    members.timers.set(TimerKind.SYNC, member_id, now.ms + request.rebalance_timeout_ms)
    return JoinResult(
        generation_id=current.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=request.protocols[0][0],
        member_id=member_id,
    )


def sync(members: ConsumerMembers, request: SyncRequest, now: Now) -> SyncResult:
    """Take a SyncGroup. KafkaError where it is refused."""
    member_id = request.member_id
    member, classic = _check_member(
        members, member_id, request.generation_id, request.group_instance_id
    )
    name = classic.protocols[0][0]
    for said, agreed in (
        (request.protocol_type, CONSUMER_PROTOCOL_TYPE),
        (request.protocol_name, name),
    ):
        if said is not None and said != agreed:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{said} is not {agreed}")
    state = members.latest
    current = state.current(member_id)
    if state.assignment_epoch > current.member_epoch and (
        current.state is not MemberState.UNREVOKED_PARTITIONS
    ):
        _expect_join(members, member_id, member, now.ms)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "there is a newer assignment")
    members.timers.cancel(TimerKind.SYNC, member_id)
    members.keep_alive(member_id, now.ms)
    return SyncResult(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=name,
        assignment=assignment_bytes(classic.protocols[0][1], current.assigned, members.host.image),
    )


def heartbeat(
    members: ConsumerMembers,
    member_id: str,
    generation_id: int,
    instance_id: str | None,
    *,
    now_ms: int,
) -> ErrorCode:
    """Take a Heartbeat: REBALANCE_IN_PROGRESS where joining again would change something."""
    member, _ = _check_member(members, member_id, generation_id, instance_id)
    members.keep_alive(member_id, now_ms)
    state = members.latest
    current = state.current(member_id)
    if (
        state.assignment_epoch > current.member_epoch
        or members.is_target_due(now_ms)
        or members.has_other_topics()
        or current.state is MemberState.UNREVOKED_PARTITIONS
        or (current.state is MemberState.UNRELEASED_PARTITIONS and _is_any_free(state, member_id))
    ):
        _expect_join(members, member_id, member, now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def assignment_bytes(
    subscription: bytes, partitions: Iterable[TopicIdPartition], image: ClusterImage
) -> bytes:
    """Return an assignment for a consumer with this subscription; deleted topics are left out.

    The subscription may be of a protocol that only its clients know.
    """
    by_name: dict[str, list[int]] = {}
    for topic_id, partition in partitions:
        name = image.topic_name(topic_id)
        if name is not None:
            by_name.setdefault(name, []).append(partition)
    return encode_assignment(subscription_version(subscription), by_name)


def known_partitions(
    partitions: dict[str, list[int]], image: ClusterImage
) -> frozenset[TopicIdPartition]:
    """Return partitions by the ids of their topics; those that there are not are left out."""
    found = []
    for name, indexes in partitions.items():
        topic = image.topic(name)
        if topic is not None:
            found += [
                TopicIdPartition(topic.topic_id, each)
                for each in indexes
                if 0 <= each < len(topic.partitions)
            ]
    return frozenset(found)


def _knows_nothing(topic: str) -> bool:
    """Patterns are none of its business: it has none."""
    return False


def _check_protocols(state: ConsumerGroupState, request: JoinRequest) -> None:
    names = {name for name, _ in request.protocols}
    for member_id, member in state.members.items():
        if member.classic is not None and member_id != request.member_id:
            names &= {name for name, _ in member.classic.protocols}
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not names:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the members of the group share no protocol"
        )


def _subscription(request: JoinRequest) -> ConsumerSubscription:
    try:
        return decode_subscription(request.protocols[0][1])
    except ValueError as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error


def _check_member(
    members: ConsumerMembers, member_id: str, generation_id: int, instance_id: str | None
) -> tuple[MemberMetadata, ClassicMember]:
    member = members.check_member(member_id, instance_id)
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the member speaks the consumer protocol")
    if generation_id != members.latest.current(member_id).member_epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION, "the member is in another generation")
    return member, member.classic


def _is_any_free(state: ConsumerGroupState, member_id: str) -> bool:
    """Whether something that a member waits for is given up by now."""
    assigned = state.current(member_id).assigned
    return any(
        each not in assigned and each not in state.holders for each in state.target(member_id)
    )


def _expect_join(
    members: ConsumerMembers, member_id: str, member: MemberMetadata, now_ms: int
) -> None:
    if (TimerKind.JOIN, member_id) not in members.timers:
        members.timers.set(TimerKind.JOIN, member_id, now_ms + member.rebalance_timeout_ms)
