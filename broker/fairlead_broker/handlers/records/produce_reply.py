"""The reply that nearly every produce request gets, laid out by hand.

One topic, one partition, success: what librdkafka sends one of per batch. Building it from message
objects costs three times as much as all else that the reply needs; the bytes are the same, which a
test holds against the generated encoder in every version.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fairlead_broker.log.log import AppendResult
    from fairlead_wire.messages.produce import TopicProduceData

_TOPIC_IDS_SINCE: Final = 13
_FLEXIBLE_SINCE: Final = 9
_ERRORS_SINCE: Final = 8
_LOG_START_SINCE: Final = 5

# Number of partitions, then index, error code, base offset, append time, log start offset;
# without and with log start offset, then no record errors and no message; throttle time last.
_V3: Final = struct.Struct(">iihqqi")
_V5: Final = struct.Struct(">iihqqqi")
_V8: Final = struct.Struct(">iihqqqihi")
# The same with compact counts (n + 1, null is 0) and the empty tag sections of three structs.
_V9: Final = struct.Struct(">BihqqqBBBBiB")
_ONE_TOPIC: Final = struct.Struct(">ih")
_COMPACT_ONE: Final = b"\x02"


def encode_single_reply(
    version: int, topic: TopicProduceData, index: int, result: AppendResult
) -> bytes:
    """Return the body of a reply that says that one batch was appended to one partition."""
    first_offset, _, append_time_ms, log_start_offset, _ = result
    if version >= _TOPIC_IDS_SINCE:
        head = _COMPACT_ONE + topic.topic_id
    else:
        name = topic.name.encode()
        size = len(name) + 1
        if version < _FLEXIBLE_SINCE:
            head = _ONE_TOPIC.pack(1, len(name)) + name
        elif size < 128:
            head = bytes((2, size)) + name
        else:
            head = bytes((2, size & 0x7F | 0x80, size >> 7)) + name
    if version >= _FLEXIBLE_SINCE:
        return head + _V9.pack(
            2, index, 0, first_offset, append_time_ms, log_start_offset, 1, 0, 0, 0, 0, 0
        )
    if version >= _ERRORS_SINCE:
        return head + _V8.pack(
            1, index, 0, first_offset, append_time_ms, log_start_offset, 0, -1, 0
        )
    if version >= _LOG_START_SINCE:
        return head + _V5.pack(1, index, 0, first_offset, append_time_ms, log_start_offset, 0)
    return head + _V3.pack(1, index, 0, first_offset, append_time_ms, 0)
