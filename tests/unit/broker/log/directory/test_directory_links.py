"""Names in a data directory that are not what they seem: links, and files that vanish."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from log_batches import TOPIC_ID, all_headers, append, batch
from present import present

from fairlead_broker.disk import RealDisk, remove_tree
from fairlead_broker.log.directory.load_report import LoadReport
from fairlead_broker.log.directory.log_directory import LogDirectory
from fairlead_model.configs.log_config import LogConfig

CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=300, file_delete_delay_ms=0)


def start(path: Path) -> tuple[LogDirectory, LoadReport]:
    directory = LogDirectory.open(str(path), node_id=0, cluster_id="c")
    report = directory.load(0, config_for=lambda topic, partition: CONFIG)
    directory.confirm_start(1)
    return directory, report


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """A data directory, one of whose partitions was moved elsewhere, with a link in its place."""
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    directory, _ = start(data)
    append(directory.create_log("t", 0, TOPIC_ID, CONFIG, 0), *(batch(2) for _ in range(30)))
    directory.close(clean=True)
    elsewhere.mkdir()
    (data / "t-0").rename(elsewhere / "t-0")
    (data / "t-0").symlink_to(elsewhere / "t-0")
    return data


def test_a_partition_behind_a_link_is_a_partition(moved: Path) -> None:
    directory, report = start(moved)
    assert report.loaded == 1
    log = present(directory.log("t", 0))
    assert log.log_end_offset == 60
    append(log, batch())
    directory.close(clean=True)
    directory, _ = start(moved)
    assert [header.base_offset for header in all_headers(present(directory.log("t", 0)))][-1] == 60
    directory.close(clean=True)


def test_a_deleted_partition_behind_a_link_goes_with_its_records(moved: Path) -> None:
    directory, _ = start(moved)
    target = (moved / "t-0").resolve()
    (target.parent / "other").write_bytes(b"not ours")
    (target / "outside").symlink_to(target.parent)
    directory.delete_log(present(directory.log("t", 0)), 0)
    job = present(directory.begin_removals(0))
    job.run()
    assert directory.removals.complete(job, 0) is None
    assert not list(moved.glob("t-0*"))
    assert not target.exists()
    assert (target.parent / "other").read_bytes() == b"not ours"
    directory.close(clean=True)


def test_a_whole_data_directory_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "volume")
    for end_offset in (1, 2):
        directory, _ = start(tmp_path / "data")
        log = directory.log("t", 0) or directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
        append(log, batch())
        assert log.log_end_offset == end_offset
        assert directory.close(clean=True)
    assert (tmp_path / "volume" / "t-0").is_dir()


def test_records_that_somebody_put_there_are_not_written_over(tmp_path: Path) -> None:
    directory, _ = start(tmp_path)
    (tmp_path / "t-0").mkdir()
    foreign = tmp_path / "t-0" / f"{0:020d}.log"
    foreign.write_bytes(bytes(batch(3)))
    with pytest.raises(FileExistsError):
        directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    assert foreign.read_bytes() == bytes(batch(3))
    foreign.unlink()
    append(directory.create_log("t", 0, TOPIC_ID, CONFIG, 0), batch())
    directory.close(clean=True)


def test_a_deleted_log_that_cannot_be_renamed_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    directory, _ = start(tmp_path)
    append(directory.create_log("t", 0, TOPIC_ID, CONFIG, 0), batch())
    append(directory.create_log("u", 0, TOPIC_ID, CONFIG, 0), batch())

    def refuse(source: str, target: str) -> None:
        raise OSError(errno.EROFS, "Read-only file system", source)

    with monkeypatch.context() as patch:
        patch.setattr(RealDisk, "rename", staticmethod(refuse))
        directory.delete_log(present(directory.log("t", 0)), 0)
        assert directory.set_aside(present(directory.log("u", 0))) == f"{tmp_path}/u-0"
    assert "Read-only file system" in caplog.text
    assert directory.begin_removals(10**15) is None
    with pytest.raises(FileExistsError):
        directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    directory.close(clean=True)
    directory, report = start(tmp_path)
    assert report.loaded == 2
    directory.close(clean=True)


def test_a_file_that_is_unlinked_while_it_is_listed_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"12345")
    scandir = os.scandir

    @contextlib.contextmanager
    def scan_and_unlink(path: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(path) as scan:
            entries = list(scan)
        (tmp_path / "a").unlink()
        yield iter(entries)

    monkeypatch.setattr(os, "scandir", scan_and_unlink)
    (entry,) = RealDisk().list_directory(str(tmp_path))
    assert (entry.name, entry.size) == ("b", 5)


def test_a_tree_is_removed_without_what_its_links_lead_to(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_bytes(b"x")
    (tmp_path / "tree" / "inner").mkdir(parents=True)
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "tree" / "leads nowhere").symlink_to(tmp_path / "gone")
    remove_tree(RealDisk(), str(tmp_path / "tree"))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept" / "file").exists()
