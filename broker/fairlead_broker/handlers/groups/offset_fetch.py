"""OffsetFetch (key 9), versions 1-10.

Behaviour: the committed offsets of a group; offset -1 without an error if there is none. A null
list of topics means all offsets. While the group is being loaded, or is elsewhere, the answer is an
error, never an invented offset. With require_stable the answer is UNSTABLE_OFFSET_COMMIT for a
partition for which an open transaction has an offset; the client retries until the transaction ends
(KIP-447). Nothing is looked up before the requests in front of this one on its connection have
their answers: a client that does not wait for its commit reads it.
Versions:  2 all topics, error of the group · 5 leader epoch · 6 flexible · 7 require_stable · 8
           many groups · 9 member and epoch of KIP-848: UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH
           unless they are the group's · 10 topic ids instead of names: UNKNOWN_TOPIC_ID; offsets of
           deleted topics are left out.
Missing:   nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from fairlead_broker.api_registry import Pending, handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.coordinator.slicing import in_slices
from fairlead_broker.handlers.groups.group_requests import check_group_names
from fairlead_broker.handlers.in_turns import encoded_in_turns, in_parts
from fairlead_broker.handlers.named_partitions import count_named
from fairlead_broker.handlers.once_awake import once_awake
from fairlead_broker.handlers.topic_rights import topic_denial
from fairlead_broker.limits import (
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
from fairlead_wire.primitives import NULL_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence, Sized

    from fairlead_broker.api_registry import RequestContext
    from fairlead_broker.group.coordinated_group import CoordinatedGroup
    from fairlead_broker.group.group_offsets import GroupOffsets
    from fairlead_broker.handlers.long_answer import LongAnswer
    from fairlead_model.cluster import ClusterImage
    from fairlead_wire.messages.offset_fetch import OffsetFetchRequestTopics

_GROUP_ERROR_SINCE = 2
_MANY_GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10
_NOTHING = -1
_NO_EPOCH = -1


class _Topic(NamedTuple):
    """A topic of the request; a name of None means that its id is unknown."""

    name: str | None
    indexes: list[int]
    topic_id: bytes = NULL_UUID


_Topics: TypeAlias = list[_Topic]


class _Asked(NamedTuple):
    """A group of the request: topics of None are all of them; a member of None is not checked."""

    group_id: str
    topics: _Topics | None
    member_id: str | None = None
    member_epoch: int = _NO_EPOCH


@handles(ApiKey.OFFSET_FETCH, versions=(1, 10), access=Access.BY_RESOURCE)
@once_awake
def offset_fetch(
    request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse | Pending:
    asked = _asked(request, context.version, context.broker.image)
    fetch = _Fetch(asked, context, requires_stable=request.require_stable)
    steps = fetch.look_up()
    if fetch.count > OFFSETS_A_TURN:
        return context.later(_later(fetch, steps, context))
    for _ in steps:
        pass
    return fetch.response()


async def _later(
    fetch: _Fetch, steps: Iterator[None], context: RequestContext
) -> OffsetFetchResponse | LongAnswer:
    clock = context.broker.clock
    await in_slices(steps, clock)
    return await encoded_in_turns(fetch.response(), context.version, clock)


def _asked(request: OffsetFetchRequest, version: int, image: ClusterImage) -> list[_Asked]:
    """Return the groups, with the topics and partitions of each."""
    if version < _MANY_GROUPS_SINCE:
        _check_count(each.partition_indexes for each in request.topics or ())
        asked = [_Asked(request.group_id, _named(request.topics))]
    else:
        check_group_names([each.group_id for each in request.groups], "OffsetFetch")
        _check_count(
            topic.partition_indexes for each in request.groups for topic in each.topics or ()
        )
        find = partial(_by_id, image) if version >= _TOPIC_IDS_SINCE else _named
        asked = [
            _Asked(each.group_id, find(each.topics), each.member_id, each.member_epoch)
            for each in request.groups
        ]
    return asked


def _check_count(partitions: Iterable[Sized]) -> None:
    count = count_named(partitions)
    if count > OFFSETS_PER_FETCH_MAX:
        raise RemoteProtocolError(f"OffsetFetch names {count} partitions")


def _named(topics: Iterable[object] | None) -> _Topics | None:
    if topics is None:
        return None
    return [_Topic(each.name, each.partition_indexes) for each in topics]  # type: ignore[attr-defined]


def _by_id(
    image: ClusterImage, topics: Iterable[OffsetFetchRequestTopics] | None
) -> _Topics | None:
    if topics is None:
        return None
    return [
        _Topic(image.topic_name(each.topic_id), each.partition_indexes, each.topic_id)
        for each in topics
    ]


class _Found(NamedTuple):
    """Where to look for one group of the request: `group` is None if there is none."""

    group: CoordinatedGroup | None
    topics: _Topics
    answer: OffsetFetchResponseGroup


class _Fetch:
    """A request on its way. `count` is how many offsets the reply will have."""

    def __init__(
        self, asked: list[_Asked], context: RequestContext, *, requires_stable: bool
    ) -> None:
        self._version = context.version
        self._context = context
        self._requires_stable = requires_stable
        self._found: list[_Found] = []
        self.count = 0
        everything: dict[str, _Topics] = {}
        for each in asked:
            found = _find(context, each, everything)
            self._found.append(found)
            self.count += count_named(topic.indexes for topic in found.topics)
            if self.count > OFFSETS_FOUND_MAX:
                # Before the next group is looked up: thousands may be asked for everything.
                raise RemoteProtocolError(f"OffsetFetch asks for {self.count} offsets and more")

    def look_up(self) -> Iterator[None]:
        """Fill in what is committed, some partitions of a topic a step."""
        for group, topics, answer in self._found:
            if answer.error_code is not ErrorCode.NONE:
                continue
            offsets = None if group is None else group.offsets
            refused: list[OffsetFetchResponseTopics] = []
            for name, indexes, topic_id in topics:
                slots: list[OffsetFetchResponsePartitions] = []
                is_refused = self._refusal(name, topic_id) is not ErrorCode.NONE
                told = refused if is_refused else answer.topics
                told.append(OffsetFetchResponseTopics(name or "", topic_id, slots))
                for part in in_parts(indexes) if indexes else ((),):
                    slots += self._slots(offsets, name, topic_id, part)
                    yield
                    if group is not None and group.is_gone:
                        # Another broker may have taken newer commits meanwhile.
                        answer.error_code, answer.topics = ErrorCode.NOT_COORDINATOR, []
                        break
                if answer.error_code is not ErrorCode.NONE:
                    break
            else:
                # Behind the others, as in Kafka.
                answer.topics += refused

    def _slots(
        self,
        offsets: GroupOffsets | None,
        name: str | None,
        topic_id: bytes,
        indexes: Sequence[int],
    ) -> list[OffsetFetchResponsePartitions]:
        """Return what is committed for partitions of a topic, or why that is not told."""
        refusal = self._refusal(name, topic_id)
        if name is None or refusal is not ErrorCode.NONE:
            return [_refused(index, refusal) for index in indexes]
        current = self._context.broker.image.names.get(name)
        if self._requires_stable and offsets is not None and offsets.open_transactions:
            return [_look_up_stable(offsets, name, index, current) for index in indexes]
        return [_look_up(offsets, name, index, current) for index in indexes]

    def _refusal(self, name: str | None, topic_id: bytes) -> ErrorCode:
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        used_id = topic_id if self._version >= _TOPIC_IDS_SINCE else None
        return topic_denial(self._context, Operation.DESCRIBE, name, topic_id=used_id)

    def response(self) -> OffsetFetchResponse:
        if self._version >= _MANY_GROUPS_SINCE:
            return OffsetFetchResponse(groups=[each.answer for each in self._found])
        ((_, topics, answer),) = self._found
        code, found = answer.error_code, answer.topics
        if code is not ErrorCode.NONE and self._version < _GROUP_ERROR_SINCE:
            # There is no place for an error of the group: each partition carries it.
            found = [
                OffsetFetchResponseTopics(
                    name=topic.name or "",
                    partitions=[
                        OffsetFetchResponsePartitions(index, _NOTHING, error_code=code)
                        for index in topic.indexes
                    ],
                )
                for topic in topics
            ]
        return OffsetFetchResponse(
            error_code=code,
            topics=[OffsetFetchResponseTopic(each.name, _as_before(each)) for each in found],
        )


def _find(context: RequestContext, asked: _Asked, everything: dict[str, _Topics]) -> _Found:
    """Look a group up. `everything` has all topics of groups that were asked for them before."""
    broker = context.broker
    group_id, topics = asked.group_id, asked.topics
    try:
        context.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        group = broker.group_coordinator.find(group_id)
        if group is not None and (asked.member_id is not None or asked.member_epoch >= 0):
            code = group.protocol.check_fetch(asked.member_id, asked.member_epoch)
            if code is not ErrorCode.NONE:
                raise KafkaError(code)
    except KafkaError as error:
        broker.metrics.errors[error.code.name] += 1
        answer = OffsetFetchResponseGroup(group_id=group_id, error_code=error.code)
        return _Found(None, topics or [], answer)
    if topics is None:
        if group is not None and group_id not in everything:
            everything[group_id] = _all_topics(group.offsets, context)
        topics = everything.get(group_id, [])
    answer = OffsetFetchResponseGroup(group_id=group_id, error_code=ErrorCode.NONE)
    return _Found(group, topics, answer)


def _all_topics(offsets: GroupOffsets, context: RequestContext) -> _Topics:
    """Return the partitions for which a group has offsets and that the client may describe."""
    topics = []
    for name, topic in offsets.topics.items():
        known = context.broker.image.topic(name)
        if known is None and context.version >= _TOPIC_IDS_SINCE:
            continue  # It has no id any more.
        if topic.values and context.would_allow(Operation.DESCRIBE, ResourceType.TOPIC, name):
            topic_id = NULL_UUID if known is None else known.topic_id
            topics.append(_Topic(name, list(topic.values), topic_id))
    return topics


def _look_up(
    offsets: GroupOffsets | None, topic: str, index: int, current: bytes | None
) -> OffsetFetchResponsePartitions:
    """Return what is committed; `current` is the id of the topic that has the name now, if any."""
    value = None if offsets is None else offsets.find(topic, index)
    if value is not None and current is not None and value.topic_id not in (NULL_UUID, current):
        # Committed for an earlier topic of that name: it is removed soon.
        value = None
    if value is None:
        return OffsetFetchResponsePartitions(index, _NOTHING)
    return OffsetFetchResponsePartitions(index, value.offset, value.leader_epoch, value.metadata)


def _look_up_stable(
    offsets: GroupOffsets, topic: str, index: int, current: bytes | None
) -> OffsetFetchResponsePartitions:
    if offsets.is_unstable(topic, index):
        return _refused(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    return _look_up(offsets, topic, index, current)


def _refused(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(index, _NOTHING, error_code=code)


def _as_before(topic: OffsetFetchResponseTopics) -> list[OffsetFetchResponsePartition]:
    """Return the form of a partition up to version 7: the same fields under another name."""
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
