"""Fetch between brokers, version 17, encoded by hand: the request of a follower, and its answer.

Brokers exchange two of each for every record that three replicas acknowledge. The bytes are those
of the generated messages, which tests compare; message objects for them would take three times as
long. An answer with anything unusual (a divergence, a field that this module does not know) is
decoded by the generated code.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, cast

from fairlead_wire.errors import LocalProtocolError
from fairlead_wire.header import decode_response
from fairlead_wire.messages.fetch import FetchResponse
from fairlead_wire.primitives import (
    STRING_SIZE_MAX,
    compact_int32_array,
    read_uvarint,
    uvarint,
)

VERSION: Final = 17

# Length, key, version, correlation id, size of the client id.
_HEAD: Final = struct.Struct(">ihhih")
# No header tags; wait, minimum and maximum bytes, isolation level; the session's id and epoch.
_SESSION: Final = struct.Struct(">BiiiBii")
# Index, the leader's epoch, offset, last fetched epoch, log start, maximum bytes, no tags.
_POSITION: Final = struct.Struct(">iiqiqiB")
# An empty rack, then one tag: the replica's id and epoch, without tags.
_REPLICA: Final = struct.Struct(">BBBBiqB")
_REPLICA_TAG: Final = 1
_REPLICA_SIZE: Final = 13
_FETCH: Final = 1
_READ_UNCOMMITTED: Final = 0
_MIN_BYTES: Final = 1

# Correlation id and no tags; throttle time, error, the session's id.
_REPLY: Final = struct.Struct(">iBihi")
# Index, error, high watermark, last stable offset, log start; aborted transactions, preferred
# replica.
_ANSWER: Final = struct.Struct(">ihqqqBi")
_UUID_SIZE: Final = 16
_NO_ELEMENTS: Final = 1


class FetchedRange(NamedTuple):
    """The answer for one partition; `key` is its topic's id and its index.

    `records` is a view of the frame. The last two fields say where the logs diverge, if they do.
    """

    key: tuple[bytes, int]
    error_code: int
    high_watermark: int
    log_start_offset: int
    records: memoryview | bytes
    diverging_epoch: int = -1
    diverging_end_offset: int = -1


Position: TypeAlias = tuple[int, int, int, int, int, int]
"""For a partition: index, leader epoch, fetch offset, last fetched epoch, log start, max. bytes."""

Reply: TypeAlias = tuple[int, int, list[FetchedRange]]
"""The error code, the session's id, and the answers for partitions."""


def encode_fetch(
    *,
    correlation_id: int,
    client_id: bytes,
    replica_id: int,
    replica_epoch: int,
    max_wait_ms: int,
    max_bytes: int,
    session_id: int,
    session_epoch: int,
    topics: Mapping[bytes, Sequence[Position]],
    forgotten: Iterable[tuple[bytes, int]],
) -> bytes:
    """Return the whole frame of a follower's fetch. LocalProtocolError if a number does not fit."""
    if len(client_id) > STRING_SIZE_MAX:
        raise LocalProtocolError(f"a client id of {len(client_id)} bytes")
    try:
        parts = [
            client_id,
            _SESSION.pack(
                0,
                max_wait_ms,
                _MIN_BYTES,
                max_bytes,
                _READ_UNCOMMITTED,
                session_id,
                session_epoch,
            ),
            uvarint(len(topics) + 1),
        ]
        for topic_id, positions in topics.items():
            parts.append(topic_id)
            parts.append(uvarint(len(positions) + 1))
            for position in positions:
                parts.append(_POSITION.pack(*position, 0))
            parts.append(b"\0")
        left = list(forgotten)
        parts.append(uvarint(len(left) + 1))
        for topic_id, index in left:
            parts.append(topic_id + compact_int32_array([index]) + b"\0")
        parts.append(
            _REPLICA.pack(
                _NO_ELEMENTS, 1, _REPLICA_TAG, _REPLICA_SIZE, replica_id, replica_epoch, 0
            )
        )
        body = b"".join(parts)
        size = len(body) + _HEAD.size - 4
        return _HEAD.pack(size, _FETCH, VERSION, correlation_id, len(client_id)) + body
    except struct.error as error:
        raise LocalProtocolError(f"a follower's fetch cannot be encoded: {error}") from error


def decode_reply(frame: memoryview) -> Reply:
    """Return the content of an answer without its length; RemoteProtocolError if malformed."""
    try:
        reply = _decode_usual(frame)
    except (struct.error, IndexError):
        reply = None
    return _decode_any(frame) if reply is None else reply


def _decode_usual(frame: memoryview) -> Reply | None:
    """Return the reply; None if it has more than records, offsets and error codes."""
    ranges: list[FetchedRange] = []
    _, tags, _, error_code, session_id = _REPLY.unpack_from(frame, 0)
    if tags:
        return None
    topics, position = _read_count(frame, _REPLY.size)
    for _ in range(topics):
        topic_id = frame[position : position + _UUID_SIZE].tobytes()
        partitions, position = _read_count(frame, position + _UUID_SIZE)
        for _ in range(partitions):
            index, code, high_watermark, _, log_start, aborted, _ = _ANSWER.unpack_from(
                frame, position
            )
            size, position = read_uvarint(frame, position + _ANSWER.size)
            end = position + size - 1 if size else position
            if aborted > _NO_ELEMENTS or frame[end]:
                return None
            ranges.append(
                FetchedRange(
                    (topic_id, index), code, high_watermark, log_start, frame[position:end]
                )
            )
            position = end + 1
        if frame[position]:
            return None
        position += 1
    if frame[position] or position + 1 != len(frame):
        return None
    return error_code, session_id, ranges


def _decode_any(frame: memoryview) -> Reply:
    _, message = decode_response(frame, _FETCH, VERSION)
    response = cast(FetchResponse, message)
    ranges = []
    for topic in response.responses:
        for data in topic.partitions:
            records, diverging = data.records, data.diverging_epoch
            fetched = FetchedRange(
                (topic.topic_id, data.partition_index),
                data.error_code,
                data.high_watermark,
                data.log_start_offset,
                records if isinstance(records, memoryview) else b"",
            )
            if diverging is not None:
                fetched = fetched._replace(
                    diverging_epoch=diverging.epoch, diverging_end_offset=diverging.end_offset
                )
            ranges.append(fetched)
    return response.error_code, response.session_id, ranges


def _read_count(frame: memoryview, position: int) -> tuple[int, int]:
    count = frame[position]
    if count < 128:
        return max(count - 1, 0), position + 1
    count, position = read_uvarint(frame, position)
    return count - 1, position
