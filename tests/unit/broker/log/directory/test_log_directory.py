"""A data directory's life: claimed, loaded, confirmed, closed; what a start may trust."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from log_batches import TOPIC_ID, all_headers, append, batch, flush
from present import present
from simulated_disk import SimulatedDisk

from fairlead_broker.log.directory import checkpointed_offsets
from fairlead_broker.log.directory.identity import ForeignDirectoryError
from fairlead_broker.log.directory.load_report import LoadReport
from fairlead_broker.log.directory.lock import DirectoryInUseError
from fairlead_broker.log.directory.log_directory import LogDirectory
from fairlead_broker.log.log import Log
from fairlead_broker.log.recovery.pool import RecoveryProgress
from fairlead_model.configs.log_config import NEVER, LogConfig
from fairlead_model.ids import ZERO_TOPIC_ID
from fairlead_model.invariants import InvariantViolation
from fairlead_model.metadata_seen import MetadataSeen

CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=300, file_delete_delay_ms=100)


def start(
    path: Path,
    *,
    confirm: bool = True,
    recovery_workers: int = 2,
    on_progress: Callable[[RecoveryProgress], None] = lambda _: None,
) -> tuple[LogDirectory, LoadReport]:
    directory = LogDirectory.open(str(path), node_id=0, cluster_id="c")
    report = directory.load(
        0,
        config_for=lambda topic, partition: CONFIG,
        recovery_workers=recovery_workers,
        on_progress=on_progress,
    )
    if confirm:
        directory.confirm_start(1)
    return directory, report


def bases(log: Log) -> list[int]:
    return [header.base_offset for header in all_headers(log)]


def test_a_second_process_is_told_who_holds_it(tmp_path: Path) -> None:
    directory, _ = start(tmp_path)
    with pytest.raises(DirectoryInUseError, match=r"is held by node\.id=0 pid=\d+"):
        LogDirectory.open(str(tmp_path), node_id=1)
    directory.close(clean=True)
    start(tmp_path)[0].close(clean=True)


def test_the_lock_falls_with_the_process(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from fairlead_broker.log.directory.log_directory import LogDirectory\n"
        "LogDirectory.open(sys.argv[1], node_id=0, cluster_id='c')\n"
        "os._exit(9)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    assert subprocess.run(command, check=False).returncode == 9
    start(tmp_path)[0].close(clean=False)


@pytest.mark.parametrize(("cluster_id", "node_id"), [("other", 0), ("c", 1)])
def test_somebody_elses_directory_is_refused(tmp_path: Path, cluster_id: str, node_id: int) -> None:
    start(tmp_path)[0].close(clean=True)
    with pytest.raises(ForeignDirectoryError):
        LogDirectory.open(str(tmp_path), node_id=node_id, cluster_id=cluster_id)
    start(tmp_path)[0].close(clean=True)


def test_the_disk_incarnation_is_made_once(tmp_path: Path) -> None:
    first, _ = start(tmp_path)
    first.close(clean=True)
    second, _ = start(tmp_path)
    assert second.directory_id == first.directory_id
    assert f"directory.id={first.directory_id}\n" in (tmp_path / "meta.properties").read_text()
    second.close(clean=True)
    (tmp_path / "meta.properties").unlink()
    assert start(tmp_path)[0].directory_id != first.directory_id


def test_a_cluster_id_may_be_learned_later(tmp_path: Path) -> None:
    directory = LogDirectory.open(str(tmp_path), node_id=0)
    directory.assign_cluster_id("c")
    directory.close(clean=False)
    with pytest.raises(ForeignDirectoryError):
        LogDirectory.open(str(tmp_path), node_id=0, cluster_id="d")


def test_a_clean_stop_is_trusted_and_its_marker_is_gone_after_the_next_start(
    tmp_path: Path,
) -> None:
    directory, report = start(tmp_path)
    assert not directory.start.was_clean
    log = directory.create_log("t", 3, TOPIC_ID, CONFIG, 0)
    append(log, *(batch(producer=(1, 0, at)) for at in range(30)))
    log.advance_log_start_offset(4)
    assert directory.close(clean=True, broker_epoch=41)
    marker = tmp_path / ".kafka_cleanshutdown"
    assert json.loads(marker.read_bytes()) == {"version": 0, "brokerEpoch": 41}
    directory, report = start(tmp_path, confirm=False)
    assert directory.start.was_clean
    assert directory.start.previous_broker_epoch == 41
    assert directory.start.is_same_boot
    assert (report.loaded, report.recovered) == (1, {})
    log = present(directory.log("t", 3))
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (4, 30, 30)
    assert bases(log)[-1] == 29
    assert len(log.producers) == 1
    assert log.topic_id == TOPIC_ID
    assert marker.exists(), "not confirmed yet: a repeated start is still a clean one"
    with pytest.raises(InvariantViolation):
        append(log, batch())
    directory.confirm_start(42)
    assert not marker.exists()
    assert append(log, batch()) == [30]
    directory.close(clean=False)
    directory, report = start(tmp_path)
    assert not directory.start.was_clean
    assert report.recovered["t", 3].log_end_offset == 31
    directory.close(clean=True)


def test_a_start_keeps_its_id_until_it_is_confirmed(tmp_path: Path) -> None:
    first, _ = start(tmp_path, confirm=False)
    first.close(clean=True)
    second, _ = start(tmp_path)
    assert second.start.start_id == first.start.start_id
    second.close(clean=True)
    assert start(tmp_path)[0].start.start_id != first.start.start_id


def test_another_boot_is_noticed_and_an_unreadable_one_equals_nothing(tmp_path: Path) -> None:
    def opened(boot_id: str) -> bool:
        directory = LogDirectory(str(tmp_path), node_id=0, cluster_id="c", boot_id=boot_id)
        is_same = directory.start.is_same_boot
        directory.confirm_start(1)
        return is_same

    assert [opened(boot) for boot in ("a", "a", "b", "", "")] == [False, True, False, False, False]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_whose_folder_is_gone_is_unclean_until_the_controller_knows(
    tmp_path: Path, is_clean: bool
) -> None:
    directory, _ = start(tmp_path)
    for topic in ("gone", "here"):
        append(directory.create_log(topic, 0, TOPIC_ID, CONFIG, 0), batch())
    directory.write_checkpoints()
    directory.close(clean=is_clean, broker_epoch=1)
    shutil.rmtree(tmp_path / "gone-0")
    for _ in range(2):
        # Killed before it was registered: the next start still knows.
        directory, report = start(tmp_path, confirm=False)
        assert report.unclean == [("gone", 0)]
        directory.write_checkpoints()
        directory.close(clean=False)
    directory, report = start(tmp_path)
    assert report.unclean == [("gone", 0)]
    directory.write_checkpoints()
    directory.close(clean=False)
    _, report = start(tmp_path)
    assert report.unclean == []


def test_an_unclean_log_is_cut_at_the_first_bad_batch(tmp_path: Path) -> None:
    """I10."""
    directory, _ = start(tmp_path)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    append(log, *(batch() for _ in range(40)))
    directory.close(clean=False)
    with (tmp_path / "t-0" / f"{22:020}.log").open("r+b") as file:
        file.seek(5 * 180 + 100)
        file.write(b"?")
    directory, report = start(tmp_path)
    done = report.recovered["t", 0]
    assert (done.log_end_offset, done.removed_segments) == (27, 1)
    assert "CRC" in done.reason
    log = present(directory.log("t", 0))
    assert bases(log) == list(range(27))
    assert append(log, batch()) == [27]
    directory.close(clean=False)


def start_on_boot(path: Path, boot_id: str) -> LogDirectory:
    directory = LogDirectory(str(path), node_id=0, cluster_id="c", boot_id=boot_id)
    directory.load(0, config_for=lambda topic, partition: CONFIG)
    directory.confirm_start(1)
    return directory


def take_first_segment(path: Path) -> None:
    """Have a log in four segments after a crash on boot "a", and lose the names of the first."""
    directory = start_on_boot(path, "a")
    append(directory.create_log("t", 0, TOPIC_ID, CONFIG, 0), *(batch() for _ in range(40)))
    directory.close(clean=False)
    for file in (path / "t-0").glob(f"{0:020}.*"):
        file.unlink()


@pytest.mark.parametrize(("boot", "told"), [("a", None), ("b", 0)])
def test_first_segments_that_a_power_cut_has_taken_are_missed(
    tmp_path: Path, boot: str, told: int | None
) -> None:
    take_first_segment(tmp_path)
    log = present(start_on_boot(tmp_path, boot).log("t", 0))
    assert (log.log_start_offset, log.log_end_offset) == (11, 40)
    assert log.start_before_cut == told


def test_segments_that_are_missed_are_so_until_the_log_has_begun_anew(tmp_path: Path) -> None:
    """The process may be killed before it could, and the next one is of the same boot (I4)."""
    take_first_segment(tmp_path)
    for _ in range(2):
        directory = start_on_boot(tmp_path, "b")
        assert present(directory.log("t", 0)).start_before_cut == 0
        directory.write_checkpoints()
        directory.close(clean=False)
    directory = start_on_boot(tmp_path, "b")
    log = present(directory.log("t", 0))
    log.restart_at(0)
    assert log.start_before_cut is None
    directory.write_checkpoints()
    directory.close(clean=True)
    assert present(start_on_boot(tmp_path, "b").log("t", 0)).start_before_cut is None


@pytest.mark.parametrize("workers", [1, 2])
def test_recovery_in_child_processes_reports_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr("fairlead_broker.log.recovery.pool.IN_PROCESS_BYTES", 0)
    directory, _ = start(tmp_path)
    for partition in range(5):
        log = directory.create_log("t", partition, TOPIC_ID, CONFIG, 0)
        append(log, *(batch() for _ in range(10 * partition + 5)))
    directory.close(clean=False)
    (tmp_path / "t-3" / f"{0:020}.log").write_bytes(b"not a segment")
    seen: list[RecoveryProgress] = []
    directory, report = start(tmp_path, recovery_workers=workers, on_progress=seen.append)
    assert seen[0].logs_done == 0
    assert (seen[-1].logs_done, seen[-1].logs_total) == (5, 5)
    assert seen[-1].bytes_done == seen[-1].bytes_total > 0
    assert [present(directory.log("t", at)).log_end_offset for at in range(5)] == [5, 15, 25, 0, 45]
    assert report.offline == {}
    directory.close(clean=True)


def test_a_recovery_process_that_dies_takes_only_its_log_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead_broker.log.recovery.pool.IN_PROCESS_BYTES", 0)
    monkeypatch.setattr("fairlead_broker.log.recovery.pool.RETRY_PAUSES_S", ())
    directory, _ = start(tmp_path)
    for partition in range(3):
        append(directory.create_log("t", partition, TOPIC_ID, CONFIG, 0), batch())
    directory.close(clean=False)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    _, report = start(tmp_path)
    assert set(report.offline) == {("t", 0), ("t", 1), ("t", 2)}


def test_deleted_logs_are_renamed_and_removed_after_the_grace(tmp_path: Path) -> None:
    directory, _ = start(tmp_path)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    append(log, batch())
    directory.delete_log(log, 1_000)
    assert directory.log("t", 0) is None
    (renamed,) = tmp_path.glob("t-0.*-delete")
    assert directory.begin_removals(1_099) is None
    again = directory.create_log("t", 0, bytes(16), CONFIG, 0)
    assert again.log_end_offset == 0
    directory.close(clean=True)
    directory, report = start(tmp_path)
    assert report.loaded == 1
    present(directory.begin_removals(0)).run()
    assert not renamed.exists()


def test_unknown_data_is_set_aside_never_deleted(tmp_path: Path) -> None:
    directory, _ = start(tmp_path)
    log = directory.create_log("t" * 249, 0, TOPIC_ID, CONFIG, 0)
    append(log, batch())
    target = directory.set_aside(log)
    assert target.endswith("-stray")
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "t-07").mkdir()
    directory.close(clean=True)
    directory, report = start(tmp_path)
    assert report.loaded == 0
    assert sorted(report.foreign) == ["lost+found", "t-07"]
    assert list(tmp_path.glob("*-stray/*.log"))
    assert directory.begin_removals(10**15) is None


def test_damaged_small_files_cost_trust_not_data(tmp_path: Path) -> None:
    directory, _ = start(tmp_path)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    append(log, *(batch(producer=(1, 0, at)) for at in range(30)), epoch=2)
    directory.close(clean=True)
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        (tmp_path / name).write_bytes(b"\xff\xfe")
    for name in ("leader-epoch-checkpoint", "partition.metadata", f"{30:020}.snapshot"):
        (tmp_path / "t-0" / name).write_bytes(b"0\n7\n")
    directory, report = start(tmp_path)
    log = present(directory.log("t", 0))
    assert ("t", 0) in report.recovered, "epochs have to be derived anew"
    assert log.epochs.entries() == [(2, 0)]
    assert log.topic_id == ZERO_TOPIC_ID
    assert present(log.producers.get(1)).batches[-1].last_sequence == 29
    log.assign_topic_id(TOPIC_ID)
    directory.close(clean=True)
    assert present(start(tmp_path)[0].log("t", 0)).topic_id == TOPIC_ID


def test_a_recovery_notes_the_producers_at_the_checkpointed_high_watermark(tmp_path: Path) -> None:
    directory, _ = start(tmp_path)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    append(log, *(batch(producer=(1, 0, at)) for at in range(8)))
    directory.write_checkpoints({("t", 0): 5})
    directory.close(clean=False)
    directory, report = start(tmp_path)
    assert ("t", 0) in report.recovered
    assert sorted(path.stem for path in (tmp_path / "t-0").glob("*.snapshot")) == [
        f"{5:020}",
        f"{8:020}",
    ]
    directory.close(clean=False)


def test_working_files_are_settled_at_start(tmp_path: Path) -> None:
    directory, _ = start(tmp_path)
    append(directory.create_log("t", 0, TOPIC_ID, CONFIG, 0), *(batch() for _ in range(30)))
    directory.close(clean=True)
    folder = tmp_path / "t-0"
    whole = b"".join((folder / f"{base:020}.log").read_bytes() for base in (0, 11))
    (folder / f"{0:020}.log.swap").write_bytes(whole)
    (folder / f"{0:020}.log.cleaned").write_bytes(b"half")
    (folder / f"{5:020}.log.deleted").write_bytes(b"old")
    (folder / f"{77:020}.index").write_bytes(b"")
    directory, report = start(tmp_path)
    assert not report.recovered
    log = present(directory.log("t", 0))
    assert log.bases == [0, 22]
    assert bases(log) == list(range(30))
    left = {path.suffix for path in folder.iterdir()}
    assert not left & {".swap", ".cleaned", ".deleted"}
    assert not (folder / f"{77:020}.index").exists()


def test_checkpoints_are_kafkas_text_and_idle_ones_are_not_rewritten(tmp_path: Path) -> None:
    directory, _ = start(tmp_path)
    for partition in (0, 1):
        append(directory.create_log("t", partition, TOPIC_ID, CONFIG, 0), batch())
    directory.write_checkpoints({("t", 0): 1})
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\nt 0 1\n"
    path = tmp_path / "recovery-point-offset-checkpoint"
    assert path.read_text() == "0\n2\nt 0 0\nt 1 0\n"
    path.unlink()
    directory.write_checkpoints()
    assert not path.exists()
    first = present(directory.begin_checkpoint())
    assert directory.begin_checkpoint() is None
    first.run()
    directory.complete_checkpoint(first)
    assert directory.begin_checkpoint() is not None


def test_offsets_that_were_deleted_are_not_given_out_again(tmp_path: Path) -> None:
    directory, _ = start(tmp_path)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    append(log, *(batch() for _ in range(10)))
    log.advance_log_start_offset(10)
    directory.write_checkpoints()
    directory.close(clean=False)
    with (tmp_path / "t-0" / f"{0:020}.log").open("r+b") as file:
        file.truncate(5 * 180)
    directory, _ = start(tmp_path)
    log = present(directory.log("t", 0))
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    directory.write_checkpoints()
    assert append(log, batch()) == [10]


def test_a_log_has_no_marks_of_the_one_that_had_its_name_before() -> None:
    """Deleted and made again, and killed before the next checkpoint."""
    disk = SimulatedDisk()

    def opened(disk: SimulatedDisk) -> LogDirectory:
        directory = LogDirectory("/d", node_id=0, cluster_id="c", disk=disk, boot_id="b")
        directory.load(0, config_for=lambda topic, partition: LogConfig())
        directory.confirm_start(1)
        return directory

    directory = opened(disk)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig(), 0)
    append(log, *(batch() for _ in range(30)))
    flush(log)
    log.advance_log_start_offset(20)
    log.first_dirty_offset = 25
    directory.write_checkpoints({("t", 0): 28})
    directory.delete_log(log, 0)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig(), 0)
    append(log, *(batch() for _ in range(10)))
    directory = opened(disk.after_kill())
    log = present(directory.log("t", 0))
    assert (log.log_start_offset, log.log_end_offset, log.first_dirty_offset) == (0, 10, 0)
    assert ("t", 0) not in directory.high_watermarks
    # Its own offsets count from the first checkpoint on.
    append(log, *(batch() for _ in range(10)))
    log.advance_log_start_offset(7)
    directory.write_checkpoints({("t", 0): 9})
    directory = opened(disk.after_kill())
    assert present(directory.log("t", 0)).log_start_offset == 7
    assert directory.high_watermarks == {("t", 0): 9}


def test_one_checkpoint_marks_a_bounded_number_of_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointed_offsets, "NEWLY_CHECKPOINTED_LOGS_MAX", 2)
    directory = LogDirectory("/d", node_id=0, cluster_id="c", disk=SimulatedDisk(), boot_id="b")
    directory.load(0, config_for=lambda topic, partition: CONFIG)
    for partition in range(5):
        directory.create_log("t", partition, TOPIC_ID, CONFIG, 0)
    for expected in (2, 4, 5, 5):
        directory.write_checkpoints()
        assert sum(log.is_checkpointed for log in directory.logs) == expected


def test_how_far_the_metadata_had_come_survives_and_never_falls(tmp_path: Path) -> None:
    record = tmp_path / "fairlead-metadata.json"
    first, _ = start(tmp_path)
    assert first.metadata_seen == (-1, -1)
    for seen in ((3, 10), (4, 2), (3, 99)):
        first.note_metadata(MetadataSeen(*seen))
    assert json.loads(record.read_bytes()) == {"controllerEpoch": 4, "writes": 2}
    first.close(clean=False)
    second, _ = start(tmp_path)
    assert second.metadata_seen == MetadataSeen(4, 2)
    second.close(clean=True)
    for damaged in (b"", b"{", b"{}", b'{"controllerEpoch": "4", "writes": 2}', b"[4, 2]"):
        record.write_bytes(damaged)
        third, _ = start(tmp_path)
        assert third.metadata_seen == (-1, -1)
        third.close(clean=True)


def test_marks_of_a_log_that_is_gone_do_not_pass_to_the_next_one_of_its_name(
    tmp_path: Path,
) -> None:
    directory, _ = start(tmp_path)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    append(log, *(batch() for _ in range(30)))
    log.first_dirty_offset, log.last_horizon_ms = 17, 5_000
    directory.close(clean=True)
    directory, _ = start(tmp_path)
    # The only one that was compacted.
    directory.delete_log(present(directory.log("t", 0)), 0)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    append(log, *(batch() for _ in range(30)))
    directory.close(clean=True)
    log = present(start(tmp_path)[0].log("t", 0))
    assert (log.first_dirty_offset, log.last_horizon_ms) == (0, NEVER)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("damage", ["another segment", "high", "low"])
def test_offsets_that_no_segment_holds_take_nobody_else_out_of_service(
    tmp_path: Path, damage: str, is_clean: bool
) -> None:
    """No checksum covers them. A log with one stopped the start of its broker."""
    directory, _ = start(tmp_path)
    for topic in ("t", "u"):
        log = directory.create_log(topic, 0, TOPIC_ID, CONFIG, 0)
        append(log, *(batch() for _ in range(30)))
    last, first = log.segments[-1], log.segments[0]
    directory.close(clean=is_clean)
    path = tmp_path / "t-0" / last.path.rpartition("/")[2]
    if damage == "another segment":
        path.write_bytes((tmp_path / "t-0" / first.path.rpartition("/")[2]).read_bytes())
    else:
        content = bytearray(path.read_bytes())
        content[-180:-172] = (2**40 if damage == "high" else 0).to_bytes(8, "big")
        path.write_bytes(content)
    directory, report = start(tmp_path)
    assert report.loaded == 2 and not report.offline
    assert present(directory.log("u", 0)).log_end_offset == 30
    damaged = present(directory.log("t", 0))
    assert last.base_offset <= damaged.log_end_offset < 30
    assert bases(damaged) == list(range(damaged.log_end_offset))
    assert append(damaged, batch()) == [damaged.log_end_offset - 1]
    directory.close(clean=True)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_that_could_not_be_opened_gets_all_its_offsets_back(
    tmp_path: Path, is_clean: bool
) -> None:
    directory, _ = start(tmp_path)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    other = directory.create_log("t", 1, TOPIC_ID, CONFIG, 0)
    append(log, *(batch() for _ in range(30)))
    append(other, batch())
    log.advance_log_start_offset(4)
    log.first_dirty_offset, log.last_horizon_ms = 17, 5_000
    directory.write_checkpoints({("t", 0): 29, ("t", 1): 1})
    directory.write_checkpoints()
    assert directory.close(clean=is_clean) is is_clean

    away = tmp_path / "t-0" / "fairlead-moved-to"
    away.write_text("another directory")
    directory, report = start(tmp_path)
    assert list(report.offline) == [("t", 0)]
    directory.write_checkpoints({("t", 1): 1})
    directory.close(clean=True)
    away.unlink()

    directory, report = start(tmp_path)
    assert not report.offline
    log = present(directory.log("t", 0))
    assert directory.high_watermarks == {("t", 0): 29, ("t", 1): 1}
    assert (log.log_start_offset, log.first_dirty_offset, log.last_horizon_ms) == (4, 17, 5_000)


def test_a_log_made_in_the_place_of_one_that_could_not_be_opened_has_none_of_its_offsets(
    tmp_path: Path,
) -> None:
    directory, _ = start(tmp_path)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    append(log, *(batch() for _ in range(30)))
    log.first_dirty_offset, log.last_horizon_ms = 17, 5_000
    directory.write_checkpoints({("t", 0): 29})
    directory.close(clean=True)
    (tmp_path / "t-0" / "fairlead-moved-to").write_text("another directory")
    directory, _ = start(tmp_path)
    shutil.rmtree(tmp_path / "t-0")
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    directory.write_checkpoints({("t", 0): 0})
    directory.delete_log(log, 0)
    directory.write_checkpoints({})
    for name in (
        "replication-offset",
        "cleaner-offset",
        "fairlead-tombstone",
        "recovery-point-offset",
    ):
        assert "t 0" not in (tmp_path / f"{name}-checkpoint").read_text()


def test_a_batch_that_is_cut_for_its_offset_is_written_when_it_comes_again(tmp_path: Path) -> None:
    """Where compaction has left gaps, any later offset follows: up to what a segment can hold."""
    directory, _ = start(tmp_path)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    append(log, *(batch(producer=(1, 0, at)) for at in range(5)))
    log.note_holes()
    path = log.active.path
    directory.close(clean=False)
    with Path(path).open("r+b") as file:
        file.seek(-180, os.SEEK_END)
        file.write((2**40).to_bytes(8, "big"))
    directory, report = start(tmp_path)
    log = present(directory.log("t", 0))
    assert not report.offline and log.log_end_offset == 4
    assert append(log, batch(producer=(1, 0, 4))) == [4]
    directory.close(clean=True)
