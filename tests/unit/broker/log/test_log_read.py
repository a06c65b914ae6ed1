"""Reads by offset: whole batches, bounded, with progress, the same from memory and from indexes."""

from pathlib import Path

import pytest
from log_batches import LogBench, all_headers, append, batch, read_headers

from fairlead_broker.disk import RealDisk
from fairlead_broker.log.log import Log
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.record_batch import BatchHeader


@pytest.fixture
def bench(tmp_path: Path) -> LogBench:
    return LogBench(f"{tmp_path}/t-0")


@pytest.fixture(params=["remembered", "indexed"])
def log(request: pytest.FixtureRequest, bench: LogBench) -> Log:
    """Twenty batches of three records and 200 bytes each, in one segment."""
    log = bench.create(index_interval_bytes=450)
    append(log, *(batch(3, size=200) for _ in range(20)))
    if request.param == "indexed":
        log.forget_recent()
    return log


class ReadingDisk(RealDisk):
    """Notes what is read, as size and position."""

    def __init__(self) -> None:
        self.reads: list[tuple[int, int]] = []

    def pread(self, fd: int, size: int, position: int, /) -> bytes:
        self.reads.append((size, position))
        return super().pread(fd, size, position)


def bases(headers: list[BatchHeader]) -> list[int]:
    return [header.base_offset for header in headers]


def test_a_read_begins_with_the_batch_that_holds_the_offset(log: Log) -> None:
    for offset in range(60):
        assert read_headers(log, offset)[0].base_offset == offset - offset % 3


@pytest.mark.parametrize(("max_bytes", "least"), [(200, 1), (399, 1), (600, 2), (1_999, 7)])
def test_max_bytes_cuts_at_a_batch(log: Log, max_bytes: int, least: int) -> None:
    found = read_headers(log, 4, max_bytes)
    assert bases(found)[0] == 3
    assert least <= len(found) <= max_bytes // 200


def test_one_large_batch_makes_progress(log: Log) -> None:
    assert bases(read_headers(log, 9, 10)) == [9]
    result = log.read(9, 10, end_offset=60, minimum_one_batch=False)
    assert result.records is None


def test_nothing_at_or_behind_the_end_offset(log: Log) -> None:
    assert bases(read_headers(log, 0, end_offset=10)) == [0, 3, 6]
    assert read_headers(log, 9, end_offset=10) == []
    assert read_headers(log, 30, end_offset=10) == []
    assert read_headers(log, 60) == []


@pytest.mark.parametrize("offset", [-1, 61])
def test_out_of_range_on_both_sides(log: Log, offset: int) -> None:
    with pytest.raises(KafkaError) as caught:
        log.read(offset, 100, end_offset=60, minimum_one_batch=True)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_deleted_records_are_out_of_range(log: Log) -> None:
    log.advance_log_start_offset(7)
    assert bases(read_headers(log, 7))[0] == 6
    with pytest.raises(KafkaError):
        log.read(6, 100, end_offset=60, minimum_one_batch=True)


def test_a_read_ends_with_its_segment_and_the_next_goes_on(bench: LogBench) -> None:
    log = bench.create(segment_bytes=700)
    append(log, *(batch() for _ in range(10)))
    assert bases(read_headers(log, 1)) == [1, 2]
    assert bases(read_headers(log, 3)) == [3, 4, 5]
    assert bases(all_headers(log)) == list(range(10))


def test_a_tail_read_touches_no_file(tmp_path: Path) -> None:
    disk = ReadingDisk()
    log = LogBench(f"{tmp_path}/t-0", disk).create()
    append(log, *(batch() for _ in range(50)))
    read_headers(log, 49)
    assert disk.reads
    disk.reads.clear()
    for offset in range(50):
        assert log.read(offset, 400, end_offset=50, minimum_one_batch=True).records
    assert not disk.reads


def test_damage_is_told_to_the_reader_and_a_bad_index_is_rebuilt(
    bench: LogBench, tmp_path: Path
) -> None:
    log = bench.create(index_interval_bytes=300, segment_bytes=2_000)
    append(log, *(batch() for _ in range(30)))
    segment = tmp_path / "t-0" / f"{0:020}.log"
    log.close()
    good = segment.with_suffix(".index").read_bytes()
    for bad in (b"\0" * len(good), good[:-8] + b"\x7f" * 8, b"\x7f" * len(good), good[:5], b""):
        segment.with_suffix(".index").write_bytes(bad)
        log = bench.load(index_interval_bytes=300, segment_bytes=2_000)
        assert bases(read_headers(log, 7, 10)) == [7]
        log.close()
    with segment.open("r+b") as file:
        file.seek(8)
        file.write(b"\xff\xff\xff\xff")
    log = bench.load(index_interval_bytes=300, segment_bytes=2_000)
    with pytest.raises(KafkaError) as caught:
        log.read(0, 10, end_offset=20, minimum_one_batch=True)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
