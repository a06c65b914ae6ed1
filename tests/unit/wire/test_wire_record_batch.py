import struct

import google_crc32c
import pytest

from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.record_batch import (
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    TimestampType,
    batch_crc,
    check_batch,
    decode_batch_header,
    records_magic,
)
from fairlead_wire.records import Record, encode_batch

# One record, written out by hand: offset 5, timestamp 1000, key "k", no value, one header.
GOLDEN = bytes.fromhex(
    "0000000000000005"  # base_offset
    "0000003f"  # length: 49 of the header and 14 of the record
    "ffffffff"  # partition_leader_epoch
    "02"  # magic
    "00000000"  # crc: set below
    "0000"  # attributes
    "00000000"  # last_offset_delta
    "00000000000003e8"  # base_timestamp
    "00000000000003e8"  # max_timestamp
    "ffffffffffffffff"  # producer_id
    "ffff"  # producer_epoch
    "ffffffff"  # base_sequence
    "00000001"  # records_count
    "1a 00 00 00 02 6b 01 02 02 68 06 61 62 63"
)
GOLDEN = GOLDEN[:17] + struct.pack(">I", google_crc32c.value(GOLDEN[21:])) + GOLDEN[21:]


def test_the_header_has_61_bytes() -> None:
    assert BATCH_HEADER.size == BATCH_HEADER_SIZE == 61


def test_a_batch_is_what_the_format_says() -> None:
    record = Record(5, 1000, b"k", None, (("h", b"abc"),))
    assert encode_batch([record]) == GOLDEN


def test_the_header_is_read_at_any_position() -> None:
    header = decode_batch_header(b"xyz" + GOLDEN, 3)
    assert (header.base_offset, header.length, header.magic) == (5, 63, 2)
    assert (header.size, header.last_offset, header.next_offset) == (len(GOLDEN), 5, 6)
    assert header.codec == 0
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert not (header.is_transactional or header.is_control or header.has_delete_horizon)
    assert not header.has_producer_id
    assert header.last_sequence == -1


def test_attributes_are_told_apart() -> None:
    header = decode_batch_header(GOLDEN)
    assert header._replace(attributes=0x04).codec == 4
    logged = header._replace(attributes=0x08)
    assert logged.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header._replace(attributes=0x10).is_transactional
    assert header._replace(attributes=0x20).is_control
    assert header._replace(attributes=0x40).has_delete_horizon


def test_sequences_wrap_to_zero() -> None:
    header = decode_batch_header(GOLDEN)
    wrapped = header._replace(base_sequence=2**31 - 2, last_offset_delta=3)
    assert wrapped.last_sequence == 1


def test_a_cut_off_header_is_the_peers_error() -> None:
    with pytest.raises(RemoteProtocolError, match="in 60 bytes"):
        decode_batch_header(GOLDEN[:60])


@pytest.mark.parametrize("size", [22, 1000, 128 * 1024 + 21, 128 * 1024 + 22, 300_000])
def test_the_crc_of_large_batches_is_taken_in_pieces(size: int) -> None:
    data = bytes(index * 7 & 0xFF for index in range(size))
    buffer = memoryview(bytearray(b"head" + data + b"tail"))
    assert batch_crc(buffer, 4, size) == google_crc32c.value(data[21:])


def check(batch: bytes, *, remaining: int | None = None) -> None:
    header = decode_batch_header(batch)
    check_batch(batch, 0, header, remaining=len(batch) if remaining is None else remaining)


def test_a_good_batch_passes_and_the_leader_may_patch_offset_and_epoch() -> None:
    check(GOLDEN)
    check(struct.pack(">q", 77) + GOLDEN[8:12] + struct.pack(">i", 3) + GOLDEN[16:])


@pytest.mark.parametrize("position", [21, 30, 61, len(GOLDEN) - 1])
def test_a_flipped_bit_is_corruption(position: int) -> None:
    damaged = bytearray(GOLDEN)
    damaged[position] ^= 0x10
    with pytest.raises(KafkaError, match="CRC") as caught:
        check(bytes(damaged))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-1, 0, 48, 64, 2**31 - 1])
def test_a_wrong_length_is_corruption(length: int) -> None:
    damaged = GOLDEN[:8] + struct.pack(">i", length) + GOLDEN[12:]
    with pytest.raises(KafkaError, match="claims") as caught:
        check(damaged)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


# Old messages (docs/record_formats.md): offset, size, crc, magic, attributes, …
MESSAGE_V0 = struct.pack(">qiIbbi", 0, 18, 0x1234, 0, 0, -1) + struct.pack(">i4s", 4, b"data")
MESSAGE_V1 = struct.pack(">qiIbbqi", 0, 26, 0x1234, 1, 0, 1000, -1) + struct.pack(">i", 0)


def test_the_format_is_known_from_byte_16() -> None:
    assert records_magic(MESSAGE_V0) == 0
    assert records_magic(memoryview(MESSAGE_V1)) == 1
    assert records_magic(GOLDEN) == 2
    assert records_magic(b"ab" + GOLDEN, 2) == 2
    assert records_magic(GOLDEN[:16]) is None
    assert records_magic(b"") is None


@pytest.mark.parametrize("message", [MESSAGE_V0, MESSAGE_V1])
def test_old_formats_are_refused_as_invalid_records(message: bytes) -> None:
    padded = message + bytes(61)
    with pytest.raises(KafkaError, match="only v2 is accepted") as caught:
        check(padded)
    assert caught.value.code is ErrorCode.INVALID_RECORD
