"""Segments go by age and size, consumed or not, but never above the high watermark."""

import errno
from pathlib import Path
from typing import Any

import pytest
from log_batches import LogBench, append, batch, read_headers
from present import present

from fairlead_broker.disk import DirectoryEntry, RealDisk
from fairlead_broker.limits import SEGMENTS_DELETED_A_TURN
from fairlead_broker.log.files.file_names import RETENTION_SUFFIX, offset_name
from fairlead_broker.log.log import Log
from fairlead_broker.log.truncation import restart_at
from fairlead_model.invariants import InvariantViolation

DAY_MS = 86_400_000


@pytest.fixture
def bench(tmp_path: Path) -> LogBench:
    return LogBench(f"{tmp_path}/t-0")


def fill(bench: LogBench, timestamps: list[int], **config: Any) -> Log:
    """One batch a segment."""
    log = bench.create(segment_bytes=200, file_delete_delay_ms=500, **config)
    for timestamp in timestamps:
        append(log, batch(timestamp=timestamp), now_ms=0)
    return log


def test_by_time(bench: LogBench) -> None:
    log = fill(bench, [10, 20, 30, 40], retention_ms=100)
    assert log.delete_expired_segments(120, 4) == 1
    assert log.delete_expired_segments(131, 4) == 2
    assert (log.log_start_offset, log.bases) == (3, [3])


def test_by_time_stops_at_the_first_segment_that_must_stay(bench: LogBench) -> None:
    log = fill(bench, [10, 500, 30, 40], retention_ms=100)
    assert log.delete_expired_segments(400, 4) == 1
    assert log.bases == [1, 2, 3]


def test_an_idle_topic_empties_by_rolling_its_active_segment(bench: LogBench) -> None:
    log = fill(bench, [10, 20], retention_ms=100)
    assert log.delete_expired_segments(1_000, 2) == 2
    assert (log.log_start_offset, log.log_end_offset, log.size) == (2, 2, 0)
    assert append(log, batch()) == [2]


def test_where_no_byte_is_to_be_kept_the_active_segment_is_rolled_too(bench: LogBench) -> None:
    log = fill(bench, [10, 20], retention_ms=-1, retention_bytes=0)
    assert log.delete_expired_segments(30, 1) == 1, "what is not committed stays"
    assert log.delete_expired_segments(30, 2) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size) == (2, 2, 0)
    assert log.delete_expired_segments(30, 2) == 0
    assert append(log, batch()) == [2]


def test_a_follower_of_a_topic_that_emptied_rolls_its_active_segment(bench: LogBench) -> None:
    log = fill(bench, [10, 20, 30])
    log.advance_log_start_offset(2)
    assert log.delete_segments_below_start(1_000, 3) == 2
    assert log.bases == [2], "the last record is there to be read"
    log.advance_log_start_offset(3)
    assert log.delete_segments_below_start(1_000, 2) == 0
    assert log.delete_segments_below_start(1_000, 3) == 1
    assert (log.log_start_offset, log.log_end_offset, log.bases) == (3, 3, [3])
    assert log.delete_segments_below_start(1_000, 3) == 0
    assert append(log, batch()) == [3]


def test_records_without_timestamps_age_with_their_file(bench: LogBench) -> None:
    log = fill(bench, [-1, -1, -1], retention_ms=100)
    written_ms = log.active.modified_ms()
    assert log.delete_expired_segments(written_ms - 1_000, 3) == 0
    assert log.delete_expired_segments(written_ms + 10_000, 3) == 3


def test_by_size_keeps_at_least_the_limit(bench: LogBench) -> None:
    log = fill(bench, [10] * 6, retention_ms=-1, retention_bytes=500)
    assert log.delete_expired_segments(0, 6) == 3
    assert log.size == 540


def test_never_above_the_high_watermark(bench: LogBench) -> None:
    log = fill(bench, [10] * 6, retention_ms=1)
    assert log.delete_expired_segments(DAY_MS, 2) == 2
    assert log.bases == [2, 3, 4, 5]
    with pytest.raises(InvariantViolation):
        log.delete_expired_segments(DAY_MS, 7)


def test_compacted_topics_keep_old_segments_but_obey_deleted_records(bench: LogBench) -> None:
    log = fill(bench, [], cleanup_policy=frozenset({"compact"}), retention_ms=1, retention_bytes=1)
    log.reconfigure(log.config)
    for sequence in range(3):
        log.append_as_follower(_sent(sequence), now_ms=0)
    assert log.delete_expired_segments(DAY_MS, 3) == 0
    log.advance_log_start_offset(2)
    assert log.delete_expired_segments(DAY_MS, 3) == 2


def test_without_cleanup_policy_only_deleted_records_go(bench: LogBench) -> None:
    log = fill(bench, [10] * 3, cleanup_policy=frozenset(), retention_ms=1, retention_bytes=1)
    assert log.delete_expired_segments(DAY_MS, 3) == 0
    log.advance_log_start_offset(2)
    assert log.delete_expired_segments(DAY_MS, 3) == 2


def _sent(offset: int) -> memoryview:
    from log_batches import as_leader_sent

    return as_leader_sent(offset)


def test_delete_records_hides_at_once_and_frees_later(bench: LogBench) -> None:
    log = fill(bench, [10] * 4, retention_ms=-1)
    log.advance_log_start_offset(2)
    assert log.log_start_offset == 2
    assert log.bases == [0, 1, 2, 3]
    assert log.delete_expired_segments(0, 4) == 2
    log.advance_log_start_offset(1)
    assert log.log_start_offset == 2
    with pytest.raises(InvariantViolation):
        log.advance_log_start_offset(5)
    log.advance_log_start_offset(4)
    assert read_headers(log, 4) == []


def test_files_are_renamed_at_once_and_removed_after_the_grace(
    bench: LogBench, tmp_path: Path
) -> None:
    log = fill(bench, [10, 20], retention_ms=100)
    log.delete_expired_segments(115, 2)
    names = {path.name for path in tmp_path.glob("t-0/*.deleted")}
    kinds = (".log", ".index", ".timeindex")
    assert names == {f"{0:020}{kind}.retention.deleted" for kind in kinds}
    assert log.begin_deletions(600) is None
    job = log.begin_deletions(615)
    assert job is not None
    job.run()
    assert not list(tmp_path.glob("t-0/*.deleted"))
    assert log.begin_deletions(10**9) is None


def test_a_clock_that_is_set_back_keeps_no_deleted_file_any_longer(
    bench: LogBench, tmp_path: Path
) -> None:
    log = fill(bench, [10, 3_000_000], retention_ms=100)
    assert log.delete_expired_segments(3_000_050, 2) == 1
    assert log.begin_deletions(3_000_250) is None
    assert log.begin_deletions(1_000) is None
    assert log.begin_deletions(1_299) is None
    job = log.begin_deletions(1_300)
    assert job is not None, "200 of the 500 ms were over when the clock was set back"
    job.run()
    assert not list(tmp_path.glob("t-0/*.deleted"))


def test_leftovers_of_a_deletion_are_removed_at_start(bench: LogBench, tmp_path: Path) -> None:
    log = fill(bench, [10, 20, 30], retention_ms=100)
    log.delete_expired_segments(125, 3)
    log.close()
    assert list(tmp_path.glob("t-0/*.deleted"))
    log = bench.load()
    assert not list(tmp_path.glob("t-0/*.deleted"))
    assert (log.log_start_offset, log.log_end_offset) == (2, 3)


def test_what_a_power_cut_brings_back_of_a_deletion_does_not_end_the_log(
    bench: LogBench, tmp_path: Path
) -> None:
    """Renames reach the disk in any order: one that is undone would leave a gap behind it."""
    log = fill(bench, [10, 20, 30, 500], retention_ms=100)
    assert log.delete_expired_segments(400, 4) == 3
    log.close()
    oldest = tmp_path / "t-0" / f"{0:020}.log"
    oldest.with_name(oldest.name + RETENTION_SUFFIX).rename(oldest)
    log = bench.load()
    assert (log.log_start_offset, log.log_end_offset) == (3, 4)
    assert not oldest.exists()
    assert not list(tmp_path.glob("t-0/*.deleted"))


def test_many_turns_of_a_deletion_look_at_the_directory_once(
    bench: LogBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of segments went a hundred a turn, and each turn looked at all their files."""
    count = 3 * SEGMENTS_DELETED_A_TURN + 5
    log = bench.create(segment_bytes=200, retention_ms=100)
    for timestamp in range(count):
        append(log, batch(2, timestamp=timestamp), now_ms=0)
    folder = tmp_path / "t-0"
    (folder / f"{offset_name(7)}.snapshot").touch()  # Of a clean stop in the middle of a segment.
    listed: list[str] = []
    listing = RealDisk.list_directory

    def count_listings(disk: RealDisk, path: str) -> list[DirectoryEntry]:
        listed.append(path)
        return listing(disk, path)

    monkeypatch.setattr(RealDisk, "list_directory", count_listings)
    left = count
    while deleted := log.delete_expired_segments(count + 50, 2 * count):
        left -= deleted
    assert left == 50
    assert len(listed) == 1
    job = present(log.deletions.begin(RealDisk(), count + 50))
    job.run()
    assert log.deletions.complete(job, count + 50) is None
    snapshots = sorted(path.stem for path in folder.glob("*.snapshot"))
    assert snapshots == [offset_name(offset) for offset in log.bases]


def test_names_that_tell_of_retention_go_only_when_the_deletion_is_durable(
    bench: LogBench, tmp_path: Path
) -> None:
    log = fill(bench, [10, 20, 30, 500], retention_ms=100)
    assert log.delete_expired_segments(400, 4) == 3
    job = log.begin_deletions(900)
    assert job is not None
    disk, deleted = RecordingDisk(), set(job.paths)
    job._disk = disk
    job.run()
    assert disk.calls[0] == ("fsync_directory", f"{tmp_path}/t-0")
    assert {path for call, path in disk.calls if call == "unlink"} == deleted
    assert [call for call, _ in disk.calls].count("fsync_directory") == 1


def test_a_directory_that_cannot_be_synced_keeps_these_names(
    bench: LogBench, tmp_path: Path
) -> None:
    log = fill(bench, [10, 20, 500], retention_ms=100)
    assert log.delete_expired_segments(400, 3) == 2
    job = log.begin_deletions(900)
    assert job is not None
    disk = RecordingDisk()
    disk.is_failing = True
    job._disk = disk
    job.run()
    assert len(list(tmp_path.glob("t-0/*.retention.deleted"))) == 6
    assert log.deletions.complete(job, 900) is not None


def test_a_log_that_is_cut_below_what_retention_deleted_keeps_what_comes_then(
    bench: LogBench, tmp_path: Path
) -> None:
    """After an unclean election: the new leader has less than was deleted here."""
    log = fill(bench, [10, 20, 30, 500], retention_ms=100)
    assert log.delete_expired_segments(400, 4) == 3
    restart_at(log, 1)
    assert not list(tmp_path.glob(f"t-0/{2:020}.log.*"))
    log.refusal = None  # as the next checkpoint does
    assert append(log, batch()) == [1]
    log.close()
    log = bench.load()
    assert (log.log_start_offset, log.log_end_offset) == (1, 2)


def test_a_log_begins_anew_while_a_thread_removes_what_retention_deleted(
    bench: LogBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that were listed may be gone when their turn comes: that is no error of the disk."""
    log = fill(bench, [10, 20, 30, 40], retention_ms=100)
    assert log.delete_expired_segments(131, 4) == 3
    job = log.begin_deletions(1_000)
    list_directory = RealDisk.list_directory

    def list_and_let_the_thread_go_on(disk: RealDisk, path: str) -> list[DirectoryEntry]:
        entries = list_directory(disk, path)
        present(job).run()
        return entries

    monkeypatch.setattr(RealDisk, "list_directory", list_and_let_the_thread_go_on)
    log.restart_at(10)
    assert not log.is_offline
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)


def test_a_log_whose_last_records_were_deleted_claims_no_older_epoch(bench: LogBench) -> None:
    """The epoch file lags behind, and the records that would tell are gone."""
    log = fill(bench, [10, 20], retention_ms=100)
    log.write_epochs()
    append(log, batch(timestamp=30), epoch=1)
    assert log.delete_expired_segments(1_000, 3) == 3
    log.close()
    log = bench.load()
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    assert log.last_leader_epoch == -1, "its leader would cut it where epoch 0 ended"
    assert append(log, batch(), epoch=1) == [3]
    assert log.epochs.entries() == [(1, 3)]


def test_a_log_without_records_knows_the_epoch_that_was_entered_at_its_end(bench: LogBench) -> None:
    log = fill(bench, [10, 20], retention_ms=100)
    assert log.delete_expired_segments(1_000, 2) == 2
    log.assign_leader_epoch(1)
    log.write_epochs()
    log.close()
    assert bench.load().epochs.entries() == [(1, 2)]


class RecordingDisk(RealDisk):
    """Tells what was synced and removed, in its order."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []
        self.is_failing = False

    def fsync_directory(self, path: str) -> None:
        if self.is_failing:
            raise OSError(errno.EIO, "Input/output error")
        self.calls.append(("fsync_directory", path))
        super().fsync_directory(path)

    def unlink(self, path: str) -> None:
        self.calls.append(("unlink", path))
        super().unlink(path)
