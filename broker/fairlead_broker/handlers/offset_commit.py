"""OffsetCommit (key 8), versions 2-9.

Behaviour: offsets are appended to the partition of the group and answered when its in-sync replicas
have them; later than `offsets.commit.timeout.ms` that is COORDINATOR_NOT_AVAILABLE. Members
commit with their generation; generation -1 commits for a group without members, which
is made if need be (so do Spark and administrators). Errors are per partition: a topic that does not
exist, or metadata beyond `offset.metadata.max.bytes`, leaves the others be.
Versions:  2-4 retention of its own · 6 leader epoch · 7 static members · 8 flexible · 9
           GROUP_ID_NOT_FOUND for a member of a group that is not there, before ILLEGAL_GENERATION.
Missing:   10 with topic ids; members of the new protocol (KIP-848).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from fairlead_broker.group.group_offsets import (
    METADATA_BYTES_MAX,
    encode_commit,
    encode_expiring_commit,
)
from fairlead_broker.group.group_types import NO_GENERATION
from fairlead_broker.handlers.registry import PENDING, Pending, handles
from fairlead_broker.limits import PARTITIONS_PER_REQUEST_MAX
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from fairlead_broker.group.coordinator import GroupCoordinator
    from fairlead_broker.handlers.registry import RequestContext
    from fairlead_wire.messages.offset_commit import OffsetCommitRequestPartition

_NO_RETENTION = -1
_EXPIRY_MAX_MS = 2**63 - 1
_FLEXIBLE_SINCE = 8
_NO_GROUP_SINCE = 9
_THROTTLE_SINCE = 3
_NO_THROTTLE = bytes(4)
# Number of partitions, index, error code; then in flexible versions three empty tag sections.
_ONE_PARTITION = Struct(">iih")
_ONE_PARTITION_FLEXIBLE = Struct(">BihBBB")
_ONE_TOPIC = Struct(">ih")


@handles(ApiKey.OFFSET_COMMIT, versions=(2, 9))
def offset_commit(
    request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | bytes | Pending:
    commit = _Commit(request, context)
    if not commit.offsets:
        return commit.reply(ErrorCode.NONE)
    coordinator = context.broker.group_coordinator
    generation_id = request.generation_id_or_member_epoch
    try:
        if context.version >= _NO_GROUP_SINCE and generation_id > NO_GENERATION:
            _check_group(coordinator, request.group_id)
        group = coordinator.check_commit(
            request.group_id,
            request.member_id,
            generation_id,
            request.group_instance_id,
        )
    except KafkaError as error:
        context.broker.metrics.errors[error.code.name] += 1
        return commit.reply(error.code)
    context.parked = commit
    coordinator.commit(group, commit, commit.offsets)
    return PENDING


def _check_group(coordinator: GroupCoordinator, group_id: str) -> None:
    if coordinator.find(group_id) is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")


class _Commit:
    """A commit on its way: what is to be written, and what was refused before.

    `_codes` has an error for each partition of the request, in order, and NONE for those whose
    outcome is the commit's. The reply is made of it at the end; objects for it would cost more than
    all else here.
    """

    __slots__ = ("_codes", "_context", "_request", "_version", "offsets")

    def __init__(self, request: OffsetCommitRequest, context: RequestContext) -> None:
        self._context: RequestContext | None = context
        self._request = request
        self._version = context.version
        self._codes: list[ErrorCode] = []
        self.offsets: list[tuple[str, int, bytes]] = []
        broker = context.broker
        image = broker.image
        now_ms = broker.clock.now_ms()
        metadata_max = min(broker.settings.offset_metadata_max_bytes, METADATA_BYTES_MAX)
        retention_ms = request.retention_time_ms
        codes, offsets = self._codes, self.offsets
        for topic in request.topics:
            if len(codes) + len(topic.partitions) > PARTITIONS_PER_REQUEST_MAX:
                raise RemoteProtocolError("a commit of too many offsets")
            name = topic.name
            known = image.topic(name)
            known_count = 0 if known is None else len(known.partitions)
            for each in topic.partitions:
                index = each.partition_index
                text = each.committed_metadata
                metadata = text.encode() if text else b""
                if not 0 <= index < known_count:
                    codes.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                elif len(metadata) > metadata_max:
                    codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                else:
                    codes.append(ErrorCode.NONE)
                    offsets.append((name, index, _encode(each, metadata, now_ms, retention_ms)))

    def reply(self, code: ErrorCode) -> OffsetCommitResponse | bytes:
        """The answer where what was acceptable by itself ends with `code`."""
        if code is ErrorCode.NONE and len(self.offsets) == len(self._codes) == 1:
            ((name, index, _),) = self.offsets
            return encode_single_reply(self._version, name, index)
        codes = iter(self._codes)
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(each.partition_index, next(codes) or code)
                        for each in topic.partitions
                    ],
                )
                for topic in self._request.topics
            ]
        )

    def finish(self, code: ErrorCode) -> None:
        """The offsets are committed, or not."""
        context, self._context = self._context, None
        if context is not None:
            if code is not ErrorCode.NONE:
                context.broker.metrics.errors[code.name] += 1
            context.respond(self.reply(code))

    def cancel(self) -> None:
        """The connection is gone; what is in the log stays there."""
        self._context = None


def encode_single_reply(version: int, topic: str, index: int) -> bytes:
    """The body of a reply that says that one offset is committed: what nearly every client gets."""
    name = topic.encode()
    if version >= _FLEXIBLE_SINCE:
        size = len(name) + 1
        head = bytes((2, size)) if size < 128 else bytes((2, size & 0x7F | 0x80, size >> 7))
        return _NO_THROTTLE + head + name + _ONE_PARTITION_FLEXIBLE.pack(2, index, 0, 0, 0, 0)
    body = _ONE_TOPIC.pack(1, len(name)) + name + _ONE_PARTITION.pack(1, index, 0)
    return _NO_THROTTLE + body if version >= _THROTTLE_SINCE else body


def _encode(
    each: OffsetCommitRequestPartition, metadata: bytes, now_ms: int, retention_ms: int
) -> bytes:
    if retention_ms != _NO_RETENTION:
        expire_ms = min(now_ms + max(0, retention_ms), _EXPIRY_MAX_MS)
        return encode_expiring_commit(each.committed_offset, metadata, now_ms, expire_ms)
    return encode_commit(each.committed_offset, each.committed_leader_epoch, metadata, now_ms)
