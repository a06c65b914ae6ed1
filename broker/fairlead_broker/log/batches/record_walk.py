"""Walking the records of one batch without decoding them.

Three callers use this: appends to compacted topics (do all records have keys?), the refusal of
timestamps (of which records?) and lookups by timestamp (which record?). Each record starts with
length, attributes, timestamp delta, offset delta and key length; the rest is skipped by the length.
Compressed batches are decompressed first, up to a limit. The input is not trusted.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from fairlead_broker.limits import (
    LOOKUP_DECOMPRESSED_MAX,
    RECOMPRESSED_BYTES_MAX,
    WALKED_RECORDS_MAX,
)
from fairlead_broker.log.batches.keyed_records import (
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    UnreadableRecordsError,
    keyed_records,
    timestamp_deltas,
)
from fairlead_wire.compression import UnpackedSizeError, decompress
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.record_batch import BATCH_HEADER_SIZE, NO_TIMESTAMP, BatchHeader
from fairlead_wire.segments import Buffer

VARINT_BYTES_MAX: Final = 10
_COMPACTED_TIMESTAMP_MAX: Final = 2**62
"""Later than any date, and small enough that compaction can shift it by a delete horizon."""


class RecordSummary(NamedTuple):
    """The timestamp and the offset of a record."""

    timestamp: int
    offset: int


class RefusedRecordsError(KafkaError):
    """A batch is refused as a whole because of some of its records.

    `indexes` are their places in the batch, and `fault` is their error. Clients report this error
    for these records, and another one for records that only were in the same batch (KIP-467).
    """

    def __init__(self, code: ErrorCode, message: str, indexes: list[int], fault: str) -> None:
        super().__init__(code, message)
        self.indexes = indexes
        self.fault = fault


def walk_records(header: BatchHeader, batch: Buffer, *, max_size: int) -> Iterator[RecordSummary]:
    """Yield each record of a batch in order.

    KafkaError INVALID_RECORD if the layout or a number in it is invalid; MESSAGE_TOO_LARGE if the
    records decompress to more than `max_size` bytes.
    """
    stored = memoryview(batch)[BATCH_HEADER_SIZE : header.size]
    body: Buffer = stored if header.codec == 0 else _expand(header.codec, stored, max_size)
    is_log_append_time = bool(header.timestamp_type)
    position = 0
    try:
        for _ in range(header.records_count):
            length, position = _read_varint(body, position)
            end = position + length
            if length < 0 or end > len(body):
                raise _broken(f"a record of {length} bytes")
            timestamp_delta, position = _read_varint(body, position + 1)
            offset_delta, position = _read_varint(body, position)
            timestamp = (
                header.max_timestamp
                if is_log_append_time
                else header.base_timestamp + timestamp_delta
            )
            if not TIMESTAMP_MIN <= timestamp <= TIMESTAMP_MAX:
                raise _broken(f"a timestamp of {timestamp}")
            if not 0 <= offset_delta <= header.last_offset_delta:
                raise _broken(f"an offset delta of {offset_delta}")
            yield RecordSummary(timestamp, header.base_offset + offset_delta)
            position = end
    except IndexError as error:
        raise _broken("a record is cut off") from error


def check_keyed_records(header: BatchHeader, batch: Buffer) -> None:
    """Check each record as a compacted log demands: a key, consecutive offsets, a timestamp.

    KafkaError INVALID_RECORD, a RefusedRecordsError if keys are missing. MESSAGE_TOO_LARGE if
    checking so many records or bytes would block the event loop: a Java producer then splits the
    batch.
    """
    if header.records_count > WALKED_RECORDS_MAX:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {header.records_count} records for a compacted topic, which takes"
            f" {WALKED_RECORDS_MAX}; lower batch.size",
        )
    stored = memoryview(batch)[BATCH_HEADER_SIZE : header.size]
    body = (
        bytes(stored)
        if header.codec == 0
        else _expand(header.codec, stored, LOOKUP_DECOMPRESSED_MAX)
    )
    keyless: list[int] = []
    try:
        for at, (_, _, key, _, delta) in enumerate(keyed_records(body, header.records_count)):
            if key is None:
                keyless.append(at)
            if delta != at:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD, f"record {at} of a batch claims offset delta {delta}"
                )
        _check_shiftable(header, body)
    except UnreadableRecordsError as error:
        raise _broken(str(error)) from error
    if keyless:
        raise RefusedRecordsError(
            ErrorCode.INVALID_RECORD,
            f"{len(keyless)} of {header.records_count} records have no key, in a batch for a"
            " compacted topic",
            keyless,
            "a compacted topic takes no record without a key",
        )


def _check_shiftable(header: BatchHeader, body: bytes) -> None:
    """Refuse timestamps that would make compaction fail, in topics with LogAppendTime, too."""
    least, largest = timestamp_deltas(body, header.records_count)
    least, largest = header.base_timestamp + least, header.base_timestamp + largest
    if not -_COMPACTED_TIMESTAMP_MAX <= least <= largest <= _COMPACTED_TIMESTAMP_MAX:
        raise _broken(f"timestamps {least} to {largest}")


def records_outside(header: BatchHeader, batch: Buffer, earliest: int, latest: int) -> list[int]:
    """Return which records of a batch have a timestamp that is outside of a range.

    KafkaError if they cannot be read, or decompress to more than RECOMPRESSED_BYTES_MAX.
    """
    return [
        at
        for at, record in enumerate(walk_records(header, batch, max_size=RECOMPRESSED_BYTES_MAX))
        if record.timestamp != NO_TIMESTAMP and not earliest <= record.timestamp <= latest
    ]


def _expand(codec: int, body: memoryview, max_size: int) -> bytes:
    try:
        return decompress(body, codec, max_size=max_size)
    except UnpackedSizeError as error:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch whose records are more than {max_size} bytes, too many to be looked at: lower"
            " batch.size",
        ) from error
    except RemoteProtocolError as error:
        raise _broken(str(error)) from error


def _read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return a zig-zag varint and the position after it; IndexError at the end of the buffer."""
    value = shift = 0
    for _ in range(VARINT_BYTES_MAX):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise _broken("a number of more than ten bytes")


def _broken(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"unreadable records: {reason}")
