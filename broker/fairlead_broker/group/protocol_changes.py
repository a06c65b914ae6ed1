"""Requests that may change the protocol of a group, and how a change is taken back.

A group uses its new protocol as soon as the change is being written to the log. If the write fails,
the group is as it was before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fairlead_broker.group.classic.classic_group import ClassicGroup
from fairlead_broker.group.consumer.consumer_group import ConsumerGroup
from fairlead_broker.group.consumer.protocol_migration import upgraded
from fairlead_broker.group.group_protocol import FormerProtocol
from fairlead_broker.group.group_types import Effects
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from typing import Any

    from fairlead_broker.clock import Clock
    from fairlead_broker.group.consumer_group_host import BrokerGroupHost
    from fairlead_broker.group.coordinated_group import CoordinatedGroup
    from fairlead_broker.group.group_protocol import GroupProtocol
    from fairlead_broker.group.group_types import ConsumerHeartbeat, Downgrade, GroupWrite


class ChangesHost(Protocol):
    """The coordinator of all groups, as far as they change their protocol."""

    clock: Clock
    consumer_host: BrokerGroupHost

    def add(self, group_id: str, protocol: GroupProtocol) -> CoordinatedGroup: ...
    def carry_out(self, group: CoordinatedGroup, effects: Effects) -> None: ...
    def build_protocol(self, group_id: str, record: bytes | None = None) -> GroupProtocol: ...


def consumer_heartbeat(
    host: ChangesHost,
    group_id: str,
    group: CoordinatedGroup | None,
    asked: ConsumerHeartbeat,
    waiter: Any,
) -> None:
    """Take a ConsumerGroupHeartbeat; KafkaError where it is refused, and nothing is changed."""
    now_ms, now_wall_ms = host.clock.monotonic_ms(), host.clock.now_ms()
    protocol = None if group is None else group.protocol
    if isinstance(protocol, ConsumerGroup) and group is not None:
        effects = protocol.consumer_heartbeat(asked, waiter, now_ms=now_ms, now_wall_ms=now_wall_ms)
        host.carry_out(group, effects)
        return
    if asked.member_epoch != 0:
        what = "there is no group" if group is None else "no group of the consumer protocol is"
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{what} {group_id}")
    if group is None:
        new = ConsumerGroup(group_id, host.consumer_host)
        effects = new.consumer_heartbeat(asked, waiter, now_ms=now_ms, now_wall_ms=now_wall_ms)
        host.carry_out(host.add(group_id, new), effects)
        return
    if not isinstance(protocol, ClassicGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{group_id} speaks another protocol")
    new = _upgraded(host, group_id, protocol)
    effects = new.consumer_heartbeat(asked, waiter, now_ms=now_ms, now_wall_ms=now_wall_ms)
    group.protocol = new
    group.formers.append(FormerProtocol(effects.writes[-1], protocol))
    host.carry_out(group, effects)
    host.carry_out(group, protocol.answer_all(ErrorCode.REBALANCE_IN_PROGRESS))


def _upgraded(host: ChangesHost, group_id: str, classic: ClassicGroup) -> ConsumerGroup:
    """Return the group with its members in the protocol of KIP-848."""
    if classic.is_dead:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group is being deleted")
    consumer_host = host.consumer_host
    if classic.is_empty:
        return ConsumerGroup.from_classic(group_id, [], consumer_host)
    settings = consumer_host.settings_of(group_id)
    members = classic.migrating_members()
    if not settings.migration_policy.allows_upgrade or len(members) > settings.size_max:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, "the group's members speak the classic protocol"
        )
    records = upgraded(classic.protocol_type, classic.generation_id, members, consumer_host.image)
    return ConsumerGroup.from_classic(group_id, records, consumer_host)


def prepare_join(host: ChangesHost, group: CoordinatedGroup, member_id: str) -> None:
    """Change a group without members to the classic protocol before a member joins with it."""
    protocol = group.protocol
    if not isinstance(protocol, ConsumerGroup) or not protocol.is_empty or protocol.is_dead:
        return
    if member_id:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has no members")
    write = protocol.retire()
    if write is not None:
        host.carry_out(group, Effects(writes=[write]))
        group.formers.append(FormerProtocol(write, protocol))
    group.protocol = host.build_protocol(group.group_id)


def downgrade(
    host: ChangesHost, group: CoordinatedGroup, write: GroupWrite, change: Downgrade
) -> None:
    """Change a group whose members all use the classic protocol to that protocol."""
    clock = host.clock
    former, new = group.protocol, host.build_protocol(group.group_id, change.record)
    if isinstance(new, ClassicGroup):
        new.take_protocols(change.protocols)
    group.formers.append(FormerProtocol(write, former))
    group.protocol = new
    effects = new.on_loaded(now_ms=clock.monotonic_ms(), now_wall_ms=clock.now_ms())
    host.carry_out(group, effects)


def settle_change(
    host: ChangesHost, group: CoordinatedGroup, write: GroupWrite, code: ErrorCode
) -> None:
    """Take note of the outcome of a write; a change that it brought may have to be taken back."""
    for number, former in enumerate(group.formers):
        if former.write is write:
            if code is ErrorCode.NONE:
                del group.formers[number]
            elif code is not ErrorCode.REQUEST_TIMED_OUT:
                # Later changes depend on this one, and fail as well.
                del group.formers[number:]
                given_up, group.protocol = group.protocol, former.protocol
                host.carry_out(group, given_up.fail_all(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
