"""Whole record batches (format v2): for tools, tests and lookups, never for the hot path.

The layout of a record, with all numbers but attributes as zig-zag varints:

    length, attributes i8 (0), timestamp delta, offset delta,
    key length (-1: null), key, value length (-1: null), value,
    header count, and per header: key length, key, value length (-1: null), value
"""

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Final, NamedTuple

from fairlead_wire.compression import Codec, compress, decompress
from fairlead_wire.errors import KafkaError, LocalProtocolError, RemoteProtocolError
from fairlead_wire.record_batch import (
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    BATCH_LENGTH_MIN,
    CONTROL_MASK,
    MAGIC_V2,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    TimestampType,
    batch_crc,
    check_batch,
    decode_batch_header,
)
from fairlead_wire.segments import Buffer
from fairlead_wire.zigzag import VARLONG_SIZE_MAX, read_varint, varint

RECORD_SIZE_MIN: Final = 7
DECOMPRESSED_MAX: Final = 64 * 1024 * 1024

_CONTROL_KEY: Final = struct.Struct(">hh")
_CONTROL_VALUE: Final = struct.Struct(">hi")
_CRC: Final = struct.Struct(">I")
_CRC_POSITION: Final = 17

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record; timestamp in milliseconds since 1970, -1 if it has none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class ControlType(IntEnum):
    """How a control record ends its producer's transaction."""

    ABORT = 0
    COMMIT = 1


class EndOfTransaction(NamedTuple):
    """The only record of a control batch that ends a transaction."""

    type: ControlType
    coordinator_epoch: int


def encode_batch(
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    partition_leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """Encode one batch; its base offset is that of the first record (0 from producers).

    Raises LocalProtocolError if there are no records, or if offsets do not rise.
    """
    if not records:
        raise LocalProtocolError("a batch without records")
    first, last = records[0], records[-1]
    if any(left.offset >= right.offset for left, right in pairwise(records)):
        raise LocalProtocolError("the offsets of a batch must rise")
    body = b"".join(_encode_record(each, first.offset, first.timestamp) for each in records)
    attributes = (
        codec
        | (TIMESTAMP_TYPE_MASK if timestamp_type else 0)
        | (TRANSACTIONAL_MASK if is_transactional else 0)
        | (CONTROL_MASK if is_control else 0)
    )
    body = compress(body, codec)
    try:
        header = BATCH_HEADER.pack(
            first.offset,
            BATCH_LENGTH_MIN + len(body),
            partition_leader_epoch,
            MAGIC_V2,
            0,
            attributes,
            last.offset - first.offset,
            first.timestamp,
            max(each.timestamp for each in records),
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
    except struct.error as error:
        raise LocalProtocolError(f"the batch header cannot be encoded: {error}") from error
    batch = bytearray(header + body)
    _CRC.pack_into(batch, _CRC_POSITION, batch_crc(batch, 0, len(batch)))
    return bytes(batch)


def encode_end_of_transaction(
    marker: EndOfTransaction,
    *,
    offset: int,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
) -> bytes:
    """Return the control batch that commits or aborts a producer's transaction."""
    key = _CONTROL_KEY.pack(0, marker.type)
    value = _CONTROL_VALUE.pack(0, marker.coordinator_epoch)
    return encode_batch(
        [Record(offset, timestamp, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def decode_end_of_transaction(record: Record) -> EndOfTransaction | None:
    """Read a control record; None if it is of another kind (that of the controller quorum)."""
    try:
        _, number = _CONTROL_KEY.unpack_from(record.key or b"")
        if number not in tuple(ControlType):
            return None
        _, coordinator_epoch = _CONTROL_VALUE.unpack_from(record.value or b"")
    except struct.error as error:
        raise RemoteProtocolError(f"a control record is cut off: {error}") from error
    return EndOfTransaction(ControlType(number), coordinator_epoch)


def iter_batches(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and header of each complete batch; leave out a last one that is cut off.

    This only checks the fields that are needed to find the next batch. Raises RemoteProtocolError
    for another format and for a length that no batch can have.
    """
    while len(buffer) - position >= BATCH_HEADER_SIZE:
        header = decode_batch_header(buffer, position)
        if header.magic != MAGIC_V2:
            raise RemoteProtocolError(f"record format v{header.magic} at byte {position}")
        if header.length < BATCH_LENGTH_MIN:
            raise RemoteProtocolError(f"a batch of length {header.length} at byte {position}")
        if header.size > len(buffer) - position:
            return
        yield position, header
        position += header.size


def decode_batch(
    buffer: Buffer,
    position: int = 0,
    *,
    decompressed_max: int = DECOMPRESSED_MAX,
    is_crc_checked: bool = True,
) -> list[Record]:
    """Return the records of the batch at `position`.

    With LogAppendTime all have the batch's timestamp. A compressed batch may decompress to at most
    `decompressed_max` bytes. Raises RemoteProtocolError if the batch is damaged.
    """
    return list(
        iter_records(
            buffer,
            position,
            decompressed_max=decompressed_max,
            is_crc_checked=is_crc_checked,
        )
    )


def iter_records(
    buffer: Buffer,
    position: int = 0,
    *,
    first_offset: int | None = None,
    decompressed_max: int = DECOMPRESSED_MAX,
    is_crc_checked: bool = True,
) -> Iterator[Record]:
    """Yield the records of the batch at `position` as `decode_batch` does, or from an offset on.

    Each record is decoded when it is needed, so RemoteProtocolError may come after some of them.
    """
    header = decode_batch_header(buffer, position)
    if is_crc_checked:
        try:
            check_batch(buffer, position, header, remaining=len(buffer) - position)
        except KafkaError as error:
            raise RemoteProtocolError(error.message) from error
    end = position + header.size
    packed = memoryview(buffer)[position + BATCH_HEADER_SIZE : end]
    body = decompress(packed, header.codec, max_size=decompressed_max)
    if not 0 <= header.records_count <= len(body) // RECORD_SIZE_MIN:
        raise RemoteProtocolError(f"{header.records_count} records in {len(body)} bytes")
    log_append_time = (
        header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    )
    at = 0
    for _ in range(header.records_count):
        try:
            record, at = _decode_record(body, at, header, log_append_time, first_offset)
        except IndexError as error:
            raise RemoteProtocolError("a record is cut off") from error
        if record is not None:
            yield record
    if at != len(body):
        raise RemoteProtocolError(f"{len(body) - at} bytes behind the last record")


def _encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    parts = [
        b"\0",
        varint(record.timestamp - base_timestamp),
        varint(record.offset - base_offset),
        *_encode_nullable(record.key),
        *_encode_nullable(record.value),
        varint(len(record.headers)),
    ]
    for key, value in record.headers:
        parts += (*_encode_nullable(key.encode()), *_encode_nullable(value))
    body = b"".join(parts)
    return varint(len(body)) + body


def _encode_nullable(data: bytes | None) -> tuple[bytes, bytes]:
    if data is None:
        return b"\x01", b""
    return varint(len(data)), data


def _decode_record(
    body: bytes,
    position: int,
    header: BatchHeader,
    log_append_time: int | None,
    first_offset: int | None,
) -> tuple[Record | None, int]:
    """Return a record, None for one before `first_offset`, and where the next one begins."""
    size, position = read_varint(body, position)
    end = position + size
    if not 0 <= size <= len(body) - position:
        raise RemoteProtocolError(f"a record claims {size} bytes, {len(body) - position} are left")
    position += 1  # Attributes of a record: no bit has a meaning.
    delta, position = read_varint(body, position, VARLONG_SIZE_MAX)
    offset_delta, position = read_varint(body, position)
    offset = header.base_offset + offset_delta
    if first_offset is not None and offset < first_offset:
        return None, end
    key, position = _decode_nullable(body, position)
    value, position = _decode_nullable(body, position)
    headers: Headers = ()
    count, position = read_varint(body, position)
    if count:
        headers, position = _decode_headers(body, position, count, end)
    if position != end:
        raise RemoteProtocolError("a record has not the size that it claims")
    timestamp = header.base_timestamp + delta if log_append_time is None else log_append_time
    return Record(offset, timestamp, key, value, headers), position


def _decode_nullable(body: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = read_varint(body, position)
    if size == -1:
        return None, position
    if not 0 <= size <= len(body) - position:
        raise RemoteProtocolError(f"a field of a record claims {size} bytes")
    return body[position : position + size], position + size


def _decode_headers(body: bytes, position: int, count: int, end: int) -> tuple[Headers, int]:
    if not 0 <= count <= (end - position) // 2:
        raise RemoteProtocolError(f"a record claims {count} headers")
    headers = []
    for _ in range(count):
        key, position = _decode_nullable(body, position)
        value, position = _decode_nullable(body, position)
        if key is None:
            raise RemoteProtocolError("a header without a key")
        # Not every client writes UTF-8; an undecodable header must not hide its record.
        headers.append((key.decode(errors="replace"), value))
    return tuple(headers), position
