"""What a leader refuses, with which code, and that a refusal leaves the log as it was."""

from collections.abc import Callable
from pathlib import Path

import pytest
from log_batches import LogBench, append, batch, patched, record_batch

from fairlead_broker.limits import (
    LOOKUP_DECOMPRESSED_MAX,
    WALKED_ALWAYS_RECORDS_MAX,
    WALKED_RECORDS_MAX,
)
from fairlead_broker.log.batches.append_check import check_produced_batch
from fairlead_broker.log.log import Log
from fairlead_model.configs.log_config import LogConfig
from fairlead_wire.compression import Codec, compress
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.records import Record
from fairlead_wire.zigzag import varint

NOW = 1_000_000


def two_batches() -> memoryview:
    return memoryview(bytearray(bytes(batch()) * 2))


def cut_off(size: int) -> memoryview:
    return batch()[:size]


REFUSALS = [
    ("a flipped bit", lambda: patched(batch(), crc=1), ErrorCode.CORRUPT_MESSAGE),
    ("format v0", lambda: patched(batch(), magic=0), ErrorCode.INVALID_RECORD),
    ("format v1", lambda: patched(batch(), magic=1), ErrorCode.INVALID_RECORD),
    ("magic 3", lambda: patched(batch(), magic=3), ErrorCode.CORRUPT_MESSAGE),
    ("nothing", lambda: memoryview(bytearray()), ErrorCode.INVALID_RECORD),
    ("a cut-off header", lambda: cut_off(60), ErrorCode.INVALID_RECORD),
    ("a short v0 message", lambda: memoryview(bytearray(34)), ErrorCode.INVALID_RECORD),
    ("a cut-off body", lambda: cut_off(100), ErrorCode.INVALID_RECORD),
    ("a negative length", lambda: patched(batch(), length=-5), ErrorCode.CORRUPT_MESSAGE),
    ("a tiny length", lambda: patched(batch(), length=48), ErrorCode.CORRUPT_MESSAGE),
    ("two batches", two_batches, ErrorCode.INVALID_RECORD),
    ("base offset", lambda: patched(batch(), base_offset=1), ErrorCode.INVALID_RECORD),
    ("no records", lambda: patched(batch(), records_count=0), ErrorCode.INVALID_RECORD),
    ("fewer records", lambda: patched(batch(3), records_count=2), ErrorCode.INVALID_RECORD),
    ("more records", lambda: patched(batch(3), records_count=4), ErrorCode.INVALID_RECORD),
    ("control bit", lambda: batch(attributes=0x20), ErrorCode.INVALID_RECORD),
    ("transactional bit", lambda: batch(attributes=0x10), ErrorCode.INVALID_TXN_STATE),
    ("codec 5", lambda: batch(attributes=0x05), ErrorCode.INVALID_RECORD),
    ("codec 7", lambda: batch(attributes=0x07), ErrorCode.INVALID_RECORD),
    ("LogAppendTime bit", lambda: batch(attributes=0x08), ErrorCode.INVALID_TIMESTAMP),
    ("no sequence", lambda: batch(producer=(5, 0, -1)), ErrorCode.INVALID_RECORD),
    ("no epoch", lambda: batch(producer=(5, -1, 0)), ErrorCode.INVALID_RECORD),
    ("too large", lambda: batch(size=5_001), ErrorCode.MESSAGE_TOO_LARGE),
    ("from the future", lambda: batch(timestamp=NOW + 501), ErrorCode.INVALID_TIMESTAMP),
    ("from the past", lambda: batch(timestamp=NOW - 801), ErrorCode.INVALID_TIMESTAMP),
]
CONFIG = LogConfig(
    max_message_bytes=5_000,
    message_timestamp_after_max_ms=500,
    message_timestamp_before_max_ms=800,
)


@pytest.mark.parametrize(("what", "make", "code"), REFUSALS, ids=[case[0] for case in REFUSALS])
def test_refused_with_the_code_that_clients_know(
    what: str, make: Callable[[], memoryview], code: ErrorCode, tmp_path: Path
) -> None:
    log = LogBench(f"{tmp_path}/t-0").create(
        max_message_bytes=5_000,
        message_timestamp_after_max_ms=500,
        message_timestamp_before_max_ms=800,
    )
    append(log, batch(timestamp=NOW), now_ms=NOW)
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(make(), leader_epoch=0, now_ms=NOW)
    assert caught.value.code == code
    assert (log.log_end_offset, log.size) == (1, 180)
    assert append(log, batch(timestamp=NOW), now_ms=NOW) == [1]


def test_a_batch_that_fits_no_segment_is_told_so() -> None:
    config = LogConfig(segment_bytes=1_000)
    with pytest.raises(KafkaError) as caught:
        check_produced_batch(batch(size=1_001), config, 1_000, is_compacted=False)
    assert caught.value.code == ErrorCode.RECORD_LIST_TOO_LARGE


def test_bytes_of_a_cut_off_second_batch_are_ignored(tmp_path: Path) -> None:
    log = LogBench(f"{tmp_path}/t-0").create()
    content = memoryview(bytearray(bytes(batch()) + bytes(batch())[:70]))
    append(log, content)
    assert log.size == 180


def test_records_without_timestamps_are_accepted_whatever_the_clock_says() -> None:
    config = LogConfig(message_timestamp_before_max_ms=1)
    check_produced_batch(batch(timestamp=-1), config, 10**12, is_compacted=False)


@pytest.mark.parametrize("codec", list(Codec))
def test_compacted_topics_take_keys_only(codec: Codec, tmp_path: Path) -> None:
    log = LogBench(f"{tmp_path}/t-0").create(cleanup_policy=frozenset({"compact"}))
    with_key, without = Record(0, 5, b"k", None), Record(1, 5, None, b"v")
    append(log, record_batch(with_key, codec=codec))
    with pytest.raises(KafkaError) as caught:
        append(log, record_batch(with_key, without, codec=codec))
    assert caught.value.code == ErrorCode.INVALID_RECORD


def test_unreadable_records_are_refused_by_compacted_topics(tmp_path: Path) -> None:
    log = LogBench(f"{tmp_path}/t-0").create(cleanup_policy=frozenset({"compact"}))
    garbage = b"\xff" * 100
    for broken in (batch(body=garbage), batch(attributes=2), batch(attributes=7), batch(40)):
        with pytest.raises(KafkaError) as caught:
            append(log, broken)
        assert caught.value.code == ErrorCode.INVALID_RECORD


def compacted(tmp_path: Path) -> Log:
    return LogBench(f"{tmp_path}/t-0").create(cleanup_policy=frozenset({"compact"}))


def test_compacted_topics_take_no_offset_that_is_not_the_records_place(tmp_path: Path) -> None:
    """Compaction would take it for the newest of its key, for ever."""
    log = compacted(tmp_path)
    content = record_batch(Record(0, 5, b"a", b"1"), Record(9, 5, b"b", b"2"))
    with pytest.raises(KafkaError, match="claims offset delta 9") as caught:
        append(log, patched(content, last_offset_delta=1))
    assert caught.value.code == ErrorCode.INVALID_RECORD


def test_compacted_topics_take_no_more_records_than_the_loop_can_look_at(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    count = WALKED_RECORDS_MAX + 1
    content = patched(
        record_batch(Record(0, 5, b"a", bytes(range(256))), codec=Codec.ZSTD),
        records_count=count,
        last_offset_delta=count - 1,
    )
    with pytest.raises(KafkaError, match=r"lower batch\.size") as caught:
        append(log, content)
    # What a Java producer answers by splitting the batch.
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [each for each in Codec if each])
def test_nor_more_bytes_of_them(codec: Codec, tmp_path: Path) -> None:
    log = compacted(tmp_path)
    content = record_batch(Record(0, 5, b"a", bytes(LOOKUP_DECOMPRESSED_MAX)), codec=codec)
    with pytest.raises(KafkaError, match=r"lower batch\.size") as caught:
        append(log, content)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


ENDLESS = b"\x80" * 11 + b"\0"


@pytest.mark.parametrize("stamped_by", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(
    ("timestamp", "base"),
    [
        (ENDLESS, 5),
        (varint(2**63 - 1), 5),
        (varint(0), -(2**63) + NOW),
        (varint(-(2**63)), 5),
        (varint(0), 2**63 - 1),
    ],
)
def test_compacted_topics_take_no_timestamp_that_compaction_cannot_keep(
    timestamp: bytes, base: int, codec: Codec, stamped_by: str, tmp_path: Path
) -> None:
    """One such batch would end every compaction of its log, which would grow for ever."""
    log = LogBench(f"{tmp_path}/t-0").create(
        cleanup_policy=frozenset({"compact"}), message_timestamp_type=stamped_by
    )
    count = WALKED_ALWAYS_RECORDS_MAX + 1
    records = []
    for at in range(count):
        fields = b"\0" + timestamp + varint(at) + b"\x02k\x01\0"
        records.append(varint(len(fields)) + fields)
    packed = compress(b"".join(records), codec)
    content = patched(
        batch(count, timestamp=base, body=packed, attributes=codec),
        max_timestamp=max(base, NOW),
    )
    with pytest.raises(KafkaError) as caught:
        append(log, content)
    assert caught.value.code in (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)


def test_compacted_topics_take_timestamps_of_all_ages(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    # What Go's zero time is, and records without a time.
    for early in (-62_135_596_800_000, -1, 0):
        append(log, record_batch(Record(0, early, b"a", b"1"), Record(1, NOW, b"b", None)))
    assert log.log_end_offset == 6


def test_only_compaction_sets_a_delete_horizon(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    content = record_batch(Record(0, 5, b"a", None))
    with pytest.raises(KafkaError, match="delete horizon") as caught:
        append(log, patched(content, attributes=0x40))
    assert caught.value.code == ErrorCode.INVALID_RECORD
