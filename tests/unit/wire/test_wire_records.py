import struct

import google_crc32c
import pytest

from fairlead_wire.compression import Codec
from fairlead_wire.errors import LocalProtocolError, RemoteProtocolError
from fairlead_wire.record_batch import TimestampType, decode_batch_header
from fairlead_wire.records import (
    ControlType,
    EndOfTransaction,
    Record,
    decode_batch,
    decode_end_of_transaction,
    encode_batch,
    encode_end_of_transaction,
    iter_batches,
)

RECORDS = [
    Record(10, 1_700_000_000_000, b"key", b"value", (("h", b"x"), ("n", None), ("", b""))),
    Record(11, 1_699_999_999_990, None, b""),
    Record(13, 1_700_000_000_500, b"", None),
    Record(500, -1, b"k" * 300, b"v" * 5000),
]


def resealed(batch: bytes) -> bytes:
    """The batch with a CRC that fits what is in it."""
    return batch[:17] + struct.pack(">I", google_crc32c.value(batch[21:])) + batch[21:]


def with_body(body: bytes, count: int, *, codec: int = 0) -> bytes:
    """A batch whose header is sound and whose body is given."""
    batch = bytearray(encode_batch([Record(0, 0, None, None)])[:61] + body)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">i", batch, 57, count)
    return resealed(bytes(batch))


@pytest.mark.parametrize("codec", Codec)
def test_records_survive_every_codec(codec: Codec) -> None:
    batch = encode_batch(RECORDS, codec=codec)
    header = decode_batch_header(batch)
    assert (header.codec, header.records_count, header.last_offset) == (codec, 4, 500)
    assert (header.base_timestamp, header.max_timestamp) == (1_700_000_000_000, 1_700_000_000_500)
    assert decode_batch(memoryview(b"ab" + batch), 2) == RECORDS


def test_fields_of_the_producer_are_written() -> None:
    batch = encode_batch(
        RECORDS,
        partition_leader_epoch=3,
        producer_id=2**40,
        producer_epoch=7,
        base_sequence=11,
        is_transactional=True,
    )
    header = decode_batch_header(batch)
    assert (header.partition_leader_epoch, header.producer_id) == (3, 2**40)
    assert (header.producer_epoch, header.base_sequence) == (7, 11)
    assert header.is_transactional
    assert not header.is_control


def test_log_append_time_is_that_of_the_batch() -> None:
    batch = encode_batch(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert {each.timestamp for each in decode_batch(batch)} == {1_700_000_000_500}


def test_a_control_batch_is_what_kafka_writes() -> None:
    marker = EndOfTransaction(ControlType.COMMIT, coordinator_epoch=5)
    batch = encode_end_of_transaction(
        marker, offset=9, timestamp=1000, producer_id=4, producer_epoch=2
    )
    assert batch[:17] == bytes.fromhex("0000000000000009 00000042 ffffffff 02")
    assert batch[21:] == bytes.fromhex(
        "0030 00000000 00000000000003e8 00000000000003e8 0000000000000004 0002 ffffffff 00000001"
        "20 00 00 00 08 0000 0001 0c 0000 00000005 00"
    )
    (record,) = decode_batch(batch)
    assert decode_end_of_transaction(record) == marker


def test_control_records_of_other_kinds_are_left_alone() -> None:
    assert decode_end_of_transaction(Record(0, 0, b"\0\0\0\2", b"\0\0")) is None
    with pytest.raises(RemoteProtocolError, match="cut off"):
        decode_end_of_transaction(Record(0, 0, b"\0\0\0", None))
    with pytest.raises(RemoteProtocolError, match="cut off"):
        decode_end_of_transaction(Record(0, 0, b"\0\0\0\1", b"\0\0"))


def test_batches_follow_one_another_and_a_cut_off_one_is_left_out() -> None:
    batches = [encode_batch([Record(base, 0, None, b"v" * base)]) for base in (1, 20, 300)]
    buffer = b"".join(batches)
    found = [(position, header.base_offset) for position, header in iter_batches(buffer)]
    assert found == [(0, 1), (len(batches[0]), 20), (len(batches[0] + batches[1]), 300)]
    for cut in (len(buffer) - 1, len(batches[0]) + 61, len(batches[0]) + 60, len(batches[0])):
        whole = [header.base_offset for _, header in iter_batches(buffer[:cut])]
        assert whole == ([1, 20] if cut == len(buffer) - 1 else [1])
    assert list(iter_batches(b"")) == []


def test_stepping_stops_at_what_is_no_batch() -> None:
    batch = encode_batch(RECORDS)
    with pytest.raises(RemoteProtocolError, match="format v1"):
        list(iter_batches(batch[:16] + b"\1" + batch[17:]))
    with pytest.raises(RemoteProtocolError, match="length 48"):
        list(iter_batches(batch[:8] + struct.pack(">i", 48) + batch[12:]))


def test_a_wrong_crc_is_refused_unless_nobody_asks() -> None:
    batch = bytearray(encode_batch(RECORDS))
    batch[17] ^= 1
    with pytest.raises(RemoteProtocolError, match="CRC"):
        decode_batch(batch)
    assert decode_batch(batch, is_crc_checked=False) == RECORDS


@pytest.mark.parametrize(
    ("body", "count", "reason"),
    [
        ("0c00000001010c", 1, "has not the size|claims"),
        ("0c000000010100", 2, "2 records in 7 bytes"),
        ("0c000000010100", -1, "-1 records"),
        ("0c000000010100", 2**31 - 1, "records in 7 bytes"),
        ("0c000000010100ff", 1, "1 bytes behind the last record"),
        ("0e000000010100", 1, "claims 7 bytes"),
        ("01000000010100", 1, "claims -1 bytes"),
        ("0a000000010100", 1, "has not the size"),
        ("0c000000030100", 1, "claims -2 bytes"),
        ("0c000000fe7f0100", 1, "claims"),
        ("0c000000010101", 1, "claims -1 headers"),
        ("0c0000000101fe", 1, "cut off|headers"),
        ("ffffffffffff7f", 1, "more than 5 bytes"),
        ("100000000101020101", 1, "without a key"),
    ],
)
def test_damaged_records_are_refused(body: str, count: int, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        decode_batch(with_body(bytes.fromhex(body), count))


def test_unreadable_header_keys_do_not_hide_the_record() -> None:
    body = bytes.fromhex("12 00 00 00 01 01 02 02 ff 01")
    assert decode_batch(with_body(body, 1)) == [Record(0, 0, None, None, (("\ufffd", None),))]


def test_unpacked_size_is_bounded() -> None:
    batch = encode_batch([Record(0, 0, None, bytes(1_000_000))], codec=Codec.ZSTD)
    assert len(batch) < 1000
    with pytest.raises(RemoteProtocolError, match="more than 100000 bytes"):
        decode_batch(batch, decompressed_max=100_000)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_do_not_exist_are_refused(codec: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"no codec has the number {codec}"):
        decode_batch(with_body(b"", 0, codec=codec))


def test_nonsense_is_not_encoded() -> None:
    with pytest.raises(LocalProtocolError, match="without records"):
        encode_batch([])
    with pytest.raises(LocalProtocolError, match="must rise"):
        encode_batch([Record(1, 0, None, None), Record(1, 0, None, None)])
    with pytest.raises(LocalProtocolError, match="cannot be encoded"):
        encode_batch([Record(2**63, 0, None, None)])
