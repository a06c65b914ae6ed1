"""What ConsumerGroupDescribe returns for groups of KIP-848's protocol and librdkafka does not.

librdkafka has no names for the states of that protocol, and does not return epochs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fairlead_cli.client.answering import Address
from fairlead_cli.client.places import Place
from fairlead_cli.client.survey import newest_version
from fairlead_cli.client.wire_call import call_broker
from fairlead_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairlead_wire.messages.consumer_group_describe import Assignment, DescribedGroup

# Version 1 has each member's protocol: during a migration some members use the classic one.
DESCRIBE_VERSION_MAX = 1
MEMBER_PROTOCOLS = {0: "classic", 1: "consumer"}


class MemberProgress(NamedTuple):
    """How far a member has reconciled. `protocol` is None if the broker does not return it."""

    epoch: int
    protocol: str | None
    subscribed_topics: tuple[str, ...]
    subscribed_pattern: str | None
    target: tuple[Place, ...]
    """The target assignment, once others have revoked its partitions and this member its own."""


class GroupProgress(NamedTuple):
    """How far a group has reconciled: members work towards the target of `assignment_epoch`."""

    state: str
    group_epoch: int
    assignment_epoch: int
    members: Mapping[str, MemberProgress]


def read_progress(host: str, port: int, groups: Sequence[str]) -> dict[str, GroupProgress]:
    """Ask a coordinator; groups that it does not know (any more) are left out."""
    api_key = ConsumerGroupDescribeRequest.API_KEY
    version = newest_version(Address(host, port), api_key, DESCRIBE_VERSION_MAX)
    if version is None:
        return {}
    request = ConsumerGroupDescribeRequest(group_ids=list(groups))
    reply = call_broker(host, port, request, version)
    return {group.group_id: build_progress(group) for group in reply.groups if not group.error_code}


def build_progress(group: DescribedGroup) -> GroupProgress:
    """Convert a described group."""
    return GroupProgress(
        group.group_state,
        group.group_epoch,
        group.assignment_epoch,
        {
            member.member_id: MemberProgress(
                member.member_epoch,
                MEMBER_PROTOCOLS.get(member.member_type),
                tuple(sorted(member.subscribed_topic_names)),
                member.subscribed_topic_regex or None,
                build_places(member.target_assignment),
            )
            for member in group.members
        },
    )


def build_places(assignment: Assignment) -> tuple[Place, ...]:
    """Return all partitions, in order."""
    return tuple(
        sorted(
            Place(topic.topic_name, partition)
            for topic in assignment.topic_partitions
            for partition in topic.partitions
        )
    )
