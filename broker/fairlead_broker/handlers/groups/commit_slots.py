"""The commits of a request, partition by partition, with or without a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.authorization import Operation
from fairlead_broker.group.group_offsets import (
    METADATA_BYTES_MAX,
    encode_commit,
    encode_expiring_commit,
)
from fairlead_broker.handlers.named_partitions import count_named
from fairlead_broker.handlers.topic_rights import topic_denial
from fairlead_broker.limits import PARTITIONS_PER_REQUEST_MAX
from fairlead_wire.errors import ErrorCode, RemoteProtocolError
from fairlead_wire.messages.offset_commit import OffsetCommitRequestTopic
from fairlead_wire.primitives import NULL_UUID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead_broker.api_registry import RequestContext
    from fairlead_wire.messages.offset_commit import OffsetCommitRequestPartition
    from fairlead_wire.messages.txn_offset_commit import (
        TxnOffsetCommitRequestPartition,
        TxnOffsetCommitRequestTopic,
    )

NO_RETENTION: Final = -1
_EXPIRY_MAX_MS: Final = 2**63 - 1


class CommitSlots:
    """The offsets of a request to write, and those that were refused before.

    `codes` has an error for each partition of the request, in order, and NONE for those whose
    outcome is the commit's. Objects for it would cost more than all else of a commit.
    """

    __slots__ = ("codes", "offsets")

    def __init__(
        self,
        topics: Sequence[OffsetCommitRequestTopic] | Sequence[TxnOffsetCommitRequestTopic],
        context: RequestContext,
        retention_ms: int = NO_RETENTION,
        *,
        by_id: bool = False,
    ) -> None:
        self.codes: list[ErrorCode] = []
        self.offsets: list[tuple[str, int, bytes]] = []
        broker = context.broker
        image = broker.image
        now_ms = broker.clock.now_ms()
        metadata_max = broker.settings.offset_metadata_max_bytes
        bytes_max = min(metadata_max, METADATA_BYTES_MAX)
        codes, offsets = self.codes, self.offsets
        if count_named(topic.partitions for topic in topics) > PARTITIONS_PER_REQUEST_MAX:
            raise RemoteProtocolError("a commit of too many offsets")
        for topic in topics:
            if by_id and isinstance(topic, OffsetCommitRequestTopic):
                known = image.topic_by_id(topic.topic_id)
            else:
                known = image.topic(topic.name)
            topic_id = NULL_UUID if known is None else known.topic_id
            known_count = 0 if known is None else len(known.partitions)
            name = topic.name if known is None else known.name
            if by_id and known is None:
                refusal = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                used_id = topic_id if by_id else None
                refusal = topic_denial(context, Operation.READ, name, topic_id=used_id)
            for each in topic.partitions:
                index = each.partition_index
                text = each.committed_metadata
                metadata = text.encode() if text else b""
                if refusal is not ErrorCode.NONE:
                    codes.append(refusal)
                elif not 0 <= index < known_count:
                    codes.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                elif len(metadata) > bytes_max and _is_too_large(metadata, metadata_max):
                    codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                else:
                    codes.append(ErrorCode.NONE)
                    value = _encode(each, metadata, now_ms, retention_ms, topic_id)
                    offsets.append((name, index, value))


def _is_too_large(metadata: bytes, metadata_max: int) -> bool:
    """Compare with what is allowed, which Kafka counts in UTF-16 and calls bytes."""
    if len(metadata) > METADATA_BYTES_MAX:
        return True
    return len(metadata.decode().encode("utf-16-le")) // 2 > metadata_max


def _encode(
    each: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    metadata: bytes,
    now_ms: int,
    retention_ms: int,
    topic_id: bytes,
) -> bytes:
    if retention_ms != NO_RETENTION:
        expire_ms = min(now_ms + max(0, retention_ms), _EXPIRY_MAX_MS)
        return encode_expiring_commit(each.committed_offset, metadata, now_ms, expire_ms)
    return encode_commit(
        each.committed_offset, each.committed_leader_epoch, metadata, now_ms, topic_id
    )
