"""OffsetCommit (key 8), versions 2-8.

Behaviour: offsets are appended to the partition of the group and answered when its in-sync replicas
have them; later than `offsets.commit.timeout.ms` that is COORDINATOR_NOT_AVAILABLE. Members
commit with their generation; generation -1 commits for a group without members, which
is made if need be (so do Spark and administrators). Errors are per partition: a topic that does not
exist, or metadata beyond `offset.metadata.max.bytes`, leaves the others be.
Versions:  2-4 retention of its own · 6 leader epoch · 7 static members · 8 flexible.
Missing:   9, which is 8 for members of the new protocol (KIP-848); 10 with topic ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.group.group_offsets import encode_commit, encode_expiring_commit
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
    from fairlead_broker.handlers.registry import RequestContext
    from fairlead_wire.messages.offset_commit import OffsetCommitRequestPartition

_NO_RETENTION = -1


@handles(ApiKey.OFFSET_COMMIT, versions=(2, 8))
def offset_commit(
    request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Pending:
    commit = _Commit(request, context)
    if not commit.offsets:
        return commit.response
    coordinator = context.broker.group_coordinator
    try:
        group = coordinator.check_commit(
            request.group_id,
            request.member_id,
            request.generation_id_or_member_epoch,
            request.group_instance_id,
        )
    except KafkaError as error:
        commit.refuse(error.code)
        return commit.response
    context.parked = commit
    coordinator.commit(group, commit, commit.offsets)
    return PENDING


class _Commit:
    """A commit on its way: what is to be written, and the reply with a slot for each partition."""

    __slots__ = ("_accepted", "_context", "offsets", "response")

    def __init__(self, request: OffsetCommitRequest, context: RequestContext) -> None:
        self._context: RequestContext | None = context
        self._accepted: list[OffsetCommitResponsePartition] = []
        self.offsets: list[tuple[str, int, bytes]] = []
        broker = context.broker
        image = broker.image
        now_ms = broker.clock.now_ms()
        metadata_max = broker.settings.offset_metadata_max_bytes
        retention_ms = request.retention_time_ms
        topics = []
        count = 0
        for topic in request.topics:
            count += len(topic.partitions)
            if count > PARTITIONS_PER_REQUEST_MAX:
                raise RemoteProtocolError(f"a commit of {count} offsets")
            name = topic.name
            known = image.topic(name)
            known_count = 0 if known is None else len(known.partitions)
            slots = []
            for each in topic.partitions:
                index = each.partition_index
                slot = OffsetCommitResponsePartition(index)
                slots.append(slot)
                text = each.committed_metadata
                metadata = text.encode() if text else b""
                if not 0 <= index < known_count:
                    slot.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif len(metadata) > metadata_max:
                    slot.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    self._accepted.append(slot)
                    value = _encode(each, metadata, now_ms, retention_ms)
                    self.offsets.append((name, index, value))
            topics.append(OffsetCommitResponseTopic(name=name, partitions=slots))
        self.response = OffsetCommitResponse(topics=topics)

    def refuse(self, code: ErrorCode) -> None:
        """What was acceptable by itself is not committed."""
        for slot in self._accepted:
            slot.error_code = code
        if self._context is not None:
            self._context.broker.metrics.errors[code.name] += 1

    def finish(self, code: ErrorCode) -> None:
        """The offsets are committed, or not."""
        if code is not ErrorCode.NONE:
            self.refuse(code)
        context, self._context = self._context, None
        if context is not None:
            context.respond(self.response)

    def cancel(self) -> None:
        """The connection is gone; what is in the log stays there."""
        self._context = None


def _encode(
    each: OffsetCommitRequestPartition, metadata: bytes, now_ms: int, retention_ms: int
) -> bytes:
    if retention_ms != _NO_RETENTION:
        expire_ms = now_ms + max(0, retention_ms)
        return encode_expiring_commit(each.committed_offset, metadata, now_ms, expire_ms)
    return encode_commit(each.committed_offset, each.committed_leader_epoch, metadata, now_ms)
