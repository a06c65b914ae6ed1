"""Indexes and snapshots that something has damaged while nobody was writing them."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from counting_disk import CountingDisk
from log_batches import LogBench, append, batch, patched, read_headers, record_batch
from present import present

from fairlead_broker.log.directory.clean_stop import stop_log
from fairlead_broker.log.index import index_sanity
from fairlead_broker.log.index.index_file import OFFSET_ENTRY
from fairlead_broker.log.index.transaction_index import AbortedTransaction
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.records import Record

CONFIG: dict[str, Any] = {
    "segment_bytes": 4_000,
    "index_interval_bytes": 300,
    "message_timestamp_after_max_ms": 10**9,
}
COUNT = 60


class TimedBench(LogBench):
    """Knows the time of each batch."""

    times: list[int]


def at_time(timestamp: int) -> memoryview:
    return record_batch(Record(0, timestamp, b"k", b"v" * 110))


@pytest.fixture(params=["rising", "mixed"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> TimedBench:
    """A log that was stopped cleanly: three sealed segments, each batch with a time of its own."""
    bench = TimedBench(str(tmp_path / "t-0"))
    log = bench.create(**CONFIG)
    bench.times = list(range(1_000, 1_000 + COUNT * 10, 10))
    if request.param == "mixed":
        random.Random(7).shuffle(bench.times)
    append(log, *(at_time(time) for time in bench.times))
    assert len(log.segments) == 3
    assert stop_log(log, 0)
    log.close()
    return bench


def expect_whole(bench: TimedBench) -> None:
    """Every offset and every timestamp is found, and segments know how old they are."""
    log = bench.load(**CONFIG)
    for offset in range(COUNT):
        (header,) = read_headers(log, offset, 1)
        assert header.base_offset == offset
    log.close()
    log = bench.load(**CONFIG)
    for target in range(995, 1_000 + COUNT * 10, 5):
        expected = next((at for at, time in enumerate(bench.times) if time >= target), None)
        found = log.offset_for_timestamp(target, end_offset=COUNT)
        assert (None if found is None else found.offset) == expected
    log.close()
    log = bench.load(**CONFIG)
    for segment, end in zip(log.segments, [*log.bases[1:], COUNT], strict=True):
        assert segment.largest_timestamp() == max(bench.times[segment.base_offset : end])
    log.close()


def damage_zeros(content: bytes, other: bytes) -> bytes:
    return bytes(len(content))


def damage_zero_tail(content: bytes, other: bytes) -> bytes:
    return content + bytes(12 * 8 * 5)


def damage_empty(content: bytes, other: bytes) -> bytes:
    return b""


def damage_foreign(content: bytes, other: bytes) -> bytes:
    return other


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", [damage_zeros, damage_zero_tail, damage_empty, damage_foreign])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_index_that_is_not_the_segments_is_built_anew(
    bench: TimedBench, suffix: str, damage: Callable[[bytes, bytes], bytes], at: int
) -> None:
    paths = sorted(bench.load(**CONFIG).directory.glob(f"*{suffix}"))
    paths[at].write_bytes(damage(paths[at].read_bytes(), paths[at - 1].read_bytes()))
    expect_whole(bench)


@pytest.mark.parametrize("left", [1, 3, -1])
def test_an_index_that_lost_its_end_still_finds_everything(bench: TimedBench, left: int) -> None:
    for path in sorted(bench.load(**CONFIG).directory.glob("*.index")):
        path.write_bytes(path.read_bytes()[: 8 * left])
    expect_whole(bench)


def test_a_time_index_that_lost_its_end_does_not_make_records_look_older(tmp_path: Path) -> None:
    """Retention would delete them before their time."""
    bench = LogBench(str(tmp_path / "t-0"))
    log = bench.create(**CONFIG)
    append(log, *(at_time(1_000 + at) for at in range(40)))
    assert stop_log(log, 0)
    log.close()
    for path in log.directory.glob("*.timeindex"):
        path.write_bytes(path.read_bytes()[:12])
    log = bench.load(**CONFIG)
    newest_ms = [segment.largest_timestamp() for segment in log.segments]
    assert newest_ms == [1_000 + base - 1 for base in log.bases[1:]] + [1_039]
    log.close()


def test_a_long_part_without_entries_is_indexed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_sanity, "UNINDEXED_BYTES_MAX", 2_000)
    bench = LogBench(str(tmp_path / "t-0"))
    log = bench.create(index_interval_bytes=300)
    append(log, *(batch() for _ in range(40)))
    assert stop_log(log, 0)
    log.close()
    (path,) = log.directory.glob("*.index")
    whole = path.read_bytes()
    path.write_bytes(whole[:16])
    log = bench.load(index_interval_bytes=300)
    read_headers(log, 39, 1)
    assert path.read_bytes() == whole
    log.close()


def test_an_entry_for_several_batches_finds_each_of_them(tmp_path: Path) -> None:
    """Brokers of Kafka before 4.0 wrote one entry for all that a fetch of a follower had brought.

    A reader that was given the first of them for the last would ask for the same again, for ever.
    """
    bench = LogBench(str(tmp_path / "t-0"))
    log = bench.create(index_interval_bytes=300)
    append(log, *(batch() for _ in range(40)))
    assert stop_log(log, 0)
    log.close()
    (path,) = log.directory.glob("*.index")
    entries = list(OFFSET_ENTRY.iter_unpack(path.read_bytes()))
    joined = [
        (last, first_position)
        for (_, first_position), (last, _) in zip(entries[::5], entries[4::5], strict=False)
    ]
    path.write_bytes(b"".join(OFFSET_ENTRY.pack(*entry) for entry in joined))
    log = bench.load(index_interval_bytes=300)
    for offset in range(40):
        (header,) = read_headers(log, offset, 1)
        assert header.base_offset == offset
    assert path.stat().st_size == OFFSET_ENTRY.size * len(joined), "it was not built anew"


def test_other_settings_are_no_damage(tmp_path: Path) -> None:
    """An index of a larger interval is right, and not rebuilt for being sparse."""
    bench = LogBench(str(tmp_path / "t-0"))
    log = bench.create(index_interval_bytes=4_000)
    append(log, *(batch() for _ in range(60)))
    assert stop_log(log, 0)
    log.close()
    (path,) = log.directory.glob("*.index")
    whole = path.read_bytes()
    log = bench.load(index_interval_bytes=100)
    read_headers(log, 30, 1)
    assert path.read_bytes() == whole
    log.close()


def test_a_damaged_batch_behind_the_index_is_no_reason_to_forget_the_index(tmp_path: Path) -> None:
    bench = LogBench(str(tmp_path / "t-0"))
    log = bench.create(**CONFIG)
    append(log, *(at_time(1_000 + at) for at in range(40)))
    assert stop_log(log, 0)
    log.close()
    first = sorted(log.directory.glob("*.log"))[0]
    content = bytearray(first.read_bytes())
    content[-patched(at_time(1_000)).nbytes + 16] = 9
    first.write_bytes(content)
    log = bench.load(**CONFIG)
    assert log.segments[0].largest_timestamp() == 1_000 + log.bases[1] - 1
    assert present(log.offset_for_timestamp(1_005, end_offset=40)).offset == 5
    with pytest.raises(KafkaError):
        read_headers(log, log.bases[1] - 1, 1)
    log.close()


def point_outside(segment: Path) -> None:
    """One batch is damaged, and the index is of a segment with larger batches."""
    content = bytearray(segment.read_bytes())
    content[10 * 180 + 16] ^= 7
    segment.write_bytes(content)
    index = segment.with_suffix(".index")
    count = index.stat().st_size // OFFSET_ENTRY.size
    entries = [OFFSET_ENTRY.pack(at + 1, len(content) + at) for at in range(count)]
    index.write_bytes(b"".join(entries))


def cut_within_a_batch(segment: Path) -> None:
    os.truncate(segment, 10 * 180 + 100)


@pytest.mark.parametrize("damage", [point_outside, cut_within_a_batch])
def test_an_index_that_points_outside_leads_no_reader_past_damage(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """Readers were given the next segment, and missed records without an error."""
    bench = LogBench(str(tmp_path / "t-0"))
    log = bench.create(**CONFIG)
    append(log, *(batch() for _ in range(60)))
    assert stop_log(log, 0)
    log.close()
    assert log.bases[1] > 15
    damage(sorted(log.directory.glob("*.log"))[0])
    log = bench.load(**CONFIG)
    with pytest.raises(KafkaError):
        read_headers(log, 0, 1)
    for offset in range(10):
        assert read_headers(log, offset, 1)[0].base_offset == offset
    for offset in range(10, log.bases[1]):
        with pytest.raises(KafkaError) as refused:
            read_headers(log, offset, 1)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert read_headers(log, log.bases[1], 1)[0].base_offset == log.bases[1]
    log.close()


def test_a_segment_with_a_damaged_batch_is_read_as_a_whole_only_once(tmp_path: Path) -> None:
    """A consumer comes back to it for ever, and everybody waits while its indexes are built."""
    disk = CountingDisk()
    bench = LogBench(str(tmp_path / "t-0"), disk)
    config = {"segment_bytes": 400_000, "index_interval_bytes": 4_000}
    log = bench.create(**config)
    append(log, *(batch(size=1_000) for _ in range(450)))
    (sealed, _), damaged = log.segments, 395
    with Path(sealed.path).open("r+b") as file:
        file.seek(damaged * 1_000 + 16)
        file.write(b"\x09")
    costs = []
    for _ in range(3):
        disk.read_bytes = 0
        with pytest.raises(KafkaError) as refused:
            read_headers(log, damaged, 1)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
        costs.append(disk.read_bytes)
    assert max(costs[1:]) < 40_000
    (header,) = read_headers(log, damaged - 10, 1)
    assert header.base_offset == damaged - 10
    log.close()


@pytest.mark.parametrize("max_bytes", [1, 180, 400, 1_000, 10_000])
def test_what_lies_before_a_damaged_batch_is_read_in_pieces_of_any_size(
    tmp_path: Path, max_bytes: int
) -> None:
    """The rest of the segment has no index entry, so the end of the piece is walked to."""
    bench = LogBench(str(tmp_path / "t-0"))
    config = {**CONFIG, "index_interval_bytes": 100_000}
    log = bench.create(**config)
    append(log, *(batch(size=180) for _ in range(60)))
    damaged = 10
    with Path(log.segments[0].path).open("r+b") as file:
        file.seek(damaged * 180 + 16)
        file.write(b"\x09")
    offset = 0
    while offset < damaged:
        read = log.read(offset, max_bytes, end_offset=60, minimum_one_batch=True)
        offset += max(len(present(read.records)) // 180, 1)
    if max_bytes < 10_000:
        assert offset == damaged
    with pytest.raises(KafkaError) as refused:
        log.read(damaged, max_bytes, end_offset=60, minimum_one_batch=True)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    log.close()


@pytest.mark.parametrize("is_looked_up", [False, True])
@pytest.mark.parametrize("left", [0, 8, 20])
def test_an_index_that_is_cut_off_under_a_running_broker_is_built_anew(
    bench: TimedBench, left: int, is_looked_up: bool
) -> None:
    """An exception that nobody expected ended the connection, to a follower for all its logs."""
    log = bench.load(**CONFIG)
    if is_looked_up:
        log.segments[0].ensure_index_is_sane()
        log.segments[0].largest_timestamp()
        log.cache.forget_directory(log.path)
    for suffix in (".index", ".timeindex"):
        os.truncate(Path(log.segments[0].path).with_suffix(suffix), left)
    for offset in range(COUNT):
        (header,) = read_headers(log, offset, 1)
        assert header.base_offset == offset
    for time in bench.times:
        found = present(log.offset_for_timestamp(time, end_offset=COUNT))
        assert found.timestamp_ms >= time
    log.close()


def test_an_index_of_transactions_that_is_cut_off_is_damage(tmp_path: Path) -> None:
    bench = LogBench(str(tmp_path / "t-0"))
    log = bench.create(**CONFIG)
    append(log, batch())
    index = log.active.transaction_index
    index.append(AbortedTransaction(1, 0, 0, 1))
    os.truncate(index.path, 10)
    with pytest.raises(KafkaError) as refused:
        log.aborted_transactions(0, 1)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    log.close()


def produced(sequence: int) -> memoryview:
    return patched(batch(), producer_id=7, producer_epoch=0, base_sequence=sequence)


@pytest.mark.parametrize("damage", [b"", b"\0\1garbage", None])
def test_producers_are_read_from_the_log_where_their_snapshot_is_damaged(
    tmp_path: Path, damage: bytes | None
) -> None:
    bench = LogBench(str(tmp_path / "t-0"))
    log = bench.create()
    append(log, *(produced(sequence) for sequence in range(7)))
    assert stop_log(log, 0)
    log.close()
    (snapshot,) = log.directory.glob("*.snapshot")
    if damage is None:
        content = bytearray(snapshot.read_bytes())
        content[-9] ^= 1
        damage = bytes(content)
    snapshot.write_bytes(damage)
    log = bench.load()
    retried = log.append_as_leader(produced(6), leader_epoch=0, now_ms=1_000)
    assert (retried.first_offset, retried.is_duplicate) == (6, True)
    assert log.append_as_leader(produced(7), leader_epoch=0, now_ms=1_000).first_offset == 7
    log.close()


def test_a_log_without_producers_is_not_read_for_their_sake(tmp_path: Path) -> None:
    disk = CountingDisk()
    bench = LogBench(str(tmp_path / "t-0"), disk)
    log = bench.create(index_interval_bytes=300)
    append(log, *(batch(size=4_000) for _ in range(100)))
    assert stop_log(log, 0)
    log.close()
    disk.read_bytes = 0
    bench.load(index_interval_bytes=300).close()
    assert disk.read_bytes < 40_000
