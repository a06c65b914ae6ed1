"""OffsetCommit (key 8), versions 2-10.

Behaviour: offsets are appended to the partition of the group, and the answer comes when its in-sync
replicas have them; after `offsets.commit.timeout.ms` it is COORDINATOR_NOT_AVAILABLE. Members
commit with their generation; generation -1 commits for a group without members, which is created if
necessary (Spark and administrators do this). Errors are per partition: a topic that does not exist,
or metadata beyond `offset.metadata.max.bytes`, does not affect other partitions. A member of
KIP-848 commits with its member epoch: with the present one for any partition, with an older one for
those that it has had since then (KIP-1251); otherwise the error is STALE_MEMBER_EPOCH.
Versions:  2-4 retention of its own · 6 leader epoch · 7 static members · 8 flexible · 9 members of
           KIP-848, which are refused in lower versions; GROUP_ID_NOT_FOUND for a member of a group
           that is not there, before ILLEGAL_GENERATION · 10 topic ids instead of names:
           UNKNOWN_TOPIC_ID.
Missing:   nothing.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from fairlead_broker.api_registry import PENDING, Pending, handles
from fairlead_broker.authorization import Operation, needs_group
from fairlead_broker.group.group_types import NO_GENERATION
from fairlead_broker.handlers.groups.commit_slots import CommitSlots
from fairlead_broker.handlers.once_awake import once_awake
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext
    from fairlead_broker.group.coordinator import GroupCoordinator
    from fairlead_wire.messages.offset_commit import OffsetCommitRequestTopic

_FLEXIBLE_SINCE = 8
_NO_GROUP_SINCE = 9
_TOPIC_IDS_SINCE = 10
_THROTTLE_SINCE = 3
_NO_THROTTLE = bytes(4)
# Number of partitions, index, error code; then in flexible versions three empty tag sections.
_ONE_PARTITION = Struct(">iih")
_ONE_PARTITION_FLEXIBLE = Struct(">BihBBB")
_ONE_TOPIC = Struct(">ih")
_COMPACT_ONE = b"\x02"


def _refuse(
    request: OffsetCommitRequest, context: RequestContext, code: ErrorCode
) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                [
                    OffsetCommitResponsePartition(each.partition_index, code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@handles(ApiKey.OFFSET_COMMIT, versions=(2, 10), access=needs_group(Operation.READ, _refuse))
@once_awake
def offset_commit(
    request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | bytes | Pending:
    commit = _Commit(request, context)
    if not commit.offsets and ErrorCode.OFFSET_METADATA_TOO_LARGE not in commit.codes:
        return commit.reply(ErrorCode.NONE)
    coordinator = context.broker.group_coordinator
    generation_id = request.generation_id_or_member_epoch
    try:
        if context.version >= _NO_GROUP_SINCE and generation_id > NO_GENERATION:
            _check_group(coordinator, request.group_id)
        is_standalone = generation_id <= NO_GENERATION
        if is_standalone and not commit.offsets and coordinator.find(request.group_id) is None:
            return commit.reply(ErrorCode.NONE)
        group = coordinator.check_commit(
            request.group_id,
            request.member_id,
            generation_id,
            request.group_instance_id,
            version=context.version,
            offsets=commit.offsets,
        )
    except KafkaError as error:
        context.broker.metrics.errors[error.code.name] += 1
        commit.forget_large_metadata()
        return commit.reply(error.code)
    if not commit.offsets:
        return commit.reply(ErrorCode.NONE)
    context.parked = commit
    coordinator.commit(group, commit, commit.offsets)
    return PENDING


def _check_group(coordinator: GroupCoordinator, group_id: str) -> None:
    if coordinator.find(group_id) is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")


class _Commit(CommitSlots):
    """A commit on its way. The reply is made of its slots at the end."""

    __slots__ = ("_context", "_request", "_version")

    def __init__(self, request: OffsetCommitRequest, context: RequestContext) -> None:
        by_id = context.version >= _TOPIC_IDS_SINCE
        super().__init__(request.topics, context, request.retention_time_ms, by_id=by_id)
        self._context: RequestContext | None = context
        self._request = request
        self._version = context.version

    def forget_large_metadata(self) -> None:
        """Leave it to the group's refusal, which comes before a look at metadata."""
        self.codes = [
            ErrorCode.NONE if each is ErrorCode.OFFSET_METADATA_TOO_LARGE else each
            for each in self.codes
        ]

    def reply(self, code: ErrorCode) -> OffsetCommitResponse | bytes:
        """Return the answer where what was acceptable by itself ends with `code`."""
        if code is ErrorCode.NONE and len(self.offsets) == len(self.codes) == 1:
            (topic,) = (topic for topic in self._request.topics if topic.partitions)
            return encode_single_reply(self._version, topic)
        codes = iter(self.codes)
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    topic.name,
                    topic.topic_id,
                    [
                        OffsetCommitResponsePartition(each.partition_index, next(codes) or code)
                        for each in topic.partitions
                    ],
                )
                for topic in self._request.topics
            ]
        )

    def finish(self, code: ErrorCode) -> None:
        """Reply that the offsets are committed, or not."""
        context, self._context = self._context, None
        if context is not None:
            if code is not ErrorCode.NONE:
                context.broker.metrics.errors[code.name] += 1
            context.respond(self.reply(code))

    def cancel(self) -> None:
        """Forget the connection, which is gone; what is in the log stays there."""
        self._context = None


def encode_single_reply(version: int, topic: OffsetCommitRequestTopic) -> bytes:
    """Return the body of a reply for one committed offset, which nearly every client gets."""
    index = topic.partitions[0].partition_index
    if version >= _TOPIC_IDS_SINCE:
        partition = _ONE_PARTITION_FLEXIBLE.pack(2, index, 0, 0, 0, 0)
        return _NO_THROTTLE + _COMPACT_ONE + topic.topic_id + partition
    name = topic.name.encode()
    if version >= _FLEXIBLE_SINCE:
        size = len(name) + 1
        head = bytes((2, size)) if size < 128 else bytes((2, size & 0x7F | 0x80, size >> 7))
        return _NO_THROTTLE + head + name + _ONE_PARTITION_FLEXIBLE.pack(2, index, 0, 0, 0, 0)
    body = _ONE_TOPIC.pack(1, len(name)) + name + _ONE_PARTITION.pack(1, index, 0)
    return _NO_THROTTLE + body if version >= _THROTTLE_SINCE else body
