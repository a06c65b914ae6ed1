"""Walking the records of a batch by key, for compaction: values are skipped, never decoded.

The body is not trusted: any violation of the layout raises `UnreadableRecordsError`. Records are
yielded one at a time, because one batch may decompress to millions of them, and each takes ten
times its bytes.
"""

from collections.abc import Iterator
from typing import Final, TypeAlias

from fairlead_broker.limits import CLEANER_DECOMPRESSED_MAX
from fairlead_wire.compression import decompress
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.record_batch import BATCH_HEADER_SIZE, BatchHeader
from fairlead_wire.zigzag import VARLONG_SIZE_MAX, read_varint, varint

RECORD_BYTES_MIN: Final = 7
"""Size of a record without key, value and headers; it bounds the count in a batch's header."""

TIMESTAMP_MIN: Final = -(2**63)
TIMESTAMP_MAX: Final = 2**63 - 1

_LENGTH_MIN: Final = 2 * (RECORD_BYTES_MIN - 1)
"""The length field of the shortest record in zig-zag form; it does not count itself."""
_DELTA_LIMIT: Final = 2**70
"""More than ten bytes can hold."""


class UnreadableRecordsError(Exception):
    """The records of a batch with a right CRC cannot be read, or decompress to too much."""


KeyedRecord: TypeAlias = tuple[int, int, bytes | None, bool, int]
"""Start and end of a record in the body of its batch, its key or None, whether it is a tombstone,
and its offset delta. A bare tuple, because there are millions of them."""


def unpack_body(header: BatchHeader, batch: memoryview) -> bytes:
    """Return the records of a batch, decompressed to at most `CLEANER_DECOMPRESSED_MAX` bytes."""
    packed = batch[BATCH_HEADER_SIZE : header.size]
    try:
        return decompress(packed, header.codec, max_size=CLEANER_DECOMPRESSED_MAX)
    except RemoteProtocolError as error:
        raise UnreadableRecordsError(str(error)) from error


def keyed_records(body: bytes, count: int) -> Iterator[KeyedRecord]:
    """Yield all `count` records of a body, in order; at the end check that no bytes follow.

    Short varints of length, offset delta and key length are read inline, and the timestamp is
    skipped: with a call for each number this took three times as long.
    """
    position, size = 0, len(body)
    try:
        for _ in range(count):
            start = position
            byte = body[position]
            if byte < 128:
                length, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                length, position = read_varint(body, position)
            end = position + length
            if length < 0 or end > size:
                raise UnreadableRecordsError(f"a record of {length} bytes at {start} of {size}")
            position += 1
            while body[position] > 127:
                position += 1
            position += 1
            byte = body[position]
            if byte < 128:
                offset_delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                offset_delta, position = read_varint(body, position)
            byte = body[position]
            if byte < 128:
                key_length, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                key_length, position = read_varint(body, position)
            key = body[position : position + key_length] if key_length >= 0 else None
            position += max(key_length, 0)
            if position >= end:
                raise UnreadableRecordsError(f"a key of {key_length} bytes ends at {position}")
            # In zig-zag odd numbers are negative, and a negative length means no value.
            yield start, end, key, body[position] & 1 == 1, offset_delta
            position = end
    except (IndexError, RemoteProtocolError) as error:
        raise UnreadableRecordsError(f"the record at {position} of {size}: {error}") from error
    if position != size:
        raise UnreadableRecordsError(f"{size - position} bytes behind {count} records")


def timestamp_deltas(body: bytes, count: int) -> tuple[int, int]:
    """Return the least and the largest timestamp delta of `count` records of a batch.

    UnreadableRecordsError if the body has anything else.
    """
    position, size = 0, len(body)
    least, largest = _DELTA_LIMIT, -_DELTA_LIMIT
    try:
        for _ in range(count):
            # Inline, two bytes give records of up to 8 KiB; with a call this took twice as long.
            length = body[position]
            position += 1
            if length > 127:
                byte = body[position]
                position += 1
                length += (byte << 7) - 128
                if byte > 127:
                    length, position = read_varint(body, position - 2)
                    length <<= 1
            if length < _LENGTH_MIN or length & 1:
                raise UnreadableRecordsError(f"a record of too few bytes before {position}")
            delta = body[position + 1]
            if delta > 127:
                delta, _ = read_varint(body, position + 1, VARLONG_SIZE_MAX)
            else:
                delta = (delta >> 1) ^ -(delta & 1)
            # Calls of max and min would take longer than the rest of the loop.
            if delta > largest:  # noqa: PLR1730
                largest = delta
            if delta < least:  # noqa: PLR1730
                least = delta
            position += length >> 1
    except (IndexError, RemoteProtocolError) as error:
        raise UnreadableRecordsError(f"the record at {position} of {size}: {error}") from error
    if position != size:
        raise UnreadableRecordsError(f"{size - position} bytes behind {count} records")
    return least, largest


def timestamp_delta(body: bytes, start: int) -> int:
    """Return the timestamp delta of the record at `start`."""
    return _timestamp(body, start)[1]


def with_shifted_timestamp(body: bytes, start: int, end: int, shift_ms: int) -> bytes:
    """Return the bytes of a record for a batch whose base timestamp is `shift_ms` earlier."""
    length_end, delta, timestamp_end = _timestamp(body, start)
    if not TIMESTAMP_MIN <= delta + shift_ms <= TIMESTAMP_MAX:
        raise UnreadableRecordsError(f"a timestamp of {delta} more than its batch at {start}")
    timestamp = varint(delta + shift_ms)
    length = end - timestamp_end + 1 + len(timestamp)
    rest = body[timestamp_end:end]
    return varint(length) + body[length_end : length_end + 1] + timestamp + rest


def _timestamp(body: bytes, start: int) -> tuple[int, int, int]:
    """Return where a record's length ends, its timestamp delta, and where that ends."""
    try:
        _, length_end = read_varint(body, start)
        delta, end = read_varint(body, length_end + 1, VARLONG_SIZE_MAX)
    except RemoteProtocolError as error:
        raise UnreadableRecordsError(f"the timestamp of the record at {start}: {error}") from error
    return length_end, delta, end
