"""Consumer groups for the operations: of all brokers, of both protocols.

Brokers answer each other without authorizing the client. So this module filters or refuses what
another broker answers, with the same authorizer that the handlers ask.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fairlead_broker.authorization import Operation, ResourceType
from fairlead_broker.group.consumer_protocol import decode_assignment
from fairlead_broker.rest.calls import RETRY_S
from fairlead_broker.rest.problems import ProblemError, raise_code
from fairlead_model.ids import CONSUMER_OFFSETS
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from fairlead_wire.messages.describe_groups import DescribeGroupsRequest
from fairlead_wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from fairlead_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairlead_broker.rest.request import RestRequest
    from fairlead_wire.message import Message

CLASSIC: Final = "CLASSIC"
CONSUMER: Final = "CONSUMER"
_CLASSIC_MEMBER: Final = 0
_GROUPS_PER_QUESTION: Final = 100
_PASSING: Final = frozenset(
    {
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
"""Errors of a broker that is busy, or that is going or coming: it is asked again."""

TopicPartition = tuple[str, int]


class GroupMember(NamedTuple):
    """A consumer of a group."""

    consumer_id: str
    instance_id: str | None
    client_id: str
    partitions: tuple[TopicPartition, ...]


class Group(NamedTuple):
    """A consumer group, whichever protocol it speaks."""

    group_id: str
    type: str
    state: str
    assignor: str
    is_simple: bool
    is_mixed: bool
    members: tuple[GroupMember, ...]


async def list_groups(request: RestRequest) -> list[Group]:
    """Return all groups of the cluster that the client may see, ordered by id.

    A broker that does not answer, or that still loads its groups, is asked again until the
    request's deadline. If brokers come or go, groups move between them, and all are asked again.
    """
    asked: list[int] = []
    found: dict[int, list[Group]] = {}
    while True:
        live = _live_brokers(request)
        if live != asked:
            asked, found = live, {}
        problem: KafkaError | None = None
        for broker_id in live:
            if broker_id not in found:
                try:
                    found[broker_id] = await _list_of(request, broker_id)
                except KafkaError as error:
                    if error.code not in _PASSING:
                        raise
                    problem = error
        if problem is None:
            groups = {group.group_id: group for each in found.values() for group in each}
            return await _shown(request, [groups[group_id] for group_id in sorted(groups)])
        left_s = request.deadline_s - asyncio.get_running_loop().time()
        if left_s <= 0:
            raise problem
        await request.kafka.host.news(min(left_s, RETRY_S))


async def _shown(request: RestRequest, groups: Sequence[Group]) -> list[Group]:
    """Return what the client may see of groups now: rights may have changed during a wait."""
    shown: list[Group] = []
    for number, group in enumerate(groups, start=1):
        if request.kafka.would_allow(Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
            shown.append(_without_hidden(request, group))
        if number % _GROUPS_PER_QUESTION == 0:
            await request.slices.rest()
    return shown


def _live_brokers(request: RestRequest) -> list[int]:
    image = request.broker.image
    return sorted(broker_id for broker_id in image.brokers if image.is_live(broker_id))


async def _list_of(request: RestRequest, broker_id: int) -> list[Group]:
    """Return the groups that one broker coordinates."""
    kafka = request.kafka
    response: ListGroupsResponse = await kafka.ask_broker(
        broker_id, ListGroupsRequest(), request.deadline_s
    )
    raise_code(response.error_code)
    names: dict[str, list[str]] = {CLASSIC: [], CONSUMER: []}
    for listed in response.groups:
        if kafka.would_allow(Operation.DESCRIBE, ResourceType.GROUP, listed.group_id):
            kind = CONSUMER if listed.group_type.upper() == CONSUMER else CLASSIC
            names[kind].append(listed.group_id)
    found = []
    for kind, group_ids in names.items():
        for part in _in_parts(group_ids):
            answer = await kafka.ask_broker(broker_id, _question(kind, part), request.deadline_s)
            # Left out: groups that are gone meanwhile, and those a handler would refuse.
            found += [
                _read(kind, described)
                for described in answer.groups
                if not described.error_code
                and all(
                    kafka.would_allow(Operation.DESCRIBE, ResourceType.TOPIC, topic)
                    for topic in _refusing_topics(kind, described)
                )
            ]
            await request.slices.rest()
    return found


async def describe_group(request: RestRequest) -> Group:
    """Return the group of the path; ProblemError 404 if it does not exist."""
    group_id = request.path["consumer_group_id"]
    request.kafka.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
    if request.broker.image.topic(CONSUMER_OFFSETS) is None:
        raise _unknown_group(group_id)
    for kind in (CONSUMER, CLASSIC):
        response = await request.kafka.ask_coordinator(
            group_id,
            lambda timeout_ms, kind=kind: _question(kind, [group_id]),  # type: ignore[misc]
            _code_of,
            deadline_s=request.deadline_s,
        )
        code = _code_of(response)
        # If KIP-848 is turned off, all groups use the classic protocol.
        is_off = kind == CONSUMER and code == ErrorCode.UNSUPPORTED_VERSION
        if code != ErrorCode.GROUP_ID_NOT_FOUND and not is_off:
            raise_code(code, response.groups[0].error_message)
            for topic in _refusing_topics(kind, response.groups[0]):
                request.kafka.require(Operation.DESCRIBE, ResourceType.TOPIC, topic)
            return _without_hidden(request, _read(kind, response.groups[0]))
    raise _unknown_group(group_id)


async def committed_offsets(request: RestRequest, group_id: str) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group, for topics that the client may see."""

    def build(_: int) -> OffsetFetchRequest:
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id, topics=None)])

    response: OffsetFetchResponse = await request.kafka.ask_coordinator(
        group_id, build, _code_of, deadline_s=request.deadline_s
    )
    raise_code(_code_of(response))
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in response.groups[0].topics
        if request.kafka.would_allow(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        for partition in topic.partitions
        if partition.committed_offset >= 0
    }


async def in_turns(coroutines: Sequence[Any], at_once: int) -> list[Any]:
    """Return the results of many coroutines, of which `at_once` run at one time."""
    results: list[Any] = []
    for at in range(0, len(coroutines), at_once):
        results += await asyncio.gather(*coroutines[at : at + at_once])
    return results


def _question(kind: str, group_ids: Sequence[str]) -> Message:
    if kind == CONSUMER:
        return ConsumerGroupDescribeRequest(list(group_ids))
    return DescribeGroupsRequest(list(group_ids))


def _code_of(response: Any) -> int:
    code: int = response.groups[0].error_code
    return code


def _unknown_group(group_id: str) -> ProblemError:
    return ProblemError(404, f"there is no consumer group {group_id}")


def _refusing_topics(kind: str, described: Any) -> Iterator[str]:
    """Yield the topics that a client that describes a group must be allowed to describe, too.

    They are those that the handler checks: for groups of KIP-848 all assigned and target topics.
    """
    if kind == CONSUMER:
        for member in described.members:
            for assignment in (member.assignment, member.target_assignment):
                for topic in assignment.topic_partitions:
                    yield topic.topic_name


def _read(kind: str, described: Any) -> Group:
    """Return a group from either answer."""
    read = _read_consumer_group if kind == CONSUMER else _read_classic_group
    return read(described)


def _without_hidden(request: RestRequest, group: Group) -> Group:
    """Return a group without topics that the client may not see."""
    return group._replace(
        members=tuple(
            member._replace(
                partitions=tuple(
                    each
                    for each in member.partitions
                    if request.kafka.would_allow(Operation.DESCRIBE, ResourceType.TOPIC, each[0])
                )
            )
            for member in group.members
        )
    )


def _read_consumer_group(described: Any) -> Group:
    return Group(
        described.group_id,
        CONSUMER,
        described.group_state,
        described.assignor_name,
        is_simple=False,
        is_mixed=any(each.member_type == _CLASSIC_MEMBER for each in described.members),
        members=tuple(
            GroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                tuple(
                    (topic.topic_name, index)
                    for topic in member.assignment.topic_partitions
                    for index in topic.partitions
                ),
            )
            for member in described.members
        ),
    )


def _read_classic_group(described: Any) -> Group:
    return Group(
        described.group_id,
        CLASSIC,
        described.group_state,
        described.protocol_data,
        is_simple=not described.protocol_type,
        is_mixed=False,
        members=tuple(
            GroupMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                _assigned(bytes(member.member_assignment)),
            )
            for member in described.members
        ),
    )


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of a consumer protocol's assignment; none for other protocols."""
    try:
        given = decode_assignment(data).partitions
    except ValueError:
        return ()
    return tuple((topic, index) for topic, indexes in given.items() for index in indexes)


def _in_parts(names: Sequence[str]) -> list[Sequence[str]]:
    return [
        names[at : at + _GROUPS_PER_QUESTION] for at in range(0, len(names), _GROUPS_PER_QUESTION)
    ]
