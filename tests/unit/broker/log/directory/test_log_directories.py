"""Several log directories of one broker, each on a disk of its own."""

import copy
import errno
import os
from pathlib import Path

import pytest
from log_batches import TOPIC_ID, append, batch
from present import present
from simulated_disk import SimulatedDisk

from fairlead_broker.log.directory.identity import DirectoryIdentity, ForeignDirectoryError
from fairlead_broker.log.directory.lock import DirectoryInUseError
from fairlead_broker.log.directory.log_directories import DuplicateLogError, LogDirectories
from fairlead_broker.log.directory.log_directory import LogDirectory
from fairlead_broker.log.files.deletions import DeletionJob
from fairlead_broker.log.log import Log
from fairlead_model.configs.log_config import LogConfig
from fairlead_model.metadata_seen import MetadataSeen
from fairlead_wire.errors import ErrorCode, KafkaError

CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=300)
EIO = OSError(errno.EIO, "Input/output error")


def opened(*paths: Path) -> LogDirectories:
    directories = LogDirectories.open([str(path) for path in paths], node_id=0, cluster_id="c")
    directories.load(0, config_for=lambda *_: CONFIG)
    return directories


def started(*paths: Path, epoch: int = 1) -> LogDirectories:
    directories = opened(*paths)
    directories.confirm_start(epoch)
    return directories


def create(directories: LogDirectories, topic: str, index: int = 0) -> Log:
    return directories.create_log(topic, index, TOPIC_ID, CONFIG, 0)


def where(directories: LogDirectories) -> dict[str, str]:
    return {log.topic: Path(directories.home(log).path).name for log in directories.logs}


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "one", tmp_path / "two"


def test_a_new_log_goes_to_the_directory_with_the_fewest(paths: tuple[Path, Path]) -> None:
    directories = started(*paths)
    for topic in "abcd":
        create(directories, topic)
    assert where(directories) == {"a": "one", "b": "two", "c": "one", "d": "two"}
    for topic in "bd":
        log = directories.log(topic, 0)
        assert log is not None
        directories.delete_log(log, 0)
    for topic in "efg":
        create(directories, topic)
    assert where(directories) == {"a": "one", "c": "one", "e": "two", "f": "two", "g": "one"}


def test_logs_are_found_wherever_they_are(paths: tuple[Path, Path]) -> None:
    directories = started(*paths)
    for topic in "ab":
        append(create(directories, topic), batch())
    assert directories.close(clean=True, broker_epoch=1)
    again = opened(*reversed(paths))
    assert where(again) == {"a": "one", "b": "two"}
    assert [log.log_end_offset for log in again.logs] == [1, 1]
    start = again.start
    assert (start.record.was_clean, start.record.previous_broker_epoch) == (True, 1)
    assert start.unclean == []
    again.close(clean=False)


def test_a_directory_may_be_added(paths: tuple[Path, Path]) -> None:
    one, two = paths
    directories = started(one)
    alone = directories.start
    create(directories, "a")
    directories.close(clean=True, broker_epoch=1)
    both = started(one, two, epoch=2)
    assert both.start.unclean == []
    assert alone.record.directory_id in both.start.directory_ids
    create(both, "b")
    assert where(both) == {"a": "one", "b": "two"}
    both.close(clean=False)


def test_a_killed_process_comes_back_whole(paths: tuple[Path, Path]) -> None:
    directories = started(*paths)
    for topic in "ab":
        append(create(directories, topic), batch())
    directories.close(clean=False)
    start = opened(*paths).start
    assert (start.record.was_clean, start.is_recovered_whole, start.unclean) == (False, True, [])


def test_a_kill_while_a_start_is_noted_costs_no_directory_its_logs(
    paths: tuple[Path, Path],
) -> None:
    """One has noted the start, and the other has not: nothing was appended in it."""
    directories = started(*paths)
    for topic in "ab":
        append(create(directories, topic), batch())
    assert directories.close(clean=True, broker_epoch=1)
    again = opened(*paths)
    again.directories[0].note_start(2)
    again.close(clean=False)
    again = opened(*paths)
    start = again.start
    assert (start.record.was_clean, start.record.previous_broker_epoch) == (True, 2)
    assert start.unclean == []
    again.close(clean=False)


def test_a_copy_that_was_put_back_makes_its_logs_unclean(paths: tuple[Path, Path]) -> None:
    directories = started(*paths)
    for topic in "ab":
        create(directories, topic)
    directories.close(clean=True, broker_epoch=1)
    started(paths[0], epoch=2).close(clean=True, broker_epoch=2)
    start = opened(*paths).start
    assert (start.record.previous_broker_epoch, start.unclean) == (2, [("b", 0)])


def test_a_partition_in_two_directories_is_refused_with_both_paths(
    paths: tuple[Path, Path],
) -> None:
    one, two = paths
    for path, epoch in ((one, 1), (two, 2)):
        directories = started(path, epoch=epoch)
        create(directories, "a")
        directories.close(clean=True, broker_epoch=epoch)
    with pytest.raises(DuplicateLogError) as refused:
        opened(one, two)
    assert f"{one}/a-0" in str(refused.value)
    assert f"{two}/a-0" in str(refused.value)


def test_a_folder_that_is_gone_is_missing_but_not_one_that_was_carried_over(
    paths: tuple[Path, Path],
) -> None:
    directories = started(*paths)
    for topic in "abcd":
        create(directories, topic)
    directories.close(clean=True, broker_epoch=1)
    (paths[0] / "a-0").rename(paths[1] / "a-0")
    (paths[0] / "c-0").rename(paths[0].parent / "elsewhere")
    start = opened(*paths).start
    assert start.unclean == [("c", 0)]


def test_two_directories_of_different_clusters_are_refused(paths: tuple[Path, Path]) -> None:
    for path, cluster in zip(paths, "cd", strict=True):
        LogDirectory.open(str(path), node_id=0, cluster_id=cluster).close(clean=False)
    with pytest.raises(ForeignDirectoryError, match=r"belongs to cluster c.*to d"):
        LogDirectories.open([str(path) for path in paths], node_id=0)
    LogDirectory.open(str(paths[0]), node_id=0).close(clean=False)


def test_a_copied_disk_beside_its_original_is_refused(paths: tuple[Path, Path]) -> None:
    one, two = paths
    opened(one).close(clean=False)
    two.mkdir()
    (two / "meta.properties").write_bytes((one / "meta.properties").read_bytes())
    with pytest.raises(ForeignDirectoryError, match=r"same directory\.id"):
        opened(one, two)


def test_a_directory_that_somebody_else_holds_is_refused_and_the_others_let_go(
    paths: tuple[Path, Path],
) -> None:
    holder = LogDirectory.open(str(paths[1]), node_id=0)
    with pytest.raises(DirectoryInUseError):
        opened(*paths)
    holder.close(clean=False)
    opened(*paths).close(clean=False)


def test_a_directory_that_cannot_be_opened_does_not_keep_the_others(
    paths: tuple[Path, Path],
) -> None:
    one, two = paths
    directories = started(one, two)
    for topic in "ab":
        create(directories, topic)
    directories.close(clean=True, broker_epoch=1)
    two.rename(two.parent / "away")
    two.write_text("not a folder")
    again = started(one, two, epoch=2)
    assert where(again) == {"a": "one"}
    assert list(again.failures) == [str(two)]
    assert again.has_unknown_logs
    assert not again.close(clean=True, broker_epoch=2)
    assert (one / ".kafka_cleanshutdown").exists(), "its own stop was a clean one"
    with pytest.raises(OSError, match="two"):
        opened(two)


@pytest.mark.parametrize("operation", ["list_directory", "file_system_id"])
def test_a_disk_that_dies_after_it_was_opened_does_not_end_the_start(
    paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """Nothing can be read or written there any more, and its lock file is on it, too."""
    directories = started(*paths)
    for topic in "ab":
        create(directories, topic)
    directories.close(clean=True, broker_epoch=1)
    again = LogDirectories.open([str(path) for path in paths], node_id=0, cluster_id="c")
    dead = again.directories[1]

    def refuse(*_: object) -> None:
        raise EIO

    with monkeypatch.context() as patch:
        patch.setattr(dead.disk, operation, refuse)
        patch.setattr(os, "ftruncate", refuse)
        again.load(0, config_for=lambda *_: CONFIG)
    assert where(again) == {"a": "one"}
    assert list(again.failures) == [str(paths[1])]
    again.close(clean=False)
    opened(*paths).close(clean=False)


class Disks:
    """Two directories on simulated disks of their own."""

    def __init__(self) -> None:
        self.disks = [SimulatedDisk(), SimulatedDisk()]
        self.boot = "boot"

    def open(self) -> LogDirectories:
        directories = LogDirectories(
            [
                LogDirectory(f"/{number}", node_id=0, cluster_id="c", disk=disk, boot_id=self.boot)
                for number, disk in enumerate(self.disks)
            ]
        )
        directories.load(0, config_for=lambda *_: CONFIG)
        return directories

    def start(self, epoch: int = 1) -> LogDirectories:
        directories = self.open()
        directories.confirm_start(epoch)
        return directories


@pytest.fixture
def disks() -> Disks:
    return Disks()


def fail_all(disk: SimulatedDisk) -> None:
    for operation in ("pwrite", "fsync", "rename", "unlink", "fsync_directory"):
        disk.failures[operation] = EIO


def test_a_failed_directory_takes_its_own_logs_only(disks: Disks) -> None:
    directories = disks.start()
    for topic in "ab":
        create(directories, topic)
    assert directories.fail(directories.directories[1], EIO)
    assert [log.topic for log in directories.logs if log.is_offline] == ["b"]
    assert list(directories.failures) == ["/1"]
    create(directories, "c")
    create(directories, "d")
    assert where(directories) == {"a": "0", "b": "1", "c": "0", "d": "0"}
    assert not directories.fail(directories.directories[0], EIO), "the last one stays in use"
    assert not directories.log("a", 0).is_offline  # type: ignore[union-attr]


def test_after_a_failed_disk_the_others_are_marked_as_clean(disks: Disks) -> None:
    directories = disks.start()
    for topic in "ab":
        append(create(directories, topic), batch())
    fail_all(disks.disks[1])
    directories.fail(directories.directories[1], EIO)
    assert not directories.close(clean=True, broker_epoch=1)
    disks.disks[1].failures.clear()
    disks.boot = "another"
    start = disks.open().start
    assert (start.record.was_clean, start.unclean) == (True, [("b", 0)])


def test_writes_that_were_lost_may_be_of_any_directory_on_that_file_system(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tells it once, to whoever asks first."""
    directories = disks.start()
    for topic in "ab":
        append(create(directories, topic), batch())
    directories.close(clean=False)
    for shared, unclean in ((False, ["a"]), (True, ["a", "b"])):
        copies = Disks()
        copies.disks = [copy.deepcopy(disk).after_kill() for disk in disks.disks]
        copies.disks[0].failures["sync_file_system"] = EIO
        if shared:
            monkeypatch.setattr(SimulatedDisk, "file_system_id", lambda *_: 1)
        assert [topic for topic, _ in copies.open().start.unclean] == unclean


def test_a_directory_that_fails_at_the_start_leaves_the_others_in_service(disks: Disks) -> None:
    directories = disks.start()
    for topic in "ab":
        create(directories, topic)
    directories.close(clean=True, broker_epoch=1)
    again = disks.open()
    fail_all(disks.disks[1])
    again.confirm_start(2)
    assert [log.topic for log in again.logs if log.is_offline] == ["b"]
    append(present(again.log("a", 0)), batch())
    disks.disks[1].failures.clear()
    again.close(clean=False)
    start = disks.open().start
    assert start.unclean == [("b", 0)], "it was not part of the second start"


def test_a_new_log_goes_elsewhere_if_the_disk_does_not_take_it(disks: Disks) -> None:
    directories = disks.start()
    disks.disks[0].failures["rename"] = EIO
    create(directories, "a")
    assert where(directories) == {"a": "1"}
    disks.disks[0].failures.clear()
    directories.close(clean=True, broker_epoch=1)
    assert where(disks.open()) == {"a": "1"}, "nothing is left of the attempt"


def test_no_log_is_made_beside_one_that_could_not_be_moved_away(disks: Disks) -> None:
    directories = disks.start()
    log = create(directories, "a")
    disks.disks[0].failures["rename"] = EIO
    directories.delete_log(log, 0)
    with pytest.raises(KafkaError) as refused:
        create(directories, "a")
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_how_far_the_metadata_has_come_is_on_every_disk(disks: Disks) -> None:
    directories = disks.start()
    directories.note_metadata(MetadataSeen(3, 4))
    disks.disks[0] = SimulatedDisk()
    assert disks.open().metadata_seen == MetadataSeen(3, 4)


def test_removals_are_of_each_directory(disks: Disks) -> None:
    directories = disks.start()
    for topic in "ab":
        directories.delete_log(create(directories, topic), 0)
    jobs = [each.begin_removals(1 << 40) for each in directories.directories]
    assert [isinstance(job, DeletionJob) for job in jobs] == [True, False]


def test_a_stop_that_has_no_room_for_its_mark_is_not_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = LogDirectories.open([str(tmp_path / "one")], node_id=0, cluster_id="c")
    directories.load(0, config_for=lambda topic, partition: LogConfig())
    directories.confirm_start(1)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(DirectoryIdentity, "mark_clean", refuse)
    assert directories.close(clean=True, broker_epoch=1) is False


@pytest.mark.parametrize("damaged", [b"\xff\xfe", None])
def test_a_mark_of_a_move_that_cannot_be_read_keeps_no_other_log(
    paths: tuple[Path, Path], damaged: bytes | None
) -> None:
    directories = started(*paths)
    for topic in "abcd":
        append(create(directories, topic), batch())
    target = directories.directories[1].directory_id
    assert directories.close(clean=True, broker_epoch=1)
    one, two = paths
    bad = one / "a-0" / "fairlead-moved-to"
    if damaged is None:
        bad.mkdir()
    else:
        bad.write_bytes(damaged)
    (one / "c-0" / "fairlead-moved-to").write_text(target)
    (two / "d-0").rename(two / "c-0")

    directories = opened(*paths)
    assert where(directories) == {"b": "two", "c": "two"}, "c had moved"
    assert list(directories.offline) == [("a", 0)]
    assert list(one.glob("c-0.*-delete"))
    directories.close(clean=False)
