"""Topics that say with which codec their batches are stored."""

import random
from pathlib import Path
from typing import Any

import pytest
from log_batches import LogBench, append, batch, record_batch

from fairlead_broker.limits import RECOMPRESSED_BYTES_MAX
from fairlead_broker.log.batches.recompression import as_stored
from fairlead_model.configs.log_config import LogConfig
from fairlead_wire.compression import Codec
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.record_batch import CODEC_MASK, decode_batch_header
from fairlead_wire.records import Record, decode_batch

RECORDS = [Record(at, 1_000 + at, b"k%d" % at, b"a value " * 50) for at in range(20)]
NAMES = {"uncompressed": Codec.NONE} | {each.name.lower(): each for each in Codec if each}


@pytest.mark.parametrize("given", list(Codec))
@pytest.mark.parametrize("wanted", NAMES)
def test_every_codec_becomes_every_other_with_the_same_records(given: Codec, wanted: str) -> None:
    sent = record_batch(
        *RECORDS, codec=given, producer_id=7, producer_epoch=3, base_sequence=11,
        is_transactional=True,
    )  # fmt: skip
    kept = as_stored(sent, LogConfig(compression_type=wanted))
    header, before = decode_batch_header(kept), decode_batch_header(sent)
    assert header.codec == NAMES[wanted]
    unchanged = {"length": 0, "crc": 0, "attributes": 0}
    assert header._replace(**unchanged) == before._replace(**unchanged)
    assert header.attributes & ~CODEC_MASK == before.attributes & ~CODEC_MASK
    assert header.size == len(kept)
    assert decode_batch(kept) == RECORDS
    assert (kept is sent) == (NAMES[wanted] == given)


@pytest.mark.parametrize("name", NAMES)
def test_a_log_keeps_what_it_has_packed(name: str, tmp_path: Path) -> None:
    log = LogBench(f"{tmp_path}/t-0").create(
        compression_type=name, message_timestamp_type="LogAppendTime"
    )
    for codec in Codec:
        append(log, record_batch(*RECORDS, codec=codec), now_ms=5_000, epoch=2)
    data = (tmp_path / "t-0/00000000000000000000.log").read_bytes()
    assert len(data) == log.size
    offset = position = 0
    while position < len(data):
        header = decode_batch_header(data, position)
        found = decode_batch(data, position)
        position += header.size
        assert (header.codec, header.base_offset) == (NAMES[name], offset)
        assert (header.partition_leader_epoch, header.max_timestamp) == (2, 5_000)
        assert [each.value for each in found] == [each.value for each in RECORDS]
        offset += len(RECORDS)
    assert offset == log.log_end_offset == len(Codec) * len(RECORDS)


def test_levels_are_those_of_the_topic() -> None:
    chance = random.Random(5)
    words = b" ".join(b"word %d" % chance.randrange(2_000) for _ in range(40_000))
    sent = record_batch(Record(0, 0, None, words))

    def size(**config: Any) -> int:
        return len(as_stored(sent, LogConfig(**config)))

    assert size(compression_type="gzip", gzip_level=9) < size(compression_type="gzip", gzip_level=1)
    assert size(compression_type="gzip") == size(compression_type="gzip", gzip_level=6)
    assert size(compression_type="zstd", zstd_level=9) < size(compression_type="zstd", zstd_level=1)
    nine = as_stored(sent, LogConfig(compression_type="zstd", zstd_level=9))
    assert as_stored(sent, LogConfig(compression_type="zstd", zstd_level=22)) == nine


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_of_too_much_is_refused_as_too_large(codec: Codec, tmp_path: Path) -> None:
    """Java producers split it then."""
    log = LogBench(f"{tmp_path}/t-0").create(
        compression_type="lz4" if codec != Codec.LZ4 else "zstd", max_message_bytes=1 << 30
    )
    large = Record(0, 0, None, bytes(RECOMPRESSED_BYTES_MAX + 1))
    with pytest.raises(KafkaError, match=r"batch\.size") as caught:
        append(log, record_batch(large, codec=codec))
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert (log.log_end_offset, log.size) == (0, 0)


def test_what_is_too_large_as_it_is_stored_is_refused(tmp_path: Path) -> None:
    log = LogBench(f"{tmp_path}/t-0").create(
        compression_type="uncompressed", max_message_bytes=10_000
    )
    fits = record_batch(Record(0, 0, None, bytes(20_000)), codec=Codec.ZSTD)
    with pytest.raises(KafkaError, match="as uncompressed") as caught:
        append(log, fits)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert log.log_end_offset == 0


@pytest.mark.parametrize("codec", [each for each in Codec if each])
def test_what_cannot_be_unpacked_is_refused(codec: Codec, tmp_path: Path) -> None:
    log = LogBench(f"{tmp_path}/t-0").create(compression_type="uncompressed")
    with pytest.raises(KafkaError, match="unreadable records") as caught:
        append(log, batch(attributes=codec, body=b"\xff" * 100))
    assert caught.value.code == ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 0


def test_a_batch_that_comes_twice_is_written_once(tmp_path: Path) -> None:
    log = LogBench(f"{tmp_path}/t-0").create(compression_type="gzip")
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    first = log.append_as_leader(record_batch(*RECORDS, **producer), leader_epoch=0, now_ms=1)
    again = log.append_as_leader(record_batch(*RECORDS, **producer), leader_epoch=0, now_ms=2)
    assert again.is_duplicate
    assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset)
    assert log.log_end_offset == len(RECORDS)
