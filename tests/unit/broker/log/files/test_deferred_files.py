"""Small files that are fsynced later: all of them, also when one of them fails."""

import errno
from pathlib import Path

import pytest

from fairlead_broker.disk import RealDisk
from fairlead_broker.log.files.deferred_files import DeferredFiles


class BadFileDisk(RealDisk):
    """Cannot fsync files or directories called `bad`."""

    def __init__(self) -> None:
        self.synced: list[str] = []

    def fsync(self, fd: object, /) -> None:
        assert isinstance(fd, int)
        self._sync(Path(f"/proc/self/fd/{fd}").readlink())

    def fsync_directory(self, path: str, /) -> None:
        self._sync(Path(path))

    def _sync(self, path: Path) -> None:
        if path.name == "bad":
            raise OSError(errno.EIO, "Input/output error", str(path))
        self.synced.append(path.name)


def test_one_that_cannot_be_synced_does_not_keep_the_others(tmp_path: Path) -> None:
    disk = BadFileDisk()
    deferred = DeferredFiles(disk)
    for name in ("bad", "gone", "other", "zulu"):
        deferred.replace(f"{tmp_path}/{name}", b"content")
    (tmp_path / "gone").unlink()
    (tmp_path / "directory").mkdir()
    for name in ("bad", "directory", "nowhere"):
        deferred.note_directory(f"{tmp_path}/{name}")
    job = deferred.begin_sync()
    assert job is not None
    with pytest.raises(OSError, match="Input/output error"):
        job.run()
    assert disk.synced[:2] == ["other", "zulu"]
    assert set(disk.synced[2:]) >= {tmp_path.name, "directory"}
    assert deferred.begin_sync() is None
