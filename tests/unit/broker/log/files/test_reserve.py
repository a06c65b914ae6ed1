"""The little room that is kept back for a start on a full disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from small_disks import SmallDisk, small_disk

from fairlead_broker.ballast import BALLAST
from fairlead_broker.log.directory.lock import DirectoryInUseError
from fairlead_broker.log.directory.log_directory import LogDirectory
from fairlead_broker.log.files import reserve
from fairlead_broker.log.files.file_names import RESERVE
from fairlead_model.configs.log_config import LogConfig


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 24) as made:
        yield made


def test_a_start_on_a_full_disk_takes_what_is_kept_back_and_begins_nothing_new(
    disk: SmallDisk,
) -> None:
    path = str(disk.path / "data")
    directory = LogDirectory.open(path, node_id=0)
    assert not directory.is_full
    assert (disk.path / "data" / RESERVE).stat().st_size == reserve.RESERVE_BYTES
    directory.close(clean=False)
    disk.fill()
    for _ in range(3):
        directory = LogDirectory.open(path, node_id=0)
        assert directory.is_full
        with pytest.raises(OSError, match="No space left"):
            directory.create_log("t", 0, bytes(16), LogConfig(), 0)
        directory.close(clean=False)
    disk.empty()
    directory = LogDirectory.open(path, node_id=0)
    assert not directory.is_full
    assert (disk.path / "data" / RESERVE).exists()
    directory.close(clean=False)


def test_a_second_process_takes_nothing_from_the_directory_of_the_first(disk: SmallDisk) -> None:
    path = str(disk.path / "data")
    directory = LogDirectory.open(path, node_id=0)
    (disk.path / "data" / BALLAST).write_bytes(b"a drill is under way")
    disk.fill()
    with pytest.raises(DirectoryInUseError, match="is held by"):
        LogDirectory.open(path, node_id=0)
    kept = [(disk.path / "data" / name).exists() for name in (BALLAST, RESERVE)]
    directory.close(clean=False)
    assert kept == [True, True]


def test_nothing_is_kept_back_where_there_is_little_room(disk: SmallDisk) -> None:
    ballast = disk.path / "other"
    ballast.write_bytes(bytes(12 << 20))
    reserve.keep(str(disk.path))
    assert not (disk.path / RESERVE).exists()
