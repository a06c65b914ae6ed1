"""Walking the records of a batch by key, for compaction: values are stepped over, never decoded.

The body is hostile: whatever breaks the layout raises `UnreadableRecordsError`.
"""

from typing import Final, NamedTuple

from fairlead_broker.limits import CLEANER_DECOMPRESSED_MAX
from fairlead_wire.compression import decompress
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.record_batch import BATCH_HEADER_SIZE, BatchHeader
from fairlead_wire.zigzag import VARLONG_SIZE_MAX, read_varint, varint

RECORD_BYTES_MIN: Final = 7
"""A record without key, value and headers: what bounds the count that a header may claim."""


class UnreadableRecordsError(Exception):
    """The records of a batch whose CRC is right cannot be read, or unpack to too much."""


class KeyedRecord(NamedTuple):
    """Where a record lies in the body of its batch, and what decides whether it stays."""

    start: int
    end: int
    key: bytes | None
    is_tombstone: bool
    offset_delta: int
    timestamp_delta: int


def unpack_body(header: BatchHeader, batch: memoryview) -> bytes:
    """The records of a batch, decompressed to at most `CLEANER_DECOMPRESSED_MAX` bytes."""
    packed = batch[BATCH_HEADER_SIZE : header.size]
    try:
        return decompress(packed, header.codec, max_size=CLEANER_DECOMPRESSED_MAX)
    except RemoteProtocolError as error:
        raise UnreadableRecordsError(str(error)) from error


def keyed_records(body: bytes, count: int) -> list[KeyedRecord]:
    """All `count` records of a body, in order."""
    records = []
    position, size = 0, len(body)
    make = KeyedRecord
    try:
        for _ in range(count):
            start = position
            length, position = read_varint(body, position)
            end = position + length
            if length < 0 or end > size:
                raise UnreadableRecordsError(f"a record of {length} bytes at {start} of {size}")
            timestamp_delta, position = read_varint(body, position + 1, VARLONG_SIZE_MAX)
            offset_delta, position = read_varint(body, position)
            key_length, position = read_varint(body, position)
            key = None
            if key_length >= 0:
                key_end = position + key_length
                if key_end > end:
                    raise UnreadableRecordsError(f"a key of {key_length} bytes at {position}")
                key = body[position:key_end]
                position = key_end
            value_length, position = read_varint(body, position)
            if value_length > end - position or position > end:
                raise UnreadableRecordsError(f"a value of {value_length} bytes at {position}")
            records.append(make(start, end, key, value_length < 0, offset_delta, timestamp_delta))
            position = end
    except (IndexError, RemoteProtocolError) as error:
        raise UnreadableRecordsError(f"the record at {position} of {size}: {error}") from error
    if position != size:
        raise UnreadableRecordsError(f"{size - position} bytes behind {count} records")
    return records


def with_shifted_timestamp(body: bytes, record: KeyedRecord, shift_ms: int) -> bytes:
    """The bytes of a record whose batch has another base timestamp, `shift_ms` earlier."""
    _, length_end = read_varint(body, record.start)
    _, timestamp_end = read_varint(body, length_end + 1, VARLONG_SIZE_MAX)
    timestamp = varint(record.timestamp_delta + shift_ms)
    length = record.end - timestamp_end + 1 + len(timestamp)
    rest = body[timestamp_end : record.end]
    return varint(length) + body[length_end : length_end + 1] + timestamp + rest
