"""Where a log counts as compacted: a mark that is too high brings deleted keys back."""

from dataclasses import replace
from pathlib import Path
from random import Random

from compaction import compact, read_records
from log_batches import TOPIC_ID, LogBench, append, flush, record_batch
from present import present
from simulated_disk import SimulatedDisk

from fairlead_broker.log.compaction.cleaning_plan import plan_cleaning
from fairlead_broker.log.compaction.cleaning_state import LogCleaner, log_facts
from fairlead_broker.log.compaction.log_cleaning import CleanedGroup, LogCleaning
from fairlead_broker.log.directory.log_directory import LogDirectory
from fairlead_broker.log.files.file_names import HOLES_MARK, LEADER_EPOCH_CHECKPOINT
from fairlead_broker.log.log import Log
from fairlead_broker.log.recovery.log_recovery import recover_log
from fairlead_broker.log.recovery.start import RecoveryOrder
from fairlead_broker.log.segment_swap import SegmentSwap
from fairlead_model.configs.log_config import LogConfig
from fairlead_wire.records import Record

PATH = "/data"
RETENTION_MS = 1_000
CONFIG = LogConfig(
    segment_bytes=1_000,
    index_interval_bytes=300,
    cleanup_policy=frozenset({"compact"}),
    delete_retention_ms=RETENTION_MS,
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
)


def open_directory(disk: SimulatedDisk) -> LogDirectory:
    directory = LogDirectory(PATH, node_id=0, cluster_id="c", disk=disk, boot_id="b")
    directory.load(0, config_for=lambda topic, partition: CONFIG)
    directory.confirm_start(1)
    return directory


def put(log: Log, key: bytes, value: bytes | None, at_ms: int = 1_000) -> None:
    append(log, record_batch(Record(0, at_ms, key, value)), now_ms=at_ms)


def values(log: Log) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in read_records(log)}


def compact_fully(log: Log, now_ms: int) -> None:
    log.roll(now_ms)
    flush(log)
    compact(log, now_ms)


def test_a_log_that_was_cut_below_its_mark_and_grew_beyond_it_brings_no_key_back() -> None:
    disk = SimulatedDisk()
    directory = open_directory(disk)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    put(log, b"k", b"deleted later")
    for number in range(30):
        put(log, b"other", b"%d" % number * 20)
    compact_fully(log, 2_000)
    directory.write_checkpoints()
    mark = log.first_dirty_offset
    assert mark == 31
    # The device has lost the end of the log: recovery cuts it.
    names = sorted(name for name in disk.names if name.endswith(".log"))
    for name in names[1:]:
        disk.unlink(name)
    inode = disk.names[names[0]]
    inode.content[-1] ^= 1
    disk.unlink(f"{PATH}/t-0/{LEADER_EPOCH_CHECKPOINT}")

    directory = open_directory(disk.after_kill())
    log = present(directory.log("t", 0))
    assert log.log_end_offset < mark
    log.reconfigure(CONFIG)
    put(log, b"k", None, 3_000)
    while log.log_end_offset <= mark:
        put(log, b"another", b"x" * 50, 3_000)
    for now_ms in (4_000, 4_000 + RETENTION_MS, 6_000 + RETENTION_MS):
        put(log, b"more", b"x", now_ms)
        compact_fully(log, now_ms)
    assert values(log).get(b"k") is None


def test_records_behind_a_start_inside_their_batch_are_compacted() -> None:
    log = LogBench(PATH, SimulatedDisk()).create(
        segment_bytes=10_000,
        cleanup_policy=frozenset({"compact"}),
        delete_retention_ms=RETENTION_MS,
        min_cleanable_dirty_ratio=0.0,
    )
    append(
        log,
        record_batch(
            Record(0, 1_000, b"gone", b"1"),
            Record(1, 1_000, b"k", b"deleted later"),
            Record(2, 1_000, b"k", None),
            Record(3, 1_000, b"other", b"2"),
        ),
    )
    log.advance_log_start_offset(1)
    for now_ms in (2_000, 4_000, 6_000):
        put(log, b"more", b"x", now_ms)
        compact_fully(log, now_ms)
    assert b"k" not in values(log)


def test_the_map_has_room_for_a_batch_that_begins_below_the_start() -> None:
    """All its keys are mapped, also those below the offset that the log is dirty from."""
    log = LogBench(PATH, SimulatedDisk()).create(
        segment_bytes=10_000,
        cleanup_policy=frozenset({"compact"}),
        delete_retention_ms=RETENTION_MS,
        min_cleanable_dirty_ratio=0.0,
    )
    append(log, record_batch(*(Record(at, 1_000, b"%d" % at, b"1") for at in range(8))))
    log.advance_log_start_offset(7)
    log.roll(1_000)
    compact_fully(log, 2_000)
    assert log.first_dirty_offset == 8


def test_a_finished_swap_says_that_the_log_has_gaps_if_the_mark_is_lost() -> None:
    disk = SimulatedDisk()
    bench = LogBench(f"{PATH}/t-0", disk)
    log = bench.create(
        segment_bytes=600, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0
    )
    for number in range(40):
        put(log, b"%d" % (number % 3), b"x" * 20)
    log.roll(0)
    flush(log)
    plan = plan_cleaning(
        log_facts(log, log.log_end_offset, high_watermark=log.log_end_offset), log.config, 0
    )
    assert plan is not None
    groups: list[CleanedGroup] = []
    order = LogCleaner(log, plan).order(0, dedupe_buffer_bytes=10_000)
    LogCleaning(disk, order, on_group=groups.append).run()
    SegmentSwap(log, groups[0]).begin()
    end = log.log_end_offset
    # Each name is durable or not by itself; the epochs were written anew and not synced either.
    disk.unlink(f"{PATH}/t-0/{HOLES_MARK}")
    disk.unlink(f"{PATH}/t-0/{LEADER_EPOCH_CHECKPOINT}")
    recovery = RecoveryOrder(
        directory=f"{PATH}/t-0",
        recovery_point=end,
        log_start_offset=0,
        index_interval_bytes=4096,
        has_holes=False,
    )
    report = recover_log(disk, recovery, now_ms=0)
    assert not report.reason
    assert report.log_end_offset == end
    assert disk.exists(f"{PATH}/t-0/{HOLES_MARK}")


def test_the_last_batch_stays_though_an_empty_segment_follows() -> None:
    """Or a crash in the middle of the swap would keep sources that the new segment replaces."""
    log = LogBench(PATH, SimulatedDisk()).create(
        segment_bytes=10_000, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0
    )
    put(log, b"a", b"1")
    put(log, b"b", b"2")
    log.roll(0)
    log.active.seal()
    log.roll(0, 10)
    log.log_end_offset = 10
    put(log, b"b", b"3")
    log.roll(0)
    flush(log)
    log.note_holes()
    assert [segment.size == 0 for segment in log.segments] == [False, True, False, True]
    compact(log, 0, stable_offset=10)
    log.reconfigure(replace(log.config, segment_bytes=150))
    compact(log, 0)
    assert values(log) == {b"a": b"1", b"b": b"3"}
    assert log.segments[0].end_offset() == 2


def test_a_batch_that_is_empty_already_is_not_written_again() -> None:
    log = LogBench(PATH, SimulatedDisk()).create(
        segment_bytes=150, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0
    )
    for _ in range(6):
        put(log, b"k", b"x" * 60)
    for number in range(6):
        # Neighbours become one segment, until no two fit together.
        put(log, b"%d" % number, b"x" * 60)
        compact_fully(log, 0)
    put(log, b"new", b"x" * 60)
    log.roll(0)
    flush(log)
    report = compact(log, 0)
    assert report is not None
    assert report.written_bytes == 0


def test_random_cuts_never_bring_a_key_back() -> None:
    """The mark is of this log at every start, whatever the crash took from it."""
    for seed in range(20):
        random = Random(seed)
        disk = SimulatedDisk()
        directory = open_directory(disk)
        log = directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
        for number in range(30):
            put(log, b"%d" % random.randrange(5), b"%d" % number * 20)
        compact_fully(log, 2_000)
        directory.write_checkpoints()
        for number in range(random.randrange(20)):
            put(log, b"%d" % random.randrange(5), b"%d" % number * 20)
        directory = open_directory(disk.after_power_cut(random, 512))
        log = present(directory.log("t", 0))
        assert log.log_start_offset <= log.first_dirty_offset <= log.log_end_offset


def test_tombstones_go_when_they_are_due_though_the_broker_was_restarted() -> None:
    """Without a write that would make the log due for another reason."""
    disk = SimulatedDisk()
    directory = open_directory(disk)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    put(log, b"k", b"1")
    put(log, b"k", None)
    put(log, b"other", b"2")
    compact_fully(log, 2_000)
    assert values(log) == {b"k": None, b"other": b"2"}
    directory.write_checkpoints()
    directory = open_directory(disk.after_kill())
    log = present(directory.log("t", 0))
    assert compact(log, 1_999 + RETENTION_MS) is None
    assert compact(log, 2_000 + RETENTION_MS) is not None
    assert values(log) == {b"other": b"2"}
    directory.write_checkpoints()
    directory = open_directory(disk.after_kill())
    assert compact(present(directory.log("t", 0)), 2_000 + RETENTION_MS) is None


def test_deleted_records_are_gone_though_a_crash_takes_the_start_back() -> None:
    """Tombstones below the start went, the values that they deleted did not."""
    disk = SimulatedDisk()
    directory = open_directory(disk)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    put(log, b"k", b"deleted later")
    put(log, b"k", None)
    put(log, b"other", b"1")
    log.advance_log_start_offset(2)
    for now_ms in (2_000, 2_000 + RETENTION_MS):
        put(log, b"more", b"x", now_ms)
        compact_fully(log, now_ms)
    directory = open_directory(disk.after_kill())
    log = present(directory.log("t", 0))
    assert log.log_start_offset == 0
    assert values(log) == {b"other": b"1", b"more": b"x"}


def test_records_without_timestamps_do_not_become_younger_by_compaction(tmp_path: Path) -> None:
    """Retention takes the age of their file, which each compaction wrote anew: nothing expired."""
    log = LogBench(f"{tmp_path}/t-0").create(
        segment_bytes=1_000,
        cleanup_policy=frozenset({"compact", "delete"}),
        retention_ms=1_000,
        min_cleanable_dirty_ratio=0.0,
    )
    for number in range(40):
        append(log, record_batch(Record(0, -1, b"%d" % number, b"v" * 20)))
    put(log, b"0", b"newer")
    log.roll(1_000)
    flush(log)
    for segment in log.segments:
        log.disk.set_modified_ms(segment.path, 5_000)
    put(log, b"1", b"newer", 10_000)
    compact(log, 10_000)
    assert log.segments[0].modified_ms() == 5_000
    assert log.delete_expired_segments(10_000, log.log_end_offset) > 0
