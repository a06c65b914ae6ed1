"""OffsetFetch (key 9), versions 1-9.

Behaviour: what a group has committed; offset -1 without an error where it has nothing. Topics of
null ask for all that it has. While the group is being loaded or elsewhere the answer is an error,
never a made-up offset.
Versions:  2 all topics, error of the group · 5 leader epoch · 6 flexible · 7 require_stable, which
           is granted: no transaction is ever open here · 8 many groups · 9 member and epoch of the
           new protocol (KIP-848), which mean nothing to a classic group.
Missing:   10 with topic ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from fairlead_broker.group.slicing import in_slices
from fairlead_broker.handlers.registry import Pending, handles
from fairlead_broker.limits import (
    GROUPS_PER_REQUEST_MAX,
    OFFSETS_A_TURN,
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
    from collections.abc import Iterable, Iterator

    from fairlead_broker.broker import Broker
    from fairlead_broker.clock import Clock
    from fairlead_broker.group.coordinated_group import CoordinatedGroup
    from fairlead_broker.group.group_offsets import GroupOffsets
    from fairlead_broker.handlers.registry import RequestContext

_GROUP_ERROR_SINCE = 2
_MANY_GROUPS_SINCE = 8
_NOTHING = -1
_Topics: TypeAlias = list[tuple[str, list[int]]]


@handles(ApiKey.OFFSET_FETCH, versions=(1, 9))
def offset_fetch(
    request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse | Pending:
    fetch = _Fetch(_asked(request, context.version), context)
    steps = fetch.look_up()
    if fetch.count > OFFSETS_A_TURN:
        return context.later(_later(fetch, steps, context.broker.clock))
    for _ in steps:
        pass
    return fetch.response()


async def _later(fetch: _Fetch, steps: Iterator[None], clock: Clock) -> OffsetFetchResponse:
    await in_slices(steps, clock)
    return fetch.response()


def _asked(request: OffsetFetchRequest, version: int) -> list[tuple[str, _Topics | None]]:
    """Groups, and of each the topics and partitions that it is asked for; None for everything."""
    if version < _MANY_GROUPS_SINCE:
        asked = [(request.group_id, _named(request.topics))]
    else:
        if len(request.groups) > GROUPS_PER_REQUEST_MAX:
            raise RemoteProtocolError(f"OffsetFetch names {len(request.groups)} groups")
        asked = [(each.group_id, _named(each.topics)) for each in request.groups]
    count = sum(len(indexes) for _, topics in asked for _, indexes in topics or ())
    if count > OFFSETS_PER_FETCH_MAX:
        raise RemoteProtocolError(f"OffsetFetch names {count} partitions")
    return asked


def _named(topics: Iterable[object] | None) -> _Topics | None:
    if topics is None:
        return None
    return [(each.name, each.partition_indexes) for each in topics]  # type: ignore[attr-defined]


class _Found(NamedTuple):
    """Where to look for one group of the request: `group` is None if there is none."""

    group: CoordinatedGroup | None
    topics: _Topics
    answer: OffsetFetchResponseGroup


class _Fetch:
    """A request on its way. `count` is how many offsets the reply will have."""

    def __init__(self, asked: list[tuple[str, _Topics | None]], context: RequestContext) -> None:
        self._version = context.version
        self._found = [_find(context.broker, group_id, topics) for group_id, topics in asked]
        self.count = sum(len(indexes) for each in self._found for _, indexes in each.topics)
        if self.count > OFFSETS_FOUND_MAX:
            raise RemoteProtocolError(f"OffsetFetch asks for {self.count} offsets")

    def look_up(self) -> Iterator[None]:
        """Fill in what is committed, a topic a step."""
        for group, topics, answer in self._found:
            if answer.error_code is not ErrorCode.NONE:
                continue
            offsets = None if group is None else group.offsets
            for name, indexes in topics:
                slots = [_look_up(offsets, name, index) for index in indexes]
                answer.topics.append(OffsetFetchResponseTopics(name=name, partitions=slots))
                yield
                if group is not None and group.is_gone:
                    # Another broker may have taken newer commits meanwhile.
                    answer.error_code, answer.topics = ErrorCode.NOT_COORDINATOR, []
                    break

    def response(self) -> OffsetFetchResponse:
        if self._version >= _MANY_GROUPS_SINCE:
            return OffsetFetchResponse(groups=[each.answer for each in self._found])
        ((_, topics, answer),) = self._found
        code, found = answer.error_code, answer.topics
        if code is not ErrorCode.NONE and self._version < _GROUP_ERROR_SINCE:
            # There is no place for an error of the group: each partition carries it.
            found = [
                OffsetFetchResponseTopics(
                    name=name,
                    partitions=[
                        OffsetFetchResponsePartitions(index, _NOTHING, error_code=code)
                        for index in indexes
                    ],
                )
                for name, indexes in topics
            ]
        return OffsetFetchResponse(
            error_code=code,
            topics=[OffsetFetchResponseTopic(each.name, _as_before(each)) for each in found],
        )


def _find(broker: Broker, group_id: str, topics: _Topics | None) -> _Found:
    try:
        group = broker.group_coordinator.find(group_id)
    except KafkaError as error:
        broker.metrics.errors[error.code.name] += 1
        answer = OffsetFetchResponseGroup(group_id=group_id, error_code=error.code)
        return _Found(None, topics or [], answer)
    if topics is None:
        there = {} if group is None else group.offsets.topics
        topics = [(name, list(topic.values)) for name, topic in there.items() if topic.values]
    answer = OffsetFetchResponseGroup(group_id=group_id, error_code=ErrorCode.NONE)
    return _Found(group, topics, answer)


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
