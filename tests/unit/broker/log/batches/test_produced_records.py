"""What a leader makes sure of in records: how many they are, and when they say that they were."""

import os
import random
from pathlib import Path
from typing import Any

import pytest
from log_batches import LogBench, all_headers, append, batch, patched, record_batch
from present import present

from fairlead_broker.limits import (
    RECOMPRESSED_BYTES_MAX,
    UNCHARGED_WALK_BYTES_MAX,
    WALKED_ALWAYS_RECORDS_MAX,
    WALKED_RECORDS_MAX,
)
from fairlead_broker.log.batches.produced_records import takes_long
from fairlead_broker.log.batches.record_walk import RefusedRecordsError
from fairlead_broker.log.log import Log
from fairlead_model.configs.log_config import LogConfig
from fairlead_wire.compression import Codec
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.records import Record
from fairlead_wire.zigzag import varint

NOW = 1_000_000
MANY = WALKED_ALWAYS_RECORDS_MAX + 1
SIZES = (1, 2, WALKED_ALWAYS_RECORDS_MAX, MANY, 1_000)


def log_of(tmp_path: Path, **config: Any) -> Log:
    return LogBench(f"{tmp_path}/t-0").create(now_ms=NOW, **config)


def records(*times: int, value: bytes = b"v") -> list[Record]:
    return [Record(at, time, b"k", value) for at, time in enumerate(times)]


def refusal(log: Log, content: memoryview) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        append(log, content, now_ms=NOW)
    assert log.log_end_offset == 0
    return caught.value


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("told", [-1, NOW - 1])
def test_a_largest_timestamp_that_is_not_told_is_found(
    told: int, count: int, codec: Codec, tmp_path: Path
) -> None:
    """As sarama before 1.45.1 sends batches: with -1, whatever their records have."""
    log = log_of(tmp_path)
    times = [NOW + at % 7 for at in range(count)]
    append(log, patched(record_batch(*records(*times), codec=codec), max_timestamp=told))
    (header,) = all_headers(log)  # Its CRC is right, too.
    assert (header.base_timestamp, header.max_timestamp) == (NOW, max(times))
    at = times.index(max(times))
    assert present(log.offset_for_timestamp(max(times), end_offset=count)).offset == at
    assert present(log.offset_of_max_timestamp())[:2] == (max(times), at)


@pytest.mark.parametrize("told", [NOW + 10, NOW + 90])
def test_small_batches_say_what_their_records_do(told: int, tmp_path: Path) -> None:
    """KafkaJS gives the timestamp of the last record, whatever the others have."""
    log = log_of(tmp_path)
    append(log, patched(record_batch(*records(NOW + 50, NOW + 10)), max_timestamp=told))
    assert all_headers(log)[0].max_timestamp == NOW + 50
    assert present(log.offset_of_max_timestamp())[:2] == (NOW + 50, 0)


def test_records_without_timestamps_stay_so(tmp_path: Path) -> None:
    log = log_of(tmp_path, message_timestamp_before_max_ms=1)
    for codec in Codec:
        append(log, record_batch(*records(-1, -1), codec=codec), now_ms=NOW)
    assert {header.max_timestamp for header in all_headers(log)} == {-1}


def test_fresh_records_of_such_batches_outlive_an_old_one(tmp_path: Path) -> None:
    hour = 3_600_000
    log = log_of(tmp_path, segment_bytes=2_000, retention_ms=hour, index_interval_bytes=50)
    append(log, record_batch(*records(NOW - 2 * hour)), now_ms=NOW)
    for _ in range(5):
        append(log, patched(record_batch(*records(NOW)), max_timestamp=-1), now_ms=NOW)
    log.roll(NOW)
    append(log, record_batch(*records(NOW)), now_ms=NOW)
    assert log.delete_expired_segments(NOW, log.log_end_offset) == 0


@pytest.mark.parametrize("told", [-1, 10])
@pytest.mark.parametrize("codec", [each for each in Codec if each])
def test_what_is_too_much_to_unpack_counts_as_of_now(
    codec: Codec, told: int, tmp_path: Path
) -> None:
    log = log_of(tmp_path, max_message_bytes=1 << 30)
    large = record_batch(*records(50, value=bytes(RECOMPRESSED_BYTES_MAX)), codec=codec)
    append(log, patched(large, max_timestamp=told), now_ms=NOW)
    later = record_batch(*records(NOW + 5, value=bytes(RECOMPRESSED_BYTES_MAX)), codec=codec)
    append(log, patched(later, max_timestamp=told), now_ms=NOW)
    assert [header.max_timestamp for header in all_headers(log)] == [NOW, NOW + 5]


def test_so_do_more_records_than_the_loop_looks_at(tmp_path: Path) -> None:
    log = log_of(tmp_path, max_message_bytes=1 << 30)
    content = record_batch(*records(*[9] * (WALKED_RECORDS_MAX + 1)))
    append(log, patched(content, max_timestamp=-1), now_ms=NOW)
    assert all_headers(log)[0].max_timestamp == NOW


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", SIZES)
def test_no_header_gets_around_the_limits(count: int, codec: Codec, tmp_path: Path) -> None:
    log = log_of(tmp_path)
    times = [NOW] * (count - 1) + [NOW + 10**9]
    content = patched(record_batch(*records(*times), codec=codec), max_timestamp=-1)
    error = refusal(log, content)
    assert isinstance(error, RefusedRecordsError)
    assert (error.code, error.indexes) == (ErrorCode.INVALID_TIMESTAMP, [count - 1])


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", SIZES)
def test_limits_of_a_topic_hold_for_every_record(count: int, codec: Codec, tmp_path: Path) -> None:
    log = log_of(
        tmp_path, message_timestamp_before_max_ms=60_000, message_timestamp_after_max_ms=60_000
    )
    for off in (-60_001, 60_001):
        times = [NOW, *[NOW] * count, NOW + off, -1, NOW]
        content = patched(record_batch(*records(*times), codec=codec), max_timestamp=NOW)
        error = refusal(log, content)
        assert isinstance(error, RefusedRecordsError)
        assert (error.code, error.indexes) == (ErrorCode.INVALID_TIMESTAMP, [count + 1])
    for times in ([-1, *[NOW] * count], [*[NOW] * count, -1], [NOW - 60_000, NOW + 60_000]):
        append(log, record_batch(*records(*times), codec=codec), now_ms=NOW)


@pytest.mark.parametrize("codec", list(Codec))
def test_counts_that_no_body_has_room_for_are_refused(codec: Codec, tmp_path: Path) -> None:
    content = record_batch(*records(NOW), codec=codec)
    count = 2**31 - 1
    content = patched(content, records_count=count, last_offset_delta=count - 1)
    error = refusal(log_of(tmp_path), content)
    assert error.code == ErrorCode.INVALID_RECORD


def test_counts_are_bounded_by_the_shortest_records(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    shortest = [Record(at, NOW, None, None) for at in range(60)]
    content = record_batch(*shortest)
    for count in (61, 100):
        wrong = patched(content, records_count=count, last_offset_delta=count - 1)
        assert refusal(log, wrong).code == ErrorCode.INVALID_RECORD
    append(log, content, now_ms=NOW)


@pytest.mark.parametrize("codec", list(Codec))
def test_what_packs_best_is_taken(codec: Codec, tmp_path: Path) -> None:
    log = log_of(tmp_path)
    shortest = [Record(at, NOW, None, None) for at in range(100_000)]
    append(log, record_batch(*shortest, codec=codec), now_ms=NOW)
    append(log, record_batch(Record(0, NOW, None, bytes(16 << 20)), codec=Codec.ZSTD), now_ms=NOW)


@pytest.mark.parametrize("count", range(1, WALKED_ALWAYS_RECORDS_MAX + 2))
@pytest.mark.parametrize("append_time", ["CreateTime", "LogAppendTime"])
def test_small_batches_have_as_many_records_as_they_say(
    append_time: str, count: int, tmp_path: Path
) -> None:
    log = log_of(tmp_path, message_timestamp_type=append_time)
    content = record_batch(*records(*[NOW] * count))
    for wrong in {count - 1, count + 1} & set(range(1, WALKED_ALWAYS_RECORDS_MAX + 1)):
        told = patched(content, records_count=wrong, last_offset_delta=wrong - 1)
        assert refusal(log, told).code == ErrorCode.INVALID_RECORD
    append(log, content, now_ms=NOW)


def test_garbage_is_refused_where_it_is_looked_at(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    chance = random.Random(7)
    for codec in Codec:
        for size in (7, 20, 100):
            garbage = batch(body=chance.randbytes(size), attributes=codec)
            assert refusal(log, patched(garbage, max_timestamp=-1)).code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("delta", [2**63, -(2**63) - 1, 3 * 2**62])
def test_no_timestamp_is_beyond_64_bits(delta: int, tmp_path: Path) -> None:
    folded = delta << 1 if delta >= 0 else (-delta << 1) - 1
    encoded = bytearray()
    while folded > 127:
        encoded.append(folded & 127 | 128)
        folded >>= 7
    encoded.append(folded)
    fields = b"\0" + encoded + b"\0\x01\x02v\0"
    content = batch(body=varint(len(fields)) + fields, timestamp=0)
    log = log_of(tmp_path, message_timestamp_after_max_ms=2**63 - 1)
    assert refusal(log, content).code == ErrorCode.INVALID_RECORD


def test_what_keeps_all_others_waiting_is_known_before() -> None:
    small = record_batch(*records(NOW))
    large = record_batch(*records(NOW, value=os.urandom(UNCHARGED_WALK_BYTES_MAX)))
    packed = record_batch(*records(NOW), codec=Codec.LZ4)
    untold = patched(packed, max_timestamp=-1)
    limited = LogConfig(message_timestamp_before_max_ms=5)
    compacted = LogConfig(cleanup_policy=frozenset({"compact"}))
    stamped = LogConfig(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=5)
    packs = LogConfig(compression_type="zstd")
    told = {
        (name, what): takes_long(content, config)
        for name, content in {
            "small": small, "large": large, "packed": packed, "untold": untold,
            "untold large": patched(large, max_timestamp=-1), "nothing": memoryview(b""),
        }.items()
        for what, config in {
            "plain": LogConfig(), "limited": limited, "compacted": compacted, "packs": packs,
            "stamped": stamped,
        }.items()
    }  # fmt: skip
    assert {which for which, is_long in told.items() if is_long} == {
        ("untold", "plain"), ("untold large", "plain"),
        *((name, what) for name in ("large", "packed", "untold", "untold large")
          for what in ("limited", "compacted", "packs")),
        ("small", "packs"),
    }  # fmt: skip
