"""OffsetFetch (key 9), versions 1-8.

Behaviour: what a group has committed; offset -1 without an error where it has nothing. Topics of
null ask for all that it has. While the group is being loaded or elsewhere the answer is an error,
never a made-up offset.
Versions:  2 all topics, error of the group · 5 leader epoch · 6 flexible · 7 require_stable, which
           is granted: no transaction is ever open here · 8 many groups.
Missing:   9, members of the new protocol (KIP-848); 10 with topic ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.handlers.registry import handles
from fairlead_broker.limits import (
    GROUPS_PER_REQUEST_MAX,
    OFFSETS_FOUND_MAX,
    OFFSETS_PER_FETCH_MAX,
)
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_broker.broker import Broker
    from fairlead_broker.group.group_offsets import GroupOffsets
    from fairlead_broker.handlers.registry import RequestContext

_GROUP_ERROR_SINCE = 2
_MANY_GROUPS_SINCE = 8
_NOTHING = -1


@handles(ApiKey.OFFSET_FETCH, versions=(1, 8))
def offset_fetch(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    broker = context.broker
    if context.version >= _MANY_GROUPS_SINCE:
        if len(request.groups) > GROUPS_PER_REQUEST_MAX:
            raise RemoteProtocolError(f"OffsetFetch names {len(request.groups)} groups")
        groups = []
        named = [_named(each.topics) for each in request.groups]
        _check_count(each for topics in named for each in topics or ())
        count = 0
        for each, topics in zip(request.groups, named, strict=True):
            code, found = _find(broker, each.group_id, topics)
            count += sum(len(topic.partitions) for topic in found)
            if count > OFFSETS_FOUND_MAX:
                raise RemoteProtocolError(f"OffsetFetch asks for {count} offsets, or more")
            groups.append(
                OffsetFetchResponseGroup(group_id=each.group_id, topics=found, error_code=code)
            )
        return OffsetFetchResponse(groups=groups)
    topics = _named(request.topics)
    _check_count(topics or ())
    code, found = _find(broker, request.group_id, topics)
    if code is not ErrorCode.NONE and context.version < _GROUP_ERROR_SINCE:
        # There is no place for an error of the group: each partition carries it.
        found = [
            OffsetFetchResponseTopics(
                name=name,
                partitions=[
                    OffsetFetchResponsePartitions(index, _NOTHING, error_code=code)
                    for index in indexes
                ],
            )
            for name, indexes in topics or ()
        ]
    return OffsetFetchResponse(
        error_code=code,
        topics=[OffsetFetchResponseTopic(each.name, _as_before(each)) for each in found],
    )


def _named(topics: Iterable[object] | None) -> list[tuple[str, list[int]]] | None:
    """Names and partitions; None for everything."""
    if topics is None:
        return None
    return [(each.name, each.partition_indexes) for each in topics]  # type: ignore[attr-defined]


def _check_count(topics: Iterable[tuple[str, list[int]]]) -> None:
    count = sum(len(indexes) for _, indexes in topics)
    if count > OFFSETS_PER_FETCH_MAX:
        raise RemoteProtocolError(f"OffsetFetch names {count} partitions")


def _find(
    broker: Broker, group_id: str, topics: list[tuple[str, list[int]]] | None
) -> tuple[ErrorCode, list[OffsetFetchResponseTopics]]:
    try:
        group = broker.group_coordinator.find(group_id)
    except KafkaError as error:
        broker.metrics.errors[error.code.name] += 1
        return error.code, []
    offsets = None if group is None else group.offsets
    if topics is None:
        topics = []
        if offsets is not None:
            topics = [
                (name, list(topic.values)) for name, topic in offsets.topics.items() if topic.values
            ]
    return ErrorCode.NONE, [
        OffsetFetchResponseTopics(
            name=name, partitions=[_look_up(offsets, name, index) for index in indexes]
        )
        for name, indexes in topics
    ]


def _look_up(offsets: GroupOffsets | None, topic: str, index: int) -> OffsetFetchResponsePartitions:
    value = None if offsets is None else offsets.find(topic, index)
    if value is None:
        return OffsetFetchResponsePartitions(index, _NOTHING)
    return OffsetFetchResponsePartitions(index, value.offset, value.leader_epoch, value.metadata)


def _as_before(topic: OffsetFetchResponseTopics) -> list[OffsetFetchResponsePartition]:
    """The form of a partition up to version 7: the same fields under another name."""
    return [
        OffsetFetchResponsePartition(
            each.partition_index,
            each.committed_offset,
            each.committed_leader_epoch,
            each.metadata,
            each.error_code,
        )
        for each in topic.partitions
    ]
