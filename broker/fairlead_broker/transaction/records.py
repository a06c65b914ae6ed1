"""Codec of `__transaction_state`: the state that a coordinator keeps of each transactional id.

Pure. The bytes are Kafka's (its schemas TransactionLogKey and TransactionLogValue), so that Kafka's
tools can read the log. Values are written in version 1, which Kafka writes if the feature
`transaction.version` is 1 or higher; version 0 has no tagged fields. Whatever the bytes are,
decoders raise ValueError and nothing else.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Final

from fairlead_broker.transaction.transaction_types import TransactionMetadata, TransactionState
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.primitives import (
    append_tags,
    compact_int32_array,
    read_tags,
    read_uvarint,
    skip_tags,
    uvarint,
)
from fairlead_wire.record_batch import NO_PRODUCER_ID

if TYPE_CHECKING:
    from fairlead_broker.transaction.ending import TopicPartition
    from fairlead_wire.segments import Buffer

KEY_VERSION: Final = 0
VALUE_VERSION: Final = 1
STRING_BYTES_MAX: Final = 32_767
"""The key has two bytes for the length of the id."""
END_GROWTH_BYTES: Final = 14
"""Bytes by which the value may grow when the transaction is decided: two tags."""

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_HEAD: Final = Struct(">hqhib")
"""Version, producer id and epoch, time-out, state."""
_TIMES: Final = Struct(">qq")
"""Last update, start."""
_TAGGED: Final = {
    0: ("previous_producer_id", _INT64),
    1: ("next_producer_id", _INT64),
    2: ("client_transaction_version", _INT16),
}
"""Fields of version 1 by tag; tag 3, next_producer_epoch, is of KIP-939 and not in use yet."""
_NEVER_WRITTEN: Final = frozenset({TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE})
_DECODE_ERRORS: Final = (struct_error, IndexError, UnicodeDecodeError, RemoteProtocolError)


def encode_key(transactional_id: str) -> bytes:
    encoded = transactional_id.encode()
    if len(encoded) > STRING_BYTES_MAX:
        raise ValueError(f"a transactional id of {len(encoded)} bytes")
    return _INT16.pack(KEY_VERSION) + _INT16.pack(len(encoded)) + encoded


def decode_key(data: bytes) -> str | None:
    """Return the transactional id; None for a kind of record that this broker does not keep."""
    try:
        (version,) = _INT16.unpack_from(data)
        if version != KEY_VERSION:
            return None
        (size,) = _INT16.unpack_from(data, 2)
        text = data[4:].decode()
    except _DECODE_ERRORS as error:
        raise _damaged("key", str(error)) from error
    if size != len(data) - 4:
        raise _damaged("key", f"{size} bytes claimed, {len(data) - 4} are there")
    return text


def encode_value(metadata: TransactionMetadata) -> bytes:
    """Encode in version 1; topics and partitions in order, so that equal states are equal bytes."""
    parts: list[Buffer] = [
        _HEAD.pack(
            VALUE_VERSION,
            metadata.producer_id,
            metadata.producer_epoch,
            metadata.timeout_ms,
            metadata.state,
        )
    ]
    if metadata.state is TransactionState.EMPTY:
        parts.append(b"\0")
    else:
        _append_partitions(metadata.partitions, parts)
    parts.append(_TIMES.pack(metadata.update_ms, metadata.start_ms))
    tags: list[tuple[int, list[Buffer]]] = []
    if metadata.previous_producer_id != NO_PRODUCER_ID:
        tags.append((0, [_INT64.pack(metadata.previous_producer_id)]))
    if metadata.next_producer_id != NO_PRODUCER_ID:
        tags.append((1, [_INT64.pack(metadata.next_producer_id)]))
    if metadata.client_transaction_version:
        tags.append((2, [_INT16.pack(metadata.client_transaction_version)]))
    append_tags(parts, tags)
    return b"".join(parts)


def _append_partitions(partitions: frozenset[TopicPartition], parts: list[Buffer]) -> None:
    topics = [
        (topic, [index for _, index in found])
        for topic, found in groupby(sorted(partitions), itemgetter(0))
    ]
    parts.append(uvarint(len(topics) + 1))
    for topic, indexes in topics:
        name = topic.encode()
        parts += (
            uvarint(len(name) + 1),
            name,
            compact_int32_array(indexes),
            b"\0",
        )


def decode_value(data: bytes) -> TransactionMetadata | None:
    """Decode version 0 or 1; None for a version that this broker does not know."""
    try:
        (version,) = _INT16.unpack_from(data)
        if not 0 <= version <= VALUE_VERSION:
            return None
        metadata, position = _read_value(data, is_flexible=version >= 1)
    except _DECODE_ERRORS as error:
        raise _damaged("value", str(error)) from error
    if position != len(data):
        raise _damaged("value", f"{len(data) - position} bytes too many")
    return metadata


def _read_value(data: bytes, *, is_flexible: bool) -> tuple[TransactionMetadata, int]:
    _, producer_id, producer_epoch, timeout_ms, number = _HEAD.unpack_from(data)
    try:
        state = TransactionState(number)
    except ValueError as error:
        raise _damaged("value", f"state {number}") from error
    if state in _NEVER_WRITTEN or producer_id < 0 or producer_epoch < 0:
        raise _damaged("value", f"{state.title} of producer {producer_id}, epoch {producer_epoch}")
    partitions, position = _read_partitions(data, _HEAD.size, is_flexible=is_flexible)
    update_ms, start_ms = _TIMES.unpack_from(data, position)
    position += _TIMES.size
    metadata = TransactionMetadata(
        state, producer_id, producer_epoch, timeout_ms, partitions, start_ms, update_ms
    )
    if not is_flexible:
        return metadata, position
    tags, position = read_tags(data, position)
    fields = {}
    for tag, start, stop in tags:
        known = _TAGGED.get(tag)
        if known is not None:
            name, form = known
            (fields[name],) = form.unpack(data[start:stop])
    return metadata._replace(**fields), position


def _read_partitions(
    data: bytes, position: int, *, is_flexible: bool
) -> tuple[frozenset[TopicPartition], int]:
    partitions: set[TopicPartition] = set()
    topics_count, position = _read_count(data, position, is_flexible=is_flexible)
    for _ in range(topics_count):
        if is_flexible:
            size, position = read_uvarint(data, position)
            size -= 1
        else:
            (size,) = _INT16.unpack_from(data, position)
            position += 2
        if not 0 <= size <= len(data) - position:
            raise _damaged("value", f"a topic's name of {size} bytes")
        topic = data[position : position + size].decode()
        position += size
        count, position = _read_count(data, position, is_flexible=is_flexible)
        if count * _INT32.size > len(data) - position:
            raise _damaged("value", f"{count} partitions in {len(data)} bytes")
        indexes = Struct(f">{count}i").unpack_from(data, position)
        partitions.update((topic, index) for index in indexes)
        position += count * _INT32.size
        if is_flexible:
            position = skip_tags(data, position)
    return frozenset(partitions), position


def _read_count(data: bytes, position: int, *, is_flexible: bool) -> tuple[int, int]:
    """Read the length of an array; 0 for null."""
    if is_flexible:
        count, position = read_uvarint(data, position)
        return max(0, count - 1), position
    (count,) = _INT32.unpack_from(data, position)
    return max(0, count), position + _INT32.size


def _damaged(what: str, reason: str) -> ValueError:
    return ValueError(f"the {what} of a transactional id's record is damaged: {reason}")
